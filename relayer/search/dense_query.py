"""One query put to the vectors of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from math import ceil

import numpy as np
from numpy.typing import NDArray

from relayer.search.dense_block import DEAD, DenseBlock
from relayer.search.graph import Graph
from relayer.search.rows import Found, best_of, products
from relayer.search.vectors import Vector

__all__ = ["DenseQuery"]

# A filter that allows a smaller share than this is answered by scanning what it allows.
SCANNED_SHARE = 0.05
# In place of the position of a key without a row.
ABSENT = -1


class DenseQuery:
    """A query, good until the index changes: to be used at once. What was scored to find the best is not scored again.

    Args:
        block: what is asked.
        vector: see `relayer.search.vectors.checked`.
    """

    def __init__(self, block: DenseBlock, vector: Vector) -> None:
        self._block = block
        self._vector = vector
        self._tail: Vector | None = None

    def best(self, k: int, allowed: AbstractSet[int] | None = None) -> Found:
        """The best ``k`` of the allowed keys (None: all), ties by key.

        Raises:
            ValueError: ``k`` is below 1.
        """
        if k < 1:
            raise ValueError("k is at least 1")
        if allowed is None:
            return self._best(k)
        share = len(allowed) / max(1, len(self._block.positions))
        if self._block.covered and share > SCANNED_SHARE:
            # So many are allowed that the best of all hold enough of them, or else the subset is scanned.
            keys, scores = self._best(ceil(2 * k / share))
            inside = np.fromiter((key in allowed for key in keys.tolist()), np.bool_, len(keys))
            if inside.sum() >= k:
                return keys[inside][:k], scores[inside][:k]
        return self._among(allowed, k)

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """The inner products of these keys' rows with the query, NaN for keys without a row."""
        positions = self._block.positions
        where = np.array([positions.get(key, ABSENT) for key in keys], dtype=np.int64)
        present = where != ABSENT
        scores = np.full(len(keys), np.nan)
        scores[present] = self._products(where[present])
        return scores

    def _best(self, k: int) -> Found:
        block = self._block
        if self._tail is None:
            self._tail = products(block.rows.view(block.covered, len(block.keys)), self._vector)
        scores = self._tail
        # Rows that were removed on their way into the graph are blank, which may be better than what scores below zero.
        removed = block.keys[block.covered : block.frozen].count(DEAD)
        at = best_of(scores, k + removed)
        positions, scores = at + block.covered, scores[at]
        if block.graph is not None and block.covered:
            inside, found = self._from_graph(block.graph, k)
            positions, scores = np.concatenate((positions, inside)), np.concatenate((scores, found))
        return self._ranked(positions, scores, k)

    def _among(self, keys: Iterable[int], k: int) -> Found:
        positions = self._block.positions
        where = np.array([positions[key] for key in keys if key in positions], dtype=np.int64)
        scores = self._products(where)
        at = best_of(scores, k)
        return self._ranked(where[at], scores[at], k)

    def _products(self, positions: NDArray[np.int64]) -> Vector:
        """The scores of the rows at these positions, from the scan of the tail if there was one."""
        covered, tail = self._block.covered, self._tail
        if tail is None:
            return products(self._block.rows.gather(positions), self._vector)
        if not covered:
            return tail[positions]
        scores: Vector = np.empty(len(positions), np.float32)
        inside = positions < covered
        scores[inside] = products(self._block.rows.gather(positions[inside]), self._vector)
        scores[~inside] = tail[positions[~inside] - covered]
        return scores

    def _from_graph(self, graph: Graph, k: int) -> tuple[NDArray[np.int64], Vector]:
        block, asked = self._block, k
        while True:
            found = graph.search(self._vector, asked)
            # Positions on their way into the graph still belong to the tail. The rows are scored here, as the tail's
            # are, so that equal vectors tie whichever half finds them.
            inside = found[found < block.covered]
            alive = inside[block.keys_at(inside) != DEAD]
            if len(alive) >= k or asked >= len(block.keys):
                return alive, products(block.rows.gather(alive), self._vector)
            asked *= 2

    def _ranked(self, positions: NDArray[np.int64], scores: Vector, k: int) -> Found:
        keys = self._block.keys_at(positions)
        order = np.lexsort((keys, -scores))
        order = order[keys[order] != DEAD][:k]
        return keys[order], scores[order]
