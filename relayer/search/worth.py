"""The importance of a memory by its vector: whether it has content that lasts, or only answers, thanks and agrees.

Among thousands of memories every question shares terms with some reply that states nothing, so `Worths` gives the order of
results a score for lasting content. A `WorthReader` is a linear classifier of one model's vectors, learnt from labelled messages
in fifteen languages: ``python -m bench.worth`` learns the weights from ``bench/sets/messages`` and reports their accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import Vector


@dataclass(frozen=True, slots=True, eq=False)
class WorthReader:
    """The classifier for the vectors of one model.

    Attributes:
        direction: of length 1; the larger a memory's component in it, the likelier its content lasts.
        steepness: logits per unit of that component.
        bias: in logits.
    """

    direction: Vector
    steepness: float
    bias: float

    def read(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how likely the content of each memory lasts, 0..1; 0 for a memory without a vector.

        Args:
            along: the inner products of the memories' rows with the direction; NaN without a row.
        """
        logits = self.steepness * along + self.bias
        likely: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return np.nan_to_num(likely, nan=0.0)


@cache
def _readers() -> dict[str, WorthReader]:
    data = (files("relayer.search") / "data" / "worth.npz").read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        return {model: _reader(stored[model]) for model in stored.files}


def _reader(weights: NDArray[np.float32]) -> WorthReader:
    """Return the reader of a model's weights, the bias last."""
    steepness = float(np.linalg.norm(weights[:-1]))
    return WorthReader((weights[:-1] / steepness).astype(np.float32), steepness, float(weights[-1]))


def worth_reader(model: str) -> WorthReader | None:
    """Return the classifier for a model, by its SHA-256; None if none was learnt for it."""
    return _readers().get(model)


_FEWEST = 64
Along = Callable[[Vector, Sequence[int]], NDArray[np.float64]]


class Worths:
    """The cached importance of the memories of one namespace, by key; 4 bytes a key. Each vector is read once."""

    def __init__(self) -> None:
        # Each memory's component in the direction; NaN where it was not computed yet, or the memory has no row.
        self._known = np.full(0, np.nan, np.float32)

    @property
    def nbytes(self) -> int:
        """Return the size of the array in bytes."""
        return self._known.nbytes

    def importances(self, keys: Sequence[int], reader: WorthReader, along: Along) -> NDArray[np.float64]:
        """Return the importance of memories, see `WorthReader.read`.

        Args:
            keys: of the memories, rising.
            reader: of the model whose vectors they have.
            along: returns the inner products of a direction and the rows of keys, NaN without a row.
        """
        missing = keys[-1] + 1 - len(self._known) if keys else 0
        if missing > 0:
            more = np.full(max(missing, _FEWEST, len(self._known) // 4), np.nan, np.float32)
            self._known = np.concatenate((self._known, more))
        places = np.array(keys, np.int64)
        found = self._known[places]
        unknown = np.isnan(found)
        if unknown.any():
            found[unknown] = along(reader.direction, places[unknown].tolist())
            self._known[places] = found
        return reader.read(found.astype(np.float64))

    def forget(self, key: int) -> None:
        """Drop the cached value of a memory, because its vector was replaced or removed."""
        if key < len(self._known):
            self._known[key] = np.nan

    def clear(self) -> None:
        """Drop all cached values. Call it when the embedding model changes, and with it all vectors."""
        self._known = np.full(0, np.nan, np.float32)
