"""The approximate half of dense search: a usearch HNSW graph in float16 over row positions.

Calls on one graph are serialised inside usearch, so a search waits behind a running `add`: additions come in small
chunks. Adding with more than one thread loses vectors (unum-cloud/usearch#735), hence ``threads=1`` throughout.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import Block, Vector

# About 3 ms of work: what a search may wait.
ADD_AT_ONCE = 16

CONNECTIVITY = 16
EXPANSION_ADD = 128
# Of the best 112 among 6,000 this finds 99 in a hundred, and of what lies apart 88; 96 found 84 and 58 in a third of the time.
EXPANSION_SEARCH = 768
# usearch's file begins with the number and the size of its rows, four bytes each, and then the rows.
_MATRIX_AT = 8
# What the links of a node take beside its row, in the file and in memory.
LINKS_BYTES = 150


class Graph:
    """Positions of rows, found by inner product. `add` is for worker threads; `search` for any thread."""

    def __init__(self, dimension: int) -> None:
        self._adding = threading.Lock()
        self._index: Any = _usearch().Index(
            ndim=dimension,
            metric="ip",
            dtype="f16",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
            expansion_search=EXPANSION_SEARCH,
        )

    def add(self, start: int, rows: Block) -> None:
        """Add rows as positions ``start``, ``start + 1``, ...; positions already present are left alone.

        A call whose awaiting task was cancelled may still run in its thread; the next one waits for it.
        """
        with self._adding:
            half = rows.astype(np.float16, copy=False)
            for offset in range(0, len(half), ADD_AT_ONCE):
                chunk = half[offset : offset + ADD_AT_ONCE]
                positions = np.arange(start + offset, start + offset + len(chunk), dtype=np.uint64)
                new = ~np.asarray(self._index.contains(positions), dtype=bool)
                if new.any():
                    self._index.add(positions[new], chunk[new], threads=1)

    def dump(self) -> bytearray:
        """The graph and its rows as usearch writes them; holds the interpreter for about 0.6 us a row."""
        data: bytearray = self._index.save()
        return data

    @classmethod
    def load(cls, dimension: int, data: bytes | bytearray | memoryview) -> tuple[Graph, Block]:
        """A graph from `dump`, and its rows at positions 0, 1, ... as float16.

        usearch adopts whatever a file says, so what it says is compared first.

        Raises:
            ValueError: the bytes are another kind of graph, or none.
        """
        graph = cls(dimension)
        try:
            about = _usearch().Index.metadata(data)
            graph._index.load(data)
        except (RuntimeError, TypeError) as error:
            raise ValueError("these bytes hold no graph") from error
        index = graph._index
        count = len(index)
        if (
            about is None
            or (about["dimensions"], about["count_present"], about["count_deleted"]) != (dimension, count, 0)
            or (str(about["kind_metric"]), str(about["kind_scalar"]))
            != (str(index.metric_kind), str(index.dtype))
            or not about["matrix_included"]
            or about["matrix_uses_64_bit_dimensions"]
        ):
            raise ValueError("these bytes hold a graph of another kind")
        rows = np.frombuffer(data, np.float16, count * dimension, _MATRIX_AT).reshape(count, dimension)
        # usearch keeps rows in the order of their addition, which is that of the positions; both ends must agree.
        for position in {0, count - 1} if count else ():
            if not np.array_equal(index.get(position), rows[position]):
                raise ValueError("a graph's rows are not in the order of their positions")
        return graph, rows

    def __len__(self) -> int:
        return len(self._index)

    def search(self, query: Vector, k: int) -> NDArray[np.int64]:
        """About the ``k`` best positions."""
        found = self._index.search(query.astype(np.float16), k, threads=1)
        return np.asarray(found.keys).astype(np.int64)


def _usearch() -> Any:
    """usearch, loaded when the first graph needs it, in the one way that leaves onnxruntime usable.

    Its Linux wheel carries a C++ runtime of its own whose unique symbols other libraries then bind to: a process that
    loads usearch 2.26 first and onnxruntime 1.31 second dies of a segmentation fault. With the system's C++ runtime
    made global before, both use that one, in either order.
    """
    if sys.platform == "linux" and "usearch" not in sys.modules:
        # Where there is none, onnxruntime cannot be loaded either: nothing to collide with.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    return importlib.import_module("usearch.index")
