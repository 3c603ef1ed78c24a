"""Which records of a stored state say the same, looked up without having read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["StoredTwins", "column"]

_PREFIX = 8


class _Hashed(Protocol):
    """What a record is compared by."""

    @property
    def content(self) -> bytes: ...
    @property
    def likeness(self) -> bytes: ...


class StoredTwins:
    """Records by the first bytes of their MACs; whichever has those is read, and compared in whole.

    Args:
        ids: of all records of the stored state, in its order.
        texts: from `column`, as is the next.
        likenesses: beside each text.
        records: the records themselves, less those that were erased since.
        older: ids of the records that others, alike, came after.

    Raises:
        ValueError: there are not as many MACs as records.
    """

    def __init__(
        self,
        ids: Sequence[bytes],
        texts: bytes,
        likenesses: bytes,
        records: Mapping[bytes, _Hashed],
        older: AbstractSet[bytes],
    ) -> None:
        if not len(texts) == len(likenesses) == _PREFIX * len(ids):
            raise ValueError("a stored state does not know what its records say")
        self.older = older
        self._ids = ids
        self._records = records
        self._texts = _Prefixes(texts)
        self._likenesses = _Prefixes(likenesses)

    def like(self, likeness: bytes) -> bytes:
        """Return the newest record of this likeness, or nothing."""
        for number in self._likenesses.having(likeness):
            record = self._ids[number]
            known = self._records.get(record)
            if known is not None and record not in self.older and known.likeness == likeness:
                return record
        return b""

    def saying(self, text: bytes) -> tuple[bytes, ...]:
        """Return the records of this text, oldest first."""
        return tuple(self._saying(text))

    def _saying(self, text: bytes) -> Iterator[bytes]:
        for number in self._texts.having(text):
            known = self._records.get(self._ids[number])
            if known is not None and known.content == text:
                yield self._ids[number]


def column(macs: Sequence[bytes]) -> bytes:
    """Return the first bytes of each MAC, eight of each."""
    return b"".join(mac[:_PREFIX].ljust(_PREFIX, b"\0") for mac in macs)


class _Prefixes:
    """Numbers by prefix; sorted when somebody asks, in a few milliseconds for a hundred thousand."""

    def __init__(self, prefixes: bytes) -> None:
        self._prefixes = np.frombuffer(prefixes, "<u8")
        self._order: NDArray[np.int64] | None = None

    def having(self, mac: bytes) -> list[int]:
        """Return the numbers of those that begin as this one does, in order."""
        if self._order is None:
            self._order = np.argsort(self._prefixes, kind="stable")
            self._prefixes = self._prefixes[self._order]
        wanted = np.frombuffer(column([mac]), "<u8")[0]
        first, end = (int(self._prefixes.searchsorted(wanted, side)) for side in ("left", "right"))
        numbers: list[int] = self._order[first:end].tolist()
        return numbers
