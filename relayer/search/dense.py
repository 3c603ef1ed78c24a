"""Nearest memories by vector: exact while they are few, a graph plus an exact tail when they are many.

Rows sit at positions of one block. Positions below ``covered`` are in the graph and never move; those after it are
the tail, which every search scans exactly, so a memory is found from the moment it is added. Removing a covered row
blanks it and leaves a dead position; too many of them, and the graph is built anew beside the old one.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import KeysView
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.search.dense_block import DEAD, DenseBlock
from relayer.search.dense_query import DenseQuery
from relayer.search.graph import ADD_AT_ONCE, LINKS_BYTES, Graph
from relayer.search.rows import Rows
from relayer.search.vectors import Vector, checked

__all__ = ["CROSSOVER", "DenseIndex", "DenseParts", "Match"]

# Up to here the exact scan costs a fraction of a millisecond, and no graph is worth its memory and its building
# (bench/search_crossover.py).
CROSSOVER = 3_000
# The tail is folded into the graph when it is this long.
LONGEST_TAIL = 512
# Share of dead positions at which the graph is built anew.
DEAD_SHARE = 0.3
# A key in the array of keys and in the dictionary of positions.
_KEY_BYTES = 110

Buffer = bytes | bytearray | memoryview


class Match(NamedTuple):
    """A memory's key and the inner product of its row with the query: raw cosine, as rows and queries go."""

    key: int
    score: float


class DenseParts(NamedTuple):
    """What a `DenseIndex` is stored as.

    Attributes:
        keys: at positions 0, 1, ..., eight little-endian bytes each.
        graph: over the first of them, with their rows; empty when there is none.
        rows: of the others, as little-endian float16; a row of `search_row` loses nothing by that.
    """

    keys: Buffer
    graph: Buffer
    rows: Buffer


class DenseIndex:
    """Vectors of one namespace by integer key; for one event loop, whose thread calls everything here.

    Args:
        dimension: of every vector.
        crossover: size above which `maintain` builds a graph.
    """

    def __init__(self, dimension: int, *, crossover: int = CROSSOVER) -> None:
        self._dimension = dimension
        self._crossover = crossover
        self._block = DenseBlock(dimension)
        self._maintaining = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._block.positions)

    def __contains__(self, key: int) -> bool:
        return key in self._block.positions

    def keys(self) -> KeysView[int]:
        """The keys that have a vector."""
        return self._block.positions.keys()

    def add(self, key: int, row: NDArray[np.floating]) -> None:
        """Add a vector, or replace the one that ``key`` has.

        Raises:
            ValueError: not a row of this dimension, see `relayer.search.vectors.checked`; or a negative key.
        """
        if key < 0:
            raise ValueError("keys are not negative")
        vector = checked(row, self._dimension)
        self._block.remove(key)
        self._block.append(key, vector)

    def remove(self, key: int) -> bool:
        """Forget a vector; says whether there was one."""
        return self._block.remove(key)

    def row(self, key: int) -> Vector | None:
        """The stored row; once a graph was built, as float16 left it."""
        position = self._block.positions.get(key)
        if position is None:
            return None
        row: Vector = self._block.rows.view(position, position + 1)[0].astype(np.float32)
        return row

    def ask(self, query: Vector) -> DenseQuery:
        """Put a query, to be used before anything is added or removed.

        Raises:
            ValueError: not a query of this dimension, see `relayer.search.vectors.checked`.
        """
        return DenseQuery(self._block, checked(query, self._dimension))

    def search(self, query: Vector, k: int, allowed: AbstractSet[int] | None = None) -> list[Match]:
        """The best ``k`` of the allowed keys (None: all), best first, ties by key; raises as `ask` and `DenseQuery.best`."""
        keys, scores = self.ask(query).best(k, allowed)
        return list(map(Match, keys.tolist(), scores.tolist()))

    async def maintain(self, *, purge: bool = False) -> None:
        """Bring the graph up to date, in worker threads; searches go on meanwhile.

        Cheap when there is nothing to do; a second call waits for the first. Safe to cancel.

        Args:
            purge: rebuild even for one dead row, so that no trace of a removed vector stays in the graph.
        """
        async with self._maintaining:
            block = self._block
            if block.dead and (purge or block.dead > DEAD_SHARE * block.covered):
                await self._rebuild()
            if len(self) > self._crossover:
                await self._cover_tail()

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        block = self._block
        graph = 0 if block.graph is None else len(block.graph) * (2 * self._dimension + LINKS_BYTES)
        return block.rows.nbytes + graph + len(block.keys) * _KEY_BYTES

    async def parts(self) -> DenseParts:
        """What `of_parts` takes; nothing may be added or removed meanwhile.

        A graph that still holds removed vectors is left out: what was erased is not stored again.
        """
        async with self._maintaining:
            block = self._block
            if block.graph is not None and block.covered and not block.dead:
                graph = await asyncio.to_thread(block.graph.dump)
                start, keys = block.covered, block.keys
            else:
                start, graph = 0, b""
                keys = array("q", (key for key in block.keys if key != DEAD))
            where = np.fromiter((block.positions[key] for key in keys[start:]), np.int64, len(keys) - start)
            rows = block.rows.gather(where).astype("<f2", copy=False)
            return DenseParts(np.array(keys, "<i8").tobytes(), graph, rows.tobytes())

    @classmethod
    def of_parts(cls, dimension: int, parts: DenseParts, *, crossover: int = CROSSOVER) -> DenseIndex:
        """An index from its parts.

        Raises:
            ValueError: they do not fit each other or the dimension.
        """
        index = cls(dimension, crossover=crossover)
        keys = np.frombuffer(parts.keys, "<i8")
        rows = np.frombuffer(parts.rows, "<f2").reshape(-1, dimension)
        block = DenseBlock(dimension)
        if parts.graph:
            block.graph, covered = Graph.load(dimension, parts.graph)
            block.covered = block.frozen = len(covered)
            rows = np.concatenate((covered, rows)) if len(rows) else covered.copy()
        block.rows = Rows.of(rows if len(keys) > crossover else rows.astype(np.float32))
        block.keys.frombytes(keys.astype(np.int64, copy=False).tobytes())
        block.positions = dict(zip(block.keys, range(len(keys)), strict=True))
        if len(rows) != len(keys) or len(block.positions) != len(keys):
            raise ValueError("keys and rows do not fit each other")
        index._block = block
        return index

    async def _cover_tail(self) -> None:
        block = self._block
        if block.covered and block.tail <= LONGEST_TAIL:
            return
        if block.graph is None:
            block.graph = Graph(self._dimension)
        graph = block.graph
        while block.tail:
            start, rows = block.freeze(ADD_AT_ONCE)
            await asyncio.to_thread(graph.add, start, rows)
            block.covered = start + len(rows)
        block.rows.narrow()

    async def _rebuild(self) -> None:
        old = self._block
        # Covered positions do not move, and what dies during the build is found dead at its end.
        keys = [key for key in old.keys[: old.frozen] if key != DEAD]
        source = np.fromiter((old.positions[key] for key in keys), dtype=np.int64, count=len(keys))
        graph = Graph(self._dimension) if len(self) > self._crossover else None
        new = DenseBlock(self._dimension, capacity=len(old.positions), half=graph is not None)
        for start in range(0, len(keys), ADD_AT_ONCE):
            rows = old.rows.gather(source[start : start + ADD_AT_ONCE])
            if graph is not None:
                await asyncio.to_thread(graph.add, start, rows)
            for key, row in zip(keys[start : start + ADD_AT_ONCE], rows, strict=True):
                new.append(key, row)
        if graph is not None:
            new.graph, new.covered, new.frozen = graph, len(keys), len(keys)
        for key, position in zip(keys, source, strict=True):
            # Removed since, or replaced and therefore at another position now.
            if old.positions.get(key) != position:
                new.remove(key)
        for key, position in old.positions.items():
            if position >= old.frozen:
                new.append(key, old.rows.view(position, position + 1)[0])
        self._block = new
