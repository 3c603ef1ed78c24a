"""The most used request and response schemas, re-exported under one name from `fields`, `memories` and `service`.

The OpenAPI document is generated from all of these modules.
"""

from __future__ import annotations

from relayer.wire.fields import Audience, Consistency, Position, SourceInfo
from relayer.wire.memories import (
    MAX_LIMIT,
    AnalyzeRequest,
    AnalyzeResponse,
    ForgetResponse,
    JobResponse,
    ListRequest,
    ListResponse,
    Memory,
    MemoryItem,
    MemoryResponse,
    RecallHit,
    RecallRequest,
    RecallResponse,
    Remembered,
    RememberRequest,
    RememberResponse,
    SourcePenalty,
    TurnItem,
    Verdict,
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

__all__ = [
    "MAX_LIMIT",
    "AnalyzeRequest",
    "AnalyzeResponse",
    "Audience",
    "Consistency",
    "FleetKeyView",
    "ForgetResponse",
    "HealthResponse",
    "JobResponse",
    "KeysResponse",
    "ListRequest",
    "ListResponse",
    "Memory",
    "MemoryItem",
    "MemoryResponse",
    "NamespaceView",
    "NamespacesResponse",
    "Position",
    "ReadyResponse",
    "RecallHit",
    "RecallRequest",
    "RecallResponse",
    "RememberRequest",
    "RememberResponse",
    "Remembered",
    "SourceInfo",
    "SourcePenalty",
    "TurnItem",
    "Verdict",
    "VersionResponse",
]
