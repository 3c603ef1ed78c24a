"""The bridge's server: answers a host's requests concurrently over standard input and output.

Each request runs in a task with its own deadline. It can be cancelled by the host, and its failure does not affect other
requests. The server ends when the host closes its side of the connection, which also happens when the host dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from gateway_plugin.bridge.protocol import (
    BUSY,
    CANCELLED,
    DEADLINE,
    INTERNAL,
    INVALID_REQUEST,
    MAX_LINE,
    PARSE_ERROR,
    UNKNOWN_METHOD,
    BridgeError,
    Call,
    HostReply,
    LineSplitter,
    agreed_version,
    encode_cancel,
    encode_error,
    encode_request,
    encode_result,
    parse_message,
)

MAX_PENDING: Final = 256
_CHUNK: Final = 64 * 1024

AskHost = Callable[[str, Mapping[str, object], float], Awaitable[Mapping[str, Any]]]
"""Sends a request to the host: method, parameters, and timeout in seconds. Raises `TimeoutError` or `HostRefused`."""

Handler = Callable[[Call], Awaitable[object]]
Read = Callable[[int], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]


class HostRefused(Exception):
    """Raised when the host answers a request with an error.

    Attributes:
        code: the host's error code; "" if it sent none.
    """

    def __init__(self, code: str) -> None:
        super().__init__(f"the host refused ({code or 'it says not why'})")
        self.code = code


class Host(Protocol):
    """The interface of a host's adapter, which handles the requests."""

    async def initialize(self, params: Mapping[str, Any]) -> Mapping[str, object]:
        """Apply the host's configuration. May be called again, which replaces the configuration.

        Returns:
            Fields of the result for the host, as JSON values; the server adds ``protocol``.

        Raises:
            BridgeError: the request fails with this error. Any other exception becomes an internal error.
        """
        ...

    def methods(self) -> Mapping[str, Handler]:
        """Return the handlers of requests by method name."""
        ...

    def attach(self, ask: AskHost) -> None:
        """Set the function that sends requests to the host; called before any other method that uses it."""
        ...

    async def aclose(self) -> None:
        """Deliver waiting turns and release all resources."""
        ...


class BridgeServer:
    """Serves one host over one pair of streams.

    Args:
        read: reads up to a number of bytes; returns b"" at the end.
    """

    def __init__(self, host: Host, read: Read, write: Write) -> None:
        self._host = host
        self._read = read
        self._write = write
        self._methods = {**host.methods(), "ping": _pong, "bridge.pending": self._tell_pending}
        self._pending: dict[int | str, asyncio.Task[None]] = {}
        self._ready = False
        self._asked: dict[str, asyncio.Future[HostReply]] = {}
        self._last_asked = 0
        host.attach(self.ask)

    async def ask(self, method: str, params: Mapping[str, object], seconds: float) -> Mapping[str, Any]:
        """Send a request to the host and return its result. If waiting ends early, the host is told to cancel.

        Raises:
            TimeoutError: no response came within ``seconds``.
            HostRefused: the host answered with an error.
        """
        self._last_asked += 1
        name = f"b{self._last_asked}"
        answer: asyncio.Future[HostReply] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._write(encode_request(name, method, {**params, "deadlineMs": int(seconds * 1000)}))
                reply = await answer
        except (TimeoutError, asyncio.CancelledError):
            await self._write(encode_cancel(name))
            raise
        finally:
            del self._asked[name]
        if reply.result is None:
            raise HostRefused(reply.code)
        return reply.result

    async def serve(self) -> None:
        """Answer requests until the host closes its side, then cancel the pending ones."""
        splitter = LineSplitter()
        try:
            async with asyncio.TaskGroup() as tasks:
                while chunk := await self._read(_CHUNK):
                    for line in splitter.feed(chunk):
                        await self._take(line, tasks)
                for task in self._pending.values():
                    task.cancel()
        finally:
            await self._host.aclose()

    async def _take(self, line: bytes | None, tasks: asyncio.TaskGroup) -> None:
        try:
            call = parse_message(line) if line is not None else _too_long()
            if isinstance(call, HostReply):
                answer = self._asked.get(call.id)
                if answer is not None and not answer.done():
                    answer.set_result(call)
            elif call.id is None:
                if call.method == "cancel":
                    target = call.params.get("id")
                    task = self._pending.get(target) if isinstance(target, int | str) else None
                    if task is not None:
                        task.cancel()
            elif call.method == "initialize":
                # Awaited here and not in a task, so that it is complete before the next message is handled.
                await self._answer(call, self._initialize)
            else:
                self._begin(call, call.id, tasks)
        except BridgeError as error:
            await self._write(encode_error(error))

    def _begin(self, call: Call, name: int | str, tasks: asyncio.TaskGroup) -> None:
        handler = self._methods.get(call.method)
        if handler is None:
            raise BridgeError(UNKNOWN_METHOD, f"unknown method {call.method[:64]!r}", call=name)
        if not self._ready and handler is not _pong:
            raise BridgeError(INVALID_REQUEST, "the first request is initialize", call=name)
        if name in self._pending:
            raise BridgeError(INVALID_REQUEST, "the id is in use", call=name)
        if len(self._pending) >= MAX_PENDING:
            raise BridgeError(BUSY, f"{MAX_PENDING} requests are being worked on", call=name)
        task = tasks.create_task(self._answer(call, handler))
        self._pending[name] = task
        task.add_done_callback(lambda _: self._pending.pop(name, None))

    async def _initialize(self, call: Call) -> object:
        version = agreed_version(call.params.get("protocol"))
        told = await self._host.initialize(call.params)
        self._ready = True
        return {"protocol": version, **told}

    async def _tell_pending(self, _call: Call) -> object:
        return {"pending": len(self._pending)}

    async def _answer(self, call: Call, handler: Handler) -> None:
        try:
            async with asyncio.timeout(call.deadline):
                result = await handler(call)
            answer = encode_result(call.id, result)
        except BridgeError as error:
            answer = encode_error(BridgeError(error.code, str(error), call=call.id))
        except TimeoutError:
            answer = encode_error(BridgeError(DEADLINE, "the deadline passed", call=call.id))
        except asyncio.CancelledError:
            answer = encode_error(BridgeError(CANCELLED, "aborted by the host", call=call.id))
        except Exception as error:  # noqa: BLE001 - one request's defect must not end the others
            told = f"memory failed inside the plugin ({type(error).__name__})"
            answer = encode_error(BridgeError(INTERNAL, told, call=call.id))
        await self._write(answer)


def _too_long() -> Call:
    raise BridgeError(PARSE_ERROR, f"a message is at most {MAX_LINE} bytes long")


async def _pong(_call: Call) -> object:
    return {}


def run_bridge(host: Host) -> None:
    """Serve a host until it closes its side or this process is told to end."""
    # Standard output is redirected to standard error, so that nothing a library prints is mixed with the responses.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asyncio.run(_serve(host, answers))


async def _serve(host: Host, answers: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), sys.stdin.buffer
    )
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(answers, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)

    async def write(line: bytes) -> None:
        # A host that is gone reads nothing. The server ends because its input is then closed, so no error is needed here.
        if not outgoing.is_closing():
            writer.write(line)
            await writer.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        # Closing our end of the input has the same effect as the host closing it.
        loop.add_signal_handler(number, incoming.close)
    try:
        await BridgeServer(host, reader.read, write).serve()
    finally:
        incoming.close()
        outgoing.close()
