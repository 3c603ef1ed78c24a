"""Requests and answers about the life of a memory after it was stored: change, bring back, hide by filter."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from relayer.wire.erasure import ErasureView
from relayer.wire.fields import (
    MAX_TTL_SECONDS,
    IdempotencyKey,
    Lang,
    MemoryId,
    NamespaceName,
    Short,
    Text,
    Time,
    Unit,
    Vector,
    at_most,
)
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, KindName, Position, TrustName

__all__ = [
    "MAX_DELETED",
    "DeleteRequest",
    "DeleteResponse",
    "RestoreResponse",
    "Selection",
    "SupersedeRequest",
    "SupersedeResponse",
]

MAX_DELETED = 1000
_IDS_SHOWN = 100


class SupersedeRequest(Request):
    """``POST /v1/memories/{id}/supersede``: a new version; what is left out stays as it was.

    ``ttl_seconds`` counts from now, and 0 means for ever. Of the three times, null takes the time away.
    """

    text: Text | None = None
    vector: Vector | None = None
    kind: KindName | None = None
    audience: AudienceName | None = None
    trust: TrustName | None = None
    suspect: bool | None = None
    pinned: bool | None = None
    importance: Unit | None = None
    lang: Lang | None = None
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    ttl_seconds: Annotated[int, Field(ge=0, le=MAX_TTL_SECONDS)] | None = None
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None

    @model_validator(mode="after")
    def _needs_something(self) -> SupersedeRequest:
        if not self.model_fields_set - {"namespace", "idempotency_key", "vector"}:
            raise ValueError("give at least one field that changes, such as text, pinned or ttl_seconds")
        if self.vector is not None and self.text is None:
            raise ValueError("a vector belongs to a text: give the text as well")
        return self


class SupersedeResponse(Answer):
    """The new version's id, and the one that it replaced."""

    id: MemoryId
    supersedes: MemoryId
    position: Position
    degraded: bool = False
    job_id: MemoryId | None = None


class RestoreResponse(Answer):
    """``POST /v1/memories/{id}/restore``: live again; ``replaced`` is the version that it took the place of."""

    id: MemoryId
    state: Literal["live"]
    replaced: MemoryId | None = None
    position: Position


class Selection(Request):
    """Which memories are meant: those that pass every filter given. Times are bounds ``[after, before)``.

    ``inactive_since`` keeps those that were neither stored, nor said again, nor brought back at or after that time.
    """

    ids: Annotated[tuple[MemoryId, ...], Field(max_length=MAX_DELETED), at_most(MAX_DELETED)] = ()
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), at_most(3)] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), at_most(4)] = ()
    hosts: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    sessions: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    speakers: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    suspect: bool | None = None
    pinned: bool | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    inactive_since: Time | None = None

    @property
    def filters(self) -> set[str]:
        """The names of the filters that are given; an empty list and null filter nothing."""
        return {name for name in Selection.model_fields if getattr(self, name) not in (None, ())}


class DeleteRequest(Selection):
    """``POST /v1/memories/delete``: forget the live memories that pass the filters, or erase all that pass, kept turns as well.

    Without any filter it takes ``everything: true``; with ``dry_run`` it only counts.
    """

    mode: Literal["forget", "erase"] = "forget"

    everything: bool = False
    dry_run: bool = False
    namespace: NamespaceName | None = None

    @model_validator(mode="after")
    def _needs_a_scope(self) -> DeleteRequest:
        if self.everything == bool(self.filters):
            raise ValueError("give at least one filter, or everything: true and no filter")
        return self


class DeleteResponse(Answer):
    """How many memories passed, and were forgotten or erased; ``remaining`` are left for the next, same request.

    ``ids`` are the first hundred of them, newest first.
    """

    matched: int
    forgotten: int
    remaining: int
    dry_run: bool
    ids: Annotated[tuple[MemoryId, ...], Field(max_length=_IDS_SHOWN)] = ()
    position: Position | None = None
    erased: int = 0
    erasure: ErasureView | None = None
