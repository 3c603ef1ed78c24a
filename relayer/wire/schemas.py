"""The API's requests and answers. The OpenAPI document is generated from these classes, and from those of `life`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from relayer.wire.erasure import ErasureView
from relayer.wire.fields import (
    NOT_EMPTY,
    IdempotencyKey,
    MemoryId,
    NamespaceName,
    Short,
    Text,
    Time,
    TurnText,
    Unit,
    Vector,
    at_most,
)
from relayer.wire.shapes import Answer as _Answer
from relayer.wire.shapes import Request as _Request

__all__ = [
    "AnalyzeRequest",
    "AnalyzeResponse",
    "AudienceName",
    "Consistency",
    "Evidence",
    "FleetKeyView",
    "ForgetResponse",
    "HealthResponse",
    "JobResponse",
    "Judgement",
    "KeysResponse",
    "KindName",
    "ListResponse",
    "Memory",
    "MemoryItem",
    "MemoryResponse",
    "NamespaceView",
    "NamespacesResponse",
    "Position",
    "Problem",
    "ProblemField",
    "ReadyResponse",
    "RecallHit",
    "RecallRequest",
    "RecallResponse",
    "RememberRequest",
    "RememberResponse",
    "Remembered",
    "RoleName",
    "SourceInfo",
    "SourcePenalty",
    "StandingName",
    "TrustName",
    "TurnItem",
    "VersionResponse",
]

MAX_ITEMS = 100
MAX_LIMIT = 100
MAX_WAIT_MS = 30_000

KindName = Literal[
    "statement", "fact", "preference", "decision", "event", "task", "summary", "profile", "imported"
]
AudienceName = Literal["agent", "direct", "group"]
TrustName = Literal["user", "imported", "assistant", "tool"]
RoleName = Literal["user", "assistant", "tool", "system"]
StandingName = Literal["live", "superseded", "forgotten"]
PastName = Literal["superseded", "forgotten"]


class Consistency(StrEnum):
    """What a read must have seen: every acknowledged write, the caller's own, or whatever is at hand."""

    STRONG = "strong"
    MINE = "mine"
    ANY = "any"


class Position(_Request):
    """A point in a namespace's log."""

    seq: int = Field(ge=0, le=2**63 - 1)
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SourceInfo(_Request):
    """Where a memory comes from, as far as the caller knows."""

    host: Short = ""
    session: Short = ""
    speaker: Short = ""
    role: RoleName = "user"
    message_ids: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    transcript: Short = ""
    reference: Short = ""


class MemoryItem(_Request):
    """One thing to remember."""

    text: Text
    vector: Vector | None = None
    kind: KindName = "statement"
    audience: AudienceName = "agent"
    trust: TrustName = "user"
    suspect: bool = False
    pinned: bool = False
    importance: Unit = 0.5
    lang: Annotated[str, Field(max_length=35)] = ""
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    ttl_seconds: Annotated[int, Field(gt=0, le=100 * 366 * 86_400)] | None = None
    context_of: MemoryId | None = None
    source: SourceInfo = SourceInfo()


class RememberRequest(_Request):
    """``POST /v1/memories``: durable and recallable when it answers."""

    items: Annotated[tuple[MemoryItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS), *NOT_EMPTY]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None


class Remembered(_Answer):
    """What became of one item; for a duplicate, ``id`` is the memory that was there before."""

    id: MemoryId
    status: Literal["stored", "duplicate", "refused"]
    code: str | None = None


class RememberResponse(_Answer):
    """Items in the order of the request. ``job_id`` is given when vectors are still to be computed."""

    memories: tuple[Remembered, ...]
    position: Position
    degraded: bool = False
    job_id: MemoryId | None = None


class SourcePenalty(_Request):
    """How much less a source counts. ``match`` is a pattern with ``*`` and ``?`` over what a memory comes from.

    That is its ``source.reference``, ``transcript:`` and its transcript, ``kind:`` and its kind, or ``trust:`` and its
    trust. The largest penalty that matches counts; it moves a memory down and leaves none out.
    """

    match: Annotated[str, Field(min_length=1, max_length=200)]
    penalty: Unit = 0.15


class RecallRequest(_Request):
    """``POST /v1/recall``: a query, a vector, or both (then the vector is taken as the query's).

    ``include`` adds memories that are superseded or forgotten; ``as_of`` answers from what held at that time, in ms,
    superseded or not.
    """

    query: Text | None = None
    vector: Vector | None = None
    namespace: NamespaceName | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 5
    floor: Unit = 0.3
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), at_most(3)] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), at_most(4)] = ()
    include_suspect: bool = False
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    consistency: Consistency = Consistency.STRONG
    min_position: Position | None = None
    explain: bool = False
    penalties: Annotated[tuple[SourcePenalty, ...], Field(max_length=16), at_most(16)] | None = None
    diversity: Unit = 0.0
    half_life_days: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    include: Annotated[tuple[PastName, ...], Field(max_length=2), at_most(2)] = ()
    as_of: Time | None = None

    @model_validator(mode="after")
    def _needs_something(self) -> RecallRequest:
        if self.query is None and self.vector is None:
            raise ValueError("give a query, a vector, or both")
        return self


class Memory(_Answer):
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


class Evidence(_Answer):
    """Why a hit stands where it does; only with ``explain``.

    ``covered`` is the share of the query's terms that it has, rare ones for more, ``speaker`` whether the query names
    who said it, and ``score`` what it ranks by (cosine, covered share, speaker, and what better neighbours in the
    conversation lend) before its ``penalty``.
    """

    cosine: float | None = None
    bm25: float | None = None
    covered: float = 0.0
    speaker: bool = False
    score: float = 0.0
    penalty: float = 0.0


class Judgement(_Answer):
    """Why a prompt was answered or met silence; only with ``explain``.

    ``best`` is the evidence of the best memory less the ``doubt`` about a name that no memory knows, ``usual`` what
    every other unrelated prompt finds here, and ``needed`` what one in a hundred of them does: relevance 0.3.
    """

    best: float | None = None
    usual: float = 0.0
    needed: float = 0.0
    doubt: float = 0.0


class RecallHit(Memory):
    """A memory found; ``relevance`` is calibrated, 0..1, and ``distance`` is 1 - relevance."""

    relevance: float
    distance: float
    evidence: Evidence | None = None


class RecallResponse(_Answer):
    """Hits, best first; an empty answer is a good one. ``considered`` counts what was searched."""

    memories: tuple[RecallHit, ...]
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
    judgement: Judgement | None = None


class TurnItem(_Request):
    """One message of a conversation; a memory of a ``suspect`` one is kept, and recalled only when asked for."""

    role: RoleName
    text: TurnText
    occurred_at: Time | None = None
    id: Short | None = None
    speaker: Short | None = None
    suspect: bool = False


class AnalyzeRequest(_Request):
    """``POST /v1/analyze``: a turn, of which the relayer keeps what is worth keeping.

    ``session_end`` says that ``session`` ends with these turns, of which there may be none left to send.
    """

    turns: Annotated[tuple[TurnItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS)]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    audience: AudienceName = "agent"
    host: Short = ""
    session: Short = ""
    session_end: bool = False
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0

    @model_validator(mode="after")
    def _needs_something(self) -> AnalyzeRequest:
        if not self.turns and not self.session_end:
            raise ValueError("give at least one of turns, or session_end and the session")
        if self.session_end and not self.session:
            raise ValueError("session_end needs the session that ends")
        return self


class AnalyzeResponse(_Answer):
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


class JobResponse(_Answer):
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


class ListResponse(_Answer):
    """``GET /v1/memories``: newest first."""

    memories: tuple[Memory, ...]
    next_cursor: str | None = None
    total: int


class MemoryResponse(_Answer):
    """``GET /v1/memories/{id}``: one memory, and the versions before and after it, oldest first."""

    memory: Memory
    history: tuple[Memory, ...] = ()


class ForgetResponse(_Answer):
    """``DELETE /v1/memories/{id}``; ``erasure`` is the report, where ``mode`` was ``erase``."""

    id: MemoryId
    state: Literal["forgotten", "erased"]
    position: Position
    erasure: ErasureView | None = None


class NamespaceView(_Answer):
    """One namespace of the account. Counts are null while nothing of it is open and none were written down."""

    name: str
    custody: Literal["agent", "relayer"]
    generation: int
    state: Literal["live", "erasing", "erased"]
    created_at: Time
    memories: int | None = None
    bytes: int | None = None
    last_used_at: Time | None = None


class NamespacesResponse(_Answer):
    """``GET /v1/namespaces``: those that the certificate covers."""

    namespaces: tuple[NamespaceView, ...]
    next_cursor: str | None = None


class FleetKeyView(_Answer):
    """One public fleet key; ``not_after`` in seconds since the epoch."""

    day: str
    public_key: str
    not_after: int


class KeysResponse(_Answer):
    """``GET /v1/keys``: see `relayer.wire.fleet_list` for what is signed. Bytes are base64url."""

    identity: str
    issued_at: int
    keys: tuple[FleetKeyView, ...]
    signature: str


class HealthResponse(_Answer):
    """``GET /health``: the process answers."""

    status: Literal["ok"]
    version: str


class ReadyResponse(_Answer):
    """``GET /ready``: each check by name, ``ok`` or what is wrong; ``degraded`` when it serves, and less than it could."""

    ready: bool
    checks: dict[str, str]
    degraded: bool = False


class VersionResponse(_Answer):
    """``GET /version``: what a client needs to know before it talks."""

    version: str
    api_version: str
    min_client_version: str
    model: str
    dimension: int
    extractor: str


class ProblemField(_Answer):
    """One field that broke a rule; never its value."""

    field: str
    rule: str
    length: int | None = None


class Problem(_Answer):
    """RFC 9457 problem details with a stable ``code``."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    errors: tuple[ProblemField, ...] = ()
    retry_after: float | None = None
    server_time: int | None = None
    accepted: tuple[str, ...] | None = None
