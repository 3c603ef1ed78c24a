"""The native API's routes: each hands a checked call to one use case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from relayer.errors import Refused
from relayer.http.erasing import check_may_erase
from relayer.http.queries import ForgetQuery, JobQuery, ListQuery, NamespacesQuery
from relayer.http.routing import Call, Reply, Route
from relayer.services.accounts import Accounts
from relayer.services.analyze import analyze
from relayer.services.context import Context
from relayer.services.erase import erase_memory
from relayer.services.jobs import get_job
from relayer.services.memories import forget_memory, get_memory, list_memories
from relayer.services.namespaces import list_namespaces
from relayer.services.recall import recall
from relayer.services.remember import remember
from relayer.wire import base64url, schemas
from relayer.wire.certificates import Right
from relayer.wire.errors import Malformed
from relayer.wire.revocations import RevocationsRequest, RevocationsResponse, RevocationsView

__all__ = ["NativeRoutes"]

RECALL_SECONDS = 14.0
ANALYZE_SECONDS = 55.0


class NativeRoutes:
    """The signed routes under ``/v1``.

    Args:
        context: for the use cases.
        accounts: keeps revocations.
        on_revoked: told the account whose opened keys must go at once.
    """

    def __init__(
        self, context: Context, accounts: Accounts, on_revoked: Callable[[str], Awaitable[None]]
    ) -> None:
        self._context = context
        self._accounts = accounts
        self._on_revoked = on_revoked

    def table(self) -> tuple[Route, ...]:
        """Return the routes. Costs follow the work: an extraction is about five searches, a poll is free."""
        return (*self._of_memories(), *self._of_turns(), *self._of_the_account())

    def _of_memories(self) -> tuple[Route, ...]:
        read, write = Right.READ, Right.WRITE
        return (
            Route(
                "POST",
                "/v1/memories",
                self._remember,
                "Remember 1 to 100 items; durable and recallable when it answers.",
                answer=schemas.RememberResponse,
                body=schemas.RememberRequest,
                right=write,
                writes=True,
                cost=2.0,
            ),
            Route(
                "GET",
                "/v1/memories",
                self._list,
                "List memories, newest first.",
                answer=schemas.ListResponse,
                query=ListQuery,
                right=read,
            ),
            Route(
                "GET",
                "/v1/memories/{id}",
                self._get,
                "One memory with its history.",
                answer=schemas.MemoryResponse,
                right=read,
            ),
            Route(
                "DELETE",
                "/v1/memories/{id}",
                self._forget,
                "Forget a memory: hidden from recall, kept in its history; or erase it with its history.",
                answer=schemas.ForgetResponse,
                query=ForgetQuery,
                right=write,
                writes=True,
                cost=2.0,
            ),
        )

    def _of_turns(self) -> tuple[Route, ...]:
        read, write = Right.READ, Right.WRITE
        return (
            Route(
                "POST",
                "/v1/recall",
                self._recall,
                "Find memories by a query or a vector; may return nothing.",
                answer=schemas.RecallResponse,
                body=schemas.RecallRequest,
                right=read,
                seconds=RECALL_SECONDS,
            ),
            Route(
                "POST",
                "/v1/analyze",
                self._analyze,
                "Keep what is worth keeping of a turn.",
                answer=schemas.AnalyzeResponse,
                body=schemas.AnalyzeRequest,
                right=write,
                writes=True,
                cost=5.0,
                seconds=ANALYZE_SECONDS,
                statuses=(200, 202),
            ),
            Route(
                "GET",
                "/v1/jobs/{id}",
                self._job,
                "The truth about a job, waiting for its end up to wait_ms.",
                answer=schemas.JobResponse,
                query=JobQuery,
                right=read,
                cost=0.0,
            ),
        )

    def _of_the_account(self) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                "/v1/namespaces",
                self._namespaces,
                "The account's namespaces that the certificate covers.",
                answer=schemas.NamespacesResponse,
                query=NamespacesQuery,
                namespaced=False,
                right=Right.READ,
            ),
            Route(
                "GET",
                "/v1/account/revocations",
                self._revocations,
                "The account's list of revocations, as it signed it.",
                answer=RevocationsView,
                namespaced=False,
                right=Right.ADMIN,
            ),
            Route(
                "PUT",
                "/v1/account/revocations",
                self._revoke,
                "Replace the account's list of revocations by a newer one.",
                answer=RevocationsResponse,
                body=RevocationsRequest,
                namespaced=False,
                right=Right.ADMIN,
                writes=True,
                cost=10.0,
            ),
        )

    async def _remember(self, call: Call) -> Reply:
        request = call.body_as(schemas.RememberRequest)
        return Reply.of(await remember(self._context, call.access, request, call.deadline))

    async def _recall(self, call: Call) -> Reply:
        request = call.body_as(schemas.RecallRequest)
        return Reply.of(await recall(self._context, call.access, request, call.deadline))

    async def _analyze(self, call: Call) -> Reply:
        request = call.body_as(schemas.AnalyzeRequest)
        answer = await analyze(self._context, call.access, request, call.deadline)
        return Reply.of(answer, 200 if answer.state == "done" else 202)

    async def _job(self, call: Call) -> Reply:
        wait_ms = call.query_as(JobQuery).wait_ms
        return Reply.of(await get_job(self._context, call.access, call.parameter, wait_ms, call.deadline))

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

    async def _namespaces(self, call: Call) -> Reply:
        query = call.query_as(NamespacesQuery)
        answer = await list_namespaces(
            self._context, call.principal, limit=query.limit, cursor=query.cursor, deadline=call.deadline
        )
        return Reply.of(answer)

    async def _revocations(self, call: Call) -> Reply:
        async with call.deadline.step("revocations"):
            encoded = await self._accounts.revocations(call.principal.account)
        return Reply.of(RevocationsView(revocations=base64url.encode(encoded)))

    async def _revoke(self, call: Call) -> Reply:
        try:
            encoded = base64url.decode(call.body_as(RevocationsRequest).revocations)
        except Malformed as error:
            raise Refused("revocations_invalid", "revocations must be base64url of a signed list") from error
        account = call.principal.account
        async with call.deadline.step("revoke"):
            revocations = await self._accounts.revoke(encoded, account=account)
        await self._on_revoked(account)
        return Reply.of(RevocationsResponse(counter=revocations.counter))
