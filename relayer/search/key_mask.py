"""Sets of keys as one boolean per key: filters are computed, combined and tested for thousands of keys at a time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
