"""A namespace's state: what the log says so far.

`NamespaceState.apply` is total and deterministic (I7): it depends on the entries and on nothing else, so that every
replica that read the same log agrees on every outcome. All rules about duplicates, stale heads, repeated operations,
finished jobs and erased sources are decided here and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, MutableMapping, Sequence, Sized
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from relayer.domain.entry import Entry
from relayer.domain.erasures import Erased, Erasure, Readers
from relayer.domain.namespace import Position
from relayer.domain.operations import (
    Close,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Malformed,
    Operation,
    OperationId,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    decode_operation,
)
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.paged_rows import PagedRows
from relayer.domain.twins import Twins

__all__ = ["Applied", "JobState", "NamespaceState", "RecordState", "Remembered", "Standing"]

NONCE_LIFE_MS = 10 * 60 * 1000
NONCES_KEPT = 4096
EXPIRY_GRACE_MS = 5 * 60 * 1000
# Measured, with what the dictionaries take that they stand in; unread: in pages of a stored state.
_RECORD_BYTES = 1100
_UNREAD_RECORD_BYTES = 450
_OUTCOME_BYTES = 500
_UNREAD_OUTCOME_BYTES = 80
_REQUEST_BYTES = 700
_UNREAD_REQUEST_BYTES = 300
# Works whose promise has no input of its own: they read their records when they run.
_WITHOUT_INPUT = frozenset({"embed"})


class Standing(StrEnum):
    """Where a record is in its life."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"


class RecordState(msgspec.Struct, array_like=True, gc=False):
    """What the log knows of a record without opening it."""

    record: bytes
    content: bytes
    likeness: bytes
    seq: int
    created_at: int
    expires_at: int | None
    size: int
    sources: tuple[bytes, ...]
    author: bytes
    standing: Standing = Standing.LIVE
    supersedes: bytes = b""
    superseded_by: bytes = b""
    changed_at: int = 0
    reinforced: int = 0
    reinforced_at: int = 0
    context_of: bytes = b""
    beside: bytes = b""  # what it would have replaced, had nobody been first

    def live_at(self, now: int) -> bool:
        """Whether recall may return it at a time in ms."""
        return self.standing is Standing.LIVE and (self.expires_at is None or self.expires_at > now)

    def lasts_as_long_as(self, stored: Stored) -> bool:
        """Whether it can stand for an equal memory: what ends earlier would take the later one's text with it."""
        if self.expires_at is None:
            return True
        return stored.expires_at is not None and stored.expires_at <= self.expires_at


class JobState(msgspec.Struct, array_like=True, gc=False):
    """A promised piece of work."""

    job: bytes
    work: str
    records: tuple[bytes, ...]
    sealed: bytes
    accepted_at: int
    state: str = "pending"
    reason: str = ""
    finished_at: int = 0
    results: tuple[bytes, ...] = ()
    outcome: Outcome | None = None
    seq: int = 0


class Applied(msgspec.Struct, frozen=True):
    """One operation and what became of it; what projections (indexes) are built from."""

    operation: Operation | Malformed
    outcome: Outcome
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    """What only `NamespaceState.apply` looks at: how it knows an operation, a request or a text again.

    Attributes:
        twins: which records say the same.
        idempotency: by key, the body it belongs to and the outcomes of that request's operations by their index.
        outcomes: returns those of the operations whose nonces are kept (I8), oldest first, with the time of their entries.
    """

    twins: Twins
    idempotency: MutableMapping[bytes, tuple[bytes, dict[int, Outcome]]]
    outcomes: Callable[[], Sequence[tuple[int, OperationId, Outcome]]]


@dataclass(slots=True, eq=False)
class NamespaceState:  # noqa: PLW1641 - it changes: no key of anything
    """The state after `position`. Mutable, and changed by `apply` only.

    Two are equal if they say the same, whatever of it has been read so far.
    """

    position: Position
    last_time: int = 0
    closed: bool = False
    records: dict[bytes, RecordState] | PagedRows[RecordState, Any] = field(default_factory=dict)
    jobs: dict[bytes, JobState] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    erasures: Erased = field(default_factory=Erased)
    _twins: Twins = field(default_factory=Twins)
    _outcomes: dict[OperationId, Outcome] = field(default_factory=dict)
    _order: deque[tuple[int, OperationId]] = field(default_factory=deque)
    # By key: the body it belongs to, and what became of that request's operations, by their index in it.
    _idempotency: MutableMapping[bytes, tuple[bytes, dict[int, Outcome]]] = field(default_factory=dict)
    # Of a stored state, until the next entry or question needs its outcomes: what returns them, and how many there are.
    _unread: tuple[Callable[[], Sequence[tuple[int, OperationId, Outcome]]], int] | None = None
    # Of the entry that is being applied: ids that were asked for, and what they repeat.
    _repeats: dict[bytes, bytes] = field(default_factory=dict)
    # Made when something is first erased, of what is there then.
    _readers: Readers | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceState) and self._said() == other._said()

    def _said(self) -> tuple[object, ...]:
        self._read_outcomes()
        return (
            (self.position, self.last_time, self.closed, self.jobs, self.erased, self.erasures),
            list(self.records.items()),
            (self._outcomes, self._order),
            dict(self._idempotency.items()),
            (self._twins.repeats, self._twins.older, self._twins.erased_texts),
            [
                (self._twins.like(one.likeness), self._twins.saying(one.content))
                for one in self.records.values()
            ],
        )

    @property
    def next_seq(self) -> int:
        """The slot that the next entry takes."""
        return self.position.seq + 1

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return (
            _weigh(self.records, _RECORD_BYTES, _UNREAD_RECORD_BYTES)
            + _weigh(self._idempotency, _REQUEST_BYTES, _UNREAD_REQUEST_BYTES)
            + len(self._outcomes) * _OUTCOME_BYTES
            + (0 if self._unread is None else self._unread[1] * _UNREAD_OUTCOME_BYTES)
            + (len(self.jobs) + len(self.erased)) * _OUTCOME_BYTES
        )

    @property
    def repeats_texts(self) -> bool:
        """Whether several records may hold the same text, said among others or by another voice."""
        return self._twins.repeats

    def of_the_same_text(self, record: bytes) -> tuple[bytes, ...]:
        """Return the records that have this one's text, itself included."""
        return self._twins.saying(self.records[record].content)

    def remembered(self) -> Remembered:
        """Return what `remember` takes; its parts are shared with this state."""
        self._read_outcomes()
        order = tuple((time, known, self._outcomes[known]) for time, known in self._order)
        return Remembered(self._twins, self._idempotency, lambda: order)

    def remember(self, known: Remembered, outcomes: int) -> None:
        """Take over what another state at the same position remembered, as many outcomes among it."""
        self._twins = known.twins
        self._idempotency = known.idempotency
        self._unread = (known.outcomes, outcomes)

    def _read_outcomes(self) -> None:
        if self._unread is not None:
            known = self._unread[0]()
            self._unread = None
            self._outcomes = {operation: outcome for _, operation, outcome in known}
            self._order = deque((time, operation) for time, operation, _ in known)

    def outcome_of(self, operation: Operation) -> Outcome | None:
        """Return what became of an operation, if it is in the state (I5)."""
        self._read_outcomes()
        if isinstance(operation, JobFinished):
            return self._end_of(operation.job)
        known = self._outcomes.get(operation.origin.id)
        if known is None and operation.origin.idempotency:
            return self._by_idempotency(operation.origin)
        return known

    def apply(self, entry: Entry, digest: bytes) -> list[Applied]:
        """Take the next entry.

        Args:
            entry: the entry of slot `next_seq`; sequence, chain and seal were verified by the caller.
            digest: SHA-256 of its stored bytes.

        Raises:
            UpgradeRequired: it holds an operation of a newer version; the state is unchanged.
        """
        operations = [decode_operation(raw) for raw in entry.operations]
        self._read_outcomes()
        self.position = Position(entry.seq, digest)
        self.last_time = max(self.last_time, entry.time)
        applied = [self._apply_one(operation) for operation in operations]
        for item in applied:
            self._trace(item)
        self._repeats.clear()
        self._trim()
        return applied

    def _apply_one(self, operation: Operation | Malformed) -> Applied:
        if isinstance(operation, Malformed):
            return Applied(operation, self._refused(Refusal.MALFORMED))
        if isinstance(operation, JobFinished):
            return self._apply_finish(operation)
        origin = operation.origin
        known = self._outcomes.get(origin.id)
        if known is not None:
            return Applied(operation, known, repeated=True)
        first = self._by_idempotency(origin)
        outcome = first or self._decide(operation, origin)
        self._remember(origin.id, outcome)
        if first is None and origin.idempotency and outcome.refusal is None:
            self._idempotency.setdefault(origin.idempotency, (origin.body, {}))[1][origin.index] = outcome
        return Applied(operation, outcome, repeated=first is not None)

    def _apply_finish(self, operation: JobFinished) -> Applied:
        first = self._end_of(operation.job)
        if first is not None:
            return Applied(operation, first, repeated=True)
        job = self.jobs.get(operation.job)
        if job is not None and not self.closed:
            return Applied(operation, self._finish(operation, job))
        refused = self._refused(Refusal.JOB_OVER, operation.job)
        self._remember(_job_end(operation.job), refused)
        return Applied(operation, refused)

    def _end_of(self, job: bytes) -> Outcome | None:
        """Return how a job ended: kept on the job for ever, or as a refusal as long as any other one."""
        known = self.jobs.get(job)
        ended = None if known is None else known.outcome
        return ended or self._outcomes.get(_job_end(job))

    def _remember(self, operation_id: OperationId, outcome: Outcome) -> None:
        self._outcomes[operation_id] = outcome
        self._order.append((self.last_time, operation_id))

    def _by_idempotency(self, origin: Origin) -> Outcome | None:
        if not origin.idempotency or origin.idempotency not in self._idempotency:
            return None
        body, outcomes = self._idempotency[origin.idempotency]
        if body != origin.body:
            # Also where the first request had no operation of this index: a request is refused whole.
            return self._refused(Refusal.IDEMPOTENCY_CONFLICT)
        return outcomes.get(origin.index)

    def _decide(self, operation: Operation, origin: Origin) -> Outcome:
        if self.closed:
            return self._refused(Refusal.CLOSED)
        if origin.expires and origin.expires + EXPIRY_GRACE_MS < self.last_time:
            return self._refused(Refusal.EXPIRED)
        return self._change(operation, origin)

    def _change(self, operation: Operation, origin: Origin) -> Outcome:
        match operation:
            case Put(stored=stored, twin=twin, replaces=replaces):
                outcome = self._put(stored, origin, twin=twin)
                if outcome.result is Result.STORED and replaces:
                    self._replace_or_stand_beside(replaces, stored.record)
            case Supersede(head=head, stored=stored):
                outcome = self._supersede(head, stored, origin)
            case Forget(head=head):
                outcome = self._forget(head)
            case Restore(record=record, head=head):
                outcome = self._restore(record, head)
            case Erase(records=records):
                outcome = self._erase(records)
            case JobAccepted():
                outcome = self._accept(operation)
            case Close():
                self.closed = True
                outcome = self._done(Result.CLOSED)
            case _:
                outcome = self._refused(Refusal.MALFORMED)
        return outcome

    def _put(self, stored: Stored, origin: Origin, *, twin: bytes = b"") -> Outcome:
        known = self._standing_for(stored, self._twins.like(stored.alike)) or self._standing_for(stored, twin)
        if known is not None:
            known.reinforced += 1
            known.reinforced_at = self.last_time
            self._repeats[stored.record] = known.record
            return self._done(Result.DUPLICATE, known.record)
        if stored.captured and (self._is_tombstoned(stored.content) or self._is_taken_back(twin)):
            return self._refused(Refusal.TOMBSTONED, stored.record)
        if stored.record in self.records or stored.record in self.erased:
            return self._refused(Refusal.RECORD_EXISTS, stored.record)
        if not self.erased.isdisjoint(stored.sources):
            return self._refused(Refusal.SOURCE_ERASED, stored.record)
        self._keep(stored, origin.author)
        return self._done(Result.STORED, stored.record)

    def _keep(self, stored: Stored, author: bytes, *, supersedes: bytes = b"") -> None:
        self.records[stored.record] = RecordState(
            record=stored.record,
            content=stored.content,
            likeness=stored.alike,
            seq=self.position.seq,
            created_at=stored.created_at,
            expires_at=stored.expires_at,
            size=stored.size,
            sources=stored.sources,
            author=author,
            supersedes=supersedes,
            context_of=stored.context_of,
        )
        self._twins.add(stored.record, text=stored.content, likeness=stored.alike)
        if self._readers is not None:
            self._readers.add(stored.record, sources=stored.sources, context_of=stored.context_of)

    def _standing_for(self, stored: Stored, twin: bytes) -> RecordState | None:
        """Return the record, if it can stand for the equal memory."""
        known = self.records.get(twin)
        if known is None or not known.live_at(self.last_time) or not known.lasts_as_long_as(stored):
            return None
        return known

    def _is_taken_back(self, twin: bytes) -> bool:
        """Whether the memory that a capture repeats in other words is forgotten or erased."""
        known = self.records.get(twin)
        return twin in self.erased or (known is not None and known.standing is Standing.FORGOTTEN)

    def _replace_or_stand_beside(self, head: bytes, record: bytes) -> None:
        """Let a captured memory take another one's place, or note that somebody was first and both are kept."""
        self._replace(head, record)
        old, new = self.records.get(head), self.records[record]
        if old is not None and old.standing is Standing.SUPERSEDED and new.supersedes != head:
            new.beside = head

    def _is_tombstoned(self, content: bytes) -> bool:
        """Whether somebody forgot or erased this text: a capture must not bring it back, only a person may."""
        known = (self.records[record] for record in self._twins.saying(content))
        return self._twins.was_erased(content) or any(item.standing is Standing.FORGOTTEN for item in known)

    def _head(self, head: bytes) -> RecordState | Refusal:
        found = self.records.get(head)
        if found is None:
            return Refusal.UNKNOWN_RECORD
        return found if found.standing is Standing.LIVE else Refusal.STALE_HEAD

    def _supersede(self, head: bytes, stored: Stored, origin: Origin) -> Outcome:
        old = self._head(head)
        if isinstance(old, Refusal):
            return self._refused(old, head)
        if stored.record in self.records or stored.record in self.erased:
            return self._refused(Refusal.RECORD_EXISTS, stored.record)
        self._stand(old, Standing.SUPERSEDED)
        old.superseded_by = stored.record
        self._keep(stored, origin.author, supersedes=head)
        return self._done(Result.SUPERSEDED, stored.record)

    def _forget(self, head: bytes) -> Outcome:
        found = self._head(head)
        if isinstance(found, Refusal):
            return self._refused(found, head)
        self._stand(found, Standing.FORGOTTEN)
        return self._done(Result.FORGOTTEN, head)

    def _restore(self, record: bytes, head: bytes) -> Outcome:
        found = self.records.get(record)
        if found is None:
            return self._refused(Refusal.UNKNOWN_RECORD, record)
        if found.standing is Standing.LIVE:
            return self._refused(Refusal.STALE_HEAD, record)
        if found.standing is Standing.SUPERSEDED:
            current = self._head(head)
            if isinstance(current, Refusal):
                return self._refused(Refusal.STALE_HEAD, head)
            self._stand(current, Standing.SUPERSEDED)
            current.superseded_by = record
        self._stand(found, Standing.LIVE)
        found.superseded_by = b""
        self._twins.add(record, text=found.content, likeness=found.likeness)
        return self._done(Result.RESTORED, record)

    def _stand(self, record: RecordState, standing: Standing) -> None:
        record.standing = standing
        record.changed_at = self.last_time

    def _erase(self, records: Sequence[bytes]) -> Outcome:
        named = [record for record in dict.fromkeys(records) if record in self.records]
        if not named:
            return self._refused(Refusal.UNKNOWN_RECORD)
        derived = self._read_by().derived_from(named, self.records)
        gone = [self.records[record] for record in (*named, *derived)]
        slots = self._slots_of(gone)
        for record in gone:
            del self.records[record.record]
            self.erased.add(record.record)
            self._twins.erase(record.record, text=record.content, likeness=record.likeness)
        read = [source for record in gone for source in record.sources]
        read += self._cancel_jobs([record.record for record in gone])
        rest = tuple(one for one in dict.fromkeys(read) if isinstance(self._head(one), RecordState))
        self.erasures.known[named[0]] = Erasure(
            named[0], self.position.seq, self.last_time, tuple(named), tuple(derived), rest, slots
        )
        return self._done(Result.ERASED, named[0])

    def _read_by(self) -> Readers:
        if self._readers is None:
            self._readers = Readers()
            for record in self.records.values():
                self._readers.add(record.record, sources=record.sources, context_of=record.context_of)
            for job in self.jobs.values():
                self._readers.add_job(job.job, job.records)
        return self._readers

    def following(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the records whose context one of these is, or was."""
        return [one for one in self._read_by().following(records) if one in self.records]

    def _slots_of(self, gone: Sequence[RecordState]) -> tuple[int, ...]:
        """Return the slots with a body of these records: texts, vectors, job inputs, their neighbours' context."""
        ids, traces = [record.record for record in gone], self.erasures.traces
        following = [self.records[one] for one in self.following(ids)]
        slots: set[int] = set()
        for record in (*gone, *following):
            slots.update((record.seq, *traces.of(record.record, record.content)))
        for job in self._read_by().jobs_of(ids):
            slots.update((self.jobs[job].seq, *traces.of(job)))
        return tuple(sorted(slots))

    def _cancel_jobs(self, gone: Sequence[bytes]) -> list[bytes]:
        """End the jobs of which no input is left, or whose sealed input holds an erased text; return their inputs."""
        inputs: list[bytes] = []
        for job in [self.jobs[one] for one in self._read_by().jobs_of(gone)]:
            if job.outcome is None and (
                job.work not in _WITHOUT_INPUT or self.erased.issuperset(job.records)
            ):
                job.state = "failed"
                job.reason = Refusal.SOURCE_ERASED.value
                job.sealed = b""
                job.finished_at = self.last_time
                job.outcome = self._refused(Refusal.SOURCE_ERASED, job.job)
                inputs += job.records
        return inputs

    def _trace(self, applied: Applied) -> None:
        """Note the bodies of this entry that a record's own slot does not tell of."""
        seq, traces = self.position.seq, self.erasures.traces
        match applied.operation:
            case Put(stored=stored, twin=twin):
                self._trace_stored(stored)
                if twin:
                    traces.note(twin, seq)  # the text of what it repeats, in other words
                    self._note_late((twin,))
            case Supersede(stored=stored):
                self._trace_stored(stored)
            case JobAccepted(job=job, records=records):
                traces.note(job, seq)
                self._note_late(records)
            case JobFinished(job=job, stored=results, vectors=vectors):
                traces.note(job, seq)
                for stored in results:
                    self._trace_stored(stored)
                for vector in vectors:
                    traces.note(vector.record, seq)
                    self._note_late((vector.record, vector.context_of))
                known = self.jobs.get(job)
                self._note_late(known.records if known is not None and results else ())
            case _:
                pass

    def _trace_stored(self, stored: Stored) -> None:
        kept = self.records.get(stored.record)
        if kept is None or kept.seq != self.position.seq:
            self.erasures.traces.note(stored.content, self.position.seq)
            if self._twins.was_erased(stored.content) and not self._twins.saying(stored.content):
                self.erasures.late[self.position.seq] = None
        self._note_late((stored.record, stored.context_of, *stored.sources))

    def _note_late(self, records: Iterable[bytes]) -> None:
        if not self.erased.isdisjoint(records):
            self.erasures.late[self.position.seq] = None

    def _accept(self, operation: JobAccepted) -> Outcome:
        if operation.job in self.jobs:
            return self._refused(Refusal.RECORD_EXISTS, operation.job)
        # What repeated a memory was read as that memory.
        records = tuple(self._repeats.get(record, record) for record in operation.records)
        if operation.work not in _WITHOUT_INPUT and not self.erased.isdisjoint(records):
            return self._refused(Refusal.SOURCE_ERASED, operation.job)
        self.jobs[operation.job] = JobState(
            operation.job, operation.work, records, operation.sealed, self.last_time, seq=self.position.seq
        )
        if self._readers is not None:
            self._readers.add_job(operation.job, records)
        return self._done(Result.ACCEPTED, operation.job)

    def _finish(self, operation: JobFinished, job: JobState) -> Outcome:
        kept = []
        origin = Origin(author=b"", nonce=operation.job)
        heads = dict(operation.supersedes)
        for stored in operation.stored:
            # A result that names no source comes from all that the job saw.
            if not self.erased.isdisjoint(stored.sources or job.records):
                continue
            outcome = self._put(stored, origin)
            if outcome.result is Result.STORED:
                kept.append(stored.record)
                self._replace(heads.get(stored.record, b""), stored.record)
        for vectors in operation.vectors:
            self._note_context(vectors.record, vectors.context_of)
        job.state = "failed" if operation.failed else "done"
        job.reason = operation.reason
        job.results = tuple(kept)
        job.sealed = b""
        job.finished_at = self.last_time
        job.outcome = self._done(Result.FINISHED, operation.job)
        return job.outcome

    def _note_context(self, record: bytes, context_of: bytes) -> None:
        known = self.records.get(record)
        if known is not None and context_of and not known.context_of:
            known.context_of = context_of
            if self._readers is not None:
                self._readers.add(record, sources=(), context_of=context_of)

    def _replace(self, head: bytes, record: bytes) -> None:
        """Let a job's result take the place of a memory, unless somebody else did something to it meanwhile."""
        old = self._head(head)
        if not isinstance(old, Refusal) and head != record:
            self._stand(old, Standing.SUPERSEDED)
            old.superseded_by = record
            self.records[record].supersedes = head

    def _done(self, result: Result, subject: bytes = b"") -> Outcome:
        return Outcome(result, subject, self.position.seq)

    def _refused(self, refusal: Refusal, subject: bytes = b"") -> Outcome:
        return Outcome(Result.REFUSED, subject, self.position.seq, refusal)

    def _trim(self) -> None:
        """Let go of nonces that can no longer come back (I8)."""
        while len(self._order) > NONCES_KEPT and self._order[0][0] < self.last_time - NONCE_LIFE_MS:
            _, operation_id = self._order.popleft()
            self._outcomes.pop(operation_id, None)


def _job_end(job: bytes) -> OperationId:
    # No origin has this id: an index is never negative.
    return (b"", job, -1)


def _weigh(rows: Sized, each: int, unread: int) -> int:
    waiting = rows.unread if isinstance(rows, PagedRows) else 0
    return (len(rows) - waiting) * each + waiting * unread
