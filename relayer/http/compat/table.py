"""The table of routes for MemWal's clients."""

from __future__ import annotations

from relayer.http.compat import finding, listings, mcp, opaque, public, storing
from relayer.http.compat.front import CompatRoute

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
        CompatRoute("POST", "/api/remember", storing.remember),
        CompatRoute("GET", "/api/remember/{id}", storing.job_status),
        CompatRoute("POST", "/api/remember/bulk", storing.bulk),
        CompatRoute("POST", "/api/remember/bulk/status", storing.bulk_status),
        CompatRoute("POST", "/api/remember/manual", opaque.remember),
        CompatRoute("POST", "/api/recall", finding.recall, seconds=_RECALL_SECONDS, urgent=True),
        CompatRoute("POST", "/api/recall/manual", opaque.recall, seconds=_RECALL_SECONDS, urgent=True),
        CompatRoute("POST", "/api/analyze", storing.analyze, seconds=_LONG_SECONDS),
        CompatRoute("POST", "/api/ask", finding.ask, urgent=True),
        CompatRoute("POST", "/api/restore", listings.restore, seconds=_LONG_SECONDS),
        CompatRoute("POST", "/api/embed", finding.embed),
        CompatRoute("POST", "/api/stats", listings.stats),
        CompatRoute("POST", "/api/list", listings.list_texts),
        CompatRoute("POST", "/api/forget", listings.forget),
        CompatRoute("POST", "/api/clear-namespace", listings.forget),
        CompatRoute("POST", "/api/memories/forget", listings.forget_memories),
        CompatRoute("GET", "/v1/owners/{id}/namespaces", listings.list_namespaces),
        CompatRoute("GET", "/v1/owners/{id}/memories", listings.list_owned),
        CompatRoute("GET", "/v1/owners/{id}/agents", listings.list_agents),
        CompatRoute("POST", "/api/mcp", mcp.post, seconds=_LONG_SECONDS, signed=False, bearer=True),
        CompatRoute("GET", "/api/mcp", mcp.listen, signed=False, bearer=True),
        CompatRoute("DELETE", "/api/mcp", mcp.end, signed=False, bearer=True),
        CompatRoute("GET", "/api/mcp/sse", mcp.stream, signed=False, bearer=True),
        CompatRoute("POST", "/api/mcp/messages", mcp.messages, signed=False, bearer=True),
        CompatRoute("GET", "/v1/blobs/{id}", opaque.blob, signed=False),
    )
    # fmt: on
