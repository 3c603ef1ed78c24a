"""What became of an operation. An outcome is decided once, in `NamespaceState.apply`, and then only looked up."""

from __future__ import annotations

from enum import StrEnum

import msgspec


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
