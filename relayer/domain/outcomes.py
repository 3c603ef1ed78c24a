"""What became of operations, records and jobs: decided once, in `NamespaceState.apply`, and then only looked up.

All are stored by position, as rows of a state.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from relayer.domain.operations import Stored


class Result(StrEnum):
    """How an operation ended."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    ERASED = "erased"
    ACCEPTED = "accepted"
    FINISHED = "finished"
    CLOSED = "closed"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why the state refused an operation; the values are stable codes of the API."""

    CLOSED = "namespace_closed"
    EXPIRED = "expired"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    UNKNOWN_RECORD = "not_found"
    STALE_HEAD = "stale_head"
    RECORD_EXISTS = "record_exists"
    TOMBSTONED = "forgotten_before"
    JOB_OVER = "job_over"
    SOURCE_ERASED = "source_erased"
    MALFORMED = "malformed_operation"


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The result, the record (or job) it is about, the slot that decided it, and why if refused."""

    result: Result
    subject: bytes = b""
    seq: int = 0
    refusal: Refusal | None = None


class Status(StrEnum):
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
    status: Status = msgspec.field(default=Status.LIVE, name="standing")
    supersedes: bytes = b""
    superseded_by: bytes = b""
    changed_at: int = 0
    reinforced: int = 0
    reinforced_at: int = 0
    context_of: bytes = b""
    # What it would have replaced, had nobody been first.
    conflicts_with: bytes = msgspec.field(default=b"", name="beside")

    def live_at(self, now: int) -> bool:
        """Whether recall may return it at a time in ms."""
        return self.status is Status.LIVE and (self.expires_at is None or self.expires_at > now)

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
