"""Requests and answers about capture: turns that are sent for memory, and the jobs that read them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from relayer.wire.fields import IdempotencyKey, MemoryId, NamespaceName, Short, Time, TurnText, at_most
from relayer.wire.memories import MAX_ITEMS, Remembered
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, Position, RoleName

__all__ = [
    "MAX_CALLS",
    "MAX_WAIT_MS",
    "AnalyzeRequest",
    "AnalyzeResponse",
    "JobResponse",
    "TurnItem",
    "without_transcript",
]

MAX_WAIT_MS = 30_000
MAX_CALLS = 16


class TurnItem(Request):
    """One message of a conversation; a memory of a ``suspect`` one is kept, and recalled only when asked for.

    ``calls`` names the tools that were called after it, for the transcript alone.
    """

    role: RoleName
    text: TurnText
    occurred_at: Time | None = None
    id: Short | None = None
    speaker: Short | None = None
    suspect: bool = False
    calls: Annotated[tuple[Short, ...], Field(max_length=MAX_CALLS), at_most(MAX_CALLS)] = ()


class AnalyzeRequest(Request):
    """``POST /v1/analyze``: a turn, of which the relayer keeps what is worth keeping.

    ``session_end`` says that ``session`` ends with these turns, of which there may be none left to send.
    ``store_transcript`` keeps the turns word for word beside the memories that are made of them, if any is, for
    `relayer.wire.transcript.TranscriptRequest`.
    """

    turns: Annotated[tuple[TurnItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS)]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    audience: AudienceName = "agent"
    host: Short = ""
    session: Short = ""
    session_end: bool = False
    store_transcript: bool = False
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0

    @model_validator(mode="after")
    def _needs_something(self) -> AnalyzeRequest:
        if not self.turns and not self.session_end:
            raise ValueError("give at least one of turns, or session_end and the session")
        if self.session_end and not self.session:
            raise ValueError("session_end needs the session that ends")
        if self.store_transcript and not self.session:
            raise ValueError("store_transcript needs the session that the turns belong to")
        return self


def without_transcript(request: AnalyzeRequest) -> AnalyzeRequest:
    """Return a request as a relayer of before transcripts understands it."""
    said = request.model_dump(
        exclude_unset=True, exclude={"store_transcript": True, "turns": {"__all__": {"calls"}}}
    )
    return AnalyzeRequest.model_validate(said)


class AnalyzeResponse(Answer):
    """What was kept. ``state`` is ``done`` when nothing is left to do, ``pending`` while ``job_id`` runs.

    ``extraction`` says what becomes of facts: ``local`` (none are extracted by a model), ``pending``, ``done`` (then
    ``facts`` has them), ``failed`` (the same request again tries again), or ``over_budget`` (turns are kept, no model is
    asked until the next day). ``summary_job_id`` is the promise of a summary of the session that ended.
    """

    state: Literal["done", "pending"]
    memories: tuple[Remembered, ...]
    turns: int
    kept: int
    position: Position | None = None
    degraded: bool = False
    job_id: MemoryId | None = None
    extraction: Literal["local", "pending", "done", "failed", "over_budget"] = "local"
    facts: tuple[MemoryId, ...] = ()
    summary_job_id: MemoryId | None = None


class JobResponse(Answer):
    """``GET /v1/jobs/{id}``: the truth about a job, as far as the replica that answers knows it.

    ``queued``: nothing is in its way; ``running``: on this replica, now; ``waiting``: it is tried again after
    ``retry_in_ms``, and ``reason`` says what it waits for; ``failed``: for good, with a ``reason``.
    """

    id: MemoryId
    work: str
    state: Literal["queued", "running", "waiting", "done", "failed"]
    accepted_at: Time
    finished_at: Time | None = None
    memories: tuple[MemoryId, ...] = ()
    reason: str | None = None
    attempts: int = 0
    retry_in_ms: int | None = None
