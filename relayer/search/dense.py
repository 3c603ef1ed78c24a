"""Nearest memories by vector: an exact scan while they are few; a graph and an exact scan of the newest when they are many.

Rows are at positions of one block. Positions below ``covered`` are in the graph and never move; those after it are the tail,
which every search scans exactly, so a memory is found as soon as it is added. Removing a covered row overwrites it with zeros
and leaves a dead position. When there are too many of those, `DenseIndex.maintain` builds a new graph while the old one is
still searched.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import KeysView, Sequence
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.lib.scheduler import Turns
from relayer.search.graph import ADD_AT_ONCE, LINKS_BYTES, SHARD_ROWS, Graph, rows_of
from relayer.search.rows import (
    Block,
    Buffer,
    Found,
    KeyMask,
    Rows,
    Vector,
    best_of,
    products,
    validated_vector,
    widened_pieces,
)

# The key of a position whose row was removed.
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
        """Return how many positions the graph does not cover."""
        return len(self.keys) - self.covered

    def keys_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys at these positions, `DEAD` where a row was removed."""
        # The view must not outlive this line: an array that exports a buffer cannot grow.
        keys: NDArray[np.int64] = np.frombuffer(self.keys, np.int64)[positions]
        return keys

    def positions_in(self, allowed: KeyMask) -> NDArray[np.int64]:
        """Return the positions of the allowed keys, in rising order."""
        return np.flatnonzero(allowed.contains(np.frombuffer(self.keys, np.int64)))

    def append(self, key: int, row: NDArray[np.floating]) -> None:
        """Append a row; the key must not have one."""
        self.positions[key] = self.rows.append(row)
        self.keys.append(key)

    def remove(self, key: int) -> bool:
        """Remove the row of a key, by zeros or by moving the last row there; return whether there was one."""
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
        """Keep the next ``count`` tail positions from moving; return the first of them and a copy of their rows."""
        start = self.covered
        stop = min(len(self.keys), start + count)
        self.frozen = max(self.frozen, stop)
        return start, self.rows.view(start, stop).copy()


# With a filter that allows a smaller share of the rows than this, its rows are copied together for the product: copying a row
# costs as much as the products of three.
GATHERED_SHARE = 0.25
# With a graph, a filter that allows a smaller share than this is answered by an exact scan of its rows.
SCANNED_SHARE = 0.05
# The graph is asked for more hits, by this number of standard deviations of how many of its hits are allowed.
_SPREAD = 3
# The position of a key without a row.
ABSENT = -1


class DenseQuery:
    """A query, valid until the index changes, so use it immediately. Scores computed by `best` are reused.

    Args:
        block: the rows to search.
        vector: see `relayer.search.rows.validated_vector`.
    """

    def __init__(self, block: DenseBlock, vector: Vector) -> None:
        self._block = block
        self._vector = vector
        self._tail: Vector | None = None

    def best(self, k: int, allowed: KeyMask | None = None, count: int | None = None) -> Found:
        """Return the best ``k`` of the allowed keys (None: all), ties by key.

        Args:
            k: at least 1.
            allowed: the keys that may be returned.
            count: about how many rows they have, if that is not the number of keys.

        Raises:
            ValueError: ``k`` is below 1.
        """
        if k < 1:
            raise ValueError("k is at least 1")
        if allowed is None:
            return self._best(k)
        count = len(allowed) if count is None else count
        share = min(1.0, count / max(1, len(self._block.positions)))
        if not self._block.covered:
            if share > GATHERED_SHARE:
                self._scan_tail()
        elif share > SCANNED_SHARE:
            # With this many rows allowed, the best of all rows should contain enough allowed ones: of n rows, n * share are
            # allowed, give or take a few times the square root of n * share * (1 - share). If they do not, the allowed rows are scanned.
            few = ceil((k + _SPREAD * sqrt(k * (1 - share))) / share)
            for most in (few, 4 * few):
                keys, scores = self._best(most)
                inside = allowed.contains(keys)
                if inside.sum() >= k:
                    return keys[inside][:k], scores[inside][:k]
        positions = self._block.positions_in(allowed)
        scores = self._products(positions)
        at = best_of(scores, k)
        return self._ranked(positions[at], scores[at], k)

    def count(self, allowed: KeyMask) -> int:
        """Return how many rows the allowed keys have."""
        return len(self._block.positions_in(allowed))

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """Return the inner products of these keys' rows with the query, NaN for keys without a row."""
        positions = self._block.positions
        where = np.array([positions.get(key, ABSENT) for key in keys], dtype=np.int64)
        present = where != ABSENT
        scores = np.full(len(keys), np.nan)
        scores[present] = self._products(where[present])
        return scores

    def _scan_tail(self) -> Vector:
        if self._tail is None:
            block = self._block
            self._tail = products(block.rows.view(block.covered, len(block.keys)), self._vector)
        return self._tail

    def _best(self, k: int) -> Found:
        block, scores = self._block, self._scan_tail()
        # Rows that were removed while they were being added to the graph are zeros, which beat scores below zero.
        removed = block.keys[block.covered : block.frozen].count(DEAD)
        at = best_of(scores, k + removed)
        positions, scores = at + block.covered, scores[at]
        if block.graph is not None and block.covered:
            inside, found = self._from_graph(block.graph, k)
            positions, scores = np.concatenate((positions, inside)), np.concatenate((scores, found))
        return self._ranked(positions, scores, k)

    def _products(self, positions: NDArray[np.int64]) -> Vector:
        """Return the scores of the rows at these positions, from the scan of the tail if there was one."""
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
            # Positions that are being added to the graph still belong to the tail. The rows are scored here in the same way as
            # the tail's, so that equal vectors tie, whichever of the two finds them.
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


# Up to this size every row is compared, in at most about 2 ms, because a graph misses rows that are far from most others. Of
# memories in other languages or another tone than 6,000 turns of chats, it missed two in five of the 50 nearest (docs/adr/0031).
CROSSOVER = 20_000
# At this length the tail is added to the graph.
LONGEST_TAIL = 512
# The share of dead positions at which the graph is rebuilt.
DEAD_SHARE = 0.3
_ROWS_AT_ONCE = 256
# The size of a key in the array of keys and in the dictionary of positions.
_KEY_BYTES = 110


class Match(NamedTuple):
    """A memory's key and the inner product of its row with the query: the cosine, up to the length of the row."""

    key: int
    score: float


class DenseParts(NamedTuple):
    """The stored form of a `DenseIndex`.

    Attributes:
        keys: at positions 0, 1, ..., eight little-endian bytes each; `DEAD` where a row in a graph was removed.
        graphs: the shards of the graph over the first positions, with their rows; empty when there is no graph.
        rows: of the other positions, as little-endian float16, in pieces that may be cut anywhere; a row of `search_row` loses
            nothing by that.
    """

    keys: Buffer
    graphs: Sequence[Buffer]
    rows: Sequence[Buffer]


class PinnedDense:
    """A snapshot of the vectors of a block.

    Args:
        block: the block to store.
        removed: whether a graph that still holds removed vectors may be stored. Otherwise it is left out, so that an erased
            vector is not stored again.
    """

    def __init__(self, block: DenseBlock, *, removed: bool) -> None:
        self._rows = block.rows.pin()
        self._keys = np.array(block.keys, np.int64)
        self._graph = block.graph if block.covered and (removed or not block.dead) else None

    async def parts(self) -> DenseParts:
        """Return what `DenseIndex.of_parts` takes; yields to the event loop in between."""
        graphs = [] if self._graph is None else await asyncio.to_thread(self._graph.dump)
        # A cancelled `maintain` may have added more rows to the graph than the index counts as covered; they do not move.
        covered = sum(len(rows_of(graph, self._rows.dimension)) for graph in graphs)
        kept = np.flatnonzero((self._keys != DEAD) | (np.arange(len(self._keys)) < covered))
        tail, rows, turns = kept[kept >= covered], bytearray(), Turns()
        for start in range(0, len(tail), _ROWS_AT_ONCE):
            rows += self._rows.halved(tail[start : start + _ROWS_AT_ONCE])
            await turns.give()
        return DenseParts(self._keys[kept].astype("<i8", copy=False).tobytes(), graphs, [rows])


class DenseIndex:
    """The vectors of one namespace by integer key. Not thread-safe: one event loop's thread calls everything here.

    Args:
        dimension: of every vector.
        crossover: size above which `maintain` builds a graph.
        shard_rows: see `relayer.search.graph.Graph`.
    """

    def __init__(self, dimension: int, *, crossover: int = CROSSOVER, shard_rows: int = SHARD_ROWS) -> None:
        self._dimension = dimension
        self._crossover = crossover
        self._shard_rows = shard_rows
        self._block = DenseBlock(dimension)
        self._maintaining = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._block.positions)

    def __contains__(self, key: int) -> bool:
        return key in self._block.positions

    def keys(self) -> KeysView[int]:
        """Return the keys that have a vector."""
        return self._block.positions.keys()

    def count(self, allowed: KeyMask) -> int:
        """Return how many vectors the allowed keys have."""
        return len(self._block.positions_in(allowed))

    def add(self, key: int, row: NDArray[np.floating]) -> None:
        """Add a vector, or replace the one that ``key`` has.

        Raises:
            ValueError: the row is invalid or not of this dimension, see `relayer.search.rows.validated_vector`; or a negative key.
        """
        if key < 0:
            raise ValueError("keys are not negative")
        vector = validated_vector(row, self._dimension)
        self._block.remove(key)
        self._block.append(key, vector)

    def remove(self, key: int) -> bool:
        """Remove a vector; return whether there was one."""
        return self._block.remove(key)

    def row(self, key: int) -> Vector | None:
        """Return the stored row; once a graph was built, rounded to float16."""
        position = self._block.positions.get(key)
        if position is None:
            return None
        row: Vector = self._block.rows.view(position, position + 1)[0].astype(np.float32)
        return row

    def ask(self, query: Vector) -> DenseQuery:
        """Return a query; use it before anything is added or removed.

        Raises:
            ValueError: the vector is invalid or not of this dimension, see `relayer.search.rows.validated_vector`.
        """
        return DenseQuery(self._block, validated_vector(query, self._dimension))

    def search(self, query: Vector, k: int, allowed: KeyMask | None = None) -> list[Match]:
        """Return the best ``k`` of the allowed keys (None: all), best first, ties by key; raises as `ask` and `best`."""
        keys, scores = self.ask(query).best(k, allowed)
        return list(map(Match, keys.tolist(), scores.tolist()))

    async def maintain(self, *, purge: bool = False) -> None:
        """Bring the graph up to date, in worker threads; searches continue meanwhile.

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
        """Return the approximate size in memory, in bytes."""
        block = self._block
        graph = 0 if block.graph is None else len(block.graph) * (2 * self._dimension + LINKS_BYTES)
        return block.rows.nbytes + graph + len(block.keys) * _KEY_BYTES

    def pin(self, *, removed: bool = False) -> PinnedDense:
        """Return a snapshot, to be stored while vectors are added and removed; `maintain` must not run before `unpin`.

        Args:
            removed: see `PinnedDense`.
        """
        return PinnedDense(self._block, removed=removed)

    def unpin(self) -> None:
        """Release the snapshot that `pin` returned."""
        self._block.rows.unpin()

    @classmethod
    def of_parts(
        cls, dimension: int, parts: DenseParts, *, crossover: int = CROSSOVER, shard_rows: int = SHARD_ROWS
    ) -> DenseIndex:
        """Return an index from its parts. It may keep using the graphs, so they must not change.

        Raises:
            ValueError: the parts do not fit each other or the dimension.
        """
        index = cls(dimension, crossover=crossover, shard_rows=shard_rows)
        if not any(map(len, (parts.keys, parts.graphs, *parts.rows))):
            return index
        keys = np.frombuffer(parts.keys, "<i8")
        block = DenseBlock(dimension)
        if len(keys) <= crossover and not parts.graphs:
            return index._over(block, keys, widened_pieces(parts.rows, dimension))
        tail = np.frombuffer(bytearray().join(parts.rows), "<f2").reshape(-1, dimension)
        # Copied into memory that can be written to.
        rows = np.concatenate([*(rows_of(graph, dimension) for graph in parts.graphs), tail])
        if len(rows) != len(keys):
            raise ValueError("keys and rows do not fit each other")
        if parts.graphs:
            block.graph = Graph.load(dimension, parts.graphs, shard_rows=shard_rows)
            block.covered = block.frozen = len(block.graph)
        removed = np.flatnonzero(keys == DEAD)
        rows[removed] = 0
        block.dead = len(removed)
        if np.any(removed >= block.covered):
            raise ValueError("a row has no key")
        return index._over(block, keys, rows)

    def _over(self, block: DenseBlock, keys: NDArray[np.int64], rows: Block) -> DenseIndex:
        """Return this index with a block of these keys and rows; raises `ValueError` when they do not fit each other."""
        block.rows = Rows.from_block(rows)
        block.keys.frombytes(keys.astype(np.int64, copy=False).tobytes())
        block.positions = dict(zip(block.keys, range(len(keys)), strict=True))
        block.positions.pop(DEAD, None)
        if len(rows) != len(keys) or len(block.positions) + block.dead != len(keys):
            raise ValueError("keys and rows do not fit each other")
        self._block = block
        return self

    async def _cover_tail(self) -> None:
        block = self._block
        if block.covered and block.tail <= LONGEST_TAIL:
            return
        if block.graph is None:
            block.graph = Graph(self._dimension, shard_rows=self._shard_rows)
        graph = block.graph
        while block.tail:
            start, rows = block.freeze(ADD_AT_ONCE)
            await asyncio.to_thread(graph.add, start, rows)
            block.covered = start + len(rows)
        block.rows.narrow()

    async def _rebuild(self) -> None:
        old = self._block
        # Covered positions do not move; a row that is removed during the build is found dead at its end.
        keys = [key for key in old.keys[: old.frozen] if key != DEAD]
        source = np.fromiter((old.positions[key] for key in keys), dtype=np.int64, count=len(keys))
        graph = Graph(self._dimension, shard_rows=self._shard_rows) if len(self) > self._crossover else None
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
