"""Vectors at the border of the search: what is accepted as a row or a query, and the row of a memory with context."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Vector", "checked", "search_row"]

Vector = NDArray[np.float32]

# A mean of two unit vectors is shorter than 1; one near zero means that its halves contradict each other.
SHORTEST = 0.05
# Rounding of float16 transport and of averaging.
TOLERANCE = 1e-2


def checked(vector: NDArray[np.floating], dimension: int) -> Vector:
    """The vector as contiguous float32, if it is one this search can rank.

    Raises:
        ValueError: wrong shape, not finite, longer than 1, or as good as zero. The message shows no component.
    """
    if vector.shape != (dimension,):
        raise ValueError(f"a vector of shape {vector.shape} where ({dimension},) is expected")
    row = np.ascontiguousarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(row))
    if not np.isfinite(length):
        raise ValueError("a vector with a component that is not finite")
    if not SHORTEST <= length <= 1 + TOLERANCE:
        raise ValueError("a vector that is not normalised")
    return row


def search_row(own: Vector, context: Vector | None) -> Vector:
    """The row a memory is found by: its vector, or the mean of it and of its vector with the previous turn.

    The mean is not normalised again: a memory whose context says something else matches either a little less
    (inner product over the plain mean, docs/adr/0003). Its numbers are those of float16, in which rows are stored and
    large indexes keep them: a memory scores alike whether it was just added or comes out of a stored index.
    """
    row = own if context is None else (own + context) / np.float32(2.0)
    return row.astype(np.float16).astype(np.float32)
