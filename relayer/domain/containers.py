"""The containers of a namespace's state: rows that stay encoded until they are read, copies of what changes, and duplicates.

Of a state that was stored, most requests read a few rows only, and decoding all rows would take most of the time of
opening it. So `PagedRows` decodes a page when one of its values is read for the first time. `PagedRows.pages` returns the
pages that were never read as they are, so that they can be stored again without decoding them.

`Pinned` is copy-on-write for a state that is written to the store while it goes on changing. The writer of a state copies its
containers, which takes one step of the event loop, and not the objects in them. Code that changes such an object calls
`Pinned.keep` first, which copies that object alone. The writer then gets each object as it was from `Pinned.value_before`.

`Duplicates` finds records by two MACs: one of the text, and the likeness, a MAC of the text together with its audience,
trust and speaker. It holds in memory what changed since the state was stored. The other records are looked up in
`StoredDuplicates`, which has only the first bytes of their MACs and reads a record to compare it.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from relayer.domain.operations import RecordState

V = TypeVar("V")
T = TypeVar("T")
D = TypeVar("D")


@dataclass(slots=True, eq=False, repr=False)
class _Unread(Generic[T]):
    """A page that was not decoded yet: its keys, in order, and its encoded rows."""

    keys: list[bytes]
    encoded: T


class PagedRows(MutableMapping[bytes, V], Generic[V, T]):
    """A dictionary in the order in which values were added, with pages that are decoded on demand.

    ``T`` is the type of an encoded page. ``decode`` returns the keys and values of a page, with exactly the keys that the page
    was added with. Its exceptions are raised by the method that reads a value of the page.
    """

    def __init__(self, decode: Callable[[T], Iterable[tuple[bytes, V]]] | None = None) -> None:
        self._decode = decode
        self._held: dict[bytes, V | _Unread[T]] = {}
        # The number of values in pages that are not decoded yet.
        self.unread = 0

    def add_page(self, keys: list[bytes], encoded: T) -> None:
        """Append the values of an encoded page without decoding it."""
        self._held.update(dict.fromkeys(keys, _Unread(keys, encoded)))
        self.unread += len(keys)

    def copy(self) -> PagedRows[V, T]:
        """Return a shallow copy: an independent dictionary with the same values and pages."""
        copied = PagedRows(self._decode)
        copied._held, copied.unread = self._held.copy(), self.unread
        return copied

    def pages(self, size: int) -> Iterator[tuple[list[bytes], T | list[V]]]:
        """Yield all keys and values in order: pages not decoded yet as they are, other values as lists of up to ``size``."""
        keys: list[bytes] = []
        values: list[V] = []
        passed: _Unread[T] | None = None
        for key, value in self._held.items():
            if isinstance(value, _Unread):
                if value is not passed:
                    if keys:
                        yield keys, values
                        keys, values = [], []
                    # The page is complete: changing or removing one of its values would have decoded it.
                    yield value.keys, value.encoded
                    passed = value
                continue
            keys.append(key)
            values.append(value)
            if len(keys) == size:
                yield keys, values
                keys, values = [], []
        if keys:
            yield keys, values

    def __getitem__(self, key: bytes) -> V:
        value = self._held[key]
        if not isinstance(value, _Unread):
            return value
        if self._decode is None:
            raise TypeError("there is no page without a decoder")
        self._held.update(self._decode(value.encoded))
        self.unread -= len(value.keys)
        return cast("V", self._held[key])

    @overload
    def get(self, key: bytes, /) -> V | None: ...
    @overload
    def get(self, key: bytes, default: V, /) -> V: ...
    @overload
    def get(self, key: bytes, default: D, /) -> V | D: ...
    def get(self, key: bytes, default: object = None, /) -> object:
        """Return the value of a key, or the default if there is none; a `KeyError` of a decoder is not hidden."""
        return self[key] if key in self._held else default

    def __setitem__(self, key: bytes, value: V) -> None:
        if self.unread and key in self._held:
            self[key]  # decode its page, which is not complete any more
        self._held[key] = value

    def __delitem__(self, key: bytes) -> None:
        self[key]
        del self._held[key]

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def keys(self) -> KeysView[bytes]:
        """Return the keys, in order; no page is decoded."""
        return self._held.keys()

    def values(self) -> _Values[V]:
        """Return the values, in order; each page is decoded when the iteration reaches it."""
        return _Values(self)


class _Values(ValuesView[V]):
    def __init__(self, rows: PagedRows[V, Any]) -> None:
        super().__init__(rows)
        self._rows = rows

    def __iter__(self) -> Iterator[V]:
        return map(self._rows.__getitem__, self._rows.keys())

    def __reversed__(self) -> Iterator[V]:
        return map(self._rows.__getitem__, reversed(self._rows))


class Pinned:
    """The former values of objects that have changed since this was created.

    They are found by the `id` of the object. The writer holds references to all objects, so no `id` is used twice.
    """

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def keep(self, held: object) -> None:
        """Copy an object that is about to change, unless it was copied before."""
        if id(held) not in self._before:
            self._before[id(held)] = copy(held)

    def value_before(self, held: T) -> T:
        """Return the former value of an object, or the object itself if it has not changed."""
        return cast("T", self._before.get(id(held), held))


_PREFIX = 8


class StoredDuplicates:
    """The records of a stored state, found by the first bytes of their MACs.

    A record whose MAC begins with these bytes is read, and its whole MAC is compared.

    Args:
        ids: the ids of all records of the stored state, in its order.
        texts: the `column` of the text MACs of these records.
        likenesses: the `column` of their likenesses.
        records: the records by id, without those that were erased since.
        older: the ids of the records that have a newer duplicate.

    Raises:
        ValueError: the number of MACs differs from the number of records.
    """

    def __init__(
        self,
        ids: Sequence[bytes],
        texts: bytes,
        likenesses: bytes,
        records: Mapping[bytes, RecordState],
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
        """Return the id of the newest record with this likeness; empty if there is none."""
        for number in self._likenesses.having(likeness):
            record = self._ids[number]
            known = self._records.get(record)
            if known is not None and record not in self.older and known.likeness == likeness:
                return record
        return b""

    def of_text(self, text: bytes) -> tuple[bytes, ...]:
        """Return the ids of the records with this text MAC, oldest first."""
        ids = [self._ids[number] for number in self._texts.having(text)]
        found = ((one, self._records.get(one)) for one in ids)
        return tuple(one for one, known in found if known is not None and known.content == text)


def column(macs: Sequence[bytes]) -> bytes:
    r"""Return the first eight bytes of each MAC, concatenated; a shorter MAC is padded with zeros.

    Example:
        >>> column([b"\x01", bytes(16)]).hex()
        '01000000000000000000000000000000'
    """
    return b"".join(mac[:_PREFIX].ljust(_PREFIX, b"\0") for mac in macs)


class _Prefixes:
    """An index from the prefix of a MAC to the numbers of the records that have it.

    It is sorted at the first lookup, which takes a few milliseconds for a hundred thousand records.
    """

    def __init__(self, prefixes: bytes) -> None:
        self._prefixes = np.frombuffer(prefixes, "<u8")
        self._order: NDArray[np.int64] | None = None

    def having(self, mac: bytes) -> list[int]:
        """Return the numbers of the records whose MAC has the same prefix as this one, in ascending order."""
        if self._order is None:
            self._order = np.argsort(self._prefixes, kind="stable")
            self._prefixes = self._prefixes[self._order]
        wanted = np.frombuffer(column([mac]), "<u8")[0]
        first, end = (int(self._prefixes.searchsorted(wanted, side)) for side in ("left", "right"))
        numbers: list[int] = self._order[first:end].tolist()
        return numbers


@dataclass(slots=True)
class Duplicates:
    """The records of a namespace by two MACs: of the text (``text``), and of the text with its context (``likeness``).

    The context is audience, trust and speaker. Only records with the same likeness are duplicates: what a tool said must not
    make what the user says a duplicate, nor a direct message what is said in a group. But an erased text counts as erased
    whatever the context in which it is repeated.

    Attributes:
        erased_texts: the MACs of the texts of erased records.
        stored: the records of the state that was stored, if one was.
        repeats: whether any two records ever had the same text.
        older: the ids of existing records that `newest` does not return because they have a newer duplicate.
    """

    # Changes since the state was stored, or everything if none was. An empty value overrides a stored record that was erased.
    _by_key: dict[bytes, bytes] = field(default_factory=dict)
    _by_text: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    erased_texts: set[bytes] = field(default_factory=set)
    stored: StoredDuplicates | None = None
    repeats: bool = False
    older: set[bytes] = field(default_factory=set)

    def add(self, record: bytes, *, text: bytes, likeness: bytes, before: bytes | None = None) -> None:
        """Add a record, which `newest` returns from now on for its likeness.

        Args:
            record: the id of the record.
            text: the MAC of its text.
            likeness: the MAC by which duplicates are found.
            before: what `newest` returns for this likeness before the call, if the caller has it already.
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
        """Remove a record that was erased, and remember the MAC of its text in `erased_texts`."""
        if self.newest(likeness) == record:
            self._by_key[likeness] = b""
        self.older.discard(record)
        self._by_text[text] = tuple(other for other in self.of_text(text) if other != record)
        self.erased_texts.add(text)

    def newest(self, likeness: bytes) -> bytes:
        """Return the id of the newest record with this likeness; empty if there is none.

        Example:
            >>> duplicates = Duplicates()
            >>> duplicates.add(b"first", text=b"t", likeness=b"l")
            >>> duplicates.add(b"second", text=b"t", likeness=b"l")
            >>> duplicates.newest(b"l")
            b'second'
        """
        known = self._by_key.get(likeness)
        if known is None:
            return b"" if self.stored is None else self.stored.newest(likeness)
        return known

    def of_text(self, text: bytes) -> tuple[bytes, ...]:
        """Return the ids of the records with this text MAC, oldest first.

        Example:
            >>> duplicates = Duplicates()
            >>> duplicates.add(b"first", text=b"t", likeness=b"l")
            >>> duplicates.of_text(b"t"), duplicates.of_text(b"u")
            ((b'first',), ())
        """
        known = self._by_text.get(text)
        if known is None:
            return () if self.stored is None else self.stored.of_text(text)
        return known

    def was_erased(self, text: bytes) -> bool:
        """Return whether a record with this text MAC was erased.

        Example:
            >>> duplicates = Duplicates()
            >>> duplicates.add(b"first", text=b"t", likeness=b"l")
            >>> duplicates.erase(b"first", text=b"t", likeness=b"l")
            >>> duplicates.was_erased(b"t")
            True
        """
        return text in self.erased_texts
