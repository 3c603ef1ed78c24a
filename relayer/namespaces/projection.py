"""What a log's records look like to a search: texts, vectors and index of a namespace, kept in step with its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.operations import (
    Erase,
    Forget,
    JobFinished,
    Malformed,
    Operation,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
)
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.record import Dialogue, Record
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace
from relayer.namespaces.embedding_space import EmbeddingSpace, few_enough
from relayer.namespaces.journal import Journal, changes_of
from relayer.namespaces.records import Dialogues, PlaintextCache, RecordCache, RecordTable, Unsealed
from relayer.ports import EmbeddingModel, Randomness
from relayer.search.baseline import Calibration
from relayer.search.index import MemoryIndex
from relayer.search.rows import Vector, search_row
from relayer.search.terms import indexed_text
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE

_VECTOR_TYPE = np.dtype("<f2")


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """Encode a unit vector as little-endian float16, the precision in which it is kept and searched."""
    return vector.astype(_VECTOR_TYPE).tobytes()


def decode_vector(data: bytes) -> NDArray[np.float32]:
    """Decode what `encode_vector` made."""
    return np.frombuffer(data, _VECTOR_TYPE).astype(np.float32)


def header_of(record: Record) -> str:
    """Return a record's text as it is embedded and indexed."""
    return indexed_text(record.source.speaker or None, record.occurred_at, record.text)


class NamespaceView:
    """Records, indexes and filters of one namespace; changed by `apply` and `attach` only, on the event loop.

    Attributes:
        index: the search over what is live.
        past: the search over what is superseded or forgotten, under the same numbers.
        journal: what became of each memory last.
        purge_due: whether vectors of erased memories may still lie about in the indexes.
        roster: which records there are; dialogues have a number, and are none of them.
        shelf: the records themselves.
        unsealed: what need not be opened when the log brings it.
        model: what it is searched by.
    """

    def __init__(
        self, keys: NamespaceKeys, model: EmbeddingModel, calibration: Calibration, randomness: Randomness
    ) -> None:
        self._keys = keys
        self.model = model
        self._randomness = randomness
        self.roster = RecordTable()
        self.shelf = RecordCache(keys)
        self.index = MemoryIndex(model.dimension, calibration)
        self.past = MemoryIndex(model.dimension, calibration)
        self.journal = Journal()
        self.purge_due = False
        self.unsealed = PlaintextCache()
        self._coming: EmbeddingSpace | None = None
        self._lacking: dict[bytes, None] = {}

    def prepare(self, coming: EmbeddingSpace) -> None:
        """Collect vectors of another model from now on, for everything that is there and will be."""
        self._coming = coming
        self._lacking = dict.fromkeys(self.roster.numbers)
        for index in (self.index, self.past):
            index.prepare(coming.model.dimension)

    @property
    def converting(self) -> bool:
        """Whether it is searched by the former model, and collects vectors of the new one."""
        return self._coming is not None

    @property
    def lacking(self) -> dict[bytes, None]:
        """Ids of what has no vector of the newest model yet, oldest first."""
        return self.roster.without_vector if self._coming is None else self._lacking

    def cut_over(self) -> bool:
        """Search by the new model from now on, if enough of its vectors are there; says whether it did."""
        coming = self._coming
        if coming is None or not few_enough(len(self._lacking), len(self)):
            return False
        self._coming = None
        self.model = coming.model
        self.roster.without_vector, self._lacking = self._lacking, {}
        for index in (self.index, self.past):
            index.turn(coming.calibration)
        return True

    def recalibrate(self, generation: EmbeddingSpace) -> None:
        """Judge what this model finds by another calibration from now on."""
        if generation.model == self.model:
            self.index.calibration = self.past.calibration = generation.calibration
        elif self._coming is not None and generation.model == self._coming.model:
            self._coming = generation

    def __len__(self) -> int:
        return len(self.roster.numbers)

    def __contains__(self, record: bytes) -> bool:
        return record in self.roster.numbers

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        held = (self.roster, self.shelf, self.index, self.past, self.journal)
        return sum(part.nbytes for part in held)

    @property
    def dialogues(self) -> Dialogues:
        """What was kept of turns word for word."""
        return self.roster.dialogues

    @property
    def without_vector(self) -> dict[bytes, None]:
        """Ids of what is not findable by meaning yet."""
        return self.roster.without_vector

    @property
    def unreadable(self) -> int:
        """Records of the log that could not be opened."""
        return self.roster.unreadable

    def get(self, record: bytes) -> Record | None:
        """Open a record, if there is one that can be opened."""
        number = self.roster.numbers.get(record)
        return None if number is None else self.shelf.get(number)

    def require(self, record: bytes) -> Record:
        """Open a record that is known to be readable; raises `CorruptNamespace` if it is not."""
        return self.by_number(self.roster.numbers[record])

    def by_number(self, number: int) -> Record:
        """Open the record behind a hit of the index; raises `CorruptNamespace` if it does not open any more."""
        record = self.shelf.get(number)
        if record is None:
            raise CorruptNamespace("a record in memory does not open any more")
        return record

    def id_of(self, number: int) -> bytes:
        """Return the id of the record behind a hit of the index."""
        return self.roster.id_of(number)

    def number_of(self, record: bytes) -> int | None:
        """Return a record's number in the indexes, if it could be opened."""
        return self.roster.numbers.get(record)

    def numbers(self) -> Iterable[int]:
        """All numbers of records that could be opened, in the order of the log."""
        return self.roster.numbers.values()

    def known(self, number: int) -> Record | None:
        """Open the record of a number that may be nobody's any more."""
        return self.shelf.get(number)

    def ids(self) -> Iterable[bytes]:
        """All ids, in the order of the log."""
        return self.roster.numbers.keys()

    def last_of_session(self, session: str) -> bytes | None:
        """Return the newest record of a host's chat session: what a first turn's context refers to."""
        return self.roster.last_of_session(session)

    def apply(self, state: NamespaceState, applied: Sequence[Applied]) -> None:
        """Follow the log; called once for each applied entry, in order."""
        for item in applied:
            if not item.repeated and item.outcome.result is not Result.REFUSED:
                self._follow(state, item.operation, item.outcome)
                for what, record in changes_of(state, item.operation, item.outcome):
                    self.journal.note(item.outcome.seq, what, record)

    def _follow(self, state: NamespaceState, operation: Operation | Malformed, outcome: Outcome) -> None:
        match operation:
            case Put(stored=stored, replaces=head) if outcome.result is Result.STORED:
                self._add(stored)
                if (old := state.records.get(head)) is not None and old.superseded_by == stored.record:
                    self._hide(head)
            case Supersede(head=head, stored=stored):
                self._hide(head)
                self._add(stored)
            case Forget(head=head):
                self._hide(head)
            case Restore(record=record, head=head):
                self._hide(head)
                self._show(record)
            case Erase():
                erasure = state.erasures.known[outcome.subject]
                self._drop(state, (*erasure.records, *erasure.derived))
            case JobFinished():
                self._finish(state, operation)
            case _:
                pass

    def _finish(self, state: NamespaceState, end: JobFinished) -> None:
        kept = set(state.jobs[end.job].results)
        for stored in end.stored:
            if stored.record in kept and stored.record not in self:
                self._add(stored)
        for record, head in end.supersedes:
            new = state.records.get(record)
            if new is not None and record in kept and new.supersedes == head:
                self._hide(head)
        self._attach_sealed(end.vectors)

    def _attach(self, record: Record, model: str, own: Vector, context: Vector | None) -> None:
        """Make a record findable by meaning, with vectors of some model that were computed after it was stored."""
        number = self.roster.numbers[record.id]
        row = search_row(own, context if record.context_of in self else None)
        if model == self.model.sha256:
            self.roster.without_vector.pop(record.id, None)
            self._index(number, record, row, self._coming_row(number))
        elif self._coming is not None and model == self._coming.model.sha256:
            self._lacking.pop(record.id, None)
            self._index_coming(number, row)

    def _add(self, stored: Stored) -> None:
        if not stored.sealed:
            # Erased later in the log, and its segment holds no text of it: it takes its number and nothing else, so
            # that the others have the numbers that they have on every relayer.
            self.roster.skip(stored.record)
            return
        number = len(self.roster)
        known = self.unsealed.of(stored)
        try:
            if known is None:
                record = self.shelf.put(number, stored.record, stored.sealed)
            else:
                record = known.record
                self.shelf.keep(number, stored.record, stored.sealed, record, known.size)
            row = self._row(record, stored, known)
        except (UnsealError, msgspec.MsgspecError):
            # One damaged record must not take the others with it; `verify` finds it, the count shows it.
            self._let_go(number)
            self.roster.unreadable += 1
            return
        if isinstance(record, Dialogue):
            self.roster.add_dialogue(record)
            return
        self.roster.add(record)
        made_by = record.embedding.detail
        served = row if made_by == self.model.sha256 else None
        coming = row if self._coming is not None and made_by == self._coming.model.sha256 else None
        if served is None:
            self.roster.without_vector[stored.record] = None
        if self._coming is not None and coming is None:
            self._lacking[stored.record] = None
        self._index(number, record, served, coming)

    def _row(self, record: Record, stored: Stored, known: Unsealed | None) -> Vector | None:
        coming = self.model if self._coming is None else self._coming.model
        if not stored.vector or record.embedding.detail not in {self.model.sha256, coming.sha256}:
            return None
        # What was said beside something that is erased by now is found by its own words alone.
        beside = record.context_of in self
        if known is not None:
            context = known.context if beside else b""
            return search_row(decode_vector(known.own), decode_vector(context) if context else None)
        sealed_context = stored.context_vector if beside else b""
        return search_row(*self._unseal_pair(stored.record, stored.vector, sealed_context))

    def _unseal_pair(self, record_id: bytes, own: bytes, context: bytes) -> tuple[Vector, Vector | None]:
        vector = decode_vector(self._keys.unseal_vector(record_id, "own", own))
        if not context:
            return vector, None
        return vector, decode_vector(self._keys.unseal_vector(record_id, "context", context))

    def _attach_sealed(self, vectors: Iterable[VectorSet]) -> None:
        for item in vectors:
            if item.record not in self or not item.vector:
                continue
            try:
                own, context = self._unseal_pair(item.record, item.vector, item.context_vector)
            except UnsealError:
                self.roster.unreadable += 1
                continue
            record = self.require(item.record)
            self._attach(record, item.model or record.embedding.detail, own, context)

    def _coming_row(self, number: int) -> Vector | None:
        index = self.index if number in self.roster.shown else self.past
        return index.coming_row(number)

    def _index_coming(self, number: int, row: NDArray[np.float32]) -> None:
        index = self.index if number in self.roster.shown else self.past
        # What cannot be ranked is found by its terms alone, before and after.
        with suppress(ValueError):
            index.put_coming(number, row)

    def _index(
        self,
        number: int,
        record: Record,
        row: NDArray[np.float32] | None,
        coming: NDArray[np.float32] | None = None,
    ) -> None:
        neighbour = self.get(record.context_of) if record.context_of else None
        text, context = header_of(record), header_of(neighbour) if neighbour else None
        before, speaker = self.roster.numbers.get(record.context_of), record.source.speaker
        index = self.index if number in self.roster.shown else self.past
        try:
            index.put(number, row, text, context, speaker=speaker, before=before)
        except ValueError:
            # A row that cannot be ranked (a mean of opposites, a foreign vector): its terms still find it.
            index.put(number, None, text, context, speaker=speaker, before=before)
        if coming is not None:
            self._index_coming(number, coming)

    def _hide(self, record: bytes) -> None:
        number = self.roster.numbers.get(record)
        if number in self.roster.shown:
            row, coming = self.index.row(number), self.index.coming_row(number)
            self.roster.shown.discard(number)
            self.index.remove(number)
            self._index(number, self.by_number(number), row, coming)

    def _show(self, record: bytes) -> None:
        number = self.roster.numbers.get(record)
        if number is not None:
            row, coming = self.past.row(number), self.past.coming_row(number)
            self.roster.shown.add(number)
            self.past.remove(number)
            if row is None:
                self.roster.without_vector[record] = None
            self._index(number, self.by_number(number), row, coming)

    def _drop(self, state: NamespaceState, records: Sequence[bytes]) -> None:
        for record in records:
            number = self.roster.drop(record)
            self._lacking.pop(record, None)
            if number is not None:
                self.index.remove(number)
                self.past.remove(number)
                self._let_go(number)
        for record in state.following(records):
            number = self.roster.numbers.get(record)
            if number is not None:
                # Row and terms were made with the text of the one before; the maintenance embeds its own again.
                self.index.remove(number)
                self.past.remove(number)
                self.roster.without_vector[record] = None
                if self._coming is not None:
                    self._lacking[record] = None
                self._index(number, self.by_number(number), None)
        self.purge_due = True

    def _let_go(self, number: int) -> None:
        self.shelf.drop(number, self._randomness.bytes(SALT_SIZE))
