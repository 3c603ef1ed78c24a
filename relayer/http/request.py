"""The way of a request: route, acceptance, body, handler, answer; and one line about it in the log.

A target is compared as sent: nothing is decoded, joined or cleaned, so ``%2F``, ``..`` and ``//`` reach no route.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import structlog
from aiohttp import web
from pydantic import BaseModel

from relayer.access.principal import Access, Principal
from relayer.http.access import Authenticator, Signed
from relayer.http.body import check_head, is_sealed, parse_body, parse_query, read_body, unsealed
from relayer.http.connections import Connections, NotTaken, UnreadAnswers, taken
from relayer.http.health import Metrics
from relayer.http.limits import PEER_FAILURES, Network
from relayer.http.parsing import Head, read_head
from relayer.http.problems import MEDIA_TYPE, HttpProblem, problem_of, unauthorized
from relayer.lib.deadline import Deadline
from relayer.lib.shares import OnBehalfOf, WorkPool, on_behalf_of
from relayer.namespaces.context import Context
from relayer.ports import Clock, Randomness
from relayer.telemetry import describe, log
from relayer.wire.certificates import Right
from relayer.wire.proofs import PROOF_HEADER, Prover

JSON = "application/json"
JSON_LINES = "application/jsonl"
_PARAMETER = re.compile(r"\{[a-z_]+\}")
# What an id in a path may look like; which ids exist is the services' to say.
_SEGMENT = r"([A-Za-z0-9_-]{1,128})"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, encoded; with ``chunks`` it is sent piece by piece, and breaks off where those do.

    ``endless`` says that the chunks come for as long as somebody listens: when the relayer stops, they just end.
    """

    body: bytes
    status: int = 200
    media_type: str = JSON
    chunks: AsyncIterator[bytes] | None = None
    endless: bool = False

    @classmethod
    def of(cls, answer: BaseModel, status: int = 200) -> Reply:
        """Encode an answer of the API."""
        # The serialiser's own bytes: `model_dump_json` would decode them into a string first.
        return cls(answer.__pydantic_serializer__.to_json(answer), status)


@dataclass(frozen=True, slots=True)
class Call:
    """A request after everything was checked: what a handler works with.

    ``events`` says that a stream of server-sent events is asked for, ``last_event`` the id of the last one that was heard.
    ``peer`` is the address that an open route is asked from, and ``authorization`` that header.
    """

    deadline: Deadline
    parameter: str = ""
    query: BaseModel | None = None
    body: BaseModel | None = None
    signed: Signed | None = None
    namespace_access: Access | None = None
    events: bool = False
    last_event: str = ""
    peer: str = ""
    authorization: str = ""

    @property
    def access(self) -> Access:
        """The way into the request's namespace; for namespaced routes."""
        if self.namespace_access is None:
            raise unauthorized("no_namespace")
        return self.namespace_access

    @property
    def principal(self) -> Principal:
        """Who signed the request; for signed routes."""
        if self.signed is None:
            raise TypeError("the route is declared as unsigned")
        return self.signed.principal

    def body_as(self, schema: type[M]) -> M:
        """Return the body as the type that the route declares."""
        if not isinstance(self.body, schema):
            raise TypeError(f"the route declares no body of {schema.__name__}")
        return self.body

    def query_as(self, schema: type[M]) -> M:
        """Return the query as the type that the route declares."""
        if not isinstance(self.query, schema):
            raise TypeError(f"the route declares no query of {schema.__name__}")
        return self.query


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        method: upper case.
        path: with at most one ``{parameter}``.
        handle: answers an accepted call.
        summary: one line for the OpenAPI document.
        answer: schema of the answer, or of its lines; None for what is no JSON of ours.
        media_type: of the answer.
        body: schema of the body; None when the route takes none.
        query: schema of the query; None when the route takes none.
        signed: whether the request must be signed.
        namespaced: whether it is about one namespace.
        right: what the certificate must grant, on that namespace if there is one.
        writes: whether it changes anything; see `Authenticator.accept`.
        cost: in tokens of the rate limits.
        bytes_a_token: of a body, which costs as long as it is: read, parsed, looked for.
        seconds: the longest a request may take.
        statuses: of good answers.
        ends_with_caller: whether the work is cancelled when the connection is gone; never for what writes.
    """

    method: str
    path: str
    handle: Callable[[Call], Awaitable[Reply]]
    summary: str
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    signed: bool = True
    namespaced: bool = True
    right: Right | None = None
    writes: bool = False
    cost: float = 1.0
    bytes_a_token: int = 4096
    seconds: float = 30.0
    media_type: str = JSON
    statuses: tuple[int, ...] = (200,)
    ends_with_caller: bool = False


@dataclass(slots=True)
class _Path:
    pattern: re.Pattern[str]
    methods: dict[str, Route] = field(default_factory=dict)


class Routes:
    """A table of routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.table = tuple(routes)
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[str, _Path] = {}
        for route in self.table:
            if "{" not in route.path:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            pattern = "".join(
                _SEGMENT if _PARAMETER.fullmatch(part) else re.escape(part)
                for part in re.split(r"(\{[a-z_]+\})", route.path)
            )
            path = self._patterns.setdefault(route.path, _Path(re.compile(pattern)))
            path.methods[route.method] = route

    def find(self, method: str, target: str) -> tuple[Route, str, str]:
        """Return the route, its parameter (or the empty string) and the raw query.

        Raises:
            HttpProblem: ``not_found`` or ``method_not_allowed``.
        """
        path, _, query = target.partition("?")
        methods, parameter = self._exact.get(path), ""
        if methods is None:
            methods, parameter = self._match(path)
        route = methods.get(method)
        if route is None and method == "HEAD":
            route = methods.get("GET")
            # A signature covers the method; only open routes answer HEAD like GET.
            route = None if route is None or route.signed else route
        if route is None:
            raise HttpProblem("method_not_allowed", allow=", ".join(sorted(methods)))
        return route, parameter, query

    def _match(self, path: str) -> tuple[dict[str, Route], str]:
        for candidate in self._patterns.values():
            match = candidate.pattern.fullmatch(path)
            if match is not None:
                return candidate.methods, match[1]
        raise HttpProblem("not_found")


class RouteGroup(ABC):
    """Routes of one kind.

    Args:
        context: for the use cases.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @abstractmethod
    def table(self) -> tuple[Route, ...]:
        """Return the routes."""


_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
# Steps have the deadline themselves and know their names; this only catches work that is no step.
_GRACE_SECONDS = 0.25
_SERVER_ERROR = 500
# Bytes of a body that is parsed in the same step of the event loop: about half a millisecond's.
_PARSED_AT_ONCE = 4096
# How soon it is noticed that a caller is gone, where that matters.
_LOOK_SECONDS = 0.2


class Front:
    """Answers requests; give it to a `RelayerServer`.

    Args:
        routes: what is answered.
        authenticator: decides on signed requests.
        metrics: counts.
        clock: for deadlines.
        randomness: for request ids.
        texts: where large bodies are parsed.
        connections: told which of them are worth keeping.
        trusted: proxies that are believed whom they forward.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        authenticator: Authenticator,
        metrics: Metrics,
        clock: Clock,
        randomness: Randomness,
        connections: Connections,
        texts: WorkPool | None = None,
        trusted: Sequence[Network] = (),
    ) -> None:
        self.routes = routes
        self.connections = connections
        self.unread = UnreadAnswers()
        self._trusted = trusted
        self._authenticator = authenticator
        self._metrics = metrics
        self._clock = clock
        self._texts = texts or WorkPool()
        # Bound once: the lazy proxy would look its configuration up again for every line.
        self._log = log.bind()
        self._under_way: set[web.RequestHandler] = set()
        self._draining = False
        self._drained = asyncio.Event()
        self._stopping = asyncio.Event()
        self._new_id: Callable[[], str] = lambda: randomness.bytes(10).hex()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises but for cancellation."""
        self._under_way.add(request.protocol)
        self.connections.asked(request.protocol)
        try:
            response = await self._respond(request)
        finally:
            self._under_way.discard(request.protocol)
            self.connections.answered(request.protocol)
            if self._draining and not self._under_way:
                self._drained.set()
        if self._draining:
            response.force_close()
        return response

    @property
    def under_way(self) -> int:
        """How many connections have a request that is being answered."""
        return len(self._under_way)

    def busy(self, connection: web.RequestHandler) -> bool:
        """Whether a request of this connection is being answered."""
        return connection in self._under_way

    async def drain(self, seconds: float) -> None:
        """Wait for the requests under way, at most so long; connections close after their answers from now on."""
        self._draining = True
        self._stopping.set()
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._drained.wait()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        started = perf_counter()
        request_id = self.request_id(request)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        route: Route | None = None
        prover: Prover | None = None
        try:
            head = read_head(request, self._trusted)
            prover = self._authenticator.prover(head)
            route, parameter, query = self.routes.find(head.method, head.target)
            call, reply = await self._answer(request, head, route, (parameter, query), prover)
        except Exception as error:  # noqa: BLE001 - the border: every failure becomes a problem
            response = self.refuse(request, error, request_id, route, started, prover=prover)
            await self._send(request, response)
            return response
        self._note(request.method, route, reply.status, None, started)
        headers = {"Content-Type": reply.media_type, **_common(request_id)}
        if reply.chunks is not None:
            assert prover is not None  # streams are answers to signed requests
            return await self._send_chunks(request, route, (call, reply, reply.chunks), headers, prover)
        if route.signed and prover is not None:
            headers[PROOF_HEADER] = prover.whole(reply.status, reply.body)
        answer = web.Response(body=reply.body, status=reply.status, headers=headers)
        with self.unread.counted(_account(call), len(reply.body)):
            await self._send(request, answer)
        return answer

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send an answer, and wait until its reader has it."""
        if self._draining:
            response.force_close()
        try:
            await response.prepare(request)
            size = response.content_length or 0
            await taken(request, response.write_eof(), size, self.connections.limits.answer_seconds)
        except NotTaken as error:
            self._log.warning("answer_broken_off", **describe(error))
        except ConnectionError:
            # Whoever is gone has no use for it; aiohttp finds the connection closed and ends it.
            return

    async def _send_chunks(
        self,
        request: web.BaseRequest,
        route: Route,
        answer: tuple[Call, Reply, AsyncIterator[bytes]],
        headers: dict[str, str],
        prover: Prover,
    ) -> web.StreamResponse:
        """Send an answer piece by piece; when that fails, the connection breaks: its reader must not take it for whole.

        All has to come within the route's time. An endless one goes on until it ends, the caller is gone or not let in any
        more, or the relayer stops, and ends as a whole answer.
        """
        call, reply, chunks = answer
        proven = prover.comment if reply.endless else prover.line
        seconds = self.connections.limits.answer_seconds
        # A proxy must not wait for more before it passes events on.
        more = {"X-Accel-Buffering": "no"} if reply.endless else {}
        response = web.StreamResponse(headers=headers | more)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            async with asyncio.timeout(None if reply.endless else route.seconds):
                await response.prepare(request)
                while (chunk := await self._next(call, reply, chunks, stopping)) is not None:
                    chunk = proven(chunk)
                    with self.unread.counted(_account(call), len(chunk)):
                        await taken(request, response.write(chunk), len(chunk), seconds)
                await taken(request, response.write_eof(), 0, seconds)
        except Exception as error:  # noqa: BLE001 - whatever it was, the status is sent already
            if isinstance(error, NotTaken) or not (reply.endless and isinstance(error, ConnectionError)):
                self._log.warning("answer_broken_off", route=route.path, **describe(error))
            if request.transport is not None:
                request.transport.abort()
        finally:
            stopping.cancel()
            await _ended(chunks)
        return response

    async def _next(
        self, call: Call, reply: Reply, chunks: AsyncIterator[bytes], stopping: asyncio.Task[bool]
    ) -> bytes | None:
        """Return what is to be sent next, None at the end; it is held against what was taken back since the last one."""
        if not reply.endless:
            chunk = await anext(chunks, None)
        elif (chunk := await _before(stopping, chunks)) is None:
            return None
        try:
            if call.signed is not None:
                await self._authenticator.still_admits(call.signed)
        except HttpProblem:
            if reply.endless:
                return None
            raise
        return chunk

    def request_id(self, request: web.BaseRequest) -> str:
        """Return the client's request id if it is a plain one, else a new one."""
        given = request.headers.get("x-request-id")
        return given if given is not None and _CLIENT_ID.fullmatch(given) else self._new_id()

    def refuse(
        self,
        request: web.BaseRequest,
        error: Exception,
        request_id: str,
        route: Route | None,
        started: float,
        *,
        prover: Prover | None = None,
    ) -> web.Response:
        """Turn a failure into its problem, prove it where that can be done, and log the true reason."""
        problem = problem_of(error)
        if problem.status == _SERVER_ERROR:
            self._log.error("request_failed", **describe(error))
        self._note(request.method, route, problem.status, problem, started)
        headers = {"Content-Type": MEDIA_TYPE, **problem.headers, **_common(request_id)}
        body = problem.body(request_id)
        # Who fails too often is refused without arithmetic, and a signature is some.
        if prover is not None and problem.rule != PEER_FAILURES:
            if problem.code == "unauthorized":
                # Signed however far the request got: the kind of proof must not tell what the one 401 hides.
                prover.opened(b"")
            headers[PROOF_HEADER] = prover.whole(problem.status, body)
        return web.Response(body=body, status=problem.status, headers=headers)

    async def _answer(
        self,
        request: web.BaseRequest,
        head: Head,
        route: Route,
        target: tuple[str, str],
        prover: Prover | None,
    ) -> tuple[Call, Reply]:
        check_head(head, expects_body=route.body is not None)
        deadline = Deadline.after(self._clock, head.deadline_seconds(route.seconds))
        parameter, raw_query = target
        if not route.signed:
            query = parse_query(raw_query, route.query)
            authorization = head.values.get("authorization", "")
            call = Call(deadline, parameter, query, peer=head.peer, authorization=authorization)
        else:
            call = await self._accept(request, head, route, deadline, target, prover=prover)
        try:
            async with asyncio.timeout(deadline.remaining() + _GRACE_SECONDS):
                work = route.handle(call)
                reply = await (_while_there(request, work) if route.ends_with_caller else work)
                if call.signed is not None and not route.writes:
                    # What was taken back while the answer was made counts for it, and most of all for one that waited.
                    await self._authenticator.still_admits(call.signed)
                    self.unread.check(_account(call), len(reply.body))
        except TimeoutError as error:
            raise HttpProblem("deadline_exceeded") from error
        return call, reply

    async def _accept(
        self,
        request: web.BaseRequest,
        head: Head,
        route: Route,
        deadline: Deadline,
        target: tuple[str, str],
        *,
        prover: Prover | None,
    ) -> Call:
        authenticator, right = self._authenticator, route.right
        signed = authenticator.accept(
            head, right=right if route.namespaced else None, writes=route.writes, cost=route.cost
        )
        if not route.writes:
            self.unread.check(signed.principal.account)
        if prover is not None and signed.sealed is not None:
            prover.opened(signed.sealed.answer_key)
        parameter, raw_query = target
        query = parse_query(raw_query, route.query)
        body = None
        if route.body is not None:
            digest = signed.principal.body_digest
            raw = await read_body(request, head, digest, seconds=deadline.remaining())
            authenticator.charge_body(signed, len(raw) // route.bytes_a_token)
            body, signed = await self._parsed(raw, route.body, signed, sealed=is_sealed(head))
        access = self._access(signed, route, right, getattr(body, "namespace", None))
        if not authenticator.admits_now(signed):
            async with deadline.step("admit"):
                # The list of revocations is all that admin rights without a namespace lead to.
                revokes = right is Right.ADMIN and not route.namespaced
                await authenticator.admit(signed, cost=route.cost, revokes=revokes)
        authenticator.keep(signed)
        self.connections.accepted(request.protocol, signed.principal.account)
        on_behalf_of.set(OnBehalfOf(signed.principal.account, urgent=not route.writes))
        last_event = head.values.get("last-event-id", "")
        return Call(deadline, parameter, query, body, signed, access, head.wants_events, last_event)

    async def _parsed(
        self, raw: bytes, schema: type[BaseModel], signed: Signed, *, sealed: bool
    ) -> tuple[BaseModel, Signed]:
        """Open and parse a body: a large one beside the event loop, in its account's turn."""

        def parsed() -> tuple[BaseModel, Signed]:
            opened, of = unsealed(raw, signed) if sealed else (raw, signed)
            return parse_body(opened, schema), of

        if len(raw) <= _PARSED_AT_ONCE:
            return parsed()
        (found,) = await self._texts.make(signed.principal.account, (parsed() for _ in (raw,)), len(raw))
        return found

    def _access(
        self, signed: Signed, route: Route, right: Right | None, namespace: str | None
    ) -> Access | None:
        if right is None:
            return None
        if route.namespaced:
            return self._authenticator.access(signed, namespace, right)
        if right not in signed.principal.certificate.rights:
            raise unauthorized("right_not_granted")
        return None

    def _note(
        self, method: str, route: Route | None, status: int, problem: HttpProblem | None, started: float
    ) -> None:
        seconds = perf_counter() - started
        template = route.path if route is not None else "-"
        method = method if method in _METHODS else "other"
        code = problem.code if problem is not None else "ok"
        self._metrics.observe(template, method, status, code, seconds)
        details = {"rule": problem.rule} if problem is not None and problem.rule else {}
        self._log.info(
            "request",
            method=method,
            route=template,
            status=status,
            code=code,
            ms=round(seconds * 1000, 2),
            **details,
        )


async def _while_there(request: web.BaseRequest, work: Awaitable[Reply]) -> Reply:
    """Wait for work, and cancel it when the connection of its request is gone: nobody would read the answer."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_SECONDS))[0]:
            if request.transport is None or request.transport.is_closing():
                raise HttpProblem("caller_gone")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _before(stopping: asyncio.Task[bool], chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk; None when there is none, or the relayer stops."""
    task = asyncio.ensure_future(_next(chunks))
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _ended(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


def _account(call: Call) -> str:
    """Return whose answer it is; the open routes' are nobody's."""
    return call.principal.account if call.signed is not None else ""


def _common(request_id: str) -> dict[str, str]:
    return {"x-request-id": request_id, "Cache-Control": "no-store", "Server": "memrelay"}
