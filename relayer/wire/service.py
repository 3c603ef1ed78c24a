"""Answers about the relayer itself and what an account has there: keys, health, version, namespaces."""

from __future__ import annotations

from typing import Literal

from relayer.wire.fields import Time
from relayer.wire.shapes import Answer

__all__ = [
    "AccountResponse",
    "FleetKeyView",
    "HealthResponse",
    "KeysResponse",
    "NamespaceView",
    "NamespacesResponse",
    "QuotaView",
    "ReadyResponse",
    "VersionResponse",
]


class NamespaceView(Answer):
    """One namespace of the account. Counts are null while nothing of it is open and none were written down."""

    name: str
    custody: Literal["agent", "relayer"]
    generation: int
    state: Literal["live", "erasing", "erased"]
    created_at: Time
    memories: int | None = None
    bytes: int | None = None
    last_used_at: Time | None = None


class NamespacesResponse(Answer):
    """``GET /v1/namespaces``: those that the certificate covers."""

    namespaces: tuple[NamespaceView, ...]
    next_cursor: str | None = None


class QuotaView(Answer):
    """How much of something an account has, and the most that it may have; no limit is null."""

    used: int
    limit: int | None = None


class AccountResponse(Answer):
    """``GET /v1/account``: what the account keeps here, forgotten memories and old versions included, as of a moment ago."""

    account: str
    bytes: QuotaView
    namespaces: QuotaView
    memories: QuotaView


class FleetKeyView(Answer):
    """One public fleet key; ``not_after`` in seconds since the epoch."""

    day: str
    public_key: str
    not_after: int


class KeysResponse(Answer):
    """``GET /v1/keys``: see `relayer.wire.fleet_list` for what is signed. Bytes are base64url."""

    identity: str
    issued_at: int
    keys: tuple[FleetKeyView, ...]
    signature: str


class HealthResponse(Answer):
    """``GET /health``: the process answers."""

    status: Literal["ok"]
    version: str


class ReadyResponse(Answer):
    """``GET /ready``: each check by name, ``ok`` or what is wrong; ``degraded`` when it serves, and less than it could."""

    ready: bool
    checks: dict[str, str]
    degraded: bool = False


class VersionResponse(Answer):
    """``GET /version``: what a client needs to know before it talks."""

    version: str
    api_version: str
    min_client_version: str
    model: str
    dimension: int
    extractor: str
