"""The HTTP server proper: connections taken in and timed, and aiohttp's protocol with its own errors turned into problems."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from time import perf_counter
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from relayer.http.accept import Trail
from relayer.http.connections import break_off
from relayer.http.limits import peer_name
from relayer.http.problems import HttpProblem
from relayer.http.request import Front
from relayer.telemetry import describe, log

# A connection on which nothing is asked any more ends after this. Proxies commonly keep theirs for 60 s.
KEEPALIVE_SECONDS = 75.0
# How long a refused request's body is still taken in, so that the client gets to read the answer.
LINGERING_SECONDS = 2.0
_HANDSHAKE_SECONDS = 10.0
_BACKLOG = 1024
# What the kernel may hold of an answer that nobody reads; it would take several megabytes by itself.
_SEND_BUFFER = 128 * 1024
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class _Protocol(web.RequestHandler):
    """One connection."""

    def __init__(self, server: RelayerServer, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(server, loop=loop, **options)
        self._front = server.front
        self._line: asyncio.Transport | None = None
        self.coming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            # Whatever the kernel did not take yet is waited for.
            self.transport.set_write_buffer_limits(high=0)
        # Kept apart: aiohttp forgets a transport that it closes, and it closes when all is sent, which may be never.
        self._line = self.transport

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._front.connections.heard(self, self._loop.time())

    def connection_lost(self, exc: BaseException | None) -> None:
        self._line = None
        self._front.connections.leave(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """Break the connection off, also while it is only being made."""
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
        """Answer what the parser could not read; ``message`` quotes the request and goes nowhere."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way already")
        error: Exception = HttpProblem("malformed", "This is not an HTTP request.")
        if isinstance(exc, LineTooLong):
            error = HttpProblem("header_too_large")
        elif status >= 500 and isinstance(exc, Exception):
            error = exc
        response = self._front.refuse(
            request, error, self._front.request_id(request), Trail(), perf_counter()
        )
        response.force_close()
        return response


class RelayerServer(web.Server):
    """Makes a `_Protocol` for each connection; run it with `aiohttp.web.ServerRunner` and a `Door`."""

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self.front = front

    def pre_shutdown(self) -> None:
        """Close idle connections. A closing one takes no more bytes, so those with a body on its way stay open."""
        for connection in self.connections:
            if not self.front.busy(connection):
                connection.close()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """Finish what is under way within ``timeout`` seconds, then close everything."""
        await self.front.drain(timeout if timeout is not None else LINGERING_SECONDS)
        await super().shutdown(LINGERING_SECONDS)

    def __call__(self) -> _Protocol:
        """Return the protocol of a new connection."""
        return _Protocol(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGERING_SECONDS,
            access_log=None,
            # A compressed body is refused; it must not be unpacked first.
            auto_decompress=False,
        )


class Door(web.SockSite):
    """Takes connections in, as far as there is room for them: a TLS handshake takes a place as well.

    Args:
        runner: of the server.
        listening: bound.
        server: the runner's.
        tls: with what the connections are encrypted; None leaves them plain.
    """

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
        self._connections = server.front.connections
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to take connections in."""
        await web.BaseSite.start(self)
        self._listening.listen(_BACKLOG)
        self._listening.setblocking(False)
        self._run(self._take_in())
        self._run(self._watch())

    async def stop(self) -> None:
        """Take no more in; those that are there stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
            # What was ended for it is closed now, and requests get their turn however many come.
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
            # The peer went away, or never came to the end of its handshake.
            self._connections.leave(protocol)
            taken.close()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._connections.limits.head_seconds / 4))
            self._connections.end_late(loop.time())
