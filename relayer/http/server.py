"""The HTTP server on top of aiohttp: connections, requests and responses.

`RequestHandler` gives a request to its front, sends the response and writes one line to the log; it also turns aiohttp's own
errors into problem responses. `RelayerServer` creates a `_Protocol` for each connection. `Listener` accepts connections as far
as capacity allows, and ends those that exceed a time limit.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from time import perf_counter, time_ns
from typing import Any, TypeVar
from uuid import UUID

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web import BaseRequest

from relayer.errors import DeadlineExceeded
from relayer.http.accept import DEADLINE_HEADER, Acceptance
from relayer.http.fronts import Front, FrontCall, PageHeaders, RenderedError
from relayer.http.limits import PEER_FAILURES, SlowClient, UnreadAnswers, break_off, peer_name, taken
from relayer.http.metrics import Metrics
from relayer.http.problems import MEDIA_TYPE, HttpProblem, problem_of
from relayer.http.routes import AcceptedCall, Reply, RequestContext, Services
from relayer.lib.work import Requester, cancel_all, current_requester
from relayer.ports import Randomness, RequestSpan, Traces
from relayer.telemetry import describe, log, name_request
from relayer.wire import signing
from relayer.wire.codec import NotAccepted
from relayer.wire.connections import Connections
from relayer.wire.signing import PROOF_HEADER

T = TypeVar("T")

_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
# Steps enforce the deadline themselves and name themselves in the error. This only catches work outside of any step.
_GRACE_SECONDS = 0.25
# Interval at which it is checked whether the client has disconnected, on routes where that cancels the work.
_GONE_LOOK_SECONDS = 0.2


# What the TypeScript client sends and reads.
_SENT = (
    "content-type",
    DEADLINE_HEADER,
    signing.CERTIFICATE_HEADER,
    signing.DIGEST_HEADER,
    signing.KEY_HEADER,
    signing.ROUTE_HEADER,
    signing.SIGNATURE_HEADER,
)
_PAGE_HEADERS = PageHeaders(", ".join(_SENT), f"{PROOF_HEADER}, retry-after")


class NativeFront:
    """memrelay's own API; it comes last and answers every path."""

    def __init__(self, acceptance: Acceptance, services: Services) -> None:
        self.paths: frozenset[str] = frozenset()
        self.prefixes: tuple[str, ...] = ("",)
        self.page_headers = _PAGE_HEADERS
        self.in_flight: AbstractContextManager[Any] = nullcontext()
        self.routes = acceptance.routes
        self.accept = acceptance.accept
        self.still_admits = acceptance.still_admits
        self._unread = acceptance.unread
        self._services = services

    async def handle(self, call: AcceptedCall) -> Reply:
        """Run the handler. A read is checked again at its end."""
        reply = await call.route.handle(self._services, call)
        if call.signer is not None and not call.route.writes:
            # A revocation that came while the response was computed applies to it, above all if the request waited long.
            await self.still_admits(call)
            self._unread.check(call.account, len(reply.body))
        return reply

    async def refuse(self, error: Exception, context: RequestContext) -> RenderedError:
        """Render an error as `render_problem` does."""
        return render_problem(error, context)

    def observe(
        self, method: str, route: str, refusal: RenderedError | None, status: int, seconds: float
    ) -> None:
        """Count nothing: the server's own metrics are those of this front."""


def render_problem(error: Exception, context: RequestContext) -> RenderedError:
    """Return an error as a problem document, with a proof if the request states a signature."""
    problem = problem_of(error)
    headers = {"Content-Type": MEDIA_TYPE, **problem.headers}
    body = problem.body(context.request_id)
    # Peers that fail too often are refused without spending CPU on a signature.
    if context.prover is not None and problem.rule != PEER_FAILURES:
        if problem.code == "unauthorized":
            # Signed regardless of how far the request got: the kind of proof must not reveal what the one 401 hides.
            context.prover.refused()
        headers[PROOF_HEADER] = context.prover.whole(problem.status, body)
    return RenderedError(problem.status, body, headers, problem.code, problem.rule or "")


class RequestHandler:
    """Answers requests; pass it to a `RelayerServer`.

    Args:
        fronts: the first one that declares a path answers it; the last one is a `NativeFront`.
    """

    def __init__(
        self,
        fronts: Sequence[Front[Any]],
        *,
        connections: Connections,
        unread: UnreadAnswers,
        metrics: Metrics,
        randomness: Randomness,
        traces: Traces | None = None,
        pages: PageOrigins | None = None,
    ) -> None:
        self.connections = connections
        self.unread = unread
        self._fronts = fronts
        self._metrics = metrics
        self._traces = traces
        self._pages = pages or PageOrigins()
        # Bound once, because the lazy proxy would look its configuration up for every line.
        self._log = log.bind()
        self._under_way: set[web.RequestHandler] = set()
        self._draining = False
        self._drained = asyncio.Event()
        self._stopping = asyncio.Event()
        self._new_id: Callable[[], str] = lambda: str(UUID(bytes=randomness.bytes(16), version=4))

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; raises nothing except on cancellation."""
        self._under_way.add(request.protocol)
        self.connections.asked(request.protocol)
        path = request.raw_path.partition("?")[0]
        front = next(one for one in self._fronts if path in one.paths or path.startswith(one.prefixes))
        try:
            with front.in_flight:
                response = await self._respond(front, request)
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
        """The number of connections with a request that is being answered."""
        return len(self._under_way)

    def busy(self, connection: web.RequestHandler) -> bool:
        """Return whether a request of this connection is being answered."""
        return connection in self._under_way

    async def drain(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the requests under way; from now on, connections close after their response."""
        self._draining = True
        self._stopping.set()
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._drained.wait()

    async def _respond(self, front: Front[Any], request: web.BaseRequest) -> web.StreamResponse:
        context = RequestContext(request, self.request_id(request))
        name_request(context.request_id)
        try:
            wanted = self._pages.wanted(request)
            if wanted is not None:
                # The preflight of a listed page; it is refused if its request would find no route.
                context.route, _, _ = front.routes.find(wanted, request.raw_path)
                self._note(front, context, 204, None)
                headers = self._common(front, context) | self._pages.permission(wanted, front.page_headers)
                answer = web.Response(status=204, headers=headers)
                await self._send(request, answer)
                return answer
            call: FrontCall = await front.accept(request, context)
            if call.account:
                self.connections.accepted(request.protocol, call.account)
                current_requester.set(Requester(call.account, interactive=call.route.interactive))
            async with asyncio.timeout(call.deadline.remaining() + _GRACE_SECONDS):
                work = front.handle(call)
                reply = await (_while_there(request, work) if call.route.ends_with_caller else work)
        except Exception as error:  # noqa: BLE001 - outermost handler: every error becomes a response
            if isinstance(error, TimeoutError):
                error = DeadlineExceeded("answer")
            refusal = await front.refuse(error, context)
            response = self.refused(front, error, refusal, context)
            await self._send(request, response)
            return response
        # This runs in the next iteration of the event loop, because the response leaves at the end of this one.
        asyncio.get_running_loop().call_soon(self._note, front, context, reply.status, None)
        headers = {"Content-Type": reply.media_type, **self._common(front, context), **reply.headers}
        if reply.chunks is not None:
            return await self._send_chunks(front, call, reply, headers, context)
        if call.account and context.prover is not None:
            headers[PROOF_HEADER] = context.prover.whole(reply.status, reply.body)
        answer = web.Response(body=reply.body, status=reply.status, headers=headers)
        with self.unread.counted(call.account, len(reply.body)):
            await self._send(request, answer)
        return answer

    def _common(self, front: Front[Any], context: RequestContext) -> dict[str, str]:
        """Return the headers of every response."""
        headers = {"x-request-id": context.request_id, "Cache-Control": "no-store", "Server": "memrelay"}
        return headers | self._pages.headers(context.request, front.page_headers)

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send a response and wait until the kernel has accepted all of it."""
        if self._draining:
            response.force_close()
        try:
            await response.prepare(request)
            size = response.content_length or 0
            await taken(request, response.write_eof(), size, self.connections.limits.answer_seconds)
        except SlowClient as error:
            self._log.warning("answer_broken_off", **describe(error))
        except ConnectionError:
            # The client is gone and needs no response; aiohttp notices the closed connection and cleans up.
            return

    async def _send_chunks(
        self,
        front: Front[Any],
        call: FrontCall,
        reply: Reply,
        headers: dict[str, str],
        context: RequestContext,
    ) -> web.StreamResponse:
        """Send a response in chunks. If that fails, break the connection off, so that the client notices that it is incomplete.

        All chunks have to come within the route's time. An endless response goes on until its chunks end, the client
        disconnects or is no longer admitted, or the relayer stops; then it ends like a complete response.
        """
        request, prover = context.request, context.prover
        chunks, seconds = reply.chunks, self.connections.limits.answer_seconds
        assert chunks is not None  # the caller sends all other responses whole
        # This header tells proxies to forward events at once instead of buffering them.
        more = {"X-Accel-Buffering": "no"} if reply.endless else {}
        response = web.StreamResponse(headers=headers | more)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            async with asyncio.timeout(None if reply.endless else call.route.seconds):
                await response.prepare(request)
                while True:
                    chunk = await (_before(stopping, chunks) if reply.endless else anext(chunks, None))
                    if chunk is None:
                        break
                    try:
                        await front.still_admits(call)
                    except NotAccepted:
                        if reply.endless:
                            break
                        raise
                    if prover is not None:
                        chunk = prover.comment(chunk) if reply.endless else prover.line(chunk)
                    with self.unread.counted(call.account, len(chunk)):
                        await taken(request, response.write(chunk), len(chunk), seconds)
                await taken(request, response.write_eof(), 0, seconds)
        except Exception as error:  # noqa: BLE001 - the status has been sent already
            if isinstance(error, SlowClient) or not (reply.endless and isinstance(error, ConnectionError)):
                self._log.warning("answer_broken_off", route=call.route.path, **describe(error))
            if request.transport is not None:
                request.transport.abort()
        finally:
            stopping.cancel()
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return response

    def request_id(self, request: web.BaseRequest) -> str:
        """Return the client's request id, or its correlation id, if that has the required form; otherwise a new id."""
        for name in ("x-request-id", "x-correlation-id"):
            given = request.headers.get(name)
            if given is not None and _CLIENT_ID.fullmatch(given):
                return given
        return self._new_id()

    def refuse_unparsed(self, request: web.BaseRequest, error: Exception) -> web.Response:
        """Return the response to a request that aiohttp could not parse."""
        context = RequestContext(request, self.request_id(request))
        return self.refused(self._fronts[-1], error, render_problem(error, context), context)

    def refused(
        self, front: Front[Any], error: Exception, refusal: RenderedError, context: RequestContext
    ) -> web.Response:
        """Return the response for a rendered error, and log the true reason."""
        if refusal.status == 500:
            self._log.error("request_failed", **describe(error))
        self._note(front, context, refusal.status, refusal)
        headers = {**self._common(front, context), **refusal.headers}
        return web.Response(body=refusal.body, status=refusal.status, headers=headers)

    def _note(
        self, front: Front[Any], context: RequestContext, status: int, refusal: RenderedError | None
    ) -> None:
        """Count a response, and write its line to the log."""
        request, seconds = context.request, perf_counter() - context.started
        template = context.route.path if context.route is not None else "-"
        code, rule = ("ok", "") if refusal is None else (refusal.code, refusal.rule)
        # Clients may send made-up methods, which must not become labels of metrics.
        method = request.method if request.method in _METHODS else "other"
        self._metrics.observe(template, method, status, code, seconds)
        front.observe(method, template, refusal, status, seconds)
        if status == 429:
            self._metrics.observe_limited(rule)
        if self._traces is not None:
            parent = request.headers.get("traceparent", "")
            took = int(seconds * 1e9)
            self._traces.ended(
                RequestSpan(method, template, status, code, context.request_id, parent, time_ns(), took)
            )
        details = {"rule": rule} if rule else {}
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
    """Wait for work, and cancel it when the client disconnects, because the response could not be delivered."""
    async with _running(work) as task:
        while not (await asyncio.wait([task], timeout=_GONE_LOOK_SECONDS))[0]:
            if request.transport is None or request.transport.is_closing():
                raise HttpProblem("caller_gone")
        return task.result()


async def _before(stopping: asyncio.Task[bool], chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk; None if there are no more or the relayer stops."""
    async with _running(anext(chunks, None)) as task:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None


@asynccontextmanager
async def _running(work: Awaitable[T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run work as a task that has ended, by cancellation if necessary, when the block is left."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


# Seconds after which an idle connection is closed. Proxies commonly keep theirs open for 60 s.
KEEPALIVE_SECONDS = 75.0
# Seconds for which the body of a refused request is still read, so that the client gets to read the response.
LINGERING_SECONDS = 2.0
_HANDSHAKE_SECONDS = 10.0
_BACKLOG = 1024
# Maximum bytes of an unread response in the kernel's buffer, which would otherwise grow to several megabytes.
_SEND_BUFFER = 128 * 1024
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class _Protocol(web.RequestHandler):
    """One connection."""

    def __init__(self, server: RelayerServer, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(server, loop=loop, **options)
        self._handler = server.handler
        self._line: asyncio.Transport | None = None
        self.coming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            # The limit of 0 makes drain() wait until the kernel has accepted everything.
            self.transport.set_write_buffer_limits(high=0)
        # A reference of its own, because aiohttp drops a transport when it closes it, and closing waits until all is sent,
        # which may be never.
        self._line = self.transport

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._handler.connections.heard(self, self._loop.time())

    def resume_reading(self, *options: Any, **named: Any) -> None:
        # aiohttp calls this for every body that was read, and would run its parser again for nothing.
        if self._reading_paused:
            super().resume_reading(*options, **named)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._line = None
        self._handler.connections.leave(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """Break the connection off, even if it is still being established."""
        if self._line is not None:
            break_off(self._line)
        elif self.coming is not None:
            self.coming.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that the parser rejected; ``message`` quotes the request and is discarded."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way already")
        error: Exception = HttpProblem("malformed", "This is not an HTTP request.")
        if isinstance(exc, LineTooLong):
            error = HttpProblem("header_too_large")
        elif status >= 500 and isinstance(exc, Exception):
            error = exc
        response = self._handler.refuse_unparsed(request, error)
        response.force_close()
        return response


class RelayerServer(web.Server):
    """Creates a `_Protocol` for each connection; run it with `aiohttp.web.ServerRunner` and a `Listener`."""

    def __init__(self, handler: RequestHandler) -> None:
        super().__init__(handler)
        self.handler = handler

    def pre_shutdown(self) -> None:
        """Close idle connections. Those that are still receiving a body stay open, because a closing one reads nothing more."""
        for connection in self.connections:
            if not self.handler.busy(connection):
                connection.close()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """Finish requests under way within ``timeout`` seconds, then close all connections."""
        await self.handler.drain(timeout if timeout is not None else LINGERING_SECONDS)
        await super().shutdown(LINGERING_SECONDS)

    def __call__(self) -> _Protocol:
        """Return the protocol of a new connection."""
        return _Protocol(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGERING_SECONDS,
            access_log=None,
            # Compressed bodies are refused, so they must not be decompressed first.
            auto_decompress=False,
        )


class Listener(web.SockSite):
    """Accepts connections, as far as capacity allows. A connection counts from before its TLS handshake."""

    def __init__(
        self,
        runner: web.ServerRunner,
        listening: socket.socket,
        server: RelayerServer,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(runner, listening, ssl_context=tls)
        self._listening = listening
        self._tls = tls
        self._made_by = server
        self._connections = server.handler.connections
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start to accept connections."""
        await web.BaseSite.start(self)
        self._listening.listen(_BACKLOG)
        self._listening.setblocking(False)
        self._run(self._take_in())
        self._run(self._watch())

    async def stop(self) -> None:
        """Stop accepting connections; open ones stay."""
        await cancel_all(self._tasks)
        self._listening.close()
        await super().stop()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take_in(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, address = await loop.sock_accept(self._listening)
            except OSError as error:
                log.warning("connection_not_taken", **describe(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            protocol = self._made_by()
            if self._connections.enter(protocol, protocol.end, peer_name(str(address[0])), loop.time()):
                protocol.coming = self._run(self._welcome(protocol, taken))
            else:
                taken.close()
            # Lets the connections that were ended to make room close, and gives requests their turn however many
            # connections come in.
            await asyncio.sleep(0)

    async def _welcome(self, protocol: _Protocol, taken: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            await loop.connect_accepted_socket(
                lambda: protocol,
                taken,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_SECONDS,
            )
        except (OSError, asyncio.CancelledError):
            # The peer went away or did not complete its handshake.
            self._connections.leave(protocol)
            taken.close()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._connections.limits.head_seconds / 4))
            self._connections.end_late(loop.time())


# Seconds for which a browser remembers a permission; Chromium's maximum.
_REMEMBERED = "7200"
# Without a token the metrics are for programs of the relayer's own machine, and a browser there shows pages of others.
_WITHHELD = frozenset({"/metrics"})


class PageOrigins:
    """Decides which web pages of other origins browsers let call the relayer and read its responses (CORS).

    A browser asks before most requests, with a preflight, and hides a response that does not name the page's origin. Pages of
    unlisted origins get no such header. Credentials are never allowed: requests are signed and carry no cookies.

    Args:
        origins: those of the settings, in the form in which browsers send them.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._origins = frozenset(origins)

    def wanted(self, request: BaseRequest) -> str | None:
        """Return the method that a listed page's preflight asks for; None if the request is none."""
        if request.method != "OPTIONS" or request.headers.get("origin") not in self._origins:
            return None
        return request.headers.get("access-control-request-method")

    def permission(self, method: str, names: PageHeaders) -> dict[str, str]:
        """Return the headers of the response to a preflight, in addition to those of every response."""
        return {
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": names.sent,
            "Access-Control-Max-Age": _REMEMBERED,
        }

    def headers(self, request: BaseRequest, names: PageHeaders) -> dict[str, str]:
        """Return the headers that let a listed page read the response to a request."""
        if not self._origins:
            return {}
        origin = request.headers.get("origin")
        if origin not in self._origins or request.path in _WITHHELD:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": names.read,
        }
