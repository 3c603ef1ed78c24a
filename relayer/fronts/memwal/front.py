"""Request handling for MemWal's clients.

`CompatFront.respond` finds the route, authenticates the request, calls the handler with a `CompatCall`, maps errors to
MemWal's responses and counts the result in `CompatMetrics`. Handlers return a `Reply`; the server sends it as an `Answered`.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from aiohttp.web import BaseRequest, RequestHandler
from cachetools import TTLCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ValidationError

from relayer import errors
from relayer.access.accounts import Accounts
from relayer.access.quotas import Quotas
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.accept import STEADY_SECONDS, Caller, CompatAcceptance, too_many
from relayer.fronts.memwal.contract import CompatError
from relayer.fronts.memwal.names import Tokens
from relayer.fronts.memwal.sessions import MCP_PATH, Sessions, refusal
from relayer.http.accept import parse_json, peer_of
from relayer.http.fronts import Answered
from relayer.http.health import Readiness
from relayer.http.limits import Limits, Network
from relayer.http.problems import HttpProblem, problem_of
from relayer.lib.work import Deadline, OnBehalfOf, on_behalf_of
from relayer.namespaces.context import Context
from relayer.telemetry import describe, log
from relayer.wire.connections import Connections
from relayer.wire.schemas import VersionResponse

JSON = "application/json"
_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_SEGMENT = r"([A-Za-z0-9_-]{1,128})"
_GRACE_SECONDS = 0.25
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a handler.

    Attributes:
        body: a value that is encoded as JSON, or bytes that are sent as they are.
        status: the HTTP status.
        media_type: the content type.
        headers: further headers.
        events: sent one by one in place of a body.
        endless: whether the events go on until the relayer stops.
    """

    body: Any = b""
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    events: AsyncIterator[bytes] | None = None
    endless: bool = False

    @property
    def encoded(self) -> bytes:
        """The bytes of the body."""
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class Services:
    """The services that handlers use; created by the composition root.

    Attributes:
        context: for the use cases.
        accounts: the registered accounts.
        quotas: the limits of what accounts may store.
        tokens: encodes and decodes the ids of jobs and blobs.
        acceptance: authenticates requests and charges points.
        limits: the rate limits of this process.
        connections: gets every accepted request, to know which connections are worth keeping.
        readiness: reports whether the store takes writes.
        version: version information for all clients.
        public_url: the URL by which clients reach this relayer; None takes the one of each request.
        trusted: networks of proxies that are trusted to name the client in ``X-Forwarded-For``.
        jobs: the jobs of idempotency keys, by account and key. The log knows such a key only within its namespace.
        sessions: sessions of MCP clients.
    """

    context: Context
    accounts: Accounts
    quotas: Quotas
    tokens: Tokens
    acceptance: CompatAcceptance
    limits: Limits
    connections: Connections
    readiness: Readiness
    version: VersionResponse
    public_url: str | None = None
    trusted: tuple[Network, ...] = ()
    jobs: TTLCache[tuple[str, str], tuple[str, ...]] = field(
        default_factory=lambda: TTLCache(20_000, ttl=3600)
    )
    sessions: Sessions = field(default_factory=Sessions)


@dataclass(frozen=True, slots=True)
class CompatCall:
    """A request for a handler. On routes that need no signature it has no signer."""

    to: Services
    deadline: Deadline
    request: BaseRequest
    raw: bytes = b""
    parameter: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    signer: Caller | None = None

    @property
    def caller(self) -> Caller:
        """The authenticated sender; for signed routes."""
        if self.signer is None:
            raise TypeError("the route is declared as open")
        return self.signer

    def body(self, schema: type[B]) -> B:
        """Parse the body; raises `CompatError` 400 if it is not JSON, 422 with field and rule if it violates the schema."""
        try:
            value = parse_json(self.raw)
        except HttpProblem as error:
            raise contract.bad(error.detail) from None
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise CompatError(422, f"{where}: {first['msg'].removeprefix('Value error, ')}", rule="shape")


Handler: TypeAlias = Callable[[CompatCall], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class CompatRoute:
    """One method of one path with at most one ``{id}``.

    Attributes:
        method: upper case.
        path: as a template.
        handle: the handler.
        seconds: the maximum duration of a request.
        signed: whether the request must be signed.
        bearer: whether it is a route of MCP clients, which send a key and sign nothing.
        urgent: whether a user is waiting for the response.
    """

    method: str
    path: str
    handle: Handler
    seconds: float = 29.0
    signed: bool = True
    bearer: bool = False
    urgent: bool = False


class CompatMetrics:
    """Metrics under the names that MemWal's own relayer uses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self.requests = Counter(
            "memwal_http_requests", "Requests of MemWal's clients.", labels, registry=registry
        )
        self.seconds = Histogram(
            "memwal_http_request_duration_seconds", "Their time.", labels, buckets=_BUCKETS, registry=registry
        )
        self.in_flight = Gauge("memwal_http_requests_in_flight", "Those being answered.", registry=registry)
        self.errors = Counter("memwal_errors", "Refused ones.", ("kind", "route"), registry=registry)
        self.denials = Counter(
            "memwal_rate_limit_denials", "Those that came too fast.", ("bucket", "route"), registry=registry
        )

    def observe(self, method: str, answered: Answered, seconds: float) -> None:
        """Count a response."""
        labels = (method, answered.route, str(answered.status))
        self.requests.labels(*labels).inc()
        self.seconds.labels(*labels).observe(seconds)
        if answered.status == 429:
            self.denials.labels(answered.rule, answered.route).inc()
        elif answered.status >= 400:
            self.errors.labels(answered.code, answered.route).inc()


class CompatFront:
    """Answers requests of MemWal's clients; all other requests are for the native front."""

    def __init__(
        self, routes: tuple[CompatRoute, ...], services: Services, registry: CollectorRegistry
    ) -> None:
        self._services = services
        self._metrics = CompatMetrics(registry)
        self._exact: dict[str, dict[str, CompatRoute]] = {}
        self._patterns: list[tuple[re.Pattern[str], CompatRoute]] = []
        for route in routes:
            before, parameter, after = route.path.partition("{id}")
            if parameter:
                pattern = re.compile(re.escape(before) + _SEGMENT + re.escape(after))
                self._patterns.append((pattern, route))
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def answers(self, target: str) -> bool:
        """Return whether a target belongs to this front."""
        path = target.partition("?")[0]
        return path in self._exact or path.startswith(("/api/", "/v1/owners/", "/v1/blobs/"))

    def request_id(self, request: BaseRequest) -> str:
        """Return the client's request id, if it has the required form; otherwise a new one."""
        for name in ("x-request-id", "x-correlation-id"):
            given = request.headers.get(name)
            if given is not None and _CLIENT_ID.fullmatch(given):
                return given
        return str(uuid.UUID(bytes=self._services.context.randomness.bytes(16), version=4))

    async def respond(self, request: BaseRequest, request_id: str, protocol: RequestHandler) -> Answered:
        """Answer a request; raises nothing except on cancellation."""
        started = perf_counter()
        self._metrics.in_flight.inc()
        template = "-"
        try:
            route, parameter, query = self._find(request)
            template = route.path
            answered = await self._answer(request, route, parameter, query, protocol)
        except Exception as error:  # noqa: BLE001 - outermost handler: every error becomes a response
            answered = await self._refuse(error, template, request_id)
        finally:
            self._metrics.in_flight.dec()
        self._metrics.observe(request.method, answered, perf_counter() - started)
        return answered

    async def _answer(
        self, request: BaseRequest, route: CompatRoute, parameter: str, query: str, protocol: RequestHandler
    ) -> Answered:
        to = self._services
        deadline = Deadline.after(to.context.clock, route.seconds)
        fields = dict(parse_qsl(query, keep_blank_values=True))
        signer, raw = None, b""
        peer = peer_of(request, to.trusted)
        if route.bearer:
            signer = await to.acceptance.accept_bearer(request, peer, to.context.randomness.bytes(16))
            # The cost of a tool is charged where the tool is called.
            to.limits.charge(signer.account, signer.principal.author, 1.0)
        elif route.signed:
            signer, raw = await to.acceptance.accept(request, peer)
        if request.method == "POST" and not route.signed:
            raw = await to.acceptance.open_body(request, peer)
        if signer is not None:
            to.limits.charge_body(signer.account, signer.principal.author, len(raw) // 4096)
            to.connections.accepted(protocol, signer.account)
            on_behalf_of.set(OnBehalfOf(signer.account, urgent=route.urgent))
        call = CompatCall(to, deadline, request, raw, parameter, fields, signer)
        try:
            async with asyncio.timeout(deadline.remaining() + _GRACE_SECONDS):
                reply = await route.handle(call)
        except TimeoutError as error:
            raise errors.DeadlineExceeded("answer") from error
        account = signer.account if signer is not None else ""
        return Answered(
            reply.status,
            reply.encoded,
            {"Content-Type": reply.media_type, **reply.headers},
            route.path,
            "ok",
            account=account,
            events=reply.events,
            endless=reply.endless,
        )

    def _find(self, request: BaseRequest) -> tuple[CompatRoute, str, str]:
        path, _, query = request.raw_path.partition("?")
        methods: dict[str, tuple[CompatRoute, str]] = {
            method: (route, "") for method, route in self._exact.get(path, {}).items()
        }
        for pattern, route in self._patterns:
            # A path that is in the table literally is not matched against patterns.
            if not methods and (match := pattern.fullmatch(path)) is not None:
                methods = {route.method: (route, match[1])}
        if not methods:
            raise CompatError(404, "Not found", rule="no route")
        method = "GET" if request.method == "HEAD" and "GET" in methods else request.method
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            raise CompatError(405, "Method not allowed", rule="method", headers={"Allow": allowed})
        return *methods[method], query

    async def _refuse(self, error: Exception, template: str, request_id: str) -> Answered:
        problem = error if isinstance(error, CompatError) else translated(error, template)
        if problem.steady:
            await self._services.context.clock.sleep(STEADY_SECONDS)
        if problem.status == 500:
            log.error("request_failed", **describe(error))
        message = problem.message
        if problem.status in {500, 503} and message:
            message = f"{message} (traceId: {request_id})"
        told = {"error": message, **problem.more} if message else {}
        if template.startswith(MCP_PATH):
            told = refusal(problem.status, message)
        body = Reply(told).encoded if told else b""
        headers = {"Content-Type": JSON, **problem.headers} if body else dict(problem.headers)
        code = problem.rule or str(problem.status)
        return Answered(problem.status, body, headers, template, f"http_{problem.status}", code)


# Names that MemWal's clients know for the step during which a recall exceeded its deadline.
_STEPS = {"admit": "auth", "open": "vector_search", "read": "vector_search", "model": "llm"}


def translated(error: Exception, template: str) -> CompatError:
    """Return the response for an exception of a use case; it quotes the exception's text only if that is meant for the caller."""
    if isinstance(error, errors.DeadlineExceeded):
        return _late(error.step, template)
    if isinstance(error, errors.Refused):
        return CompatError(_REFUSED.get(error.code, 400), str(error), rule=error.code)
    problem = problem_of(error)
    if problem.status == 429:
        return too_many("relayer", "this relayer's own", problem.retry_after or 1.0)
    if problem.status in _PASSING:
        wait = math.ceil(problem.retry_after or 1.0)
        return CompatError(503, contract.UNAVAILABLE, rule=problem.code, headers={"Retry-After": str(wait)})
    if problem.status >= 500:
        return CompatError(500, "Internal server error", rule=problem.rule or problem.code)
    return CompatError(problem.status, problem.detail, rule=problem.code)


def _late(during: str, template: str) -> CompatError:
    if template not in {"/api/recall", "/api/recall/manual"}:
        return CompatError(504, f"The time was up during {during}", rule="deadline")
    step = _STEPS.get(during, during)
    more = {"code": "RECALL_TIMEOUT", "step": step}
    return CompatError(504, f"Recall timed out during {step}", rule="RECALL_TIMEOUT", more=more)


# Statuses of conditions that may pass: the store, a model or the embedder is down, or a namespace is being erased.
_PASSING = frozenset({409, 502, 503, 507})
_REFUSED = {"not_found": 404, "quota_exceeded": 402, "too_large": 413, "over_budget": 503, "no_model": 503}
