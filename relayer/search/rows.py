"""Vectors as they are kept and searched: a growing block of rows with one exact search over it.

Few rows are kept in float32: numpy's product over them is two to three times as fast as a float16 kernel. Once a
graph answers for most of them, the block is only read in parts, and float16 halves it (bench/search_crossover.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Buffer = bytes | bytearray | memoryview

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
    # Every query comes by: `numpy.linalg.norm` computes the same in three times the time.
    length = sqrt(row.dot(row))
    if not isfinite(length):
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


Block = NDArray[np.floating]
# Keys and scores, best first.
Found = tuple[NDArray[np.int64], NDArray[np.float32]]
SMALLEST = 16
# Sums of float32 differ in the last digits with a row's place in the block; equal rows must tie.
DECIMALS = 6


def products(block: Block, query: Vector) -> Vector:
    """The inner product of each row of a block with the query."""
    scores: Vector = (widened(block) @ query).round(DECIMALS)
    return scores


# From the bits of a float16, extended to 32, to those of a float32: the further bits that a mantissa has, the sign and the
# exponent, and what an exponent is short by when it is put where the longer one stands (IEEE 754: 127 - 15).
_LONGER_MANTISSA = 13
_SIGN_AND_NUMBER = np.int32(-0x7000_2000)
_EXPONENTS_APART = np.float32(2.0**112)


def widened(block: Block) -> NDArray[np.float32]:
    """A block of finite numbers in float32, itself if it is that.

    Numpy converts one number after the other, in three to seven times the time that these steps over all of them take.
    """
    if block.dtype != np.float16 or not block.flags.c_contiguous:
        return block.astype(np.float32, copy=False)
    return _widened(block.view(np.int16).astype(np.int32))


def _widened(bits: NDArray[np.int32]) -> NDArray[np.float32]:
    """The numbers of which these are the bits as float16, with their sign extended; in the same memory."""
    bits <<= _LONGER_MANTISSA
    bits &= _SIGN_AND_NUMBER
    wide: NDArray[np.float32] = bits.view(np.float32)
    wide *= _EXPONENTS_APART
    return wide


_HALF = 2  # bytes of a float16


def widened_pieces(pieces: Iterable[Buffer], dimension: int) -> NDArray[np.float32]:
    """Rows of little-endian float16 in float32, from pieces that were cut anywhere: they need not be put together before.

    Raises:
        ValueError: not a whole number of rows.
    """
    views = [memoryview(piece) for piece in pieces]
    count, rest = divmod(sum(map(len, views)), _HALF * dimension)
    if rest:
        raise ValueError("stored rows of another dimension")
    bits = np.empty(count * dimension, np.int32)
    at, half = 0, b""
    for view in views:
        begun = int(bool(half and view))
        if begun:
            bits[at] = np.frombuffer(half + view[:1], "<i2")[0]
            at, half = at + 1, b""
        whole = (len(view) - begun) // _HALF
        end = begun + whole * _HALF
        bits[at : at + whole] = np.frombuffer(view[begun:end], "<i2")
        at, half = at + whole, half + bytes(view[end:])
    return _widened(bits).reshape(count, dimension)


def best_of(scores: Vector, k: int) -> NDArray[np.int64]:
    """Positions of the ``k`` best scores, in no order.

    Every one that ties with the last of them is returned too, so that the caller can order ties by its own keys: the
    result may be longer than ``k``.
    """
    if k >= len(scores):
        return np.arange(len(scores))
    worst = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= worst)


class Column:
    """Numbers at positions ``0..len``, for one that reads them as an array while they grow.

    Whoever holds on to ``values`` (the traceback of an error does) holds the numbers of then and keeps nothing from growing,
    as an `array.array` would be kept that is looked into.
    """

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._block = values
        self._length = len(values)

    def __len__(self) -> int:
        return self._length

    def __setitem__(self, position: int, value: float) -> None:
        self._block[position] = value

    def copy(self) -> Column:
        """The same numbers, to go their own way."""
        return Column(self.values.copy())

    def append(self, value: float) -> None:
        """Add a number behind the others."""
        self.extend(self._length + 1)
        self._block[self._length - 1] = value

    def extend(self, length: int) -> None:
        """Append zeros up to a length, if there are fewer numbers."""
        if length > len(self._block):
            more = max(SMALLEST, self._length // 4, length - len(self._block))
            self._block = np.pad(self._block, (0, more))
        self._length = max(self._length, length)

    @property
    def values(self) -> NDArray[Any]:
        """All of them, without copying; stale after any change."""
        return self._block[: self._length]


class Rows:
    """Rows at positions ``0..len``; the block grows by a quarter when it is full."""

    def __init__(self, dimension: int, *, capacity: int = 0, half: bool = False) -> None:
        self._block: Block = np.zeros((capacity, dimension), dtype=np.float16 if half else np.float32)
        self._length = 0
        self._pinned: PinnedRows | None = None

    @classmethod
    def of(cls, block: Block) -> Rows:
        """Rows that are there already; the block is taken over, not copied."""
        rows = cls(block.shape[1])
        rows._block, rows._length = block, len(block)
        return rows

    def __len__(self) -> int:
        return self._length

    def append(self, row: NDArray[np.floating]) -> int:
        """Add a row; returns its position."""
        if self._length == len(self._block):
            more = max(SMALLEST, self._length // 4)
            grown: Block = np.pad(self._block, ((0, more), (0, 0)))
            self._block = grown
        self._block[self._length] = row
        self._length += 1
        return self._length - 1

    def pop(self) -> None:
        """Drop the last row and blank it."""
        self._length -= 1
        self.blank(self._length)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        self._keep(target)
        self._block[target] = self._block[source]

    def blank(self, position: int) -> None:
        """Overwrite a row with zeros: an erased memory's vector does not wait for a rebuild."""
        self._keep(position)
        self._block[position] = 0

    def pin(self) -> PinnedRows:
        """Return the rows as they are now; the last one that was asked for is told of changes."""
        self._pinned = PinnedRows(self._block[: self._length])
        return self._pinned

    def unpin(self) -> None:
        """Tell nobody of changes any more."""
        self._pinned = None

    def _keep(self, position: int) -> None:
        if self._pinned is not None:
            self._pinned.keep(position)

    def narrow(self) -> None:
        """Keep the rows in float16 from now on."""
        if self._block.dtype != np.float16:
            self._block = self._block[: self._length].astype(np.float16)

    def view(self, start: int, stop: int) -> Block:
        """Rows ``[start, stop)`` without copying; stale after any change."""
        rows: Block = self._block[start:stop]
        return rows

    def gather(self, positions: NDArray[np.int64]) -> Block:
        """A copy of the rows at these positions, in this order."""
        gathered: Block = self._block[positions]
        return gathered

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._block.nbytes


class PinnedRows:
    """The rows of a block as they were: the block itself, and copies of those that changed since.

    A row is added behind them, or in the place of one that was removed and is kept already; a block that grows is another.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._before: dict[int, Block] = {}

    def keep(self, position: int) -> None:
        """Copy a row that is about to change, once."""
        if position < len(self._block) and position not in self._before:
            self._before[position] = self._block[position].copy()

    def halved(self, positions: NDArray[np.int64]) -> bytes:
        """The rows at these positions as little-endian float16."""
        rows = self._block[positions]
        for at in np.flatnonzero(np.isin(positions, list(self._before))).tolist() if self._before else ():
            rows[at] = self._before[int(positions[at])]
        return rows.astype("<f2", copy=False).tobytes()
