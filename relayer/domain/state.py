"""The state of a namespace: the result of applying the entries of its log.

`NamespaceState.apply` is total and deterministic (I7): it depends on the entries and on nothing else, so that all
replicas that read the same log agree on every outcome. All rules about duplicates, stale heads, repeated operations,
finished jobs and erased sources are decided here, and nowhere else. Each kind of operation has a function below
`NamespaceState` that changes the state and returns the outcome, such as `put` and `erase`; `KnownOutcomes` has the outcomes of
earlier operations, so that a repeated operation gets its first outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relayer.domain.containers import Duplicates, PagedRows, Pinned
from relayer.domain.erasures import Erased, Erasure, Readers
from relayer.domain.namespace import LogPosition
from relayer.domain.operations import (
    EMBED,
    Close,
    Entry,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    JobState,
    MalformedBody,
    Operation,
    OperationId,
    OperationResult,
    Origin,
    Outcome,
    Put,
    RecordState,
    Refusal,
    Restore,
    Stored,
    Supersede,
    decode_operation,
)
from relayer.wire.fields import Status

NONCE_LIFE_MS = 10 * 60 * 1000
NONCES_KEPT = 4096

OutcomeRows = Sequence[tuple[int, OperationId, Outcome]]
"""The outcomes of the operations whose nonces are kept, oldest first, each with the time of its entry in ms."""

RequestOutcomes = tuple[bytes, dict[int, Outcome]]
"""The MAC of the body of a request with an idempotency key, and the outcomes of its operations by their index."""


@dataclass(slots=True)
class KnownOutcomes:
    """The outcomes of earlier operations: by operation for as long as its nonce is kept, and by idempotency key for ever.

    Attributes:
        requests: the outcomes of requests by idempotency key.
        unread: the outcomes of a stored state until they are read: a function that returns them, and their number.
    """

    requests: dict[bytes, RequestOutcomes] | PagedRows[RequestOutcomes, Any] = field(default_factory=dict)
    unread: tuple[Callable[[], OutcomeRows], int] | None = None
    _outcomes: dict[OperationId, Outcome] = field(default_factory=dict)
    _order: deque[tuple[int, OperationId]] = field(default_factory=deque)

    @property
    def held(self) -> tuple[int, int]:
        """Return the number of outcomes by operation in memory, and that of stored ones not read yet."""
        return len(self._outcomes), 0 if self.unread is None else self.unread[1]

    def read(self) -> None:
        """Read the outcomes of a stored state; before that, `of` does not find them."""
        if self.unread is not None:
            known = self.unread[0]()
            self.unread = None
            self._outcomes = {operation: outcome for _, operation, outcome in known}
            self._order = deque((time, operation) for time, operation, _ in known)

    def rows(self) -> OutcomeRows:
        """Return all outcomes by operation that are kept."""
        return [row for block in self.blocks(max(1, sum(self.held)))[1] for row in block]

    def blocks(self, size: int) -> tuple[int, Iterator[OutcomeRows]]:
        """Return the number of outcomes by operation that are kept now, and an iterator over them in blocks of ``size``."""
        self.read()
        order, outcomes = list(self._order), self._outcomes.copy()
        starts = range(0, len(order), size)
        blocks = ([(time, one, outcomes[one]) for time, one in order[at : at + size]] for at in starts)
        return len(order), blocks

    def outcome_of(self, operation: OperationId) -> Outcome | None:
        """Return the outcome of an operation, None if it is not kept."""
        return self._outcomes.get(operation)

    def of_request(self, author: bytes, nonce: bytes) -> dict[int, Outcome]:
        """Return the outcomes of a request's operations by their index, in the order of the log, as far as they are kept."""
        self.read()
        return {
            index: outcome
            for (by, under, index), outcome in self._outcomes.items()
            if under == nonce and by == author
        }

    def note(self, operation: OperationId, outcome: Outcome, time: int) -> None:
        """Record the outcome of an operation, and the time of its entry in ms."""
        self._outcomes[operation] = outcome
        self._order.append((time, operation))

    def note_request(self, origin: Origin, outcome: Outcome, pinned: Pinned | None) -> None:
        """Record the outcome of an operation of a request with an idempotency key."""
        outcomes = self.requests.setdefault(origin.idempotency, (origin.body, {}))[1]
        if pinned is not None:
            pinned.keep(outcomes)
        outcomes[origin.index] = outcome

    def trim(self, now: int) -> None:
        """Evict the nonces that can no longer be repeated at the time ``now``, in ms (I8)."""
        while len(self._order) > NONCES_KEPT and self._order[0][0] < now - NONCE_LIFE_MS:
            _, operation = self._order.popleft()
            self._outcomes.pop(operation, None)


EXPIRY_GRACE_MS = 5 * 60 * 1000
# Measured sizes in memory, including their share of the dictionaries; "unread" means in pages that are not decoded yet.
_RECORD_BYTES = 1100
_UNREAD_RECORD_BYTES = 450
_OUTCOME_BYTES = 500
_UNREAD_OUTCOME_BYTES = 80
_REQUEST_BYTES = 700
_UNREAD_REQUEST_BYTES = 300


class Applied(msgspec.Struct, frozen=True):
    """An operation that was applied, with its outcome; projections of the log, such as indexes, are built from these.

    ``repeated`` says whether the outcome is that of an earlier operation, which this one repeats.
    """

    operation: Operation | MalformedBody
    outcome: Outcome
    repeated: bool = False


@dataclass(slots=True, eq=False)
class NamespaceState:  # noqa: PLW1641 - it changes: no key of anything
    """The state of a namespace after the entry at `position`. It is mutable, and changed by `apply` only.

    Two states are equal if their contents are equal, no matter which pages of a stored state have been decoded.

    Attributes:
        position: the position of the last entry; while an entry is being applied, of that entry.
        last_time: the latest time of an entry, in ms.
        closed: whether the log has ended, so that every further operation is refused.
        records: the metadata of records by id.
        erasures: the erasures, and the slots that hold bodies of erased records.
        duplicates: finds the records with the same text.
        repeats: for the entry that is being applied: the ids of records that were not stored because they are duplicates,
            with the ids of the records that they repeat.
        known: the outcomes of earlier operations and requests, by which `apply` recognizes a repeated one.
        pinned: keeps the former values of records and requests while the state is being written to the store.
    """

    position: LogPosition
    last_time: int = 0
    closed: bool = False
    records: dict[bytes, RecordState] | PagedRows[RecordState, Any] = field(default_factory=dict)
    jobs: dict[bytes, JobState] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    erasures: Erased = field(default_factory=Erased)
    duplicates: Duplicates = field(default_factory=Duplicates)
    repeats: dict[bytes, bytes] = field(default_factory=dict)
    known: KnownOutcomes = field(default_factory=KnownOutcomes)
    pinned: Pinned | None = field(default=None, repr=False)
    # Built from the existing records and jobs when something is erased for the first time.
    readers_kept: Readers | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceState) and self._said() == other._said()

    def _said(self) -> tuple[object, ...]:
        return (
            (self.position, self.last_time, self.closed, self.jobs, self.erased, self.erasures),
            list(self.records.items()),
            self.known.rows(),
            dict(self.known.requests.items()),
            (self.duplicates.repeats, self.duplicates.older, self.duplicates.erased_texts),
            [
                (self.duplicates.newest(one.likeness), self.duplicates.of_text(one.content))
                for one in self.records.values()
            ],
        )

    @property
    def nbytes(self) -> int:
        """Return about how many bytes the state takes in memory."""
        outcomes, unread = self.known.held
        return (
            _weigh(self.records, _RECORD_BYTES, _UNREAD_RECORD_BYTES)
            + _weigh(self.known.requests, _REQUEST_BYTES, _UNREAD_REQUEST_BYTES)
            + outcomes * _OUTCOME_BYTES
            + unread * _UNREAD_OUTCOME_BYTES
            + (len(self.jobs) + len(self.erased)) * _OUTCOME_BYTES
        )

    def outcome_of(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation, None if it is not in the state (I5)."""
        self.known.read()
        if isinstance(operation, JobFinished):
            return self._end_of(operation.job)
        return self.known.outcome_of(operation.origin.id) or self._by_idempotency(operation.origin)

    def knows_any(self, operations: Iterable[Operation]) -> bool:
        """Return whether one of these operations may be in the state.

        If it returns False, the caller need not look up each outcome.
        """
        self.known.read()
        for operation in operations:
            if isinstance(operation, JobFinished):
                if self._end_of(operation.job) is not None:
                    return True
            elif operation.origin.idempotency or self.known.outcome_of(operation.origin.id) is not None:
                return True
        return False

    def apply(self, entry: Entry, digest: bytes) -> list[Applied]:
        """Apply the next entry, and return its operations with their outcomes, in their order.

        Args:
            entry: the entry of the next slot; sequence, chain and seal were verified by the caller.
            digest: the SHA-256 of its stored bytes.

        Raises:
            UpgradeRequired: the entry has an operation of a newer version; the state is unchanged.
        """
        operations = [decode_operation(raw) for raw in entry.operations]
        self.known.read()
        self.position = LogPosition(entry.seq, digest)
        self.last_time = max(self.last_time, entry.time)
        applied = [self._apply_one(operation) for operation in operations]
        for operation in operations:
            trace(self, operation)
        self.repeats.clear()
        self.known.trim(self.last_time)
        return applied

    def _apply_one(self, operation: Operation | MalformedBody) -> Applied:
        if isinstance(operation, MalformedBody):
            return Applied(operation, self.refused(Refusal.MALFORMED))
        if isinstance(operation, JobFinished):
            return self._apply_finish(operation)
        origin = operation.origin
        this = origin.id
        known = self.known.outcome_of(this)
        if known is not None:
            return Applied(operation, known, repeated=True)
        first = self._by_idempotency(origin)
        if first is not None:
            outcome = first
        elif self.closed:
            outcome = self.refused(Refusal.CLOSED)
        elif origin.expires and origin.expires + EXPIRY_GRACE_MS < self.last_time:
            outcome = self.refused(Refusal.EXPIRED)
        else:
            outcome = self._change(operation, origin)
        self.known.note(this, outcome, self.last_time)
        if first is None and origin.idempotency and outcome.refusal is None:
            self.known.note_request(origin, outcome, self.pinned)
        return Applied(operation, outcome, repeated=first is not None)

    def _apply_finish(self, operation: JobFinished) -> Applied:
        first = self._end_of(operation.job)
        if first is not None:
            return Applied(operation, first, repeated=True)
        job = self.jobs.get(operation.job)
        if job is not None and not self.closed:
            return Applied(operation, finish(self, operation, job))
        refused = self.refused(Refusal.JOB_OVER, operation.job)
        self.known.note(_job_end(operation.job), refused, self.last_time)
        return Applied(operation, refused)

    def _end_of(self, job: bytes) -> Outcome | None:
        """Return the outcome of a job's end: kept with the job for ever, or like any other outcome if it was refused."""
        known = self.jobs.get(job)
        ended = None if known is None else known.outcome
        return ended or self.known.outcome_of(_job_end(job))

    def _by_idempotency(self, origin: Origin) -> Outcome | None:
        if not origin.idempotency or origin.idempotency not in self.known.requests:
            return None
        body, outcomes = self.known.requests[origin.idempotency]
        if body != origin.body:
            # This applies even if the first request had no operation with this index: a request is refused as a whole.
            return self.refused(Refusal.IDEMPOTENCY_CONFLICT)
        return outcomes.get(origin.index)

    def _change(self, operation: Operation, origin: Origin) -> Outcome:
        match operation:
            case Put(stored=stored, twin=twin, replaces=replaces):
                outcome = put(self, stored, origin.author, twin=twin)
                if outcome.result is OperationResult.STORED and replaces:
                    replace_or_conflict(self, replaces, stored.record)
            case Supersede(head=head, stored=stored):
                outcome = supersede(self, head, stored, origin.author)
            case Forget(head=head):
                outcome = forget(self, head)
            case Restore(record=record, head=head):
                outcome = restore(self, record, head)
            case Erase(records=records):
                outcome = erase(self, records)
            case JobAccepted():
                outcome = accept(self, operation)
            case Close():
                self.closed = True
                outcome = self.done(OperationResult.CLOSED)
            case _:
                outcome = self.refused(Refusal.MALFORMED)
        return outcome

    def readers(self) -> Readers:
        """Return the readers of records. The first call builds them, and they are kept up to date from then on."""
        if self.readers_kept is None:
            self.readers_kept = Readers()
            for record in self.records.values():
                self.readers_kept.add(record.record, sources=record.sources, context_of=record.context_of)
            for job in self.jobs.values():
                self.readers_kept.add_job(job.job, job.records)
        return self.readers_kept

    def note_reader(self, record: bytes, *, sources: Iterable[bytes], context_of: bytes) -> None:
        """Add a record with its sources and context to the readers, if those are kept."""
        if self.readers_kept is not None:
            self.readers_kept.add(record, sources=sources, context_of=context_of)

    def following(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the existing records whose context one of these is, or was."""
        return [one for one in self.readers().following(records) if one in self.records]

    def was_taken_back(self, content: bytes) -> bool:
        """Return whether a record with this text MAC was forgotten or erased: then a capture must not store the text again.

        Only a user may store it again.
        """
        known = (self.records[record] for record in self.duplicates.of_text(content))
        return self.duplicates.was_erased(content) or any(one.status is Status.FORGOTTEN for one in known)

    def head(self, head: bytes) -> RecordState | Refusal:
        """Return the record ``head`` if it is live, or else the reason why an operation on it is refused."""
        found = self.records.get(head)
        if found is None:
            return Refusal.UNKNOWN_RECORD
        return found if found.status is Status.LIVE else Refusal.STALE_HEAD

    def keep(self, record: RecordState) -> None:
        """Keep the current value of a record for a snapshot that is being written; to be called before it changes."""
        if self.pinned is not None:
            self.pinned.keep(record)

    def set_status(self, record: RecordState, status: Status) -> None:
        """Change the status of a record."""
        self.keep(record)
        record.status = status
        record.changed_at = self.last_time

    def done(self, result: OperationResult, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that took effect."""
        return Outcome(result, subject, self.position.seq)

    def refused(self, refusal: Refusal, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that was refused."""
        return Outcome(OperationResult.REFUSED, subject, self.position.seq, refusal)


def _job_end(job: bytes) -> OperationId:
    # No origin has this id: an index is never negative.
    return (b"", job, -1)


def _weigh(rows: Sized, each: int, unread: int) -> int:
    waiting = rows.unread if isinstance(rows, PagedRows) else 0
    return (len(rows) - waiting) * each + waiting * unread


def put(state: NamespaceState, stored: Stored, author: bytes, *, twin: bytes = b"") -> Outcome:
    """Store a record, unless it is a duplicate, must not be stored again, or was derived from an erased record.

    ``author`` is the signing key of the sender, empty for a job. ``twin`` is the record that a capture found to say the same
    in other words, empty for none.
    """
    before = state.duplicates.newest(stored.dedupe_key)
    known = _duplicate_for(state, stored, before) or _duplicate_for(state, stored, twin)
    if known is not None:
        state.keep(known)
        known.reinforced += 1
        known.reinforced_at = state.last_time
        state.repeats[stored.record] = known.record
        return state.done(OperationResult.DUPLICATE, known.record)
    if stored.captured:
        # The memory that a capture repeats in other words may be forgotten or erased, too.
        other = state.records.get(twin)
        is_taken_back = twin in state.erased or (other is not None and other.status is Status.FORGOTTEN)
        if is_taken_back or state.was_taken_back(stored.content):
            return state.refused(Refusal.TOMBSTONED, stored.record)
    if stored.record in state.records or stored.record in state.erased:
        return state.refused(Refusal.RECORD_EXISTS, stored.record)
    if not state.erased.isdisjoint(stored.sources):
        return state.refused(Refusal.SOURCE_ERASED, stored.record)
    _keep(state, stored, author, before=before)
    return state.done(OperationResult.STORED, stored.record)


def supersede(state: NamespaceState, head: bytes, stored: Stored, author: bytes) -> Outcome:
    """Store a record that supersedes a live one."""
    old = state.head(head)
    if isinstance(old, Refusal):
        return state.refused(old, head)
    if stored.record in state.records or stored.record in state.erased:
        return state.refused(Refusal.RECORD_EXISTS, stored.record)
    state.set_status(old, Status.SUPERSEDED)
    old.superseded_by = stored.record
    _keep(state, stored, author, supersedes=head)
    return state.done(OperationResult.SUPERSEDED, stored.record)


def forget(state: NamespaceState, head: bytes) -> Outcome:
    """Hide a live record from recall."""
    found = state.head(head)
    if isinstance(found, Refusal):
        return state.refused(found, head)
    state.set_status(found, Status.FORGOTTEN)
    return state.done(OperationResult.FORGOTTEN, head)


def restore(state: NamespaceState, record: bytes, head: bytes) -> Outcome:
    """Make a record live again.

    The live record ``head``, a later version of it, is superseded by it in turn. Without a ``head``, the record that superseded it is
    another memory, which stays as it is.
    """
    found = state.records.get(record)
    if found is None:
        return state.refused(Refusal.UNKNOWN_RECORD, record)
    if found.status is Status.LIVE:
        return state.refused(Refusal.STALE_HEAD, record)
    if found.status is Status.SUPERSEDED and not head:
        newer = state.records.get(found.superseded_by)
        if newer is not None and newer.supersedes == record:
            state.keep(newer)
            newer.supersedes = b""
    elif found.status is Status.SUPERSEDED:
        current = state.head(head)
        if isinstance(current, Refusal):
            return state.refused(Refusal.STALE_HEAD, head)
        state.set_status(current, Status.SUPERSEDED)
        current.superseded_by = record
    state.set_status(found, Status.LIVE)
    found.superseded_by = b""
    state.duplicates.add(record, text=found.content, likeness=found.likeness)
    return state.done(OperationResult.RESTORED, record)


def replace(state: NamespaceState, head: bytes, record: bytes) -> None:
    """Let ``record`` supersede ``head``, unless that is not live any more."""
    old = state.head(head)
    if not isinstance(old, Refusal) and head != record:
        state.set_status(old, Status.SUPERSEDED)
        old.superseded_by = record
        state.records[record].supersedes = head


def replace_or_conflict(state: NamespaceState, head: bytes, record: bytes) -> None:
    """Let a captured memory supersede ``head``; if another record did so first, keep both and record the conflict."""
    replace(state, head, record)
    old, new = state.records.get(head), state.records[record]
    if old is not None and old.status is Status.SUPERSEDED and new.supersedes != head:
        new.conflicts_with = head


def _keep(
    state: NamespaceState,
    stored: Stored,
    author: bytes,
    *,
    supersedes: bytes = b"",
    before: bytes | None = None,
) -> None:
    key = stored.dedupe_key
    state.records[stored.record] = RecordState(
        record=stored.record,
        content=stored.content,
        likeness=key,
        seq=state.position.seq,
        created_at=stored.created_at,
        expires_at=stored.expires_at,
        size=stored.size,
        sources=stored.sources,
        author=author,
        supersedes=supersedes,
        context_of=stored.context_of,
    )
    state.duplicates.add(stored.record, text=stored.content, likeness=key, before=before)
    state.note_reader(stored.record, sources=stored.sources, context_of=stored.context_of)


def _duplicate_for(state: NamespaceState, stored: Stored, twin: bytes) -> RecordState | None:
    """Return the record ``twin`` if ``stored`` can be treated as its duplicate: it must be live and expire no earlier."""
    if not twin:
        return None
    known = state.records.get(twin)
    if known is None or not known.live_at(state.last_time) or not known.lasts_as_long_as(stored):
        return None
    return known


def accept(state: NamespaceState, operation: JobAccepted) -> Outcome:
    """Accept a job, unless its input contains an erased record."""
    if operation.job in state.jobs:
        return state.refused(Refusal.RECORD_EXISTS, operation.job)
    # A duplicate was not stored, so the job reads the record that it repeats.
    records = tuple(state.repeats.get(record, record) for record in operation.records)
    # A job that computes vectors has no input of its own: it reads its records when it runs.
    if operation.work != EMBED and not state.erased.isdisjoint(records):
        return state.refused(Refusal.SOURCE_ERASED, operation.job)
    state.jobs[operation.job] = JobState(
        operation.job, operation.work, records, operation.sealed, state.last_time, seq=state.position.seq
    )
    if state.readers_kept is not None:
        state.readers_kept.add_job(operation.job, records)
    return state.done(OperationResult.ACCEPTED, operation.job)


def finish(state: NamespaceState, operation: JobFinished, job: JobState) -> Outcome:
    """End an existing job and store its results, except for results that were derived from erased records."""
    kept = []
    heads = dict(operation.supersedes)
    for stored in operation.stored:
        # A result that names no source is taken to be derived from all records of the job.
        if not state.erased.isdisjoint(stored.sources or job.records):
            continue
        outcome = put(state, stored, author=b"")
        if outcome.result is OperationResult.STORED:
            kept.append(stored.record)
            replace(state, heads.get(stored.record, b""), stored.record)
    for vectors in operation.vectors:
        known = state.records.get(vectors.record)
        if known is not None and vectors.context_of and not known.context_of:
            state.keep(known)
            known.context_of = vectors.context_of
            state.note_reader(vectors.record, sources=(), context_of=vectors.context_of)
    job.state = "failed" if operation.failed else "done"
    job.reason = operation.reason
    job.results = tuple(kept)
    job.sealed = b""
    job.finished_at = state.last_time
    job.outcome = state.done(OperationResult.FINISHED, operation.job)
    return job.outcome


def erase(state: NamespaceState, records: Sequence[bytes]) -> Outcome:
    """Erase records and what was derived from them, and record the slots in which the log holds their bodies."""
    named = [record for record in dict.fromkeys(records) if record in state.records]
    if not named:
        return state.refused(Refusal.UNKNOWN_RECORD)
    derived = state.readers().derived_from(named, state.records)
    gone = [state.records[record] for record in (*named, *derived)]
    ids = [record.record for record in gone]
    # The slots with a body of these records: texts, vectors, job inputs, and context vectors of their neighbours.
    held: set[int] = set()
    for record in (*gone, *(state.records[one] for one in state.following(ids))):
        held.update((record.seq, *state.erasures.slots_of(record.record, record.content)))
    for job in state.readers().jobs_of(ids):
        held.update((state.jobs[job].seq, *state.erasures.slots_of(job)))
    slots = tuple(sorted(held))
    for record in gone:
        del state.records[record.record]
        state.erased.add(record.record)
        state.duplicates.erase(record.record, text=record.content, likeness=record.likeness)
    read = [source for record in gone for source in record.sources]
    read += _cancel_jobs(state, ids)
    rest = tuple(one for one in dict.fromkeys(read) if isinstance(state.head(one), RecordState))
    state.erasures.known[named[0]] = Erasure(
        named[0], state.position.seq, state.last_time, tuple(named), tuple(derived), rest, slots
    )
    return state.done(OperationResult.ERASED, named[0])


def trace(state: NamespaceState, operation: Operation | MalformedBody) -> None:
    """Record the bodies in an operation of this entry that are not found by the slot in which their record was stored."""
    seq, erasures = state.position.seq, state.erasures
    match operation:
        case Put(stored=stored, twin=twin):
            _trace_stored(state, stored)
            if twin:
                erasures.note(twin, seq)  # the body has the text of the twin, in other words
                _note_late(state, (twin,))
        case Supersede(stored=stored):
            _trace_stored(state, stored)
        case JobAccepted(job=job, records=records):
            erasures.note(job, seq)
            _note_late(state, records)
        case JobFinished(job=job, stored=results, vectors=vectors):
            erasures.note(job, seq)
            for stored in results:
                _trace_stored(state, stored)
            for vector in vectors:
                erasures.note(vector.record, seq)
                _note_late(state, (vector.record, vector.context_of))
            known = state.jobs.get(job)
            _note_late(state, known.records if known is not None and results else ())


def _cancel_jobs(state: NamespaceState, gone: Sequence[bytes]) -> list[bytes]:
    """End the jobs that have no input left, or whose sealed input contains an erased text; return their input records."""
    inputs: list[bytes] = []
    for job in [state.jobs[one] for one in state.readers().jobs_of(gone)]:
        if job.outcome is None and (job.work != EMBED or state.erased.issuperset(job.records)):
            job.state = "failed"
            job.reason = Refusal.SOURCE_ERASED.value
            job.sealed = b""
            job.finished_at = state.last_time
            job.outcome = state.refused(Refusal.SOURCE_ERASED, job.job)
            inputs += job.records
    return inputs


def _trace_stored(state: NamespaceState, stored: Stored) -> None:
    kept = state.records.get(stored.record)
    if kept is None or kept.seq != state.position.seq:
        state.erasures.note(stored.content, state.position.seq)
        if state.duplicates.was_erased(stored.content) and not state.duplicates.of_text(stored.content):
            state.erasures.late[state.position.seq] = None
    if state.erased:
        _note_late(state, (stored.record, stored.context_of, *stored.sources))


def _note_late(state: NamespaceState, records: Iterable[bytes]) -> None:
    if not state.erased.isdisjoint(records):
        state.erasures.late[state.position.seq] = None
