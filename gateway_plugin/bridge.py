"""A bridge process for hosts that are not written in Python: JSON-RPC 2.0 over standard input and output.

Messages are one object per line, UTF-8, at most `MAX_LINE` bytes. Each request runs in a task with its own deadline. It can be
cancelled by the host, and its failure does not affect other requests. The server ends when the host closes its side of the
connection, which also happens when the host dies.

The parameters of a request may contain ``deadlineMs``: how long the caller will wait, in milliseconds. The notification
``cancel`` with the ``id`` of a request aborts it. The first request must be ``initialize``; it lists the versions of this
protocol that the host supports.

The bridge sends requests to the host in the same format: ``model.complete``, if ``initialize`` said that the host provides
a ``model``. The ids of these requests begin with ``b``.

The host's plugin stores requests sealed while no bridge process is running (`KeptRequests`). It seals each to a public key, so
that it cannot read its own files again. The private key is derived from the gateway's secret: any later process with that
secret can open the requests. A sealed request, format 1:

    offset  size  field
    0       4     magic "MRK1"
    4       32    an X25519 public key, made for this request alone
    36      n+16  AES-256-GCM with a nonce of zeros: the key is used once

The key is HKDF-SHA256 of the X25519 agreement, with both public keys as salt, the sender's first, and the magic as info.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relayer.wire import codec as base64url
from relayer.wire.codec import Malformed

PROTOCOL_VERSION: Final = 1
MAX_LINE: Final = 8 * 1024 * 1024

# Error codes of JSON-RPC 2.0, section 5.1. Those from -32000 to -32099 are defined by the implementation.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
DEADLINE: Final = -32001
CANCELLED: Final = -32002
BUSY: Final = -32003
WRONG_VERSION: Final = -32004
UNAVAILABLE: Final = -32005
UNOPENABLE: Final = -32006

_MAX_DEADLINE_MS: Final = 600_000

CallId = int | str | None


class BridgeError(Exception):
    """Raised when a request is answered with an error; the message contains no secrets.

    Attributes:
        call: the id of the request, as far as it could be read.
    """

    def __init__(self, code: int, sentence: str, *, call: CallId = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.call = call


@dataclass(frozen=True, slots=True)
class Call:
    """A request, or a notification if it has no id.

    Attributes:
        id: the id that the response must carry; None for a notification.
        params: the parameters, which may contain texts of a conversation.
        deadline: how long the caller waits, in seconds; None if it did not say.
    """

    id: CallId
    method: str
    params: Mapping[str, Any] = field(repr=False)
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class HostReply:
    """The host's response to a request of the bridge: the ``result``, or the ``code`` of the error if it is None."""

    id: str
    result: Mapping[str, Any] | None = field(repr=False)
    code: str = ""


def parse_message(line: bytes) -> Call | HostReply:
    """Parse a line: a request of the host or its response to one of the bridge. Raises `BridgeError` if it is neither."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BridgeError(PARSE_ERROR, "the line is no JSON") from error
    if not isinstance(message, dict):
        raise BridgeError(INVALID_REQUEST, "a message is an object")
    name = message.get("id")
    if "method" in message or not isinstance(name, str):
        call = message.get("id")
        if isinstance(call, bool) or not isinstance(call, int | str | None):
            raise BridgeError(INVALID_REQUEST, "id is a number or text")
        method, params = message.get("method"), message.get("params", {})
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            raise BridgeError(INVALID_REQUEST, 'a request has jsonrpc "2.0" and a method', call=call)
        if not isinstance(params, dict):
            raise BridgeError(INVALID_PARAMS, "params is an object", call=call)
        return Call(call, method, params, _deadline(params.get("deadlineMs"), call))
    result, failure = message.get("result"), message.get("error")
    if isinstance(result, dict):
        return HostReply(name, result)
    told = failure.get("data") if isinstance(failure, dict) else None
    code = told.get("code") if isinstance(told, dict) else None
    return HostReply(name, None, code if isinstance(code, str) else "")


def agreed_version(offered: object) -> int:
    """Return the protocol version that both sides support.

    Raises:
        BridgeError: there is no common version; the message says to install both sides in the same version.
    """
    known = offered if isinstance(offered, Sequence) and not isinstance(offered, str) else [offered]
    if PROTOCOL_VERSION in known:
        return PROTOCOL_VERSION
    spoken = ", ".join(str(version)[:8] for version in known[:4])
    raise BridgeError(
        WRONG_VERSION,
        f"the host's plugin speaks protocol {spoken}, this memrelay-gateway speaks {PROTOCOL_VERSION}: "
        "install the plugin and the Python package memrelay in the same version",
    )


def encode_request(name: str, method: str, params: Mapping[str, object]) -> bytes:
    """Encode a request to the host."""
    return _line({"jsonrpc": "2.0", "id": name, "method": method, "params": params})


def encode_cancel(name: str) -> bytes:
    """Encode the notification that a request to the host is cancelled."""
    return _line({"jsonrpc": "2.0", "method": "cancel", "params": {"id": name}})


def encode_result(call: CallId, result: object) -> bytes:
    """Encode a successful response."""
    return _line({"jsonrpc": "2.0", "id": call, "result": result})


def encode_error(error: BridgeError) -> bytes:
    """Encode an error response."""
    return _line({"jsonrpc": "2.0", "id": error.call, "error": {"code": error.code, "message": str(error)}})


class LineSplitter:
    """Splits chunks of bytes into lines. A line longer than ``limit`` bytes is discarded and reported as None."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Add a chunk and return the lines that it completes."""
        lines: list[bytes | None] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk[start:end])
            lines.append(None if self._dropping else bytes(self._rest))
            self._rest.clear()
            self._dropping = False
            start = end + 1
        self._keep(chunk[start:])
        return [line for line in lines if line is None or line.strip()]

    def _keep(self, part: bytes) -> None:
        if self._dropping or len(self._rest) + len(part) > self._limit:
            self._dropping = True
            self._rest.clear()
        else:
            self._rest += part


def _deadline(milliseconds: object, call: CallId) -> float | None:
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise BridgeError(INVALID_PARAMS, "deadlineMs is a number of milliseconds", call=call)
    if not 0 < milliseconds <= _MAX_DEADLINE_MS:
        raise BridgeError(INVALID_PARAMS, f"deadlineMs is from 1 to {_MAX_DEADLINE_MS}", call=call)
    return milliseconds / 1000


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


_KEY: Final = 32
_NONCE: Final = bytes(12)


class KeptRequests:
    """Opens the requests that are sealed to one gateway.

    Args:
        secret: 32 bytes derived from the gateway's secret, the same at each start.
    """

    def __init__(self, secret: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self._public = self._private.public_key().public_bytes_raw()

    @property
    def public_key(self) -> str:
        """Return the public key to which a host's plugin seals requests, in base64url."""
        return base64url.encode(self._public)

    def open(self, sealed: bytes) -> bytes:
        """Open a sealed request. Raises `BridgeError`: it was sealed for another secret, or it is damaged."""
        magic, sender, rest = sealed[:4], sealed[4 : 4 + _KEY], sealed[4 + _KEY :]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
            kdf = HKDF(algorithm=SHA256(), length=_KEY, salt=sender + self._public, info=magic)
            return AESGCM(kdf.derive(shared)).decrypt(_NONCE, rest, None)
        except (ValueError, InvalidTag) as error:
            told = "it was kept under another secret than this gateway's, or is damaged"
            raise BridgeError(UNOPENABLE, told) from error

    def call(self, call: Call) -> Call:
        """Return the request that is sealed in the parameters of a call, with the id and the deadline of that call.

        Raises:
            BridgeError: see `open`; or the content is not a request.
        """
        given = call.params.get("sealed")
        if not isinstance(given, str):
            raise BridgeError(INVALID_PARAMS, "sealed is text")
        try:
            sealed = base64url.decode(given)
        except Malformed as error:
            raise BridgeError(INVALID_PARAMS, "sealed is base64url") from error
        try:
            said: Any = json.loads(self.open(sealed))
        except (ValueError, RecursionError) as error:
            raise BridgeError(INVALID_PARAMS, "what was kept is no request") from error
        fields = said if isinstance(said, Mapping) else {}
        method, params = fields.get("method"), fields.get("params")
        if not isinstance(method, str) or not isinstance(params, dict):
            raise BridgeError(INVALID_PARAMS, "what was kept is no request")
        return Call(call.id, method, params, call.deadline)


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
        if line is None:
            too_long = BridgeError(PARSE_ERROR, f"a message is at most {MAX_LINE} bytes long")
            await self._write(encode_error(too_long))
            return
        try:
            call = parse_message(line)
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
