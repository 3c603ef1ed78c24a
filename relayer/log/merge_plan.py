"""Which segments to merge: few enough to open a namespace with, and each byte written few times.

A segment that has reached its full size is left alone, so what has to be rewritten never grows with the namespace. Of
what is smaller, a bounded number of rows is let stand; above it, the run is merged that costs the least for what it
saves. Measured for 260 MB in writes of 20 KB to 4 MB each: 1.8 to 4.3 bytes written for each byte kept, where tiers of
eight took as much and left up to sixty rows (docs/adr/0010-segments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["plan_merge"]


def plan_merge(sizes: Sequence[int], *, most_small: int, full: int) -> tuple[int, int] | None:
    """Choose adjacent segments to merge into one.

    Args:
        sizes: bytes of the segments, in order.
        most_small: pairs of neighbours that would fit one segment and may stay apart.
        full: bytes that a merged segment has at most.

    Returns:
        The run ``[start, end)`` to merge, at least two segments; None while there is no need.
    """
    fitting = sum(left + right <= full for left, right in pairwise(sizes))
    if fitting <= most_small:
        return None
    return min(_runs(sizes, full))[1:]


def _runs(sizes: Sequence[int], full: int) -> list[tuple[float, int, int]]:
    """Return every run that fits with its cost: bytes to write over the square of the rows saved."""
    runs = []
    for start in range(len(sizes)):
        total = sizes[start]
        for end in range(start + 2, len(sizes) + 1):
            total += sizes[end - 1]
            if total > full:
                break
            runs.append((total / (end - start - 1) ** 2, start, end))
    return runs
