"""The requests and answers that both sides use most, under one name.

Each stands in the module of what it is about: `vocabulary`, `memories`, `recall`, `capture`, `service`, `problems`. What fewer
callers need is imported from where it is: `life`, `answers`, `consolidation`, `context`, `erasure`, `profile`, `transfer`.
The OpenAPI document is generated from all of them.
"""

from __future__ import annotations

from relayer.wire.capture import MAX_WAIT_MS, AnalyzeRequest, AnalyzeResponse, JobResponse, TurnItem
from relayer.wire.memories import (
    MAX_ITEMS,
    MAX_LIMIT,
    ForgetResponse,
    ListResponse,
    Memory,
    MemoryItem,
    MemoryResponse,
    Remembered,
    RememberRequest,
    RememberResponse,
)
from relayer.wire.problems import Problem, ProblemField
from relayer.wire.recall import (
    Evidence,
    Judgement,
    PastName,
    RecallHit,
    RecallRequest,
    RecallResponse,
    SourcePenalty,
)
from relayer.wire.service import (
    FleetKeyView,
    HealthResponse,
    KeysResponse,
    NamespacesResponse,
    NamespaceView,
    ReadyResponse,
    VersionResponse,
)
from relayer.wire.vocabulary import (
    AudienceName,
    Consistency,
    KindName,
    Position,
    RoleName,
    SourceInfo,
    StandingName,
    TrustName,
)

__all__ = [
    "MAX_ITEMS",
    "MAX_LIMIT",
    "MAX_WAIT_MS",
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
    "PastName",
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
