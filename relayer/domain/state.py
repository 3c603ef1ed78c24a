"""A namespace's state: what the log says so far.

`NamespaceState.apply` is total and deterministic (I7): it depends on the entries and on nothing else, so that every
replica that read the same log agrees on every outcome. All rules about duplicates, stale heads, repeated operations,
finished jobs and erased sources are decided here and in `rules`, and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence, Sized
from dataclasses import dataclass, field

import msgspec

from relayer.domain.entry import Entry
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
from relayer.domain.rules import (
    Contents,
    accept,
    erase,
    finish,
    forget,
    put,
    replace_or_conflict,
    restore,
    supersede,
    trace,
)

NONCE_LIFE_MS = 10 * 60 * 1000
NONCES_KEPT = 4096

OutcomeRows = Sequence[tuple[int, OperationId, Outcome]]
"""The outcomes of the operations whose nonces are kept, oldest first, with the time of their entries."""

RequestOutcomes = tuple[bytes, dict[int, Outcome]]
"""Of a request with an idempotency key: the body it belongs to, and what became of its operations by their index."""


@dataclass(slots=True)
class KnownOutcomes:
    """Outcomes by operation, for as long as a nonce lives, and by idempotency key, for ever.

    Attributes:
        requests: by idempotency key.
    """

    requests: MutableMapping[bytes, RequestOutcomes] = field(default_factory=dict)
    _outcomes: dict[OperationId, Outcome] = field(default_factory=dict)
    _order: deque[tuple[int, OperationId]] = field(default_factory=deque)
    # Of a stored state, until its outcomes are asked for: what returns them, and how many there are.
    _unread: tuple[Callable[[], OutcomeRows], int] | None = None

    @classmethod
    def stored(
        cls, requests: MutableMapping[bytes, RequestOutcomes], rows: Callable[[], OutcomeRows], count: int
    ) -> KnownOutcomes:
        """Go on from a stored state with so many outcomes, which ``rows`` returns when they are asked for."""
        return cls(requests, _unread=(rows, count))

    @property
    def held(self) -> tuple[int, int]:
        """How many outcomes are in memory, and how many are not read yet."""
        return len(self._outcomes), 0 if self._unread is None else self._unread[1]

    def read(self) -> None:
        """Read what a stored state has; `of` knows nothing of it before."""
        if self._unread is not None:
            known = self._unread[0]()
            self._unread = None
            self._outcomes = {operation: outcome for _, operation, outcome in known}
            self._order = deque((time, operation) for time, operation, _ in known)

    def rows(self) -> OutcomeRows:
        """Return what is kept of operations."""
        self.read()
        return tuple((time, known, self._outcomes[known]) for time, known in self._order)

    def of(self, operation: OperationId) -> Outcome | None:
        """Return what became of an operation, if it is kept."""
        return self._outcomes.get(operation)

    def of_request(self, author: bytes, nonce: bytes) -> dict[int, Outcome]:
        """Return what became of a request's operations by their index, in the order of the log, as far as they are kept."""
        return {
            index: outcome
            for (by, under, index), outcome in self._outcomes.items()
            if under == nonce and by == author
        }

    def note(self, operation: OperationId, outcome: Outcome, time: int) -> None:
        """Keep what became of an operation in an entry of this time."""
        self._outcomes[operation] = outcome
        self._order.append((time, operation))

    def note_request(self, origin: Origin, outcome: Outcome) -> None:
        """Keep what became of an operation of a request with an idempotency key."""
        self.requests.setdefault(origin.idempotency, (origin.body, {}))[1][origin.index] = outcome

    def trim(self, now: int) -> None:
        """Let go of nonces that can no longer come back (I8)."""
        while len(self._order) > NONCES_KEPT and self._order[0][0] < now - NONCE_LIFE_MS:
            _, operation = self._order.popleft()
            self._outcomes.pop(operation, None)


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
            (self.duplicates.repeats, self.duplicates.older, self.duplicates.erased_texts),
            [
                (self.duplicates.newest(one.likeness), self.duplicates.of_text(one.content))
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
        return self.duplicates.repeats

    def of_the_same_text(self, record: bytes) -> tuple[bytes, ...]:
        """Return the records that have this one's text, itself included."""
        return self.duplicates.of_text(self.records[record].content)

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
