"""Which records say the same: in a state that was read, and in one that is looked up where it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_PREFIX = 8


class _Hashed(Protocol):
    """What a record is compared by."""

    @property
    def content(self) -> bytes: ...
    @property
    def likeness(self) -> bytes: ...


class StoredDuplicates:
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

    def newest(self, likeness: bytes) -> bytes:
        """Return the newest record of this likeness, or nothing."""
        for number in self._likenesses.having(likeness):
            record = self._ids[number]
            known = self._records.get(record)
            if known is not None and record not in self.older and known.likeness == likeness:
                return record
        return b""

    def of_text(self, text: bytes) -> tuple[bytes, ...]:
        """Return the records of this text, oldest first."""
        return tuple(self._of_text(text))

    def _of_text(self, text: bytes) -> Iterator[bytes]:
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


@dataclass(slots=True)
class Duplicates:
    """Records by two MACs: of the text, and of the text with who said it among whom.

    Only a record that is alike in all of that makes another one a duplicate: what a tool said must not swallow what
    the user says, nor a direct message what is said in a group. A tombstone is of the text, whoever repeats it.

    Attributes:
        repeats: whether any two records ever had the same text.
        older: records that are there, and that `newest` does not return because others, alike, came later.
    """

    # What changed since the state was stored, or all there is: nothing where what was there is erased.
    _by_key: dict[bytes, bytes] = field(default_factory=dict)
    _by_text: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    _erased_texts: set[bytes] = field(default_factory=set)
    _stored: StoredDuplicates | None = None
    repeats: bool = False
    older: set[bytes] = field(default_factory=set)

    def add(self, record: bytes, *, text: bytes, likeness: bytes, before: bytes | None = None) -> None:
        """Note a record; the newest of several alike is the one that `newest` returns.

        ``before`` is what that returns now, from whoever has just asked.
        """
        if before is None:
            before = self.newest(likeness)
        if before:
            self.older.add(before)
        if self.older:
            self.older.discard(record)
        self._by_key[likeness] = record
        others = self.of_text(text)
        if record not in others:
            self.repeats = self.repeats or bool(others)
            self._by_text[text] = (*others, record)

    def erase(self, record: bytes, *, text: bytes, likeness: bytes) -> None:
        """Note that a record was destroyed; that its text was known stays known, as a MAC."""
        if self.newest(likeness) == record:
            self._by_key[likeness] = b""
        self.older.discard(record)
        self._by_text[text] = tuple(other for other in self.of_text(text) if other != record)
        self._erased_texts.add(text)

    @property
    def erased_texts(self) -> frozenset[bytes]:
        """The texts of which a record was destroyed, as MACs."""
        return frozenset(self._erased_texts)

    @classmethod
    def restored(
        cls, stored: StoredDuplicates, erased_texts: Iterable[bytes], *, repeats: bool
    ) -> Duplicates:
        """Go on from a stored state."""
        return cls(_erased_texts=set(erased_texts), _stored=stored, repeats=repeats, older=set(stored.older))

    def newest(self, likeness: bytes) -> bytes:
        """Return the newest record of this likeness, or nothing."""
        known = self._by_key.get(likeness)
        if known is None:
            return b"" if self._stored is None else self._stored.newest(likeness)
        return known

    def of_text(self, text: bytes) -> tuple[bytes, ...]:
        """Return the records of this text, oldest first."""
        known = self._by_text.get(text)
        if known is None:
            return () if self._stored is None else self._stored.of_text(text)
        return known

    def was_erased(self, text: bytes) -> bool:
        """Whether a record of this text was destroyed."""
        return text in self._erased_texts
