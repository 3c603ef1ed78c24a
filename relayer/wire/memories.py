"""Requests and answers about memories as they are stored, shown, listed and forgotten."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from relayer.wire.erasure import ErasureView
from relayer.wire.fields import (
    MAX_TTL_SECONDS,
    NOT_EMPTY,
    IdempotencyKey,
    Lang,
    MemoryId,
    NamespaceName,
    Text,
    Time,
    Unit,
    Vector,
    at_most,
)
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, KindName, Position, SourceInfo, StandingName, TrustName

__all__ = [
    "MAX_ITEMS",
    "MAX_LIMIT",
    "ForgetResponse",
    "ListResponse",
    "Memory",
    "MemoryItem",
    "MemoryResponse",
    "RememberRequest",
    "RememberResponse",
    "Remembered",
]

MAX_ITEMS = 100
MAX_LIMIT = 100


class MemoryItem(Request):
    """One thing to remember."""

    text: Text
    vector: Vector | None = None
    kind: KindName = "statement"
    audience: AudienceName = "agent"
    trust: TrustName = "user"
    suspect: bool = False
    pinned: bool = False
    importance: Unit = 0.5
    lang: Lang = ""
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    ttl_seconds: Annotated[int, Field(gt=0, le=MAX_TTL_SECONDS)] | None = None
    context_of: MemoryId | None = None
    source: SourceInfo = SourceInfo()


class RememberRequest(Request):
    """``POST /v1/memories``: durable and recallable when it answers."""

    items: Annotated[tuple[MemoryItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS), *NOT_EMPTY]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None


class Remembered(Answer):
    """What became of one item; for a duplicate, ``id`` is the memory that was there before."""

    id: MemoryId
    status: Literal["stored", "duplicate", "refused"]
    code: str | None = None


class RememberResponse(Answer):
    """Items in the order of the request. ``job_id`` is given when vectors are still to be computed."""

    memories: tuple[Remembered, ...]
    position: Position
    degraded: bool = False
    job_id: MemoryId | None = None


class Memory(Answer):
    """A memory as the API shows it."""

    id: MemoryId
    text: str
    kind: KindName
    audience: AudienceName
    trust: TrustName
    suspect: bool = False
    pinned: bool = False
    importance: float = 0.5
    lang: str = ""
    created_at: Time
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    expires_at: Time | None = None
    state: StandingName = "live"
    supersedes: tuple[MemoryId, ...] = ()
    superseded_by: MemoryId | None = None
    reinforced: int = 0
    context_of: MemoryId | None = None
    contradicts: tuple[MemoryId, ...] = ()
    searchable: bool = True
    source: SourceInfo = SourceInfo()
    extractor: str = ""
    embedding: str = ""


class ListResponse(Answer):
    """``GET /v1/memories``: newest first."""

    memories: tuple[Memory, ...]
    next_cursor: str | None = None
    total: int


class MemoryResponse(Answer):
    """``GET /v1/memories/{id}``: one memory, and the versions before and after it, oldest first.

    ``omitted`` counts the oldest ones that one answer has no room for.
    """

    memory: Memory
    history: tuple[Memory, ...] = ()
    omitted: int = 0


class ForgetResponse(Answer):
    """``DELETE /v1/memories/{id}``; ``erasure`` is the report, where ``mode`` was ``erase``."""

    id: MemoryId
    state: Literal["forgotten", "erased"]
    position: Position
    erasure: ErasureView | None = None
