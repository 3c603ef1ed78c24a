"""The signed routes, all of them, and what each one calls."""

from __future__ import annotations

import re

from relayer.access.accounts import Accounts
from relayer.access.quotas import Quotas
from relayer.errors import Refused
from relayer.http.body import (
    CURSOR,
    ChangesQuery,
    ContextQuery,
    ForgetQuery,
    JobQuery,
    ListQuery,
    NamespacesQuery,
    ProfileQuery,
)
from relayer.http.parsing import EVENTS
from relayer.http.problems import HttpProblem, unauthorized
from relayer.http.request import JSON_LINES, Call, Reply, Route, RouteGroup
from relayer.namespaces.context import Context
from relayer.use_cases.capture import analyze, get_job
from relayer.use_cases.changes import ChangeStreams, changes
from relayer.use_cases.consolidate import propose, take
from relayer.use_cases.erase import erase_memory, erase_namespace, get_erasure
from relayer.use_cases.export import export
from relayer.use_cases.insight import active_recall, ask
from relayer.use_cases.lifecycle import delete, restore, supersede
from relayer.use_cases.memories import forget_memory, get_memory, list_memories
from relayer.use_cases.overview import list_namespaces, newest_days, profile
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import import_memories, remember
from relayer.use_cases.transcripts import transcript
from relayer.wire import codec as base64url
from relayer.wire import memories
from relayer.wire import memories as answers
from relayer.wire import memories as life
from relayer.wire.certificates import RevocationsRequest, RevocationsResponse, RevocationsView, Right
from relayer.wire.errors import Malformed
from relayer.wire.memories import (
    AnalyzeRequest,
    AnalyzeResponse,
    ChangesResponse,
    ContextResponse,
    EraseNamespaceRequest,
    EraseNamespaceResponse,
    ErasureView,
    JobResponse,
    RecallRequest,
    RecallResponse,
)
from relayer.wire.service import (
    AccountResponse,
    ConsolidationRequest,
    ConsolidationResponse,
    ExportLine,
    ExportRequest,
    ImportRequest,
    ImportResponse,
    NamespacesResponse,
    ProfileResponse,
    QuotaView,
    TakeRequest,
    TakeResponse,
    TranscriptRequest,
    TranscriptResponse,
)


def check_may_erase(call: Call) -> None:
    """Refuse what only a person may do; raises `HttpProblem`."""
    if not call.access.principal.may(call.access.namespace, Right.ADMIN):
        raise unauthorized("admin_not_granted")


class ErasureRoutes(RouteGroup):
    """The signed routes under ``/v1`` about erasures."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/namespaces/erase",
                self._erase_namespace,
                "Erase a namespace; a dry run says what would go.",
                answer=EraseNamespaceResponse,
                body=EraseNamespaceRequest,
                right=Right.ADMIN,
                writes=True,
                cost=10.0,
            ),
            Route(
                "GET",
                "/v1/erasures/{id}",
                self._erasure,
                "How far an erasure is: erased, destroyed, confirmed.",
                answer=ErasureView,
                namespaced=False,
                right=Right.READ,
            ),
        )

    async def _erase_namespace(self, call: Call) -> Reply:
        request = call.body_as(EraseNamespaceRequest)
        return Reply.of(await erase_namespace(self._context, call.access, request, call.deadline))

    async def _erasure(self, call: Call) -> Reply:
        return Reply.of(await get_erasure(self._context, call.principal, call.parameter, call.deadline))


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


RECALL_SECONDS = 14.0
ANALYZE_SECONDS = 55.0


class TurnRoutes(RouteGroup):
    """The signed routes that a gateway asks for at every turn."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/recall",
                self._recall,
                "Find memories by a query or a vector; may return nothing.",
                answer=RecallResponse,
                body=RecallRequest,
                right=Right.READ,
                bytes_a_token=1024,
                seconds=RECALL_SECONDS,
            ),
            Route(
                "POST",
                "/v1/analyze",
                self._analyze,
                "Keep what is worth keeping of a turn.",
                answer=AnalyzeResponse,
                body=AnalyzeRequest,
                right=Right.WRITE,
                writes=True,
                cost=5.0,
                seconds=ANALYZE_SECONDS,
                statuses=(200, 202),
            ),
            Route(
                "POST",
                "/v1/transcript",
                self._transcript,
                "The turns of a session that were kept word for word.",
                answer=TranscriptResponse,
                body=TranscriptRequest,
                right=Right.READ,
            ),
            Route(
                "GET",
                "/v1/jobs/{id}",
                self._job,
                "The truth about a job, waiting for its end up to wait_ms.",
                answer=JobResponse,
                query=JobQuery,
                right=Right.READ,
            ),
        )

    async def _recall(self, call: Call) -> Reply:
        request = call.body_as(RecallRequest)
        return Reply.of(await recall(self._context, call.access, request, call.deadline))

    async def _analyze(self, call: Call) -> Reply:
        request = call.body_as(AnalyzeRequest)
        answer = await analyze(self._context, call.access, request, call.deadline)
        return Reply.of(answer, 200 if answer.state == "done" else 202)

    async def _transcript(self, call: Call) -> Reply:
        request = call.body_as(TranscriptRequest)
        return Reply.of(await transcript(self._context, call.access, request, call.deadline))

    async def _job(self, call: Call) -> Reply:
        wait_ms = call.query_as(JobQuery).wait_ms
        return Reply.of(await get_job(self._context, call.access, call.parameter, wait_ms, call.deadline))


# A model thinks for as long as its reader waits: the gateway's deadline decides, up to its longest setting.
MODEL_SECONDS = 120.0


class AnswerRoutes(RouteGroup):
    """The signed routes under ``/v1`` that ask a model; whoever goes away takes the question with them."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/active-recall",
                self._active_recall,
                "What to remind an assistant of before it answers; may be nothing.",
                answer=answers.ActiveRecallResponse,
                body=answers.ActiveRecallRequest,
                right=Right.READ,
                cost=5.0,
                seconds=MODEL_SECONDS,
                ends_with_caller=True,
            ),
            Route(
                "POST",
                "/v1/ask",
                self._ask,
                "Answer a question from memories alone, with citations.",
                answer=answers.AskResponse,
                body=answers.AskRequest,
                right=Right.READ,
                cost=5.0,
                seconds=MODEL_SECONDS,
                ends_with_caller=True,
            ),
        )

    async def _active_recall(self, call: Call) -> Reply:
        request = call.body_as(answers.ActiveRecallRequest)
        return Reply.of(await active_recall(self._context, call.access, request, call.deadline))

    async def _ask(self, call: Call) -> Reply:
        request = call.body_as(answers.AskRequest)
        return Reply.of(await ask(self._context, call.access, request, call.deadline))


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


class OverviewRoutes(RouteGroup):
    """The signed routes that look over a namespace.

    Args:
        context: for the use cases.
        streams: of changes; None makes some of the usual bounds.
    """

    def __init__(self, context: Context, streams: ChangeStreams | None = None) -> None:
        super().__init__(context)
        self._streams = ChangeStreams(context) if streams is None else streams

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "GET",
                "/v1/context",
                self._context_of,
                "The newest memories of the newest days, for a session that begins.",
                answer=ContextResponse,
                query=ContextQuery,
                right=Right.READ,
            ),
            Route(
                "GET",
                "/v1/profile",
                self._profile,
                "What is known of the user and their work, as one Markdown document that cites its memories.",
                answer=ProfileResponse,
                query=ProfileQuery,
                right=Right.READ,
                cost=2.0,
            ),
            Route(
                "GET",
                "/v1/changes",
                self._changes,
                "What became of memories after a point in the log, waiting for it up to wait_ms; with the header "
                "accept: text/event-stream, as server-sent events.",
                answer=ChangesResponse,
                query=ChangesQuery,
                right=Right.READ,
            ),
        )

    async def _context_of(self, call: Call) -> Reply:
        query = call.query_as(ContextQuery)
        answer = await newest_days(
            self._context,
            call.access,
            days=query.days,
            items=query.items,
            offset_minutes=query.offset_minutes,
            audiences=query.audiences,
            trusts=query.trusts,
            deadline=call.deadline,
        )
        return Reply.of(answer)

    async def _profile(self, call: Call) -> Reply:
        query = call.query_as(ProfileQuery)
        answer = await profile(
            self._context,
            call.access,
            max_tokens=query.max_tokens,
            audiences=query.audiences,
            trusts=query.trusts,
            deadline=call.deadline,
        )
        return Reply.of(answer)

    async def _changes(self, call: Call) -> Reply:
        query = call.query_as(ChangesQuery)
        if call.events:
            after = _cursor(call.last_event) or query.after
            chunks = await self._streams.open(call.access, after, call.deadline)
            return Reply(b"", media_type=EVENTS, chunks=chunks, endless=True)
        answer = await changes(
            self._context,
            call.access,
            after=query.after,
            limit=query.limit,
            wait_ms=query.wait_ms,
            deadline=call.deadline,
        )
        return Reply.of(answer)


def _cursor(last_event: str) -> str:
    """Return the cursor that an event's id is, empty for none; raises `HttpProblem` ``malformed``."""
    if last_event and re.fullmatch(CURSOR, last_event) is None:
        raise HttpProblem("malformed", "The header last-event-id is no id of an event of this feed.")
    return last_event


class AccountRoutes(RouteGroup):
    """The signed routes that are about no namespace.

    Args:
        context: for the use cases.
        accounts: keeps revocations.
        quotas: what accounts may keep.
    """

    def __init__(self, context: Context, accounts: Accounts, quotas: Quotas) -> None:
        super().__init__(context)
        self._accounts = accounts
        self._quotas = quotas

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "GET",
                "/v1/namespaces",
                self._namespaces,
                "The account's namespaces that the certificate covers.",
                answer=NamespacesResponse,
                query=NamespacesQuery,
                namespaced=False,
                right=Right.READ,
                # Each page opens up to a hundred pointers.
                cost=5.0,
            ),
            Route(
                "GET",
                "/v1/account",
                self._account,
                "What the account keeps, and what it may keep.",
                answer=AccountResponse,
                namespaced=False,
                right=Right.READ,
                cost=5.0,
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

    async def _namespaces(self, call: Call) -> Reply:
        query = call.query_as(NamespacesQuery)
        answer = await list_namespaces(
            self._context, call.principal, limit=query.limit, cursor=query.cursor, deadline=call.deadline
        )
        return Reply.of(answer)

    async def _account(self, call: Call) -> Reply:
        account = call.principal.account
        quota = self._quotas.of(account)
        async with call.deadline.step("usage"):
            used = await self._quotas.used(account)
        return Reply.of(
            AccountResponse(
                account=account,
                bytes=QuotaView(used=used.amount.bytes, limit=quota.bytes or None),
                namespaces=QuotaView(used=len(used.namespaces), limit=quota.namespaces or None),
                memories=QuotaView(used=used.amount.memories, limit=quota.memories or None),
            )
        )

    async def _revocations(self, call: Call) -> Reply:
        async with call.deadline.step("revocations"):
            encoded = await self._accounts.revocations(call.principal.account)
        return Reply.of(RevocationsView(revocations=base64url.encode(encoded)))

    async def _revoke(self, call: Call) -> Reply:
        try:
            encoded = base64url.decode(call.body_as(RevocationsRequest).revocations)
        except Malformed as error:
            raise Refused("revocations_invalid", "revocations must be base64url of a signed list") from error
        principal = call.principal
        async with call.deadline.step("revoke"):
            revocations = await self._accounts.revoke(
                encoded, account=principal.account, address=principal.peer
            )
        return Reply.of(RevocationsResponse(counter=revocations.counter))


def signed_routes(context: Context, accounts: Accounts, quotas: Quotas) -> tuple[Route, ...]:
    """Return the routes under ``/v1``. Costs follow the work: an extraction is about five searches, and nothing is free.

    Args:
        context: for the use cases.
        accounts: keeps revocations.
        quotas: what accounts may keep.
    """
    groups = (
        MemoryRoutes(context),
        TurnRoutes(context),
        AccountRoutes(context, accounts, quotas),
        OverviewRoutes(context),
        TransferRoutes(context),
        LifeRoutes(context),
        ErasureRoutes(context),
        AnswerRoutes(context),
    )
    return tuple(route for group in groups for route in group.table())
