"""The approximate half of dense search: usearch HNSW graphs in float16 over row positions.

Rows are divided into shards, a usearch index each, in the order of their positions. usearch holds the interpreter lock while it
writes or reads the rows of an index, so an index must not grow without bound; a search queries all shards and merges the results.

Calls on one shard are serialised inside usearch, so a search waits behind a running `add`: additions come in small chunks.
Adding with more than one thread loses vectors (unum-cloud/usearch#735), hence ``threads=1`` throughout.
"""

# usearch compares the annotations of a callback with the types themselves, so they are not postponed here.
import contextlib
import ctypes
import importlib
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import Block, Buffer, Vector

# About 3 ms of work, which a search may have to wait for.
ADD_AT_ONCE = 16

CONNECTIVITY = 16
EXPANSION_ADD = 128
# The search expansion of all shards together. Of the best 112 among 6,000 a graph finds 99 % with 768, and 88 % of those that are
# far from most others; with 96 it found 84 % and 58 % in a third of the time.
EXPANSION_SEARCH = 768
# The minimum expansion in one shard: a search with less finds too little.
_FEWEST_STEPS = 64
# The rows of a shard: usearch holds the interpreter lock for about 9 ms to write the rows of a full one (docs/adr/0013).
SHARD_ROWS = 20_000
# A usearch file begins with the number and the size of its rows, four bytes each; then the rows follow.
_MATRIX_AT = 8
# The size of a node's links, in addition to its row, in the file and in memory.
LINKS_BYTES = 150


def _go_on(done: int, total: int) -> bool:  # noqa: ARG001 - the signature that usearch asks for
    """Let other threads run: usearch calls this for each node, and Python can switch threads during the call."""
    return True


class _Shard:
    """A usearch index of the rows from position ``first`` on.

    ``stored`` are the bytes that the index is a view of; then it cannot grow, and they must not change.
    """

    def __init__(self, dimension: int, first: int) -> None:
        self.first = first
        self.stored: Buffer | None = None
        self.index: Any = _usearch().Index(
            ndim=dimension,
            metric="ip",
            dtype="f16",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
            expansion_search=EXPANSION_SEARCH,
        )

    def __len__(self) -> int:
        return len(self.index)

    def dump(self) -> Buffer:
        """Return the index as usearch writes it."""
        if self.stored is not None:
            return self.stored
        data: bytearray = self.index.save(progress=_go_on)
        return data

    @classmethod
    def load(cls, dimension: int, first: int, data: Buffer, full: int) -> "_Shard":
        """Return a shard from `dump`: a view of the bytes if it has ``full`` rows, so that nothing is copied.

        Raises:
            ValueError: the bytes are not a graph, or not of this kind.
        """
        shard = cls(dimension, first)
        index = shard.index
        try:
            about = _usearch().Index.metadata(data)
            if about is not None and about["count_present"] >= full:
                index.view(data, progress=_go_on)
                shard.stored = data
            else:
                index.load(data, progress=_go_on)
        except (RuntimeError, TypeError) as error:
            raise ValueError("these bytes hold no graph") from error
        count = len(index)
        # usearch accepts the parameters of any file, so they are compared here.
        if (
            about is None
            or (about["dimensions"], about["count_present"], about["count_deleted"]) != (dimension, count, 0)
            or (str(about["kind_metric"]), str(about["kind_scalar"]))
            != (str(index.metric_kind), str(index.dtype))
            or not about["matrix_included"]
            or about["matrix_uses_64_bit_dimensions"]
        ):
            raise ValueError("these bytes hold a graph of another kind")
        # usearch keeps rows in the order of their addition, which is that of the positions; both ends must agree.
        stored = rows_of(data, dimension)
        if len(stored) != count:
            raise ValueError("a graph has another number of rows than it says")
        for at in {0, count - 1} if count else ():
            if not np.array_equal(index.get(first + at), stored[at]):
                raise ValueError("a graph's rows are not in the order of their positions")
        return shard


def rows_of(dump: Buffer, dimension: int) -> Block:
    """Return the rows in a shard's `Graph.dump`, without copying."""
    count = int.from_bytes(dump[:4], "little")
    return np.frombuffer(dump, np.float16, count * dimension, _MATRIX_AT).reshape(count, dimension)


class Graph:
    """Positions of rows, found by inner product. `add` and `dump` are for worker threads; `search` for any thread.

    Args:
        dimension: of every row.
        shard_rows: how many rows a shard has before the next one begins.
    """

    def __init__(self, dimension: int, *, shard_rows: int = SHARD_ROWS) -> None:
        self._dimension = dimension
        self._shard_rows = shard_rows
        self._adding = threading.Lock()
        self._shards: list[_Shard] = []

    def add(self, start: int, rows: Block) -> None:
        """Add rows as positions ``start``, ``start + 1``, ...; positions already present are left alone.

        A call whose awaiting task was cancelled may still run in its thread; the next one waits for it.

        Raises:
            ValueError: positions before ``start`` are missing.
        """
        with self._adding:
            at, stop = len(self), start + len(rows)
            if start > at:
                raise ValueError("rows are added in the order of their positions")
            half = rows.astype(np.float16, copy=False)
            while at < stop:
                if not self._shards or len(self._shards[-1]) >= self._shard_rows:
                    self._shards.append(_Shard(self._dimension, at))
                shard = self._shards[-1]
                end = min(stop, at + ADD_AT_ONCE, shard.first + self._shard_rows)
                shard.index.add(
                    np.arange(at, end, dtype=np.uint64), half[at - start : end - start], threads=1
                )
                at = end

    def dump(self) -> list[Buffer]:
        """Return each shard in usearch's format; holds the interpreter lock for about 0.5 us per row, one shard at a time."""
        with self._adding:
            return [shard.dump() for shard in self._shards]

    @classmethod
    def load(cls, dimension: int, dumps: Sequence[Buffer], *, shard_rows: int = SHARD_ROWS) -> "Graph":
        """Return a graph from `dump`. It may keep using the bytes, so they must not change.

        Raises:
            ValueError: the bytes are not a graph, or not of this kind.
        """
        graph = cls(dimension, shard_rows=shard_rows)
        for data in dumps:
            if graph._shards and len(graph._shards[-1]) < shard_rows:
                raise ValueError("a shard of a graph is not full although another one follows it")
            graph._shards.append(_Shard.load(dimension, len(graph), data, shard_rows))
        return graph

    def __len__(self) -> int:
        return self._shards[-1].first + len(self._shards[-1]) if self._shards else 0

    def search(self, query: Vector, k: int) -> NDArray[np.int64]:
        """Return about the ``k`` best positions."""
        half, total = query.astype(np.float16), len(self)
        keys, distances = [], []
        for shard in self._shards:
            if not len(shard):
                continue
            # Divided by size: this costs as much and finds as much as one graph of all rows (docs/adr/0013).
            shard.index.expansion_search = max(_FEWEST_STEPS, EXPANSION_SEARCH * len(shard) // total)
            found = shard.index.search(half, k, threads=1)
            keys.append(np.asarray(found.keys))
            distances.append(np.asarray(found.distances))
        if len(keys) < 2:
            return keys[0].astype(np.int64) if keys else np.empty(0, np.int64)
        best = np.argsort(np.concatenate(distances), kind="stable")[:k]
        return np.concatenate(keys)[best].astype(np.int64)


def _usearch() -> Any:
    """Return the usearch module, loaded at first use, in the one way that leaves onnxruntime usable.

    Its Linux wheel carries a C++ runtime of its own whose unique symbols other libraries then bind to: a process that
    loads usearch 2.26 first and onnxruntime 1.31 second dies of a segmentation fault. If the system's C++ runtime is loaded
    globally before, both use that one, in either order.
    """
    if sys.platform == "linux" and "usearch" not in sys.modules:
        # Without a system runtime onnxruntime cannot be loaded either, so there is no conflict.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    return importlib.import_module("usearch.index")
