"""The records of one namespace: a cache of sealed records, a table of their properties, and decrypted memories.

`RecordCache` keeps records sealed in memory and decrypts them on access: that takes about 40 us, a recall needs only a
handful of thousands, and a sealed record takes a fraction of the memory of a decoded one. Recently used records stay
decrypted, within a few KiB. Records come from the log one by one, each sealed by itself, or from a stored index in
blocks of many. `RecordTable` assigns numbers to records, which are also their keys in the search index, and keeps the
properties that filters need: `Facet` does so for one property. `OpenedMemory` is a decrypted record together with its state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.crypto import NamespaceKeys
from relayer.domain.operations import FACETS, WHOLE, Record, RecordState, decode_record, facets_of
from relayer.lib.marking_words import marked
from relayer.lib.n_grams import UNSPACED
from relayer.search.essentials import essential_of
from relayer.search.rows import Column, KeyMask
from relayer.search.terms import WORD, Subject, named_in, names_any, subject
from relayer.wire import codec as ulid
from relayer.wire.codec import UnsealError
from relayer.wire.fields import Status
from relayer.wire.labels import decode_metadata, passes
from relayer.wire.schemas import Selection, with_replaced

# The number of records in a block. Decrypting a block for one of them takes about as long as decrypting two single records.
BLOCK_RECORDS = 32
_OPEN_BYTES = 32 * 1024
# The size of the cache of rendered memories, about 400 of them: later queries of a conversation find many of them again.
_SHOWN_BYTES = 512 * 1024
_SHOWN_ENTRY_BYTES = 400
# The size of a decoded record, as a multiple of its encoded size.
_AS_VALUE = 6
_ENTRY_BYTES = 150

_BLOCK = msgspec.msgpack.Decoder(list[bytes])


class _Block(NamedTuple):
    """A block of sealed records from number ``first`` on. An absent record is empty; ``name`` returns the id of the block."""

    first: int
    name: Callable[[], bytes]
    sealed: bytes


class MemoryOrigin(NamedTuple):
    """The origin of a memory, as far as penalties depend on it."""

    kind: str
    trust: str
    transcript: str
    reference: str


@dataclass(frozen=True, slots=True)
class RenderedMemory:
    """A memory as rendered for a response.

    Attributes:
        encoded: a JSON object.
        text_bytes: the length of its text in UTF-8, as far as it is contained.
    """

    encoded: bytes = field(repr=False)
    text_bytes: int
    origin: MemoryOrigin


class RecordCache:
    """The sealed records of a namespace by number, and caches of what was decrypted and rendered lately."""

    def __init__(self, keys: NamespaceKeys) -> None:
        self._keys = keys
        self._single: dict[int, tuple[bytes, bytes]] = {}
        self._blocks: list[_Block] = []
        self._open: LRUCache[int, tuple[Record, int]] = LRUCache(_OPEN_BYTES, itemgetter(1))
        # By number: the state that the memory was rendered from, and the result.
        self._shown: LRUCache[int, tuple[object, RenderedMemory]] = LRUCache(
            _SHOWN_BYTES, lambda known: len(known[1].encoded) + _SHOWN_ENTRY_BYTES
        )
        self._sealed_bytes = 0
        # The block that was decrypted last, so that iterating over all records decrypts each block once.
        self._last: tuple[_Block, list[bytes]] | None = None

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        entries = len(self._single) + len(self._blocks)
        opened = int(self._open.currsize) * _AS_VALUE + int(self._shown.currsize)
        return self._sealed_bytes + entries * _ENTRY_BYTES + opened

    def put(self, number: int, record_id: bytes, sealed: bytes, encoded: bytes) -> Record:
        """Add a record, sealed as in the log and in plaintext.

        Raises:
            msgspec.MsgspecError: the plaintext is not a valid record.
        """
        record = decode_record(encoded)
        self._shown.pop(number, None)
        self._single[number] = (record_id, sealed)
        self._sealed_bytes += len(sealed)
        self._note(number, record, len(encoded))
        return record

    def put_block(self, first: int, name: Callable[[], bytes], sealed: bytes) -> None:
        """Add a sealed block of a stored index; blocks are added in order and before any single record."""
        self._blocks.append(_Block(first, name, sealed))
        self._sealed_bytes += len(sealed)

    def get(self, number: int) -> Record | None:
        """Decrypt a record; None if there is none, or it can no longer be decrypted."""
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

    def shown(self, number: int, state: object) -> RenderedMemory | None:
        """Return a memory as rendered before, if it was rendered from the same state."""
        known = self._shown.get(number)
        return known[1] if known is not None and known[0] == state else None

    def keep_shown(self, number: int, state: object, shown: RenderedMemory) -> None:
        """Cache a memory as rendered from a state, until it is evicted or the record is dropped."""
        if len(shown.encoded) + _SHOWN_ENTRY_BYTES <= _SHOWN_BYTES:
            self._shown[number] = (state, shown)

    def drop(self, number: int, salt: bytes) -> None:
        """Delete a record permanently. The rest of its block is sealed again without it, with ``salt``."""
        self._open.pop(number, None)
        self._shown.pop(number, None)
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
        """Return a snapshot of the sealed records for `encoded_blocks`; sealed bytes are never changed, only replaced."""
        pinned = RecordCache(self._keys)
        pinned._single, pinned._blocks = self._single.copy(), self._blocks.copy()
        return pinned

    def encoded_blocks(self, count: int) -> Iterator[bytes]:
        """Yield the plaintexts of blocks with the first ``count`` records, for `put_block` of another cache.

        Raises:
            UnsealError: a record can no longer be decrypted.
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


# The size of an entry in bytes: an id, its number and its entry in the session. Measured with twenty turns in a session.
_EACH_BYTES = 270


class Dialogues:
    """The turns stored verbatim, by id and by session, with their numbers in the record cache; in log order."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, tuple[int, str]] = {}
        self._by_session: dict[str, dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, record: bytes) -> bool:
        return record in self._numbers

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return len(self._numbers) * _EACH_BYTES

    def add(self, number: int, record: bytes, session: str) -> None:
        """Add a turn that is in the record cache under this number; called in log order."""
        self._numbers[record] = (number, session)
        self._by_session.setdefault(session, {})[number] = record

    def drop(self, record: bytes) -> int | None:
        """Remove a turn and return the number that it had; None if there is none."""
        number, session = self._numbers.pop(record, (None, ""))
        if number is not None:
            del self._by_session[session][number]
            if not self._by_session[session]:
                del self._by_session[session]
        return number

    def number_of(self, record: bytes) -> int | None:
        """Return the number of a turn; None if there is none."""
        return self._numbers.get(record, (None, ""))[0]

    def ids(self, session: str | None) -> list[bytes]:
        """Return the ids of a session's turns, oldest first; of all sessions if ``session`` is None."""
        if session is not None:
            return list(self._by_session.get(session, {}).values())
        return sorted(self._numbers, key=lambda record: self._numbers[record][0])

    def copy(self) -> Dialogues:
        """Return an independent copy."""
        copied = Dialogues()
        copied._numbers = self._numbers.copy()
        copied._by_session = {session: found.copy() for session, found in self._by_session.items()}
        return copied

    def numbers(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each session with the numbers of its turns."""
        for session, found in self._by_session.items():
            yield session, list(found)


_NEVER = -(2**63)
_FOREVER = 2**63 - 1
# The code of a record without a value, and a code that no record has.
_NO_VALUE, _NEVER_GIVEN = -1, -2
# Up to this many values are compared with the codes one by one, which is faster than looking each code up in a table.
_COMPARED_VALUES = 8


class Facet:
    """One property of the records by number, such as their audience; it has between one value and one for each record.

    Each distinct value has a code, an integer of two bytes for each record, or of four if there are very many values. So
    `among` takes only a few numpy operations over all records.
    """

    def __init__(self) -> None:
        self._codes = Column(np.empty(0, np.int16))
        self._values: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return self._codes.values.nbytes + _VALUE_BYTES * len(self._values)

    def copy(self) -> Facet:
        """Return an independent copy."""
        copied = Facet()
        copied._codes, copied._values = self._codes.copy(), self._values.copy()
        return copied

    @property
    def values(self) -> Collection[str]:
        """The values that records have or had."""
        return self._values.keys()

    def append(self, value: str | None) -> None:
        """Append the value of the next record; None if it has none."""
        code = _NO_VALUE if value is None else self._values.setdefault(str(value), len(self._values))
        if code > np.iinfo(np.int16).max and self._codes.values.dtype == np.int16:
            self._codes = Column(self._codes.values.astype(np.int32))
        self._codes.append(code)

    def clear(self, number: int) -> None:
        """Remove the value of a record."""
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
            # The last element is for records without a value, whose code is -1.
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
        """Yield each value that records have, with their numbers encoded as by `_packed`."""
        codes = self._codes.values
        # A stable order keeps the numbers of one value in rising order.
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(self._values) + 1))
        for value, code in self._values.items():
            numbers = order[ends[code] : ends[code + 1]]
            if len(numbers):
                yield value, numbers.astype("<u4").tobytes()

    def restore(self, count: int, stored: Iterable[tuple[str, bytes]]) -> None:
        """Restore the values of ``count`` records from what `stored` yielded.

        Raises:
            IndexError: a number is not that of one of the records.
        """
        stored = list(stored)
        codes = np.full(count, _NO_VALUE, np.int16 if len(stored) <= np.iinfo(np.int16).max else np.int32)
        for value, numbers in stored:
            codes[np.frombuffer(numbers, "<u4")] = self._values.setdefault(value, len(self._values))
        self._codes = Column(codes)


class _Own(StrEnum):
    """Names of stored facets that no filter uses."""

    # The verbatim turns of each session.
    DIALOGUE = "dialogue"
    # Memories that are shown before others: pairs of numbers, the older memory first.
    SHOWN_BEFORE = "shown before"
    # Replaced statements: the number of the memory, that of the memory that replaced it, and its start and end.
    REPLACED = "replaced"
    # Wishes not to be reminded: their words, one a line.
    UNMENTIONED = "unmentioned"


# Measured sizes in bytes: id, number and times of a record; a chat session with its newest record; a value of a facet.
_RECORD_BYTES = 240
_SESSION_BYTES = 220
_VALUE_BYTES = 150


class RosterParts(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of a `RecordTable`; numbers take four little-endian bytes each, timestamps eight.

    Attributes:
        ids: the id of each record by number.
        gone: numbers of the records that cannot be read.
        hidden: numbers of the records that recall does not return.
        lacking: numbers of the records without a vector, in the order in which vectors are to be computed.
        occurred: the time at which each record occurred.
        facets: facet, value, and the numbers of the records that have it.
        expiring: numbers of records that expire, each with the time in ms.
        sessions: chat sessions, each with the id of its newest record.
        unreadable: number of log records that could not be decrypted.
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
    """The properties of records by number. Numbers are assigned in log order and never reused.

    Attributes:
        numbers: the numbers of the readable records by id.
        shown: the numbers of the records that recall may return.
        unreadable: how many records of the log could not be decrypted.
        dialogues: the turns stored verbatim. They have numbers too, but do not count as records.
    """

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.shown: set[int] = set()
        self.unreadable = 0
        self.dialogues = Dialogues()
        self._facets = {name: Facet() for name in FACETS}
        # Times in ms by number: when the record expires, `_FOREVER` if never; when it occurred, `_NEVER` if unknown.
        self._expires = Column(np.empty(0, np.int64))
        self._expiring = 0
        self._occurred = Column(np.empty(0, np.int64))
        self._last_of_session: dict[str, bytes] = {}
        self._newer: dict[int, list[int]] = defaultdict(list)
        self._replaced: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._unmentioned: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """Return how many numbers have been assigned."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        held = len(self._ids) * _RECORD_BYTES + len(self._last_of_session) * _SESSION_BYTES
        return held + self.dialogues.nbytes + sum(facet.nbytes for facet in self._facets.values())

    def id_of(self, number: int) -> bytes:
        """Return the id of the record with a number."""
        return self._ids[number]

    def last_of_session(self, session: str) -> bytes | None:
        """Return the id of the newest record of a host's chat session; None if there is none."""
        return self._last_of_session.get(session)

    def newer(self, number: int) -> set[int]:
        """Return the numbers of the records that contradict or follow a record, directly or not, and may be recalled."""
        if number not in self._newer:
            return set()
        found: set[int] = set()
        left = [number]
        while left:
            new = set(self._newer.get(left.pop(), ())) - found
            found |= new
            left += new
        return found & self.shown - {number}

    def places(self) -> list[str]:
        """Return the groups in the audiences of records, including records that are no longer recalled."""
        words = {word for value in self._facets["audience"].values for word in value.split()}
        return [word.removeprefix("group:") for word in words if word.startswith("group:")]

    def is_of_kind(self, record: bytes, kinds: Iterable[str]) -> bool:
        """Return whether a readable record is of one of these kinds."""
        return self._facets["kind"].has(self.numbers[record], kinds)

    def skip(self, record: bytes) -> None:
        """Assign the next number to a record whose content cannot be read, so that no search returns it."""
        self._append(record, {})

    def add_dialogue(self, dialogue: Record) -> None:
        """Assign a number to a turn that is stored verbatim; only `dialogues` refers to it."""
        self.dialogues.add(len(self._ids), dialogue.id, dialogue.source.session)
        self.skip(dialogue.id)

    def add(self, record: Record) -> int:
        """Assign a number to a record, which recall may return from now on, and return the number."""
        number = len(self._ids)
        self._append(record.id, dict(facets_of(record)), record.expires_at, record.occurred_at)
        self.numbers[record.id] = number
        self.shown.add(number)
        if record.source.session:
            self._last_of_session[record.source.session] = record.id
        for other in (*record.contradicts, *record.follows):
            if (older := self.numbers.get(other)) is not None:
                self._newer[older].append(number)
        for other, start, end in record.replaces:
            if (older := self.numbers.get(other)) is not None and (start, end) != WHOLE:
                self._replaced[older].append((number, start, end))
        if record.unmentioned:
            self._unmentioned[number] = record.unmentioned
        return number

    def wishes(self, audiences: Sequence[str], trusts: Sequence[str], now: int) -> list[Wish]:
        """Return the id and the subject of the newest `MOST_WISHES` wishes not to be reminded that recall may return, oldest first."""
        if not self._unmentioned:
            return []
        allowed = self.allowed(audiences=audiences, trusts=trusts, now=now)
        live = [
            number
            for number in self._unmentioned
            if number in self.shown and (allowed is None or number in allowed)
        ]
        return [(self._ids[number], subject(self._unmentioned[number])) for number in live[-MOST_WISHES:]]

    def replaced_by(self, number: int) -> list[int]:
        """Return the numbers of the records of which a record replaced a statement."""
        return [older for older, spans in self._replaced.items() if any(by == number for by, *_ in spans)]

    def parts_replaced_by(self, numbers: Container[int]) -> dict[int, tuple[int, int, int]]:
        """Return for each of some records the number of a record of which it replaced a statement, and where that is."""
        return {
            by: (older, start, end)
            for older, spans in self._replaced.items()
            for by, start, end in spans
            if by in numbers
        }

    def replaced(self, record: bytes) -> list[tuple[bytes, int, int]]:
        """Return the replaced statements of a record: the id of the record that replaced each, its start and its end."""
        spans = self._replaced.get(self.numbers.get(record, -1), ())
        return [(self._ids[newer], start, end) for newer, start, end in spans]

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
        """Remove a record or verbatim turn, and return the number that it had; the number is not used again."""
        if record in self.dialogues:
            return self.dialogues.drop(record)
        number = self.numbers.pop(record, None)
        if number is not None:
            self.shown.discard(number)
            self._expiring -= int(self._expires.values[number]) != _FOREVER
            self._expires[number] = _FOREVER
            self._newer.pop(number, None)
            self._replaced.pop(number, None)
            self._unmentioned.pop(number, None)
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
        """Return the numbers of the records that pass the filters; None if all do.

        Each filter lists what is accepted, empty for all. Records that have expired at ``now``, in ms, never pass, and suspect
        ones only with ``suspect``.
        """
        tests = [
            self._facets[name].among(values)
            for name, values in (("kind", kinds), ("trust", trusts))
            if values
        ]
        if audiences:
            # The value of this facet lists all audience filters that a record passes, separated by spaces.
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
        """Return the numbers of the records that occurred in ``[after, before)``, in ms; records without a time do not match."""
        times = self._occurred.values
        inside = times != _NEVER
        if after is not None:
            inside &= times >= after
        if before is not None:
            inside &= times < before
        return KeyMask(inside)

    def copy(self) -> RecordTable:
        """Return an independent copy."""
        copied = RecordTable()
        copied._ids, copied._occurred = self._ids.copy(), self._occurred.copy()
        copied.numbers, copied.shown = self.numbers.copy(), self.shown.copy()
        copied.unreadable = self.unreadable
        copied._facets = {name: facet.copy() for name, facet in self._facets.items()}
        copied._expires, copied._expiring = self._expires.copy(), self._expiring
        copied._last_of_session = self._last_of_session.copy()
        copied._newer.update((old, new.copy()) for old, new in self._newer.items())
        copied._replaced.update((old, new.copy()) for old, new in self._replaced.items())
        copied._unmentioned = self._unmentioned.copy()
        copied.dialogues = self.dialogues.copy()
        return copied

    def parts(self, lacking: Iterable[bytes]) -> RosterParts:
        """Return the stored form, for `of_parts`; ``lacking`` are the ids of the records without a vector."""
        known = self.numbers.values()
        expires = self._expires.values
        numbers = np.flatnonzero(expires != _FOREVER)
        return RosterParts(
            ids=self._ids.copy(),
            gone=_packed(set(range(len(self._ids))).difference(known)),
            hidden=_packed(set(known) - self.shown),
            lacking=_packed(self.numbers[record] for record in lacking),
            occurred=self._occurred.values.astype("<i8").tobytes(),
            facets=list(self._stored_facets()),
            expiring=list(zip(numbers.tolist(), expires[numbers].tolist(), strict=True)),
            sessions=list(self._last_of_session.items()),
            unreadable=self.unreadable,
        )

    def _stored_facets(self) -> Iterator[tuple[str, str, bytes]]:
        for name, facet in self._facets.items():
            yield from ((name, value, numbers) for value, numbers in facet.stored())
        for session, numbers in self.dialogues.numbers():
            yield _Own.DIALOGUE, session, _packed(numbers)
        pairs = [(older, newer) for older, found in self._newer.items() for newer in found]
        if pairs:
            yield _Own.SHOWN_BEFORE, "", _packed(chain.from_iterable(pairs))
        spans = [(older, *span) for older, found in self._replaced.items() for span in found]
        if spans:
            yield _Own.REPLACED, "", _packed(chain.from_iterable(spans))
        yield from (
            (_Own.UNMENTIONED, "\n".join(words), _packed([number]))
            for number, words in self._unmentioned.items()
        )

    @classmethod
    def of_parts(cls, parts: RosterParts) -> tuple[RecordTable, dict[bytes, None]]:
        """Return a table from its stored form, and the ids of the records without a vector.

        Raises:
            ValueError: the parts are inconsistent.
        """
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
            if not table._restore(facet, value, members):
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

    def _restore(self, facet: str, value: str, members: bytes) -> bool:
        """Read a stored facet that is none of `FACETS`; return whether it was one."""
        match facet:
            case _Own.DIALOGUE:
                for number in _unpacked(members):
                    self.dialogues.add(number, self._ids[number], value)
            case _Own.SHOWN_BEFORE:
                for older, newer in np.frombuffer(members, "<u4").reshape(-1, 2).tolist():
                    self._newer[older].append(newer)
            case _Own.REPLACED:
                for older, newer, start, end in np.frombuffer(members, "<u4").reshape(-1, 4).tolist():
                    self._replaced[older].append((newer, start, end))
            case _Own.UNMENTIONED:
                for number in _unpacked(members):
                    self._unmentioned[number] = tuple(value.split("\n"))
            case _:
                return False
        return True


def _packed(numbers: Iterable[int]) -> bytes:
    return np.fromiter(numbers, "<u4").tobytes()


def _unpacked(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, "<u4").tolist()
    return numbers


# What separates clauses, at the ends of what is left of a text.
_LEFT_OVER = " \n,;:-\u2013\u2014\u060c\u061b\uff0c\uff1b\u3001"


class ReplacedSpan(NamedTuple):
    """A statement of a memory that another memory replaced: its start and end in the text, and the id of the other memory."""

    start: int
    end: int
    by: bytes


@dataclass(frozen=True, slots=True)
class OpenedMemory:
    """A memory of an open namespace, or a turn that was stored verbatim.

    Attributes:
        record: the decrypted record; it never changes.
        state: its state in the log, which changes as the log advances.
        searchable: whether it had a vector when it was looked up, and so could be found by meaning.
        replaced: the statements of its text that other memories replaced.
    """

    record: Record
    state: RecordState
    searchable: bool = True
    replaced: tuple[ReplacedSpan, ...] = ()

    @property
    def text(self) -> str:
        """The text as it is shown: without the statements that were replaced."""
        text = self.record.text
        for start, end in sorted({(gone.start, gone.end) for gone in self.replaced}, reverse=True):
            text = f"{text[:start].rstrip()} {text[end:].lstrip()}"
        return text.strip(_LEFT_OVER) if self.replaced else text

    @property
    def told(self) -> str:
        """The text as a prompt shows it: with the replaced statements that what is left may lean on, marked as no longer so."""
        leant_on = (gone for gone in self.replaced if self.is_followed(gone))
        return with_replaced(self.text, (self.record.text[start:end] for start, end, _ in leant_on))

    def is_followed(self, gone: ReplacedSpan) -> bool:
        """Return whether something of the text is left after a statement that was replaced."""
        start = gone.end
        for other in sorted(self.replaced):
            if self.record.text[start : other.start].strip(_LEFT_OVER):
                return True
            start = max(start, other.end)
        return bool(self.record.text[start:].strip(_LEFT_OVER))

    @property
    def id(self) -> bytes:
        """The id of the memory or the turn, a ULID of 16 bytes."""
        return self.record.id

    @property
    def is_live(self) -> bool:
        """Return whether it is neither superseded nor forgotten; its validity may have ended."""
        return self.state.status is Status.LIVE

    @property
    def active_at(self) -> int:
        """The time at which it was last stored, said again, forgotten or restored, in ms."""
        return max(self.record.created_at, self.state.changed_at, self.state.reinforced_at)

    def ended_by(self, successor: Record | None) -> int | None:
        """Return the time at which its validity ends, in ms; None if it does not.

        That is the stated end, or the start of the memory that superseded it if that is earlier.

        ``successor`` is the record that superseded it, if there is one that can be read.
        """
        stated = self.record.valid_to
        if self.state.status is not Status.SUPERSEDED:
            return stated
        ended = self.state.changed_at
        if successor is not None and successor.valid_from is not None:
            ended = successor.valid_from
        return ended if stated is None else min(ended, stated)

    def passes(self, wanted: Selection) -> bool:
        """Return whether it passes every filter of a selection except the ids."""
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
        if wanted.where is not None and not passes(
            wanted.where, tags=record.tags, session=source.session, metadata=decode_metadata(record.metadata)
        ):
            return False
        flags = ((wanted.suspect, record.suspect), (wanted.pinned, record.pinned))
        if any(flag is not None and flag != value for flag, value in flags):
            return False
        return (
            _within(record.created_at, wanted.created_after, wanted.created_before)
            and _within(record.occurred_at, wanted.occurred_after, wanted.occurred_before)
            and (wanted.inactive_since is None or self.active_at < wanted.inactive_since)
        )


Wish = tuple[bytes, Subject]
"""The id of a wish not to be reminded, and what it is about."""
MOST_WISHES = 64
"""The most wishes not to be reminded that count, because each is compared with every memory of a prompt."""


def is_heard(record: Record, audiences: Collection[str]) -> bool:
    """Return whether a record passes one of the audience filters."""
    return any(audience in audiences for audience in record.audiences)


def kept_out_by(record: Record, wishes: Sequence[Wish]) -> bytes:
    """Return the id of the first wish not to be reminded that keeps a memory out of a prompt; empty if none does.

    What could harm a person is kept out only by a wish about that: a wish about a person or an accident is no reason to
    leave out an allergy.
    """
    if not wishes:
        return b""
    text = record.text
    of_text = named_in(text)
    return next(
        (
            wish
            for wish, about in wishes
            if wish == record.id
            or (names_any(about, of_text) and (essential_of(text) != "harm" or _names_harm(about, text)))
        ),
        b"",
    )


def _names_harm(about: Subject, text: str) -> bool:
    """Return whether a word of a text that a wish names, see `names_any`, is one that marks a harm."""
    words = [word for phrase in about for word in phrase if word]
    # The terms of a wish have no accents, so words are taken from the text; those without spaces are told from their pairs of characters.
    named = [found for found in WORD.findall(text) if names_any([[word] for word in words], named_in(found))]
    named = [found for found in named if not UNSPACED.search(found)]
    named += [first + "".join(pair[-1] for pair in rest) for first, *rest in words if UNSPACED.search(first)]
    return "harm" in marked(" ".join(named))


def ids_of(wanted: Selection) -> frozenset[bytes]:
    """Return the ids that a selection names; empty means all memories."""
    return frozenset(map(ulid.parse, wanted.ids))


def _within(at: int | None, after: int | None, before: int | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
