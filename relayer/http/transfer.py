"""The routes that move memories out of a relayer and into one."""

from __future__ import annotations

from relayer.http.route_group import RouteGroup
from relayer.http.routing import JSON_LINES, Call, Reply, Route
from relayer.services.export import export
from relayer.services.importing import import_memories
from relayer.wire.certificates import Right
from relayer.wire.transfer import ExportLine, ExportRequest, ImportRequest, ImportResponse

__all__ = ["EXPORT_SECONDS", "TransferRoutes"]

# A whole namespace, read by whoever is slow.
EXPORT_SECONDS = 600.0


class TransferRoutes(RouteGroup):
    """The signed routes for exports and imports."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/export",
                self._export,
                "The memories that pass a filter, as lines of JSON: a head, one line each, an end.",
                answer=ExportLine,
                body=ExportRequest,
                right=Right.READ,
                cost=10.0,
                seconds=EXPORT_SECONDS,
                media_type=JSON_LINES,
            ),
            Route(
                "POST",
                "/v1/import",
                self._import,
                "Store a page of what an export showed; the same page again stores nothing twice.",
                answer=ImportResponse,
                body=ImportRequest,
                right=Right.WRITE,
                writes=True,
                cost=5.0,
            ),
        )

    async def _export(self, call: Call) -> Reply:
        request = call.body_as(ExportRequest)
        chunks = await export(self._context, call.access, request, call.deadline)
        return Reply(b"", media_type=JSON_LINES, chunks=chunks)

    async def _import(self, call: Call) -> Reply:
        request = call.body_as(ImportRequest)
        return Reply.of(await import_memories(self._context, call.access, request, call.deadline))
