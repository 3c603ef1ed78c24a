"""Requests for small objects on the event loop, over connections of its own.

A thread has to be woken, and to get the interpreter from the loop and give it back; urllib3 takes as long again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

from urllib3.util.wait import wait_for_read

from relayer.adapters.s3_store.client import (
    Credentials,
    Route,
    StoreAnswer,
    Timeouts,
    answer_of,
    request_of,
)
from relayer.adapters.s3_store.failures import NoSuccess, NotConnected, of_silence

_HEAD_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_MOST_HEAD = 64 * 1024
_MOST_LINE = 1024
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_NO_BODY = frozenset({204, 304})
_FIRST_FINAL = 200
_LARGE = 1024 * 1024


def trusting(route: Route) -> ssl.SSLContext | None:
    """Return what a server of the route is trusted by, None without TLS; reads files."""
    if route.authorities is None:
        return None
    given = route.authorities
    return (
        ssl.create_default_context(capath=given)
        if Path(given).is_dir()
        else ssl.create_default_context(cafile=given)
    )


class LoopClient:
    """Makes requests for single objects of one bucket, one at a time on each connection, and none twice.

    Args:
        route: to the bucket.
        credentials: that do not end.
        trusted: see `trusting`.
        patience: to connect, and between two bytes.
    """

    def __init__(
        self, route: Route, credentials: Credentials, trusted: ssl.SSLContext | None, patience: Timeouts
    ) -> None:
        self._route = route
        self._credentials = credentials
        self._trusted = trusted
        self._patience = patience
        self._idle: list[_Connection] = []

    async def ask(self, operation: str, **parameters: Any) -> StoreAnswer:
        """Make one request, named as boto3 names it; cancelled, it is broken off, and may have been answered.

        Raises:
            NoSuccess: as `relayer.adapters.s3_store.client.Requester.ask`.
        """
        request = request_of(self._route, self._credentials, operation, parameters, time.time())
        lines = [f"{request.method} {request.path} HTTP/1.1"]
        if request.method == "PUT":
            lines.append(f"content-length: {len(request.body)}")
        lines += [f"{name}: {text}" for name, text in request.headers.items()]
        # What a server said, as an ETag, is said again to it as it came.
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        try:
            connection = self._unused() or await self._connected()
            reader = await connection.exchange(head, request.body)
        except OSError as error:
            raise NoSuccess(of_silence(error)) from error
        if reader.reusable:
            self._idle.append(connection)
        else:
            connection.transport.abort()
        return answer_of(reader.status, reader.headers, await _joined(reader.body))

    def close(self) -> None:
        """Give back the connections."""
        while self._idle:
            self._idle.pop().transport.abort()

    def _unused(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                return connection
            connection.transport.abort()
        return None

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience.connect):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._patience.silence),
                    self._route.host,
                    self._route.port,
                    ssl=self._trusted,
                )
        except OSError as error:
            raise NotConnected(str(error)) from error
        return connection


async def _joined(pieces: list[bytes]) -> bytes:
    """Put a body together: a large one beside the loop, which copying does not need."""
    large = sum(map(len, pieces)) > _LARGE
    return await asyncio.to_thread(b"".join, pieces) if large else b"".join(pieces)


class _Connection(asyncio.Protocol):
    """One connection and the exchange on it, if there is one."""

    transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, loop: asyncio.AbstractEventLoop, silence: float) -> None:
        self._loop = loop
        self._silence = silence
        self._heard = 0.0
        self._reader = AnswerReader()
        self._done: asyncio.Future[None] | None = None

    def is_open(self) -> bool:
        """Whether nothing came since the last answer, no end either, as far as the kernel knows."""
        line = self.transport.get_extra_info("socket")
        return not self.transport.is_closing() and not wait_for_read(line, 0.0)

    async def exchange(self, head: bytes, body: bytes) -> AnswerReader:
        """Send a request and return its answer, read to its end.

        Raises:
            OSError: the connection was lost, or silent, or what came is no answer; it is closed.
        """
        if self.transport.is_closing():
            raise ConnectionResetError("the connection was lost as soon as it was made")
        self._reader, self._done = AnswerReader(), self._loop.create_future()
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(self._silence, self._look)
        try:
            self.transport.write(head + body)
            await self._done
        except BaseException:
            self.transport.abort()
            raise
        finally:
            self._done = None
            self._timer.cancel()
        return self._reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            # Nobody asked for it, or for as much.
            self._reader.reusable = False
            self.transport.abort()
            return
        self._heard = self._loop.time()
        try:
            if self._reader.feed(data):
                self._done.set_result(None)
        except ValueError as error:
            self._fail(ConnectionError(f"no answer of HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reader.ends_with_connection and exc is None and self._done is not None:
            if not self._done.done():
                self._done.set_result(None)
        else:
            self._fail(ConnectionResetError(f"the connection was lost ({type(exc).__name__})"))

    def _look(self) -> None:
        left = self._heard + self._silence - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._fail(TimeoutError("the server is silent"))

    def _fail(self, error: OSError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


class AnswerReader:
    """Reads one answer from pieces of any size (RFC 9112); raises `ValueError` for what is none.

    Attributes:
        status: of the answer.
        headers: by lower-case name.
        body: in pieces.
        reusable: whether the connection takes another request.
        ends_with_connection: whether only the end of the connection ends the body.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.reusable = False
        self.ends_with_connection = False
        self._buffer = b""
        self._left: int | None = None
        self._chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> bool:
        """Take what came; says whether the answer is whole."""
        if self._left is None and not self._chunked and not self.ends_with_connection:
            data = self._buffer + data
            self._buffer = b""
            head, end, data = data.partition(_HEAD_END)
            if not end:
                self._buffer = head
                if len(head) > _MOST_HEAD:
                    raise ValueError("its head has no end")
                return False
            self._begin(head)
            if self.status < _FIRST_FINAL:
                # Something is said in between; the answer follows.
                return self.feed(data)
        if self._chunked:
            return self._take_chunks(data)
        if self._left is None:
            self.body.append(data)
            return False
        self.body.append(data[: self._left])
        self.reusable = self.reusable and len(data) <= self._left
        self._left = max(0, self._left - len(data))
        return not self._left

    def _begin(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        if any(mark in line for line in lines for mark in "\r\n\0"):
            raise ValueError("a header ends where no line does")
        version, _, rest = first.partition(" ")
        if version not in {"HTTP/1.1", "HTTP/1.0"} or not (rest[:3].isascii() and rest[:3].isdigit()):
            raise ValueError("its first line is no status")
        self.status, self.headers = int(rest[:3]), {}
        for line in lines:
            name, colon, text = line.partition(":")
            if not colon:
                raise ValueError("a header has no name")
            name, text = name.lower(), text.strip()
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        self._frame(version)

    def _frame(self, version: str) -> None:
        """Find out where the body ends."""
        if self.status < _FIRST_FINAL:
            return
        self.reusable = version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        length = self.headers.get("content-length")
        if self.status in _NO_BODY:
            self._left = 0
        elif "transfer-encoding" in self.headers:
            if self.headers["transfer-encoding"].lower() != "chunked":
                raise ValueError("its body is encoded as nobody asked for")
            self._chunked = True
        elif length is None:
            self.reusable, self.ends_with_connection = False, True
        elif length.isascii() and length.isdigit():
            self._left = int(length)
        else:
            raise ValueError("its length is no number")

    def _take_chunks(self, data: bytes) -> bool:
        """Take pieces of a body whose length is told with each of them; ``_left`` is what is left of one and its end."""
        data = self._buffer + data
        while True:
            if self._left is not None:
                # The last two bytes are the end of the chunk's line.
                self.body.append(data[: max(0, self._left - len(_LINE_END))])
                taken = min(self._left, len(data))
                data, self._left = data[taken:], self._left - taken
                if self._left:
                    self._buffer = b""
                    return False
                self._left = None
            line, end, rest = data.partition(_LINE_END)
            if not end:
                self._buffer = data
                if len(data) > _MOST_LINE:
                    raise ValueError("a chunk has no length")
                return False
            data = rest
            if self._in_trailer:
                if not line:
                    self.reusable = self.reusable and not data
                    return True
                continue
            told = line.partition(b";")[0].strip()
            # Python takes signs, prefixes and underscores for a part of a number, too.
            if not told or told.strip(_HEXADECIMAL):
                raise ValueError("the length of a chunk is no number")
            size = int(told, 16)
            self._in_trailer = not size
            if size:
                self._left = size + len(_LINE_END)
