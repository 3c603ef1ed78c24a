"""The storage of vectors: a growing block of rows, the exact products of a query with them, and sets of their keys.

`validated_vector` and `search_row` prepare vectors, `Rows` stores them, and `products` computes their inner products with a query.
Few rows are stored in float32, because numpy's product over them is two to three times as fast as a float16 kernel. Once a
graph covers most of them, the block is only read in parts, and float16 halves it (bench/search_crossover.py). A `KeyMask` is a
set of keys as one boolean per key: filters are computed, combined and tested for thousands of keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
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


def validated_vector(vector: NDArray[np.floating], dimension: int) -> Vector:
    """Return the vector as contiguous float32, if it is valid for search.

    Raises:
        ValueError: wrong shape, not finite, longer than 1, or close to zero. The message contains no component.
    """
    if vector.shape != (dimension,):
        raise ValueError(f"a vector of shape {vector.shape} where ({dimension},) is expected")
    row = np.ascontiguousarray(vector, dtype=np.float32)
    # Every query passes here, and `numpy.linalg.norm` takes three times as long for the same result.
    length = sqrt(row.dot(row))
    if not isfinite(length):
        raise ValueError("a vector with a component that is not finite")
    if not SHORTEST <= length <= 1 + TOLERANCE:
        raise ValueError("a vector that is not normalised")
    return row


def search_row(own: Vector, context: Vector | None) -> Vector:
    """Return the row by which a memory is found: its vector, or the mean of it and of its vector with the previous turn.

    The mean is not normalised again: a memory whose context is about something else matches either a little less (inner product
    with the plain mean, docs/adr/0003). It is rounded to float16, in which rows are stored and large indexes hold them, so that
    a memory has the same score whether it was just added or loaded from a stored index.
    """
    row = own if context is None else (own + context) / np.float32(2.0)
    return row.astype(np.float16).astype(np.float32)


Block = NDArray[np.floating]
# Keys and scores, best first.
Found = tuple[NDArray[np.int64], NDArray[np.float32]]
SMALLEST = 16
# Sums of float32 differ in the last digits with a row's position in the block; equal rows must tie.
DECIMALS = 6


def products(block: Block, query: Vector) -> Vector:
    """Return the inner product of each row of a block with the query."""
    scores: Vector = (widened(block) @ query).round(DECIMALS)
    return scores


# Constants for the conversion of float16 bits, sign-extended to 32, to those of float32 (IEEE 754): the mantissa is 13 bits
# longer; the mask selects the sign and the number; and the exponent's bias is larger by 112 (127 - 15).
_LONGER_MANTISSA = 13
_SIGN_AND_NUMBER = np.int32(-0x7000_2000)
_EXPONENTS_APART = np.float32(2.0**112)


def widened(block: Block) -> NDArray[np.float32]:
    """Convert an array of finite numbers, such as float16 vectors in rows, to float32.

    A float32 array is returned itself, not copied. Numpy converts numbers one by one, which takes three to
    seven times as long as these vectorised steps.
    """
    if block.dtype != np.float16 or not block.flags.c_contiguous:
        return block.astype(np.float32, copy=False)
    return _widened(block.view(np.int16).astype(np.int32))


def _widened(bits: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the numbers whose float16 bits, sign-extended, are given; in the same memory."""
    bits <<= _LONGER_MANTISSA
    bits &= _SIGN_AND_NUMBER
    wide: NDArray[np.float32] = bits.view(np.float32)
    wide *= _EXPONENTS_APART
    return wide


_HALF = 2  # bytes of a float16


def widened_pieces(pieces: Iterable[Buffer], dimension: int) -> NDArray[np.float32]:
    """Return rows of little-endian float16 in float32, from pieces that may be cut anywhere and need not be joined first.

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
    """Return the positions of the ``k`` best scores, in no order.

    All positions that tie with the last of them are returned, too, so that the caller can order ties by its own keys: the
    result may be longer than ``k``.
    """
    if k >= len(scores):
        return np.arange(len(scores))
    worst = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= worst)


class Column:
    """A growable array of numbers that can be read as a numpy array.

    A caller that keeps ``values`` (as the traceback of an error does) keeps the numbers of that moment and does not prevent the
    column from growing; an `array.array` whose buffer is exported cannot grow.
    """

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._block = values
        self._length = len(values)

    def __len__(self) -> int:
        return self._length

    def __setitem__(self, position: int, value: float) -> None:
        self._block[position] = value

    def copy(self) -> Column:
        """Return an independent copy."""
        return Column(self.values.copy())

    def append(self, value: float) -> None:
        """Append a number."""
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
        """Return all numbers, without copying; stale after any change."""
        return self._block[: self._length]


class Rows:
    """Rows at positions ``0..len``; the block grows by a quarter when it is full."""

    def __init__(self, dimension: int, *, capacity: int = 0, half: bool = False) -> None:
        self._block: Block = np.zeros((capacity, dimension), dtype=np.float16 if half else np.float32)
        self._length = 0
        self._pinned: PinnedRows | None = None

    @classmethod
    def from_block(cls, block: Block) -> Rows:
        """Return rows over an existing block, which is taken over, not copied."""
        rows = cls(block.shape[1])
        rows._block, rows._length = block, len(block)
        return rows

    def __len__(self) -> int:
        return self._length

    def append(self, row: NDArray[np.floating]) -> int:
        """Append a row; return its position."""
        if self._length == len(self._block):
            more = max(SMALLEST, self._length // 4)
            grown: Block = np.pad(self._block, ((0, more), (0, 0)))
            self._block = grown
        self._block[self._length] = row
        self._length += 1
        return self._length - 1

    def pop(self) -> None:
        """Overwrite the last row with zeros and drop it."""
        self._length -= 1
        self.blank(self._length)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        self._keep(target)
        self._block[target] = self._block[source]

    def blank(self, position: int) -> None:
        """Overwrite a row with zeros, so that an erased memory's vector does not stay until the next rebuild."""
        self._keep(position)
        self._block[position] = 0

    def pin(self) -> PinnedRows:
        """Return a snapshot of the rows; only the latest snapshot is kept up to date with changes."""
        self._pinned = PinnedRows(self._block[: self._length])
        return self._pinned

    def unpin(self) -> None:
        """Stop copying rows for the snapshot before they change."""
        self._pinned = None

    def _keep(self, position: int) -> None:
        if self._pinned is not None:
            self._pinned.keep(position)

    def narrow(self) -> None:
        """Store the rows in float16 from now on."""
        if self._block.dtype != np.float16:
            self._block = self._block[: self._length].astype(np.float16)

    def view(self, start: int, stop: int) -> Block:
        """Return rows ``[start, stop)`` without copying; stale after any change."""
        rows: Block = self._block[start:stop]
        return rows

    def gather(self, positions: NDArray[np.int64]) -> Block:
        """Return a copy of the rows at these positions, in this order."""
        gathered: Block = self._block[positions]
        return gathered

    @property
    def nbytes(self) -> int:
        """Return the number of bytes reserved."""
        return self._block.nbytes


class PinnedRows:
    """A snapshot of the rows of a block: the block itself, and copies of those that changed since.

    A new row is appended, or replaces a removed one that was copied already; a block that grows is a new block.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._before: dict[int, Block] = {}

    @property
    def dimension(self) -> int:
        """Return the number of components of a row."""
        return int(self._block.shape[1])

    def keep(self, position: int) -> None:
        """Copy a row that is about to change, unless it was copied before."""
        if position < len(self._block) and position not in self._before:
            self._before[position] = self._block[position].copy()

    def halved(self, positions: NDArray[np.int64]) -> bytes:
        """Return the rows at these positions as little-endian float16."""
        rows = self._block[positions]
        for at in np.flatnonzero(np.isin(positions, list(self._before))).tolist() if self._before else ():
            rows[at] = self._before[int(positions[at])]
        return rows.astype("<f2", copy=False).tobytes()


Flags = NDArray[np.bool_]


class KeyMask:
    """A set of keys, which are numbers from 0 without large gaps. Example: ``3 in KeyMask.from_keys([2, 3])``.

    Args:
        flags: whether each key 0, 1, ... is in the set; every other key is not.
        bits: the number of low bits of a key that are ignored, see `followed_by`.
    """

    def __init__(self, flags: Flags, *, bits: int = 0) -> None:
        self._shift = bits
        # The False at the end is also at index -1, which searches use as the key of a removed row.
        self._flags: Flags = np.zeros(len(flags) + 1, np.bool_)
        self._flags[:-1] = flags

    @classmethod
    def from_keys(cls, keys: Iterable[int], size: int = 0) -> KeyMask:
        """Return the set of these keys.

        Args:
            keys: the keys, not negative.
            size: keys below this may be passed to `contains` even if they are above the largest of the set.
        """
        chosen = np.fromiter(keys, np.int64)
        flags = np.zeros(max(size, int(chosen.max()) + 1 if len(chosen) else 0), np.bool_)
        flags[chosen] = True
        return cls(flags)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and 0 <= key < len(self._flags) and self._flags.item(key)

    def within(self, flags: Flags) -> KeyMask:
        """Return the intersection of this set and the set of a boolean array.

        Args:
            flags: whether each key 0, 1, ... is in the other set. `contains` of the result takes these keys.
        """
        both = KeyMask(flags)
        shared = min(len(flags), len(self._flags) - 1)
        both._flags[:shared] &= self._flags[:shared]
        both._flags[shared:] = False
        return both

    def contains(self, keys: NDArray[np.int64]) -> Flags:
        """Return whether each key is in the set; -1 is not, and a key beyond the flags raises `IndexError`."""
        return self._flags[keys >> self._shift if self._shift else keys]

    def followed_by(self, bits: int) -> KeyMask:
        """Return the keys that consist of one of these and any ``bits`` low bits, for `contains` alone."""
        return KeyMask(self.flags, bits=bits)

    def keys(self) -> NDArray[np.int64]:
        """Return the keys in rising order."""
        return np.flatnonzero(self._flags)

    @property
    def flags(self) -> Flags:
        """Return whether each key 0, 1, ... is in the set."""
        return self._flags[:-1]

    @cached_property
    def _count(self) -> int:
        return int(np.count_nonzero(self._flags))
