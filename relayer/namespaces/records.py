"""The records of one namespace, sealed in memory, opened when somebody asks for them.

Opening and decoding a record takes some 40 us, and a recall needs a handful of thousands; sealed they take a fraction of
what they take as values. What was asked for lately stays open, within a few KiB.

Records come from the log one by one, each under its own seal, or from a stored index in blocks of many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.crypto import NamespaceKeys
from relayer.domain.facets import FACETS, facets_of
from relayer.domain.operations import Record, RecordState, Status, decode_record
from relayer.extraction.changes import Statement, statement_of
from relayer.search.key_mask import KeyMask
from relayer.search.rows import Column
from relayer.wire import codec as ulid
from relayer.wire.errors import UnsealError
from relayer.wire.memories import Selection

# A block of so many is opened for one of them, in about the time of two single records.
BLOCK_RECORDS = 32
_OPEN_BYTES = 32 * 1024
# What was answered of some 400 memories: whoever asks on in a conversation gets many of them again.
_SHOWN_BYTES = 512 * 1024
_SHOWN_ENTRY_BYTES = 400
# What was read of the texts of so many memories, the best of some recalls of one conversation.
_STATEMENTS = 64
_STATEMENT_BYTES = 3000
# A record as a value takes about this many times its encoded size.
_AS_VALUE = 6
_ENTRY_BYTES = 150

_BLOCK = msgspec.msgpack.Decoder(list[bytes])


class _Block(NamedTuple):
    """Sealed records ``first`` and following; an absent one is empty. ``name`` returns the id inside the seal."""

    first: int
    name: Callable[[], bytes]
    sealed: bytes


class Origin(NamedTuple):
    """Where a memory comes from, as penalties see it."""

    kind: str
    trust: str
    transcript: str
    reference: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer says of a memory: ``encoded``, a JSON object; ``text_bytes`` of its text are there in UTF-8."""

    encoded: bytes = field(repr=False)
    text_bytes: int
    origin: Origin


class RecordCache:
    """Records by number."""

    def __init__(self, keys: NamespaceKeys) -> None:
        self._keys = keys
        self._single: dict[int, tuple[bytes, bytes]] = {}
        self._blocks: list[_Block] = []
        self._open: LRUCache[int, tuple[Record, int]] = LRUCache(_OPEN_BYTES, itemgetter(1))
        # By number: what of a memory's state it was made of, and what is shown.
        self._shown: LRUCache[int, tuple[object, Shown]] = LRUCache(
            _SHOWN_BYTES, lambda known: len(known[1].encoded) + _SHOWN_ENTRY_BYTES
        )
        self._statements: LRUCache[int, Statement] = LRUCache(_STATEMENTS)
        self._sealed_bytes = 0
        # Whoever goes through all records opens each block once.
        self._last: tuple[_Block, list[bytes]] | None = None

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        entries = len(self._single) + len(self._blocks)
        opened = int(self._open.currsize) * _AS_VALUE + int(self._shown.currsize)
        opened += len(self._statements) * _STATEMENT_BYTES
        return self._sealed_bytes + entries * _ENTRY_BYTES + opened

    def put(self, number: int, record_id: bytes, sealed: bytes, encoded: bytes) -> Record:
        """Take a record as the log holds it, and what is in its seal; raises `msgspec.MsgspecError` if that is none."""
        record = decode_record(encoded)
        self._shown.pop(number, None)
        self._statements.pop(number, None)
        self._single[number] = (record_id, sealed)
        self._sealed_bytes += len(sealed)
        self._note(number, record, len(encoded))
        return record

    def put_block(self, first: int, name: Callable[[], bytes], sealed: bytes) -> None:
        """Take a block of a stored index, unopened; blocks come in order, before any single record."""
        self._blocks.append(_Block(first, name, sealed))
        self._sealed_bytes += len(sealed)

    def get(self, number: int) -> Record | None:
        """Open a record; None when there is none, or it does not open any more."""
        known = self._open.get(number)
        if known is not None:
            return known[0]
        try:
            encoded = self._encoded(number)
            if not encoded:
                return None
            record = decode_record(encoded)
        except (UnsealError, msgspec.MsgspecError):
            return None
        self._note(number, record, len(encoded))
        return record

    def shown(self, number: int, state: object) -> Shown | None:
        """Return what is kept of a memory's answer, if it was made of the same state."""
        known = self._shown.get(number)
        return known[1] if known is not None and known[0] == state else None

    def keep_shown(self, number: int, state: object, shown: Shown) -> None:
        """Keep what was made of a memory and its state, until others are asked for or its record goes."""
        if len(shown.encoded) + _SHOWN_ENTRY_BYTES <= _SHOWN_BYTES:
            self._shown[number] = (state, shown)

    def statement(self, number: int, text: str) -> Statement:
        """Return what a memory's text, or the part of it that is given, says; kept until others are asked for or its record goes."""
        known = self._statements.get(number)
        if known is None:
            known = self._statements[number] = statement_of(text)
        return known

    def drop(self, number: int, salt: bytes) -> None:
        """Destroy a record: what is left of its block is sealed anew, with ``salt``, without it."""
        self._open.pop(number, None)
        self._shown.pop(number, None)
        self._statements.pop(number, None)
        single = self._single.pop(number, None)
        if single is not None:
            self._sealed_bytes -= len(single[1])
            return
        at = self._block_of(number)
        if at is None:
            return
        block = self._blocks[at]
        members, self._last = self._members(block), None
        if number - block.first < len(members):
            members[number - block.first] = b""
        self._sealed_bytes -= len(block.sealed)
        sealed = self._keys.seal_index(block.name(), msgspec.msgpack.encode(members), salt=salt)
        self._blocks[at] = block._replace(sealed=sealed)
        self._sealed_bytes += len(sealed)

    def pin(self) -> RecordCache:
        """Return a cache of the same sealed records, for `encoded_blocks`; those are never changed, only replaced."""
        pinned = RecordCache(self._keys)
        pinned._single, pinned._blocks = self._single.copy(), self._blocks.copy()
        return pinned

    def encoded_blocks(self, count: int) -> Iterator[bytes]:
        """Yield the plaintexts of blocks that hold records 0 to ``count``, for `put_block` of another cache.

        Raises:
            UnsealError: one does not open any more.
        """
        for first in range(0, count, BLOCK_RECORDS):
            at = self._block_of(first)
            known = [] if at is None else self._members(self._blocks[at])[first - self._blocks[at].first :]
            members = list(known[: count - first])
            for number in range(first, min(first + BLOCK_RECORDS, count)):
                if number - first >= len(members) or number in self._single:
                    single = self._single.get(number)
                    encoded = b"" if single is None else self._keys.unseal_record(*single)
                    members[number - first : number - first + 1] = [encoded]
            yield msgspec.msgpack.encode(members)

    def _encoded(self, number: int) -> bytes:
        single = self._single.get(number)
        if single is not None:
            return self._keys.unseal_record(*single)
        at = self._block_of(number)
        if at is None:
            return b""
        members = self._members(self._blocks[at])
        place = number - self._blocks[at].first
        return members[place] if place < len(members) else b""

    def _members(self, block: _Block) -> list[bytes]:
        if self._last is None or self._last[0] is not block:
            self._last = (block, _BLOCK.decode(self._keys.unseal_index(block.name(), block.sealed)))
        return self._last[1]

    def _block_of(self, number: int) -> int | None:
        at = bisect_right(self._blocks, number, key=attrgetter("first")) - 1
        return at if at >= 0 else None

    def _note(self, number: int, record: Record, size: int) -> None:
        if size <= _OPEN_BYTES:
            self._open[number] = (record, size)


# Measured with twenty to a session: an id, its number and its place in the session.
_EACH_BYTES = 270


class Dialogues:
    """Numbers of dialogues in the cache, in the order of the log."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, tuple[int, str]] = {}
        self._by_session: dict[str, dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, record: bytes) -> bool:
        return record in self._numbers

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return len(self._numbers) * _EACH_BYTES

    def add(self, number: int, record: bytes, session: str) -> None:
        """Take one that has a place in the cache; in the order of the log."""
        self._numbers[record] = (number, session)
        self._by_session.setdefault(session, {})[number] = record

    def drop(self, record: bytes) -> int | None:
        """Forget one; returns the number it had."""
        number, session = self._numbers.pop(record, (None, ""))
        if number is not None:
            del self._by_session[session][number]
            if not self._by_session[session]:
                del self._by_session[session]
        return number

    def number_of(self, record: bytes) -> int | None:
        """Return one's number, if it is there."""
        return self._numbers.get(record, (None, ""))[0]

    def ids(self, session: str | None) -> list[bytes]:
        """Return a session's, oldest first; None is all of them."""
        if session is not None:
            return list(self._by_session.get(session, {}).values())
        return sorted(self._numbers, key=lambda record: self._numbers[record][0])

    def copy(self) -> Dialogues:
        """Return the same ones."""
        copied = Dialogues()
        copied._numbers = self._numbers.copy()
        copied._by_session = {session: found.copy() for session, found in self._by_session.items()}
        return copied

    def numbers(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each session with its numbers."""
        for session, found in self._by_session.items():
            yield session, list(found)


_NEVER = -(2**63)
_FOREVER = 2**63 - 1
# In place of the code of a record without a value; a code that no record has.
_NO_VALUE, _NEVER_GIVEN = -1, -2
# Up to so many values are compared with the codes one by one, which is faster than to look each code up in a table.
_COMPARED_VALUES = 8


class Facet:
    """One property of the records by number, such as their audience; it may have few distinct values, or as many as there are records.

    A value is kept as a number of its own, two bytes for each record, or four where there are very many values: `among` is a few numpy
    operations over all records.
    """

    def __init__(self) -> None:
        self._codes = Column(np.empty(0, np.int16))
        self._values: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return self._codes.values.nbytes + _VALUE_BYTES * len(self._values)

    def copy(self) -> Facet:
        """Return the same property, that goes its own way."""
        copied = Facet()
        copied._codes, copied._values = self._codes.copy(), self._values.copy()
        return copied

    @property
    def values(self) -> Collection[str]:
        """The values that records have, or had."""
        return self._values.keys()

    def append(self, value: str | None) -> None:
        """Give a value to the next record, None for one that has no value."""
        code = _NO_VALUE if value is None else self._values.setdefault(str(value), len(self._values))
        if code > np.iinfo(np.int16).max and self._codes.values.dtype == np.int16:
            self._codes = Column(self._codes.values.astype(np.int32))
        self._codes.append(code)

    def clear(self, number: int) -> None:
        """Take the value of a record away."""
        self._codes[number] = _NO_VALUE

    def has(self, number: int, values: Iterable[str]) -> bool:
        """Return whether a record has one of these values."""
        code = self._codes.values[number]
        return any(self._values.get(value) == code for value in values)

    def among(self, values: Iterable[str]) -> NDArray[np.bool_]:
        """Return for each record whether it has one of these values."""
        wanted = [code for value in set(values) if (code := self._values.get(value)) is not None]
        codes = self._codes.values
        if len(wanted) > _COMPARED_VALUES:
            # The last one is of records without a value.
            table = np.zeros(len(self._values) + 1, np.bool_)
            table[wanted] = True
            looked_up: NDArray[np.bool_] = table[codes]
            return looked_up
        passing: NDArray[np.bool_] = codes == (wanted[0] if wanted else _NEVER_GIVEN)
        for code in wanted[1:]:
            passing |= codes == code
        return passing

    def unset(self) -> NDArray[np.bool_]:
        """Return for each record whether it has no value."""
        without: NDArray[np.bool_] = self._codes.values == _NO_VALUE
        return without

    def stored(self) -> Iterator[tuple[str, bytes]]:
        """Yield each value that records have, with their numbers as `_packed`."""
        codes = self._codes.values
        # A stable order keeps the numbers of one value in rising order.
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(self._values) + 1))
        for value, code in self._values.items():
            numbers = order[ends[code] : ends[code + 1]]
            if len(numbers):
                yield value, numbers.astype("<u4").tobytes()

    def restore(self, count: int, stored: Iterable[tuple[str, bytes]]) -> None:
        """Take the values of ``count`` records from `stored`; raises `IndexError` for a number that is not one of theirs."""
        stored = list(stored)
        codes = np.full(count, _NO_VALUE, np.int16 if len(stored) <= np.iinfo(np.int16).max else np.int32)
        for value, numbers in stored:
            codes[np.frombuffer(numbers, "<u4")] = self._values.setdefault(value, len(self._values))
        self._codes = Column(codes)


# The facet that only suspect records have.
# What a session's dialogues are stored as: a facet that no filter asks for.
_DIALOGUE = "dialogue"
# What memories contradict which is stored as one, too: pairs of numbers, the older one first.
_CONTRADICTS = "contradicts"
# Measured: id, number and times of a record; a chat session with its newest record; a value of a facet.
_RECORD_BYTES = 240
_SESSION_BYTES = 220
_VALUE_BYTES = 150


class RosterParts(msgspec.Struct, frozen=True, array_like=True):
    """What a `RecordTable` is stored as; numbers are four little-endian bytes each, times eight.

    ``gone`` are the numbers of records that cannot be read, ``hidden`` of those that recall does not return,
    ``lacking`` of those without a vector, in the order in which they are to get one.
    """

    ids: list[bytes]
    gone: bytes
    hidden: bytes
    lacking: bytes
    occurred: bytes
    facets: list[tuple[str, str, bytes]]
    expiring: list[tuple[int, int]]
    sessions: list[tuple[str, bytes]]
    unreadable: int


class RecordTable:
    """Records by id and number; a number is given once, in the order of the log.

    Attributes:
        numbers: of the records that can be read.
        shown: numbers of what recall may return.
        unreadable: records of the log that could not be opened.
        dialogues: turns that were kept word for word: they have numbers, and are none of the records.
    """

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.shown: set[int] = set()
        self.unreadable = 0
        self.dialogues = Dialogues()
        self._facets = {name: Facet() for name in FACETS}
        # Times in ms by number: when it expires, `_FOREVER` if never; when it occurred, `_NEVER` if that is not known.
        self._expires = Column(np.empty(0, np.int64))
        self._expiring = 0
        self._occurred = Column(np.empty(0, np.int64))
        self._last_of_session: dict[str, bytes] = {}
        self._contradicted_by: dict[int, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        """How many numbers were given."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        held = len(self._ids) * _RECORD_BYTES + len(self._last_of_session) * _SESSION_BYTES
        return held + self.dialogues.nbytes + sum(facet.nbytes for facet in self._facets.values())

    def id_of(self, number: int) -> bytes:
        """Return the id behind a number."""
        return self._ids[number]

    def last_of_session(self, session: str) -> bytes | None:
        """Return the newest record of a host's chat session."""
        return self._last_of_session.get(session)

    def beside(self, number: int) -> set[int]:
        """Return the numbers of what recall may return and contradicts a record, or contradicts what does."""
        if number not in self._contradicted_by:
            return set()
        found: set[int] = set()
        left = [number]
        while left:
            new = set(self._contradicted_by.get(left.pop(), ())) - found
            found |= new
            left += new
        return found & self.shown - {number}

    def places(self) -> list[str]:
        """Return the groups in which records that recall may return were said."""
        words = {word for value in self._facets["audience"].values for word in value.split()}
        return [word.removeprefix("group:") for word in words if word.startswith("group:")]

    def is_of_kind(self, record: bytes, kinds: Iterable[str]) -> bool:
        """Whether a readable record is of one of these kinds."""
        return self._facets["kind"].has(self.numbers[record], kinds)

    def skip(self, record: bytes) -> None:
        """Give a number to a record that cannot be read."""
        self._append(record, {})

    def add_dialogue(self, dialogue: Record) -> None:
        """Give a number to a turn that was kept word for word; nothing but `dialogues` knows of it."""
        self.dialogues.add(len(self._ids), dialogue.id, dialogue.source.session)
        self.skip(dialogue.id)

    def add(self, record: Record) -> int:
        """Give a number to a record; recall may return it."""
        number = len(self._ids)
        self._append(record.id, dict(facets_of(record)), record.expires_at, record.occurred_at)
        self.numbers[record.id] = number
        self.shown.add(number)
        if record.source.session:
            self._last_of_session[record.source.session] = record.id
        for other in record.contradicts:
            if (older := self.numbers.get(other)) is not None:
                self._contradicted_by[older].append(number)
        return number

    def _append(
        self,
        record: bytes,
        facets: Mapping[str, str],
        expires_at: int | None = None,
        occurred_at: int | None = None,
    ) -> None:
        self._ids.append(record)
        for name, facet in self._facets.items():
            facet.append(facets.get(name))
        self._expires.append(_FOREVER if expires_at is None else expires_at)
        self._expiring += expires_at is not None
        self._occurred.append(_NEVER if occurred_at is None else occurred_at)

    def drop(self, record: bytes) -> int | None:
        """Forget all about a record, or a dialogue, but its place; returns the number it had."""
        if record in self.dialogues:
            return self.dialogues.drop(record)
        number = self.numbers.pop(record, None)
        if number is not None:
            self.shown.discard(number)
            self._expiring -= int(self._expires.values[number]) != _FOREVER
            self._expires[number] = _FOREVER
            self._contradicted_by.pop(number, None)
            self._occurred[number] = _NEVER
            for facet in self._facets.values():
                facet.clear(number)
            ended = [session for session, last in self._last_of_session.items() if last == record]
            for session in ended:
                del self._last_of_session[session]
        return number

    def allowed(
        self,
        *,
        kinds: Sequence[str] = (),
        audiences: Sequence[str] = (),
        trusts: Sequence[str] = (),
        suspect: bool = False,
        now: int,
    ) -> KeyMask | None:
        """Return the numbers that pass the filters, or None when everything passes."""
        tests = [
            self._facets[name].among(values)
            for name, values in (("kind", kinds), ("trust", trusts))
            if values
        ]
        if audiences:
            # The value of this facet is every filter that a record passes.
            facet, wanted = self._facets["audience"], set(audiences)
            heard = [value for value in facet.values if not wanted.isdisjoint(value.split())]
            tests.append(facet.among(heard))
        if not suspect:
            tests.append(self._facets["suspect"].unset())
        if self._expiring:
            tests.append(self._expires.values > now)
        for test in tests[1:]:
            tests[0] &= test
        return KeyMask(tests[0]) if tests else None

    def between(self, after: int | None, before: int | None) -> KeyMask:
        """Return the numbers of records that occurred in ``[after, before)``, in ms; those without a time did not."""
        times = self._occurred.values
        inside = times != _NEVER
        if after is not None:
            inside &= times >= after
        if before is not None:
            inside &= times < before
        return KeyMask(inside)

    def copy(self) -> RecordTable:
        """Return a table of the same records, that goes its own way."""
        copied = RecordTable()
        copied._ids, copied._occurred = self._ids.copy(), self._occurred.copy()
        copied.numbers, copied.shown, copied.unreadable = (
            self.numbers.copy(),
            self.shown.copy(),
            self.unreadable,
        )
        copied._facets = {name: facet.copy() for name, facet in self._facets.items()}
        copied._expires, copied._expiring = self._expires.copy(), self._expiring
        copied._last_of_session = self._last_of_session.copy()
        copied._contradicted_by.update((old, new.copy()) for old, new in self._contradicted_by.items())
        copied.dialogues = self.dialogues.copy()
        return copied

    def parts(self, lacking: Iterable[bytes]) -> RosterParts:
        """Return what `of_parts` takes, with the records that lack a vector."""
        known = self.numbers.values()
        return RosterParts(
            ids=self._ids.copy(),
            gone=_packed(set(range(len(self._ids))).difference(known)),
            hidden=_packed(set(known) - self.shown),
            lacking=_packed(self.numbers[record] for record in lacking),
            occurred=self._occurred.values.astype("<i8").tobytes(),
            facets=list(self._stored_facets()),
            expiring=self._stored_expiring(),
            sessions=list(self._last_of_session.items()),
            unreadable=self.unreadable,
        )

    def _stored_facets(self) -> Iterator[tuple[str, str, bytes]]:
        for name, facet in self._facets.items():
            yield from ((name, value, numbers) for value, numbers in facet.stored())
        for session, numbers in self.dialogues.numbers():
            yield _DIALOGUE, session, _packed(numbers)
        pairs = [(older, newer) for older, found in self._contradicted_by.items() for newer in found]
        if pairs:
            yield _CONTRADICTS, "", _packed(chain.from_iterable(pairs))

    def _stored_expiring(self) -> list[tuple[int, int]]:
        expires = self._expires.values
        numbers = np.flatnonzero(expires != _FOREVER)
        return list(zip(numbers.tolist(), expires[numbers].tolist(), strict=True))

    @classmethod
    def of_parts(cls, parts: RosterParts) -> tuple[RecordTable, dict[bytes, None]]:
        """Return a table and what lacks a vector; raises `ValueError` when the parts do not fit each other."""
        table = cls()
        count = len(parts.ids)
        gone, hidden = _unpacked(parts.gone), _unpacked(parts.hidden)
        table._ids = parts.ids
        table._occurred = Column(np.frombuffer(parts.occurred, "<i8").astype(np.int64))
        table.shown = set(range(count)).difference(gone, hidden)
        table.numbers = dict(zip(parts.ids, range(count), strict=True))
        for number in gone:
            del table.numbers[parts.ids[number]]
        facets: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for facet, value, members in parts.facets:
            if facet == _DIALOGUE:
                for number in _unpacked(members):
                    table.dialogues.add(number, parts.ids[number], value)
            elif facet == _CONTRADICTS:
                pairs = _unpacked(members)
                for older, newer in zip(pairs[::2], pairs[1::2], strict=True):
                    table._contradicted_by[older].append(newer)
            else:
                facets[facet].append((value, members))
        for name, known in table._facets.items():
            known.restore(count, facets[name])
        expires = np.full(count, _FOREVER, np.int64)
        for number, expires_at in parts.expiring:
            expires[number] = expires_at
        table._expires, table._expiring = Column(expires), len(parts.expiring)
        table._last_of_session = dict(parts.sessions)
        table.unreadable = parts.unreadable
        if len(table._occurred) != count or len(table.numbers) != count - len(gone):
            raise ValueError("the stored records do not fit each other")
        return table, dict.fromkeys(parts.ids[number] for number in _unpacked(parts.lacking))


def _packed(numbers: Iterable[int]) -> bytes:
    return np.fromiter(numbers, "<u4").tobytes()


def _unpacked(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, "<u4").tolist()
    return numbers


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory of an open namespace, or a turn that was kept word for word, as it was when it was looked up.

    Attributes:
        record: what was sealed; it never changes.
        state: what the log says of it, which goes on with the log.
        searchable: whether it could be found by meaning.
    """

    record: Record
    state: RecordState
    searchable: bool = True

    @property
    def id(self) -> bytes:
        """The record's id."""
        return self.record.id

    @property
    def is_live(self) -> bool:
        """Whether it is neither superseded nor forgotten; it may be over."""
        return self.state.status is Status.LIVE

    @property
    def active_at(self) -> int:
        """When it was last stored, said again, forgotten or restored, in ms."""
        return max(self.record.created_at, self.state.changed_at, self.state.reinforced_at)

    def ended_by(self, successor: Record | None) -> int | None:
        """Return until when it holds, in ms: as stated, or until the one in its place does; None when it does."""
        stated = self.record.valid_to
        if self.state.status is not Status.SUPERSEDED:
            return stated
        ended = self.state.changed_at
        if successor is not None and successor.valid_from is not None:
            ended = successor.valid_from
        return ended if stated is None else min(ended, stated)

    def passes(self, wanted: Selection) -> bool:
        """Whether it passes every filter but that of ids."""
        record, source = self.record, self.record.source
        among = (
            (wanted.kinds, record.kind),
            (wanted.trusts, record.trust),
            (wanted.hosts, source.host),
            (wanted.sessions, source.session),
            (wanted.speakers, source.speaker),
        )
        if any(values and value not in values for values, value in among):
            return False
        if wanted.audiences and not is_heard(record, wanted.audiences):
            return False
        flags = ((wanted.suspect, record.suspect), (wanted.pinned, record.pinned))
        if any(flag is not None and flag != value for flag, value in flags):
            return False
        return (
            _within(record.created_at, wanted.created_after, wanted.created_before)
            and _within(record.occurred_at, wanted.occurred_after, wanted.occurred_before)
            and (wanted.inactive_since is None or self.active_at < wanted.inactive_since)
        )


def is_heard(record: Record, audiences: Collection[str]) -> bool:
    """Return whether a record passes one of the filters."""
    return any(audience in audiences for audience in record.audiences)


def ids_of(wanted: Selection) -> frozenset[bytes]:
    """Return the ids that a selection names; none means all."""
    return frozenset(map(ulid.parse, wanted.ids))


def _within(at: int | None, after: int | None, before: int | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
