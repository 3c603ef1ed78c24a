"""What an exact part and a graph share: rows, the keys at their positions, and how far the graph reaches."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from relayer.search.graph import Graph
from relayer.search.rows import Block, Rows

__all__ = ["DEAD", "DenseBlock"]

# In place of the key of a position whose row was removed.
DEAD = -1


class DenseBlock:
    """Rows, the keys at their positions, and the graph over the first ``covered`` of them.

    Positions below ``frozen`` (at least ``covered``) never move: they are in the graph or on their way into it.
    """

    def __init__(self, dimension: int, *, capacity: int = 0, half: bool = False) -> None:
        self.rows = Rows(dimension, capacity=capacity, half=half)
        self.keys = array("q")
        self.positions: dict[int, int] = {}
        self.graph: Graph | None = None
        self.covered = 0
        self.frozen = 0
        self.dead = 0

    @property
    def tail(self) -> int:
        """How many positions the graph does not cover."""
        return len(self.keys) - self.covered

    def keys_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The keys at these positions, `DEAD` where a row was removed."""
        # The view must not outlive this line: an array that is looked into cannot grow.
        keys: NDArray[np.int64] = np.frombuffer(self.keys, np.int64)[positions]
        return keys

    def append(self, key: int, row: NDArray[np.floating]) -> None:
        """Add a row behind the others; the key must not have one."""
        self.positions[key] = self.rows.append(row)
        self.keys.append(key)

    def remove(self, key: int) -> bool:
        """Blank the row of a key, or let the last row take its place; says whether there was one."""
        position = self.positions.pop(key, None)
        if position is None:
            return False
        if position < self.frozen:
            self.keys[position] = DEAD
            self.rows.blank(position)
            self.dead += 1
            return True
        last = self.keys.pop()
        if last != key:
            self.rows.move(len(self.keys), position)
            self.keys[position] = last
            self.positions[last] = position
        self.rows.pop()
        return True

    def freeze(self, count: int) -> tuple[int, Block]:
        """Promise not to move the next ``count`` tail positions; their start and a copy of their rows."""
        start = self.covered
        stop = min(len(self.keys), start + count)
        self.frozen = max(self.frozen, stop)
        return start, self.rows.view(start, stop).copy()
