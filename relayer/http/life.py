"""The routes for what becomes of memories after they were stored: changed, brought back, deleted, tidied up."""

from __future__ import annotations

from relayer.http.erasing import check_may_erase
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.consolidate import propose, take
from relayer.services.delete import delete
from relayer.services.restore import restore
from relayer.services.supersede import supersede
from relayer.wire import life
from relayer.wire.certificates import Right
from relayer.wire.consolidation import ConsolidationRequest, ConsolidationResponse, TakeRequest, TakeResponse

__all__ = ["LifeRoutes"]


class LifeRoutes(RouteGroup):
    """The signed routes that change memories."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/memories/{id}/supersede",
                self._supersede,
                "Store a new version of a memory; the old one stays in its history.",
                answer=life.SupersedeResponse,
                body=life.SupersedeRequest,
                right=Right.WRITE,
                writes=True,
                cost=2.0,
            ),
            Route(
                "POST",
                "/v1/memories/{id}/restore",
                self._restore,
                "Bring back a forgotten memory, or an old version of one.",
                answer=life.RestoreResponse,
                right=Right.WRITE,
                writes=True,
                cost=2.0,
            ),
            Route(
                "POST",
                "/v1/memories/delete",
                self._delete,
                "Forget, or erase, the memories that pass a filter; dry_run counts them.",
                answer=life.DeleteResponse,
                body=life.DeleteRequest,
                right=Right.WRITE,
                writes=True,
                cost=5.0,
            ),
            Route(
                "POST",
                "/v1/consolidation",
                self._propose,
                "What could be tidied up: repetitions, and what later memories replaced or contradict; changes nothing.",
                answer=ConsolidationResponse,
                body=ConsolidationRequest,
                right=Right.READ,
                cost=10.0,
            ),
            Route(
                "POST",
                "/v1/consolidation/take",
                self._take,
                "Carry out proposals of a consolidation whose memories did not change meanwhile.",
                answer=TakeResponse,
                body=TakeRequest,
                right=Right.WRITE,
                writes=True,
                cost=10.0,
            ),
        )

    async def _supersede(self, call: Call) -> Reply:
        request = call.body_as(life.SupersedeRequest)
        return Reply.of(await supersede(self._context, call.access, call.parameter, request, call.deadline))

    async def _restore(self, call: Call) -> Reply:
        return Reply.of(await restore(self._context, call.access, call.parameter, call.deadline))

    async def _delete(self, call: Call) -> Reply:
        request = call.body_as(life.DeleteRequest)
        if request.mode == "erase":
            check_may_erase(call)
        return Reply.of(await delete(self._context, call.access, request, call.deadline))

    async def _propose(self, call: Call) -> Reply:
        request = call.body_as(ConsolidationRequest)
        return Reply.of(await propose(self._context, call.access, request, call.deadline))

    async def _take(self, call: Call) -> Reply:
        request = call.body_as(TakeRequest)
        return Reply.of(await take(self._context, call.access, request, call.deadline))
