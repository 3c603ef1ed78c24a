"""The routes around a turn: what is recalled before it, what is kept of it, and how far that is."""

from __future__ import annotations

from relayer.http.queries import JobQuery
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.analyze import analyze
from relayer.services.jobs import get_job
from relayer.services.recall import recall
from relayer.services.transcripts import transcript
from relayer.wire.capture import AnalyzeRequest, AnalyzeResponse, JobResponse
from relayer.wire.certificates import Right
from relayer.wire.recall import RecallRequest, RecallResponse
from relayer.wire.transcript import TranscriptRequest, TranscriptResponse

__all__ = ["ANALYZE_SECONDS", "RECALL_SECONDS", "TurnRoutes"]

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
