"""A namespace's state: what the log says so far.

`NamespaceState.apply` is total and deterministic (I7): it depends on the entries and on nothing else, so that every
replica that read the same log agrees on every outcome. All rules about duplicates, stale heads, repeated operations,
finished jobs and erased sources are decided below it, in the modules of this package, and nowhere else: what is known of
operations in `known_outcomes`, what becomes of records, jobs and erasures in `record_rules`, `job_rules` and
`erasing_rules`.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field

import msgspec

from relayer.domain.contents import Contents
from relayer.domain.entry import Entry
from relayer.domain.erasing_rules import erase, trace
from relayer.domain.job_rules import accept, finish
from relayer.domain.known_outcomes import KnownOutcomes
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
    Supersede,
    decode_operation,
)
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.paged_rows import PagedRows
from relayer.domain.record_rules import forget, put, replace_or_stand_beside, restore, supersede

__all__ = ["EXPIRY_GRACE_MS", "Applied", "NamespaceState"]

EXPIRY_GRACE_MS = 5 * 60 * 1000
# Measured, with what the dictionaries take that they stand in; unread: in pages of a stored state.
_RECORD_BYTES = 1100
_UNREAD_RECORD_BYTES = 450
_OUTCOME_BYTES = 500
_UNREAD_OUTCOME_BYTES = 80
_REQUEST_BYTES = 700
_UNREAD_REQUEST_BYTES = 300


class Applied(msgspec.Struct, frozen=True):
    """One operation and what became of it; what projections (indexes) are built from."""

    operation: Operation | Malformed
    outcome: Outcome
    repeated: bool = False


@dataclass(slots=True, eq=False)
class NamespaceState(Contents):  # noqa: PLW1641 - it changes: no key of anything
    """The state after `position`. Mutable, and changed by `apply` only.

    Two are equal if they say the same, whatever of it has been read so far.

    Attributes:
        known: how `apply` knows an operation or a request again.
    """

    known: KnownOutcomes = field(default_factory=KnownOutcomes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceState) and self._said() == other._said()

    def _said(self) -> tuple[object, ...]:
        return (
            (self.position, self.last_time, self.closed, self.jobs, self.erased, self.erasures),
            list(self.records.items()),
            self.known.rows(),
            dict(self.known.requests.items()),
            (self.twins.repeats, self.twins.older, self.twins.erased_texts),
            [
                (self.twins.like(one.likeness), self.twins.saying(one.content))
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
        outcomes, unread = self.known.held
        return (
            _weigh(self.records, _RECORD_BYTES, _UNREAD_RECORD_BYTES)
            + _weigh(self.known.requests, _REQUEST_BYTES, _UNREAD_REQUEST_BYTES)
            + outcomes * _OUTCOME_BYTES
            + unread * _UNREAD_OUTCOME_BYTES
            + (len(self.jobs) + len(self.erased)) * _OUTCOME_BYTES
        )

    @property
    def repeats_texts(self) -> bool:
        """Whether several records may hold the same text, said among others or by another voice."""
        return self.twins.repeats

    def of_the_same_text(self, record: bytes) -> tuple[bytes, ...]:
        """Return the records that have this one's text, itself included."""
        return self.twins.saying(self.records[record].content)

    def outcome_of(self, operation: Operation) -> Outcome | None:
        """Return what became of an operation, if it is in the state (I5)."""
        self.known.read()
        if isinstance(operation, JobFinished):
            return self._end_of(operation.job)
        return self.known.of(operation.origin.id) or self._by_idempotency(operation.origin)

    def outcomes_of(self, author: bytes, nonce: bytes) -> dict[int, Outcome]:
        """Return what became of a request's operations by their index, if it has come before; empty if it has not."""
        self.known.read()
        return self.known.of_request(author, nonce)

    def apply(self, entry: Entry, digest: bytes) -> list[Applied]:
        """Take the next entry.

        Args:
            entry: the entry of slot `next_seq`; sequence, chain and seal were verified by the caller.
            digest: SHA-256 of its stored bytes.

        Raises:
            UpgradeRequired: it holds an operation of a newer version; the state is unchanged.
        """
        operations = [decode_operation(raw) for raw in entry.operations]
        self.known.read()
        self.position = Position(entry.seq, digest)
        self.last_time = max(self.last_time, entry.time)
        applied = [self._apply_one(operation) for operation in operations]
        for operation in operations:
            trace(self, operation)
        self.repeats.clear()
        self.known.trim(self.last_time)
        return applied

    def _apply_one(self, operation: Operation | Malformed) -> Applied:
        if isinstance(operation, Malformed):
            return Applied(operation, self.refused(Refusal.MALFORMED))
        if isinstance(operation, JobFinished):
            return self._apply_finish(operation)
        origin = operation.origin
        known = self.known.of(origin.id)
        if known is not None:
            return Applied(operation, known, repeated=True)
        first = self._by_idempotency(origin)
        outcome = first or self._decide(operation, origin)
        self.known.note(origin.id, outcome, self.last_time)
        if first is None and origin.idempotency and outcome.refusal is None:
            self.known.note_request(origin, outcome)
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
        """Return how a job ended: kept on the job for ever, or as a refusal as long as any other one."""
        known = self.jobs.get(job)
        ended = None if known is None else known.outcome
        return ended or self.known.of(_job_end(job))

    def _by_idempotency(self, origin: Origin) -> Outcome | None:
        if not origin.idempotency or origin.idempotency not in self.known.requests:
            return None
        body, outcomes = self.known.requests[origin.idempotency]
        if body != origin.body:
            # Also where the first request had no operation of this index: a request is refused whole.
            return self.refused(Refusal.IDEMPOTENCY_CONFLICT)
        return outcomes.get(origin.index)

    def _decide(self, operation: Operation, origin: Origin) -> Outcome:
        if self.closed:
            return self.refused(Refusal.CLOSED)
        if origin.expires and origin.expires + EXPIRY_GRACE_MS < self.last_time:
            return self.refused(Refusal.EXPIRED)
        return self._change(operation, origin)

    def _change(self, operation: Operation, origin: Origin) -> Outcome:
        match operation:
            case Put(stored=stored, twin=twin, replaces=replaces):
                outcome = put(self, stored, origin.author, twin=twin)
                if outcome.result is Result.STORED and replaces:
                    replace_or_stand_beside(self, replaces, stored.record)
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
                outcome = self.done(Result.CLOSED)
            case _:
                outcome = self.refused(Refusal.MALFORMED)
        return outcome


def _job_end(job: bytes) -> OperationId:
    # No origin has this id: an index is never negative.
    return (b"", job, -1)


def _weigh(rows: Sized, each: int, unread: int) -> int:
    waiting = rows.unread if isinstance(rows, PagedRows) else 0
    return (len(rows) - waiting) * each + waiting * unread
