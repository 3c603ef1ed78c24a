"""The table of routes for MemWal's clients, and `create_front`, which the relayer calls when it starts."""

from __future__ import annotations

from dataclasses import fields

from prometheus_client import CollectorRegistry

from relayer.fronts.memwal import listings, mcp, memories, opaque, public
from relayer.fronts.memwal.accept import CompatAcceptance, Points, Rates, Window
from relayer.fronts.memwal.contract import IdTokens, inner_account
from relayer.fronts.memwal.front import CompatFront, CompatRoute, CompatServices
from relayer.http import routes
from relayer.http.accept import Acceptance
from relayer.settings.config import RelayerSettings
from relayer.telemetry import log

_RECALL_SECONDS = 13.8
_LONG_SECONDS = 54.0


def table() -> tuple[CompatRoute, ...]:
    """Return the routes: method, path, handler, maximum duration in seconds."""
    # fmt: off
    return (
        CompatRoute("GET", "/health", public.health, signed=False),
        CompatRoute("GET", "/version", public.version, signed=False),
        CompatRoute("GET", "/config", public.config, signed=False),
        CompatRoute("POST", "/sui", public.sui, signed=False),
        CompatRoute("POST", "/api/remember", memories.remember),
        CompatRoute("GET", "/api/remember/{id}", memories.job_status),
        CompatRoute("POST", "/api/remember/bulk", memories.bulk),
        CompatRoute("POST", "/api/remember/bulk/status", memories.bulk_status),
        CompatRoute("POST", "/api/remember/manual", opaque.remember),
        CompatRoute("POST", "/api/recall", memories.recall, seconds=_RECALL_SECONDS, interactive=True),
        CompatRoute("POST", "/api/recall/manual", opaque.recall, seconds=_RECALL_SECONDS, interactive=True),
        CompatRoute("POST", "/api/analyze", memories.analyze, seconds=_LONG_SECONDS),
        CompatRoute("POST", "/api/ask", memories.ask, interactive=True),
        CompatRoute("POST", "/api/restore", listings.restore, seconds=_LONG_SECONDS),
        CompatRoute("POST", "/api/embed", memories.embed),
        CompatRoute("POST", "/api/stats", listings.stats),
        CompatRoute("POST", "/api/list", listings.list_texts),
        CompatRoute("POST", "/api/forget", listings.forget),
        CompatRoute("POST", "/api/clear-namespace", listings.forget),
        CompatRoute("POST", "/api/memories/forget", listings.forget_memories),
        CompatRoute("GET", "/v1/owners/{id}/namespaces", listings.list_namespaces),
        CompatRoute("GET", "/v1/owners/{id}/memories", listings.list_owned),
        CompatRoute("GET", "/v1/owners/{id}/agents", listings.list_agents),
        CompatRoute("POST", "/api/mcp", mcp.post, seconds=_LONG_SECONDS, signed=False, bearer=True),
        CompatRoute("DELETE", "/api/mcp", mcp.end, signed=False, bearer=True),
        CompatRoute("GET", "/api/mcp/sse", mcp.stream, signed=False, bearer=True),
        CompatRoute("POST", "/api/mcp/messages", mcp.messages, signed=False, bearer=True),
        CompatRoute("GET", "/v1/blobs/{id}", opaque.blob, signed=False),
    )
    # fmt: on


def create_front(
    settings: RelayerSettings, native: routes.Services, acceptance: Acceptance, registry: CollectorRegistry
) -> CompatFront:
    """Create the front; see `relayer.http.fronts.CreateFront`."""
    context = native.context
    if settings.compat_legacy:
        log.warning(
            "legacy_clients_served",
            why="--compat-legacy: requests without a nonce are known by their signatures alone, and answered for their keys' own accounts",
        )
    # The operator names an account by the id that clients use. The same id may be that of a gateway's account and that of a
    # MemWal account.
    native.quotas.add_ids(inner_account)
    front = CompatAcceptance(
        native.accounts,
        context.keys,
        acceptance.limits,
        bodies=acceptance.bodies,
        authorities=acceptance.authorities,
        points=Points(Rates(*settings.compat_rates), context.clock, enabled=settings.rate_limits == "on"),
        window=Window(legacy=settings.compat_legacy),
        clock=context.clock,
    )
    services = CompatServices(
        **{one.name: getattr(native, one.name) for one in fields(native)},
        tokens=IdTokens(context.keys),
        acceptance=front,
        public_url=settings.public_url,
        trusted=settings.trusted_proxy,
    )
    return CompatFront(table(), services, registry)
