"""Nearest memories by vector: exact while they are few, a graph plus an exact tail when they are many.

Rows sit at positions of one block. Positions below ``covered`` are in the graph and never move; those after it are
the tail, which every search scans exactly, so a memory is found from the moment it is added. Removing a covered row
blanks it and leaves a dead position; too many of them, and the graph is built anew beside the old one.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import KeysView, Sequence
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.lib.turns import Turns
from relayer.search.graph import ADD_AT_ONCE, LINKS_BYTES, Graph
from relayer.search.key_mask import KeyMask
from relayer.search.rows import (
    Block,
    Buffer,
    Found,
    Rows,
    Vector,
    best_of,
    checked,
    products,
    widened_pieces,
)

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

    def positions_in(self, allowed: KeyMask) -> NDArray[np.int64]:
        """The positions of the allowed keys, in rising order."""
        return np.flatnonzero(allowed.at(np.frombuffer(self.keys, np.int64)))

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


# Rows of a filter are gathered for the product where it allows a smaller share of the rows than this: to copy a row costs as much as
# the products of three.
GATHERED_SHARE = 0.25
# In a graph a filter that allows a smaller share than this is answered by scanning what it allows.
SCANNED_SHARE = 0.05
# A graph is asked for more by so many standard deviations of how many of its rows are allowed.
_SPREAD = 3
# In place of the position of a key without a row.
ABSENT = -1


class DenseQuery:
    """A query, good until the index changes: to be used at once. What was scored to find the best is not scored again.

    Args:
        block: what is asked.
        vector: see `relayer.search.rows.checked`.
    """

    def __init__(self, block: DenseBlock, vector: Vector) -> None:
        self._block = block
        self._vector = vector
        self._tail: Vector | None = None

    def best(self, k: int, allowed: KeyMask | None = None, count: int | None = None) -> Found:
        """The best ``k`` of the allowed keys (None: all), ties by key.

        Args:
            k: at least 1.
            allowed: the keys that count.
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
            # So many are allowed that the best of all hold enough of them, or else more are asked for, and then the subset is scanned:
            # of n rows n * share are allowed, give or take a few times the square root of n * share * (1 - share).
            few = ceil((k + _SPREAD * sqrt(k * (1 - share))) / share)
            for most in (few, 4 * few):
                keys, scores = self._best(most)
                inside = allowed.at(keys)
                if inside.sum() >= k:
                    return keys[inside][:k], scores[inside][:k]
        return self._among(self._block.positions_in(allowed), k)

    def count(self, allowed: KeyMask) -> int:
        """How many rows the allowed keys have."""
        return len(self._block.positions_in(allowed))

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """The inner products of these keys' rows with the query, NaN for keys without a row."""
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
        # Rows that were removed on their way into the graph are blank, which may be better than what scores below zero.
        removed = block.keys[block.covered : block.frozen].count(DEAD)
        at = best_of(scores, k + removed)
        positions, scores = at + block.covered, scores[at]
        if block.graph is not None and block.covered:
            inside, found = self._from_graph(block.graph, k)
            positions, scores = np.concatenate((positions, inside)), np.concatenate((scores, found))
        return self._ranked(positions, scores, k)

    def _among(self, positions: NDArray[np.int64], k: int) -> Found:
        scores = self._products(positions)
        at = best_of(scores, k)
        return self._ranked(positions[at], scores[at], k)

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


# Up to here every row is compared, in at most about 2 ms: a graph misses what lies apart from most others. Of memories in other
# languages or another tone than 6,000 turns of chats, it did not find two in five of the 50 nearest (docs/adr/0031).
CROSSOVER = 20_000
# The tail is folded into the graph when it is this long.
LONGEST_TAIL = 512
# Share of dead positions at which the graph is built anew.
DEAD_SHARE = 0.3
_ROWS_AT_ONCE = 256
# A key in the array of keys and in the dictionary of positions.
_KEY_BYTES = 110


class Match(NamedTuple):
    """A memory's key and the inner product of its row with the query: raw cosine, as rows and queries go."""

    key: int
    score: float


class DenseParts(NamedTuple):
    """What a `DenseIndex` is stored as.

    Attributes:
        keys: at positions 0, 1, ..., eight little-endian bytes each.
        graph: over the first of them, with their rows; empty when there is none.
        rows: of the others, as little-endian float16, in pieces that may be cut anywhere; a row of `search_row` loses nothing
            by that.
    """

    keys: Buffer
    graph: Buffer
    rows: Sequence[Buffer]


class PinnedDense:
    """The vectors of a block as they were when this was made.

    A graph that still holds removed vectors is left out: what was erased is not stored again.
    """

    def __init__(self, block: DenseBlock) -> None:
        self._rows = block.rows.pin()
        self._keys = np.array(block.keys, np.int64)
        self._graph = block.graph if block.covered and not block.dead else None
        self._covered = block.covered if self._graph is not None else 0

    async def parts(self) -> DenseParts:
        """What `DenseIndex.of_parts` takes; others get their turn."""
        graph = b"" if self._graph is None else await asyncio.to_thread(self._graph.dump)
        alive = np.flatnonzero(self._keys != DEAD)
        tail, rows, turns = alive[alive >= self._covered], bytearray(), Turns()
        for start in range(0, len(tail), _ROWS_AT_ONCE):
            rows += self._rows.halved(tail[start : start + _ROWS_AT_ONCE])
            await turns.give()
        return DenseParts(self._keys[alive].astype("<i8", copy=False).tobytes(), graph, [rows])


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

    def count(self, allowed: KeyMask) -> int:
        """How many vectors the allowed keys have."""
        return len(self._block.positions_in(allowed))

    def add(self, key: int, row: NDArray[np.floating]) -> None:
        """Add a vector, or replace the one that ``key`` has.

        Raises:
            ValueError: not a row of this dimension, see `relayer.search.rows.checked`; or a negative key.
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
            ValueError: not a query of this dimension, see `relayer.search.rows.checked`.
        """
        return DenseQuery(self._block, checked(query, self._dimension))

    def search(self, query: Vector, k: int, allowed: KeyMask | None = None) -> list[Match]:
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

    def pin(self) -> PinnedDense:
        """What there is now, to be written down while vectors come and go; `maintain` must not run before `unpin`."""
        return PinnedDense(self._block)

    def unpin(self) -> None:
        """End what `pin` began."""
        self._block.rows.unpin()

    @classmethod
    def of_parts(cls, dimension: int, parts: DenseParts, *, crossover: int = CROSSOVER) -> DenseIndex:
        """An index from its parts.

        Raises:
            ValueError: they do not fit each other or the dimension.
        """
        index = cls(dimension, crossover=crossover)
        if not any(map(len, (parts.keys, parts.graph, *parts.rows))):
            return index
        keys = np.frombuffer(parts.keys, "<i8")
        block = DenseBlock(dimension)
        if len(keys) <= crossover and not parts.graph:
            return index._over(block, keys, widened_pieces(parts.rows, dimension))
        # Into memory that may be written to.
        rows = np.frombuffer(bytearray().join(parts.rows), "<f2").reshape(-1, dimension)
        if parts.graph:
            graph, covered = Graph.load(dimension, parts.graph)
            rows = np.concatenate((covered, rows)) if len(rows) else covered.copy()
            block.graph, block.covered, block.frozen = graph, len(covered), len(covered)
        return index._over(block, keys, rows)

    def _over(self, block: DenseBlock, keys: NDArray[np.int64], rows: Block) -> DenseIndex:
        """This index, over a block that has these; raises `ValueError` when they do not fit each other."""
        block.rows = Rows.of(rows)
        block.keys.frombytes(keys.astype(np.int64, copy=False).tobytes())
        block.positions = dict(zip(block.keys, range(len(keys)), strict=True))
        if len(rows) != len(keys) or len(block.positions) != len(keys):
            raise ValueError("keys and rows do not fit each other")
        self._block = block
        return self

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
