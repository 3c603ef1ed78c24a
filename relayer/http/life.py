"""The routes for what becomes of memories after they were stored."""

from __future__ import annotations

import re

from relayer.http.erasing import check_may_erase
from relayer.http.head import EVENTS
from relayer.http.problems import HttpProblem
from relayer.http.queries import CURSOR, ChangesQuery, ContextQuery, ProfileQuery
from relayer.http.routing import JSON_LINES, Call, Reply, Route
from relayer.services.change_stream import ChangeStreams
from relayer.services.changes import changes
from relayer.services.cold_start import newest_days
from relayer.services.consolidate import propose, take
from relayer.services.context import Context
from relayer.services.delete import delete
from relayer.services.export import export
from relayer.services.importing import import_memories
from relayer.services.profile import profile
from relayer.services.restore import restore
from relayer.services.supersede import supersede
from relayer.wire import life
from relayer.wire.certificates import Right
from relayer.wire.consolidation import (
    ConsolidationRequest,
    ConsolidationResponse,
    TakeRequest,
    TakeResponse,
)
from relayer.wire.context import ChangesResponse, ContextResponse
from relayer.wire.profile import ProfileResponse
from relayer.wire.transfer import ExportLine, ExportRequest, ImportRequest, ImportResponse

__all__ = ["LifeRoutes"]

# A whole namespace, read by whoever is slow.
EXPORT_SECONDS = 600.0


class LifeRoutes:
    """The signed routes under ``/v1`` that change, bring back and move memories.

    Args:
        context: for the use cases.
        streams: of changes; None makes some of the usual bounds.
    """

    def __init__(self, context: Context, streams: ChangeStreams | None = None) -> None:
        self._context = context
        self._streams = ChangeStreams(context) if streams is None else streams

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        read, write = Right.READ, Right.WRITE
        return (
            Route(
                "GET",
                "/v1/context",
                self._context_of,
                "The newest memories of the newest days, for a session that begins.",
                answer=ContextResponse,
                query=ContextQuery,
                right=read,
            ),
            Route(
                "GET",
                "/v1/profile",
                self._profile,
                "What is known of the user and their work, as one Markdown document that cites its memories.",
                answer=ProfileResponse,
                query=ProfileQuery,
                right=read,
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
                right=read,
            ),
            Route(
                "POST",
                "/v1/export",
                self._export,
                "The memories that pass a filter, as lines of JSON: a head, one line each, an end.",
                answer=ExportLine,
                body=ExportRequest,
                right=read,
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
                right=write,
                writes=True,
                cost=5.0,
            ),
            Route(
                "POST",
                "/v1/memories/{id}/supersede",
                self._supersede,
                "Store a new version of a memory; the old one stays in its history.",
                answer=life.SupersedeResponse,
                body=life.SupersedeRequest,
                right=write,
                writes=True,
                cost=2.0,
            ),
            Route(
                "POST",
                "/v1/memories/{id}/restore",
                self._restore,
                "Bring back a forgotten memory, or an old version of one.",
                answer=life.RestoreResponse,
                right=write,
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
                right=write,
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
                right=read,
                cost=10.0,
            ),
            Route(
                "POST",
                "/v1/consolidation/take",
                self._take,
                "Carry out proposals of a consolidation whose memories did not change meanwhile.",
                answer=TakeResponse,
                body=TakeRequest,
                right=write,
                writes=True,
                cost=10.0,
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

    async def _export(self, call: Call) -> Reply:
        request = call.body_as(ExportRequest)
        chunks = await export(self._context, call.access, request, call.deadline)
        return Reply(b"", media_type=JSON_LINES, chunks=chunks)

    async def _import(self, call: Call) -> Reply:
        request = call.body_as(ImportRequest)
        return Reply.of(await import_memories(self._context, call.access, request, call.deadline))

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


def _cursor(last_event: str) -> str:
    """Return the cursor that an event's id is, empty for none; raises `HttpProblem` ``malformed``."""
    if last_event and re.fullmatch(CURSOR, last_event) is None:
        raise HttpProblem("malformed", "The header last-event-id is no id of an event of this feed.")
    return last_event
