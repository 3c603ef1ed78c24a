"""The messages of the bridge: JSON-RPC 2.0, one object per line, UTF-8, at most `MAX_LINE` bytes.

The parameters of a request may contain ``deadlineMs``: how long the caller will wait, in milliseconds. The notification
``cancel`` with the ``id`` of a request aborts it. The first request must be ``initialize``; it lists the versions of this
protocol that the host supports.

The bridge sends requests to the host in the same format: ``model.complete``, if ``initialize`` said that the host provides
a ``model``. The ids of these requests begin with ``b``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    message = _message(line)
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
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict):
        return HostReply(name, result)
    told = error.get("data") if isinstance(error, dict) else None
    code = told.get("code") if isinstance(told, dict) else None
    return HostReply(name, None, code if isinstance(code, str) else "")


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BridgeError(PARSE_ERROR, "the line is no JSON") from error
    if not isinstance(message, dict):
        raise BridgeError(INVALID_REQUEST, "a message is an object")
    return message


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
