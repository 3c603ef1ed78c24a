"""The HTTP server proper: aiohttp's protocol, with its own errors turned into problems as well."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from relayer.http.front import Front
from relayer.http.problems import HttpProblem

__all__ = ["RelayerServer"]

# An idle connection, or a head that does not get finished, ends after this. Proxies commonly keep theirs for 60 s.
KEEPALIVE_SECONDS = 75.0
# How long a refused request's body is still taken in, so that the client gets to read the answer.
LINGERING_SECONDS = 2.0


class _Protocol(web.RequestHandler):
    """One connection."""

    def __init__(self, server: RelayerServer, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(server, loop=loop, **options)
        self._front = server.front

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
        response = self._front.refuse(request, error, self._front.request_id(request), None, perf_counter())
        response.force_close()
        return response


class RelayerServer(web.Server):
    """Makes a `_Protocol` for each connection; run it with `aiohttp.web.ServerRunner`."""

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

    def __call__(self) -> web.RequestHandler:
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
