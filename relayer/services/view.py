"""An open namespace's memories in clear, and the index over them.

The log knows records by id and standing only; this projection opens them with the namespace key as they are applied.
It exists while a sealed key is live, in memory only, and is a pure function of the log and the key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

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
from relayer.domain.record import Record, decode_record
from relayer.domain.state import Applied, NamespaceState
from relayer.ports import EmbeddingModel
from relayer.search.calibration import Calibration
from relayer.search.index import MemoryIndex
from relayer.search.text import indexed_text
from relayer.search.vectors import Vector, search_row
from relayer.services.journal import Journal, What
from relayer.wire.errors import UnsealError

__all__ = ["NamespaceView", "decode_vector", "encode_vector", "header_of"]

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

    ``index`` has what is live, ``past`` what is superseded or forgotten, under the same numbers. ``purge_due`` says
    whether vectors of erased memories may still lie about in them.
    """

    def __init__(self, keys: NamespaceKeys, model: EmbeddingModel, calibration: Calibration) -> None:
        self._keys = keys
        self._model = model
        self._records: dict[bytes, Record] = {}
        self._numbers: dict[bytes, int] = {}
        self._ids: list[bytes] = []
        self._facets: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._expiring: set[int] = set()
        self._shown: set[bytes] = set()
        self._last_of_session: dict[str, bytes] = {}
        self.index = MemoryIndex(model.dimension, calibration)
        self.past = MemoryIndex(model.dimension, calibration)
        self.without_vector: dict[bytes, None] = {}
        self.unreadable = 0
        self.journal = Journal()
        self.purge_due = False

    def __len__(self) -> int:
        return len(self._records)

    def get(self, record: bytes) -> Record | None:
        """Return a record that could be opened."""
        return self._records.get(record)

    def require(self, record: bytes) -> Record:
        """Return a record that is known to be readable."""
        return self._records[record]

    def by_number(self, number: int) -> Record:
        """Return the record behind a hit of the index."""
        return self._records[self._ids[number]]

    def number_of(self, record: bytes) -> int | None:
        """Return a record's number in the indexes, if it could be opened."""
        return self._numbers.get(record)

    def numbers(self) -> Iterable[int]:
        """All numbers of records that could be opened, in the order of the log."""
        return self._numbers.values()

    def known(self, number: int) -> Record | None:
        """Return the record of a number that may be nobody's any more."""
        return self._records.get(self._ids[number])

    def ids(self) -> Iterable[bytes]:
        """All ids, in the order of the log."""
        return self._records.keys()

    def last_of_session(self, session: str) -> bytes | None:
        """Return the newest record of a host's chat session: what a first turn's context refers to."""
        return self._last_of_session.get(session)

    def apply(self, state: NamespaceState, applied: Sequence[Applied]) -> None:
        """Follow the log; called once for each applied entry, in order."""
        for item in applied:
            if not item.repeated and item.outcome.result is not Result.REFUSED:
                self._follow(state, item.operation, item.outcome)
                for what, record in _changes_of(state, item.operation, item.outcome):
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
            if stored.record in kept:
                self._add(stored)
        for record, head in end.supersedes:
            new = state.records.get(record)
            if new is not None and record in kept and new.supersedes == head:
                self._hide(head)
        self._attach_sealed(end.vectors)

    def attach(self, record: bytes, own: NDArray[np.float32], context: NDArray[np.float32] | None) -> None:
        """Make a record findable by meaning, with vectors computed after it was stored."""
        if record in self._numbers:
            self.without_vector.pop(record, None)
            beside = self._records[record].context_of in self._records
            self._index(record, search_row(own, context if beside else None))

    def allowed(
        self,
        *,
        kinds: Sequence[str],
        audiences: Sequence[str],
        trusts: Sequence[str],
        suspect: bool,
        now: int,
    ) -> set[int] | None:
        """Return the numbers that pass the filters, or None when everything passes."""
        passing: set[int] | None = None
        for facet, values in (("kind", kinds), ("audience", audiences), ("trust", trusts)):
            if values:
                having = set().union(*(self._facets[facet, value] for value in values))
                passing = having if passing is None else passing & having
        excluded = set() if suspect else set(self._facets["suspect", "yes"])
        excluded |= {
            number for number in self._expiring if (self.by_number(number).expires_at or now + 1) <= now
        }
        if excluded:
            passing = (set(range(len(self._ids))) if passing is None else passing) - excluded
        return passing

    def between(self, after: int | None, before: int | None, passing: set[int] | None) -> set[int]:
        """Narrow to records that occurred in ``[after, before)``, in ms; those without a time do not."""
        return {
            number
            for number in (range(len(self._ids)) if passing is None else passing)
            if self._occurred_in(number, after, before)
        }

    def _occurred_in(self, number: int, after: int | None, before: int | None) -> bool:
        record = self._records.get(self._ids[number])
        if record is None or record.occurred_at is None:
            return False
        return (after is None or record.occurred_at >= after) and (
            before is None or record.occurred_at < before
        )

    def _add(self, stored: Stored) -> None:
        if not stored.sealed:
            # Erased later in the log, and its segment holds no text of it: it takes its number and nothing else, so
            # that the others have the numbers that they have on every relayer.
            self._ids.append(stored.record)
            return
        try:
            record = decode_record(self._keys.unseal_record(stored.record, stored.sealed))
            row = self._row(stored.record, record, stored.vector, stored.context_vector)
        except (UnsealError, msgspec.MsgspecError):
            # One damaged record must not take the others with it; `verify` finds it, the count shows it.
            self.unreadable += 1
            return
        number = len(self._ids)
        self._ids.append(stored.record)
        self._numbers[stored.record] = number
        self._records[stored.record] = record
        self._shown.add(stored.record)
        if record.source.session:
            self._last_of_session[record.source.session] = stored.record
        if row is None:
            self.without_vector[stored.record] = None
        self._index(stored.record, row)
        self._note_facets(number, record)

    def _row(
        self, record_id: bytes, record: Record, own: bytes, context: bytes
    ) -> NDArray[np.float32] | None:
        if not own or record.embedding.detail != self._model.sha256:
            return None
        # What was said beside something that is erased by now is found by its own words alone.
        beside = record.context_of in self._records
        vector, neighbour = self._unseal_pair(record_id, own, context if beside else b"")
        return search_row(vector, neighbour)

    def _unseal_pair(self, record_id: bytes, own: bytes, context: bytes) -> tuple[Vector, Vector | None]:
        vector = decode_vector(self._keys.unseal_vector(record_id, "own", own))
        if not context:
            return vector, None
        return vector, decode_vector(self._keys.unseal_vector(record_id, "context", context))

    def _attach_sealed(self, vectors: Iterable[VectorSet]) -> None:
        for item in vectors:
            if item.record not in self._numbers:
                continue
            try:
                own, context = self._unseal_pair(item.record, item.vector, item.context_vector)
            except UnsealError:
                self.unreadable += 1
                continue
            self.attach(item.record, own, context)

    def _index(self, record_id: bytes, row: NDArray[np.float32] | None) -> None:
        record = self._records[record_id]
        neighbour = self._records.get(record.context_of)
        number, text = self._numbers[record_id], header_of(record)
        context = header_of(neighbour) if neighbour else None
        before, speaker = self._numbers.get(record.context_of), record.source.speaker
        index = self.index if record_id in self._shown else self.past
        try:
            index.put(number, row, text, context, speaker=speaker, before=before)
        except ValueError:
            # A row that cannot be ranked (a mean of opposites, a foreign vector): its terms still find it.
            index.put(number, None, text, context, speaker=speaker, before=before)

    def _note_facets(self, number: int, record: Record) -> None:
        self._facets["kind", record.kind].add(number)
        self._facets["audience", record.audience].add(number)
        self._facets["trust", record.trust].add(number)
        if record.suspect:
            self._facets["suspect", "yes"].add(number)
        if record.expires_at is not None:
            self._expiring.add(number)

    def _hide(self, record_id: bytes) -> None:
        if record_id in self._shown:
            self._shown.discard(record_id)
            number = self._numbers[record_id]
            row = self.index.row(number)
            self.index.remove(number)
            self._index(record_id, row)

    def _show(self, record_id: bytes) -> None:
        if record_id in self._records:
            self._shown.add(record_id)
            number = self._numbers[record_id]
            row = self.past.row(number)
            self.past.remove(number)
            if row is None:
                self.without_vector[record_id] = None
            self._index(record_id, row)

    def _drop(self, state: NamespaceState, records: Sequence[bytes]) -> None:
        for record_id in records:
            self._hide(record_id)
            self.past.remove(self._numbers.get(record_id, -1))
            self.without_vector.pop(record_id, None)
            if self._records.pop(record_id, None) is not None:
                number = self._numbers.pop(record_id)
                for members in (*self._facets.values(), self._expiring):
                    members.discard(number)
            ended = [session for session, last in self._last_of_session.items() if last == record_id]
            for session in ended:
                del self._last_of_session[session]
        for record_id in state.following(records):
            if record_id in self._records:
                # Row and terms were made with the text of the one before; the maintenance embeds its own again.
                for index in (self.index, self.past):
                    index.remove(self._numbers[record_id])
                self.without_vector[record_id] = None
                self._index(record_id, None)
        self.purge_due = True


def _changes_of(
    state: NamespaceState, operation: Operation | Malformed, outcome: Outcome
) -> Iterator[tuple[What, bytes]]:
    """Yield what an operation that was done changed, in its order."""
    match operation:
        case Put(stored=stored) if outcome.result is Result.STORED:
            yield from _remembered(state, stored.record)
        case Supersede(head=head, stored=stored):
            yield from ((What.SUPERSEDED, head), (What.REMEMBERED, stored.record))
        case Forget(head=head):
            yield What.FORGOTTEN, head
        case Restore(record=record, head=head):
            yield from [(What.SUPERSEDED, head)] if head else []
            yield What.RESTORED, record
        case Erase():
            erasure = state.erasures.known[outcome.subject]
            yield from ((What.ERASED, record) for record in (*erasure.records, *erasure.derived))
        case JobFinished(stored=results):
            kept = set(state.jobs[operation.job].results)
            for stored in results:
                if stored.record in kept:
                    yield from _remembered(state, stored.record)
        case _:
            return


def _remembered(state: NamespaceState, record: bytes) -> Iterator[tuple[What, bytes]]:
    """Yield that a memory was stored, after the one whose place it took."""
    known = state.records.get(record)
    if known is not None and known.supersedes:
        yield What.SUPERSEDED, known.supersedes
    yield What.REMEMBERED, record
