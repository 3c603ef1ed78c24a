"""The routes for memories as they are: remembered, listed, shown, forgotten."""

from __future__ import annotations

from relayer.http.erasing import check_may_erase
from relayer.http.queries import ForgetQuery, ListQuery
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.erase import erase_memory
from relayer.services.memories import forget_memory, get_memory, list_memories
from relayer.services.remember import remember
from relayer.wire import memories
from relayer.wire.certificates import Right

__all__ = ["MemoryRoutes"]


class MemoryRoutes(RouteGroup):
    """The signed routes ``/v1/memories``."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/memories",
                self._remember,
                "Remember 1 to 100 items; durable and recallable when it answers.",
                answer=memories.RememberResponse,
                body=memories.RememberRequest,
                right=Right.WRITE,
                writes=True,
                cost=2.0,
            ),
            Route(
                "GET",
                "/v1/memories",
                self._list,
                "List memories, newest first.",
                answer=memories.ListResponse,
                query=ListQuery,
                right=Right.READ,
            ),
            Route(
                "GET",
                "/v1/memories/{id}",
                self._get,
                "One memory with its history.",
                answer=memories.MemoryResponse,
                right=Right.READ,
            ),
            Route(
                "DELETE",
                "/v1/memories/{id}",
                self._forget,
                "Forget a memory: hidden from recall, kept in its history; or erase it with its history.",
                answer=memories.ForgetResponse,
                query=ForgetQuery,
                right=Right.WRITE,
                writes=True,
                cost=2.0,
            ),
        )

    async def _remember(self, call: Call) -> Reply:
        request = call.body_as(memories.RememberRequest)
        return Reply.of(await remember(self._context, call.access, request, call.deadline))

    async def _list(self, call: Call) -> Reply:
        query = call.query_as(ListQuery)
        answer = await list_memories(
            self._context,
            call.access,
            limit=query.limit,
            cursor=query.cursor,
            kinds=query.kinds,
            states=query.states,
            deadline=call.deadline,
        )
        return Reply.of(answer)

    async def _get(self, call: Call) -> Reply:
        return Reply.of(await get_memory(self._context, call.access, call.parameter, call.deadline))

    async def _forget(self, call: Call) -> Reply:
        if call.query_as(ForgetQuery).mode == "erase":
            check_may_erase(call)
            return Reply.of(await erase_memory(self._context, call.access, call.parameter, call.deadline))
        return Reply.of(await forget_memory(self._context, call.access, call.parameter, call.deadline))
