"""The front for MemWal's clients: routes, calls and errors; see `relayer.http.fronts` for what the server does.

`CompatFront` finds the route of a request, authenticates it, and gives the handler a `CompatCall`. `translated` turns the
errors of use cases into MemWal's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from aiohttp.web import BaseRequest
from cachetools import TTLCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ValidationError

from relayer import errors
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.accept import STEADY_SECONDS, Caller, CompatAcceptance, too_many
from relayer.fronts.memwal.contract import CompatError, IdTokens
from relayer.fronts.memwal.sessions import MCP_PATH, Sessions, refusal_of
from relayer.http.accept import parse_json, peer_of
from relayer.http.fronts import PageHeaders, RenderedError
from relayer.http.limits import Network
from relayer.http.problems import HttpProblem, problem_of
from relayer.http.routes import JSON, BaseRoute, Reply, RequestContext, Routes, Services
from relayer.lib.work import Deadline

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Old clients send keys that are not read; a browser refuses a request with a header that is not listed.
_PAGE_HEADERS = PageHeaders(
    "content-type, x-account-id, x-delegate-key, x-nonce, x-public-key, x-seal-session, x-signature, x-timestamp",
    "retry-after, x-auth-error",
)
B = TypeVar("B", bound=BaseModel)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a response that is encoded as JSON."""
    return Reply(encode(value), status, headers=headers or {})


def encode(value: Any) -> bytes:
    """Encode a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class CompatServices(Services):
    """The services of the native routes, and those of this front's handlers.

    Attributes:
        public_url: the URL by which clients reach this relayer; None takes the one of each request.
        jobs: the jobs of idempotency keys, by account and key. The log knows such a key only within its namespace.
    """

    tokens: IdTokens
    acceptance: CompatAcceptance
    public_url: str | None = None
    trusted: tuple[Network, ...] = ()
    jobs: TTLCache[tuple[str, str], tuple[str, ...]] = field(
        default_factory=lambda: TTLCache(20_000, ttl=3600)
    )
    sessions: Sessions = field(default_factory=Sessions)


@dataclass(frozen=True, slots=True)
class CompatCall:
    """A request for a handler. On routes that need no signature it has no signer."""

    to: CompatServices
    route: CompatRoute
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

    @property
    def account(self) -> str:
        """The account that the response is for; empty on open routes."""
        return self.signer.account if self.signer is not None else ""

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
class CompatRoute(BaseRoute):
    """A route of MemWal's API.

    Attributes:
        bearer: whether it is a route of MCP clients, which send a key and sign nothing.
    """

    handle: Handler
    _: KW_ONLY
    seconds: float = 29.0
    signed: bool = True
    bearer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers_head", not self.bearer)


class CompatFront:
    """Answers requests of MemWal's clients, and counts them under the names that MemWal's own relayer uses."""

    def __init__(
        self, routes: tuple[CompatRoute, ...], services: CompatServices, registry: CollectorRegistry
    ) -> None:
        self._services = services
        self.routes = Routes(routes)
        self.paths = frozenset(route.path for route in routes)
        self.page_headers = _PAGE_HEADERS
        self.prefixes: tuple[str, ...] = ("/api/", "/v1/owners/", "/v1/blobs/")
        labels = ("method", "route", "status")
        self._requests = Counter(
            "memwal_http_requests", "Requests of MemWal's clients.", labels, registry=registry
        )
        self._seconds = Histogram(
            "memwal_http_request_duration_seconds", "Their time.", labels, buckets=_BUCKETS, registry=registry
        )
        under_way = Gauge("memwal_http_requests_in_flight", "Those being answered.", registry=registry)
        self.in_flight = under_way.track_inprogress()
        self._errors = Counter("memwal_errors", "Refused ones.", ("kind", "route"), registry=registry)
        self._denials = Counter(
            "memwal_rate_limit_denials", "Those that came too fast.", ("bucket", "route"), registry=registry
        )

    async def accept(self, request: BaseRequest, context: RequestContext) -> CompatCall:
        """Find the route and authenticate the request, by its signature or the key that it sends.

        Raises:
            CompatError, HttpProblem: the request is refused.
            StoreError: the cached state of its account is too old, and the store does not respond.
        """
        route, parameter, query = self.routes.find(request.method, request.raw_path)
        context.route = route
        to = self._services
        acceptance, peer = to.acceptance, peer_of(request, to.trusted)
        deadline = Deadline.after(to.context.clock, route.seconds)
        signer, raw = None, b""
        if route.bearer:
            signer = await acceptance.accept_bearer(request, peer, to.context.randomness.bytes(16))
            # The cost of a tool is charged where the tool is called.
            acceptance.limits.charge(signer.account, signer.principal.author, 1.0)
        elif route.signed:
            signer, raw = await acceptance.accept(request, peer)
        if request.method == "POST" and not route.signed:
            raw = await acceptance.open_body(request, peer)
        if signer is not None:
            acceptance.limits.charge_body(signer.account, signer.principal.author, len(raw) // 4096)
        fields = dict(parse_qsl(query, keep_blank_values=True))
        return CompatCall(to, route, deadline, request, raw, parameter, fields, signer)

    async def handle(self, call: CompatCall) -> Reply:
        """Run the handler."""
        return await call.route.handle(call)

    async def still_admits(self, call: CompatCall) -> None:
        """Do nothing: streams of MCP clients check their keys themselves."""

    async def refuse(self, error: Exception, context: RequestContext) -> RenderedError:
        """Render an error as MemWal's relayer does; refusals that depend on secrets or state take a fixed time."""
        template = context.route.path if context.route is not None else "-"
        problem = error if isinstance(error, CompatError) else translated(error, template)
        if problem.steady:
            await self._services.context.clock.sleep(STEADY_SECONDS)
        message = problem.message
        if problem.status in {500, 503} and message:
            message = f"{message} (traceId: {context.request_id})"
        told = {"error": message, **problem.more} if message else {}
        if template.startswith(MCP_PATH):
            told = refusal_of(problem.status, message)
        headers = {"Content-Type": JSON, **problem.headers} if told else problem.headers
        rule = problem.rule or str(problem.status)
        return RenderedError(
            problem.status, encode(told) if told else b"", headers, f"http_{problem.status}", rule
        )

    def observe(
        self, method: str, route: str, refusal: RenderedError | None, status: int, seconds: float
    ) -> None:
        """Count a response."""
        labels = (method, route, str(status))
        self._requests.labels(*labels).inc()
        self._seconds.labels(*labels).observe(seconds)
        if refusal is None:
            return
        if status == 429:
            self._denials.labels(refusal.rule, route).inc()
        else:
            self._errors.labels(refusal.code, route).inc()


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
    message = _ROUTING.get(problem.code, problem.detail)
    return CompatError(problem.status, message, rule=problem.code, headers=problem.headers)


def _late(during: str, template: str) -> CompatError:
    if template not in {"/api/recall", "/api/recall/manual"}:
        return CompatError(504, f"The time was up during {during}", rule="deadline")
    step = _STEPS.get(during, during)
    more = {"code": "RECALL_TIMEOUT", "step": step}
    return CompatError(504, f"Recall timed out during {step}", rule="RECALL_TIMEOUT", more=more)


_ROUTING = {"not_found": "Not found", "method_not_allowed": "Method not allowed"}
# Statuses of conditions that may pass: the store, a model or the embedder is down, or a namespace is being erased.
_PASSING = frozenset({409, 502, 503, 507})
_REFUSED = {"not_found": 404, "quota_exceeded": 402, "too_large": 413, "over_budget": 503, "no_model": 503}
