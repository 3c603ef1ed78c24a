"""The searchable view of a namespace: records, indexes and journal, derived from its log.

`NamespaceView.apply` follows the log operation by operation. A namespace is searched in one `EmbeddingSpace` at a time:
when the operator changes the model, maintenance embeds its memories again, and until then it is searched with the vectors
of the previous model. The `Journal` records the last change of each memory in log order, the same on every relayer that
has read the same log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, takewhile

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.crypto import NamespaceKeys
from relayer.domain import operations as ops
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace
from relayer.lib.scheduler import Turns
from relayer.namespaces.labels import LabelColumns
from relayer.namespaces.records import RecordCache, RecordTable
from relayer.ports import EmbeddingModel, Randomness
from relayer.search.baseline import Calibration
from relayer.search.index import MemoryIndex, PinnedIndex
from relayer.search.passages import Meaning, is_long, passages
from relayer.search.rows import search_row
from relayer.search.terms import indexed_text, terms, variety
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import SALT_SIZE

# The number of memories that may still lack a vector when a namespace switches to the new model. A namespace that is
# written to all the time would never have vectors for all of them.
_MOST_LEFT = 32
_SHARE_LEFT = 100


@dataclass(slots=True, eq=False)
class CalibratedModel:
    """An embedding model and the calibration that maps its scores to relevance; shared by all namespaces, completed once."""

    model: EmbeddingModel
    calibration: Calibration


@dataclass(slots=True, eq=False)
class EmbeddingSpace:
    """The vectors of one model in one namespace.

    Attributes:
        lacking: ids of the memories without a vector of the model, in the order in which vectors are to be computed.
    """

    by: CalibratedModel
    lacking: dict[bytes, None] = field(default_factory=dict)

    def may_serve(self, memories: int) -> bool:
        """Return whether a namespace can be searched in this space: at most 1 % of its memories, and 32, lack a vector."""
        return len(self.lacking) <= min(_MOST_LEFT, memories // _SHARE_LEFT)


Mark = tuple[int, int]
# Measured sizes in bytes: a change with its entry in the dictionary; a stored change.
_CHANGE_BYTES = 230
_STORED_BYTES = 40
_PAGE_CHANGES = 512


class ChangeKind(StrEnum):
    """The kind of a change of a memory."""

    REMEMBERED = "remembered"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a memory.

    Attributes:
        mark: a cursor: the log entry that made the change, and the number of the change within that entry, from 1.
    """

    mark: Mark
    what: ChangeKind
    record: bytes


class JournalParts(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of a `Journal`: the last cursor, and pages of record, entry, number and kind of change, in log order.

    Each page is a MessagePack array of its own, because only recent changes are ever requested.
    """

    last: Mark
    count: int
    pages: list[bytes]


_Row = tuple[bytes, tuple[int, int, ChangeKind]]
_PAGE = msgspec.msgpack.Decoder(list[_Row])


class Journal:
    """The last change of each memory. It grows with the number of memories, not of operations."""

    def __init__(self) -> None:
        # In the order of the changes. The entries are kept small, because there is one for every memory.
        self._changes: dict[bytes, tuple[int, int, ChangeKind]] = {}
        self._last: Mark = (0, 0)
        # The stored changes, all older than those above, which replace them if they are of the same record.
        self._pages: list[bytes] = []
        self._stored = 0

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return len(self._changes) * _CHANGE_BYTES + self._stored * _STORED_BYTES

    def note(self, seq: int, what: ChangeKind, record: bytes) -> None:
        """Record a change; called in log order."""
        self._last = (seq, self._last[1] + 1 if self._last[0] == seq else 1)
        self._changes.pop(record, None)
        self._changes[record] = (*self._last, what)

    def after(self, mark: Mark) -> list[Change]:
        """Return the changes after a cursor, in log order."""
        stored = (row for page in reversed(self._pages) for row in reversed(self._left_of(page)))
        newest_first = (
            Change((seq, number), what, record)
            for record, (seq, number, what) in chain(reversed(self._changes.items()), stored)
        )
        return list(takewhile(lambda change: change.mark > mark, newest_first))[::-1]

    def _left_of(self, page: bytes) -> list[_Row]:
        return [row for row in _PAGE.decode(page) if row[0] not in self._changes]

    def copy(self) -> Journal:
        """Return an independent copy."""
        copied = Journal()
        copied._changes, copied._last = self._changes.copy(), self._last
        copied._pages, copied._stored = self._pages, self._stored
        return copied

    async def parts(self) -> JournalParts:
        """Return the stored form, for `of_parts`; yields to the event loop, and no change may be recorded meanwhile."""
        if not self._changes:
            return JournalParts(self._last, self._stored, self._pages)
        turns = Turns()
        rows: list[_Row] = []
        for page in self._pages:
            rows += self._left_of(page)
            await turns.give()
        rows += self._changes.items()
        pages = []
        for start in range(0, len(rows), _PAGE_CHANGES):
            pages.append(msgspec.msgpack.encode(rows[start : start + _PAGE_CHANGES]))
            await turns.give()
        return JournalParts(self._last, len(rows), pages)

    @classmethod
    def of_parts(cls, parts: JournalParts) -> Journal:
        """Return a journal from its stored form."""
        journal = cls()
        journal._last, journal._pages, journal._stored = parts.last, parts.pages, parts.count
        return journal


def _remembered(state: NamespaceState, record: bytes) -> Iterator[tuple[ChangeKind, bytes]]:
    """Yield that a memory was stored, and before it that it superseded another one, if it did."""
    known = state.records.get(record)
    if known is not None and known.supersedes:
        yield ChangeKind.SUPERSEDED, known.supersedes
    yield ChangeKind.REMEMBERED, record


_VECTOR_TYPE = np.dtype("<f2")
_START_BYTES = 4


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """Encode a unit vector as little-endian float16, the precision in which it is stored and searched."""
    return vector.astype(_VECTOR_TYPE).tobytes()


def decode_vector(data: bytes) -> NDArray[np.float32]:
    """Decode the result of `encode_vector`."""
    return np.frombuffer(data, _VECTOR_TYPE).astype(np.float32)


def encode_meaning(meaning: Meaning) -> bytes:
    """Encode a memory's own vector, followed by the offset (uint32) and the vector of each further passage."""
    further = (
        start.to_bytes(_START_BYTES, "little") + encode_vector(vector) for start, vector in meaning.passages
    )
    return encode_vector(meaning.row) + b"".join(further)


def decode_meaning(data: bytes, dimension: int) -> Meaning:
    """Decode the result of `encode_meaning`.

    If the length of the data does not fit, the result is one vector of a wrong length, which no index accepts.
    """
    size = dimension * _VECTOR_TYPE.itemsize
    step = _START_BYTES + size
    if (len(data) - size) % step:
        return Meaning(decode_vector(data[: len(data) // _VECTOR_TYPE.itemsize * _VECTOR_TYPE.itemsize]))
    further = (data[at : at + step] for at in range(size, len(data), step))
    return Meaning(
        decode_vector(data[:size]),
        tuple(
            (int.from_bytes(one[:_START_BYTES], "little"), decode_vector(one[_START_BYTES:]))
            for one in further
        ),
    )


def header_of(record: ops.Record) -> str:
    """Return a record's text as it is embedded and indexed."""
    return headed(record, record.text)


def headed(record: ops.Record, text: str) -> str:
    """Return a part of a record's text with its speaker and date, as it is embedded and indexed."""
    return indexed_text(record.source.speaker or None, record.occurred_at, text)


def _is_whole(record: ops.Record, meaning: Meaning | None) -> bool:
    """Return whether a record has all the vectors that it is to have, those of passages included."""
    return meaning is not None and (bool(meaning.passages) or not is_long(record.text))


@dataclass(frozen=True, slots=True, eq=False)
class PinnedView:
    """A snapshot of a `NamespaceView`; ``lacking`` are the ids of the records without a vector."""

    table: RecordTable
    lacking: tuple[bytes, ...]
    records: RecordCache
    index: PinnedIndex
    past: PinnedIndex
    journal: Journal


class NamespaceView:
    """The records, indexes and filters of one namespace; changed only by `apply`, on the event loop.

    Attributes:
        space: the embedding space that is searched.
        coming: the space of the newest model while its vectors are being computed; None once it is searched.
        index: the index of the live memories.
        past: the index of the superseded and forgotten memories, under the same keys.
        purge_due: whether the indexes may still contain vectors of erased memories.
        table: the properties of the records; verbatim turns have a number in it, but do not count as records.
        labels: the tags and metadata of the records, as far as filters asked for them.
        plaintexts: plaintexts by record, part and seal, so that they need not be decrypted when the log applies them.
    """

    def __init__(self, keys: NamespaceKeys, searched_by: CalibratedModel, randomness: Randomness) -> None:
        self._keys = keys
        self._randomness = randomness
        self.space = EmbeddingSpace(searched_by)
        self.coming: EmbeddingSpace | None = None
        self.table = RecordTable()
        self.records = RecordCache(keys)
        self.labels = LabelColumns()
        self.index = MemoryIndex(searched_by.model.dimension, searched_by.calibration)
        self.past = MemoryIndex(searched_by.model.dimension, searched_by.calibration)
        self.journal = Journal()
        self.purge_due = False
        self.plaintexts: dict[tuple[bytes, str, bytes], bytes] = {}
        # Long texts whose passages are not in the term index yet. The value is a unique object, so that `read_long` notices
        # when the entry was replaced while it yielded to the event loop.
        self._unread: dict[int, object] = {}

    def prepare(self, newest: CalibratedModel) -> None:
        """Start to collect vectors of another model, for all present and future records."""
        self.coming = EmbeddingSpace(newest, dict.fromkeys(self.table.numbers))
        for index in (self.index, self.past):
            index.prepare(newest.model.dimension)

    @property
    def newest(self) -> EmbeddingSpace:
        """The space of the newest model."""
        return self.coming or self.space

    def cut_over(self) -> None:
        """Switch to the space of the newest model if enough of its vectors exist."""
        if self.coming is not None and self.coming.may_serve(len(self)):
            self.space, self.coming = self.coming, None
            for index in (self.index, self.past):
                index.cut_over(self.space.by.calibration)

    def recalibrate(self) -> None:
        """Apply the current calibration of the model to the indexes."""
        self.index.calibration = self.past.calibration = self.space.by.calibration

    def __len__(self) -> int:
        return len(self.table.numbers)

    def __contains__(self, record: bytes) -> bool:
        return record in self.table.numbers

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        held = (self.table, self.records, self.labels, self.index, self.past, self.journal)
        return sum(part.nbytes for part in held)

    def get(self, record: bytes) -> ops.Record | None:
        """Decrypt a record; None if there is none, or it cannot be decrypted."""
        number = self.table.numbers.get(record)
        return None if number is None else self.records.get(number)

    def by_number(self, number: int) -> ops.Record:
        """Decrypt the record of a hit; raises `CorruptNamespace` if it can no longer be decrypted."""
        record = self.records.get(number)
        if record is None:
            raise CorruptNamespace("a record in memory does not open any more")
        return record

    def apply(self, state: NamespaceState, applied: Sequence[Applied]) -> None:
        """Apply operations as the log did; called once for each applied entry, in order."""
        for item in applied:
            if not item.repeated and item.outcome.result is not ops.OperationResult.REFUSED:
                for what, record in self._follow(state, item.operation, item.outcome):
                    self.journal.note(item.outcome.seq, what, record)

    def _follow(
        self, state: NamespaceState, operation: ops.Operation | ops.MalformedBody, outcome: ops.Outcome
    ) -> Iterator[tuple[ChangeKind, bytes]]:
        """Apply an operation, and then yield the changes that it made, each with the id of the memory, in order."""
        match operation:
            case ops.Put(stored=stored, replaces=head) if outcome.result is ops.OperationResult.STORED:
                self._add(stored)
                if (old := state.records.get(head)) is not None and old.superseded_by == stored.record:
                    self._hide(head)
                yield from _remembered(state, stored.record)
            case ops.Supersede(head=head, stored=stored):
                self._hide(head)
                self._add(stored)
                yield from ((ChangeKind.SUPERSEDED, head), (ChangeKind.REMEMBERED, stored.record))
            case ops.Forget(head=head):
                self._hide(head)
                yield ChangeKind.FORGOTTEN, head
            case ops.Restore(record=record, head=head):
                self._hide(head)
                self._show(record)
                yield from [(ChangeKind.SUPERSEDED, head)] if head else []
                yield ChangeKind.RESTORED, record
            case ops.Erase():
                erasure = state.erasures.known[outcome.subject]
                gone = (*erasure.records, *erasure.derived)
                self._drop(state, gone)
                yield from ((ChangeKind.ERASED, record) for record in gone)
            case ops.JobFinished():
                kept = set(state.jobs[operation.job].results)
                self._finish(state, operation, kept)
                for stored in operation.stored:
                    if stored.record in kept:
                        yield from _remembered(state, stored.record)
            case _:
                return

    def _finish(self, state: NamespaceState, end: ops.JobFinished, kept: set[bytes]) -> None:
        for stored in end.stored:
            if stored.record in kept and stored.record not in self:
                self._add(stored)
        for record, head in end.supersedes:
            new = state.records.get(record)
            if new is not None and record in kept and new.supersedes == head:
                self._hide(head)
        self._attach(end.vectors)

    def _add(self, stored: ops.Stored) -> None:
        if not stored.sealed:
            # It was erased later in the log, and the segment does not contain its text any more. It still gets a number, so
            # that all other records have the same numbers on every relayer.
            self.table.skip(stored.record)
            return
        number = len(self.table)
        try:
            encoded = self._open(stored.record, "record", stored.sealed)
            record = self.records.put(number, stored.record, stored.sealed, encoded)
            own = self._space_of(record.embedding.detail)
            meaning = None
            if stored.vector and own is not None:
                meaning = self._open_vectors(record, own, stored.vector, stored.context_vector)
        except (UnsealError, msgspec.MsgspecError):
            # One damaged record must not make the others unreadable; `verify` finds it, and it is counted.
            self._let_go(number)
            self.table.unreadable += 1
            return
        if record.is_dialogue:
            self.table.add_dialogue(record)
            return
        self.table.add(record)
        found: list[Meaning | None] = []
        for space in (self.space, self.coming):
            is_of = space is not None and record.embedding.detail == space.by.model.sha256
            found.append(meaning if is_of else None)
            if space is not None and not _is_whole(record, found[-1]):
                space.lacking[stored.record] = None
        self._index(number, record, *found)

    def _space_of(self, model: str) -> EmbeddingSpace | None:
        return next((space for space in (self.space, self.newest) if space.by.model.sha256 == model), None)

    def _open(self, record: bytes, part: str, sealed: bytes) -> bytes:
        known = self.plaintexts.get((record, part, sealed))
        if known is not None:
            return known
        if part == "record":
            return self._keys.unseal_record(record, sealed)
        return self._keys.unseal_vector(record, part, sealed)

    def _open_vectors(self, record: ops.Record, space: EmbeddingSpace, own: bytes, context: bytes) -> Meaning:
        meaning = decode_meaning(self._open(record.id, "own", own), space.by.model.dimension)
        # If the text before it was erased, a record is found by its own text alone.
        known = context and record.context_of in self
        before = decode_vector(self._open(record.id, "context", context)) if known else None
        if before is not None and before.shape != meaning.row.shape:
            before = None
        return meaning._replace(row=search_row(meaning.row, before))

    def _attach(self, vectors: Iterable[ops.VectorSet]) -> None:
        """Add vectors that were computed after the records were stored, by either of the models."""
        for item in vectors:
            if item.record not in self or not item.vector:
                continue
            number = self.table.numbers[item.record]
            record = self.by_number(number)
            space = self._space_of(item.model or record.embedding.detail)
            if space is None:
                continue
            try:
                meaning = self._open_vectors(record, space, item.vector, item.context_vector)
            except UnsealError:
                self.table.unreadable += 1
                continue
            if _is_whole(record, meaning):
                space.lacking.pop(record.id, None)
            if space is self.space:
                # A vector that cannot be ranked is ignored: the record is found by its terms, or by its previous vector.
                with suppress(ValueError):
                    self._index_of(number).put_vectors(number, *meaning)
            else:
                self._index_coming(number, meaning)

    def _index_of(self, number: int) -> MemoryIndex:
        return self.index if number in self.table.shown else self.past

    def _index_coming(self, number: int, meaning: Meaning) -> None:
        # A vector that cannot be ranked is ignored: the record is found by its terms, before and after the switch.
        with suppress(ValueError):
            self._index_of(number).put_coming(number, *meaning)

    def _index(
        self, number: int, record: ops.Record, meaning: Meaning | None, coming: Meaning | None = None
    ) -> None:
        neighbour = self.get(record.context_of) if record.context_of else None
        text, context = header_of(record), header_of(neighbour) if neighbour else None
        before, speaker = self.table.numbers.get(record.context_of), record.source.speaker
        index = self._index_of(number)
        row, further = meaning or (None, ())
        try:
            index.put(number, row, text, context, speaker=speaker, before=before, passages=further)
        except ValueError:
            # The vector cannot be ranked (a mean of opposite vectors, or one of another model); the terms still find it.
            index.put(number, None, text, context, speaker=speaker, before=before)
        if is_long(record.text) and not index.has_passages(number):
            self._unread[number] = object()
        if coming is not None:
            self._index_coming(number, coming)

    def has_vector(self, record: bytes) -> bool:
        """Return whether a memory has a vector, and so is found by meaning."""
        number = self.table.numbers.get(record)
        return number is not None and self._index_of(number).row(number) is not None

    async def read_long(self) -> None:
        """Add the passages of long texts to the term index, one passage in each step of the event loop."""
        while self._unread:
            number, mark = next(iter(self._unread.items()))
            record = self.records.get(number)
            if record is None:
                del self._unread[number]
                continue
            # The passages of a text that repeats itself would all match the same few terms.
            repetitive = variety(Counter(terms(record.text))) < 1
            for start, end in () if repetitive else passages(record.text):
                self._index_of(number).put_passage(number, start, headed(record, record.text[start:end]))
                await asyncio.sleep(0)
                if self._unread.get(number) is not mark:
                    break
            else:
                self._unread.pop(number, None)

    async def pin(self) -> PinnedView:
        """Return a snapshot of the view, which can be written while `apply` continues.

        The snapshot is of the moment at which this returns. The indexes must not be maintained until `unpin`.
        """
        while self._unread or not (self.index.is_tidy and self.past.is_tidy):
            await self.read_long()
            await self.index.tidy()
            await self.past.tidy()
        return PinnedView(
            self.table.copy(),
            tuple(self.space.lacking),
            self.records.pin(),
            # If a purge is due, the graphs may still contain vectors of erased memories.
            self.index.pin(removed=not self.purge_due),
            self.past.pin(removed=not self.purge_due),
            self.journal.copy(),
        )

    def unpin(self) -> None:
        """Release the snapshot of `pin`, so that the indexes can be maintained again."""
        self.index.unpin()
        self.past.unpin()

    def _hide(self, record: bytes) -> None:
        number = self.table.numbers.get(record)
        if number in self.table.shown:
            meaning, coming = self.index.meaning(number), self.index.coming_meaning(number)
            self.table.shown.discard(number)
            self.index.remove(number)
            self._index(number, self.by_number(number), meaning, coming)

    def _show(self, record: bytes) -> None:
        number = self.table.numbers.get(record)
        if number is not None:
            meaning, coming = self.past.meaning(number), self.past.coming_meaning(number)
            self.table.shown.add(number)
            self.past.remove(number)
            if meaning is None:
                self.space.lacking[record] = None
            self._index(number, self.by_number(number), meaning, coming)

    def _drop(self, state: NamespaceState, records: Sequence[bytes]) -> None:
        spaces = [space for space in (self.space, self.coming) if space is not None]
        for record in records:
            number = self.table.drop(record)
            for space in spaces:
                space.lacking.pop(record, None)
            if number is not None:
                self.index.remove(number)
                self.past.remove(number)
                self._unread.pop(number, None)
                self._let_go(number)
        for record in state.following(records):
            number = self.table.numbers.get(record)
            if number is not None:
                # Its vector and terms were derived also from the erased text before it. Maintenance embeds its own text again.
                self.index.remove(number)
                self.past.remove(number)
                for space in spaces:
                    space.lacking[record] = None
                self._index(number, self.by_number(number), None)
        self.purge_due = True

    def _let_go(self, number: int) -> None:
        self.records.drop(number, self._randomness.bytes(SALT_SIZE))
        self.labels.clear()
