"""The routes that show many memories at once: for a session that begins, as a profile, as a feed of changes."""

from __future__ import annotations

import re

from relayer.http.head import EVENTS
from relayer.http.problems import HttpProblem
from relayer.http.queries import CURSOR, ChangesQuery, ContextQuery, ProfileQuery
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.change_stream import ChangeStreams
from relayer.services.changes import changes
from relayer.services.cold_start import newest_days
from relayer.services.context import Context
from relayer.services.profile import profile
from relayer.wire.certificates import Right
from relayer.wire.context import ChangesResponse, ContextResponse
from relayer.wire.profile import ProfileResponse

__all__ = ["OverviewRoutes"]


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
