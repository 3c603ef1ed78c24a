"""Sessions of MCP clients in one process: their streams of events, their running calls, and limits for both.

The id of a session of Streamable HTTP is encrypted and contains its owner, so every relayer of the store can read it, and
nothing about the session is kept here except its running calls. A stream of server-sent events is a session that ends with
the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cachetools import LRUCache, TTLCache

from relayer.fronts.memwal.contract import CompatError

MCP_PATH: Final = "/api/mcp"
MOST_STREAMS: Final = 1000
MOST_OF_PEER: Final = 16
MOST_NEW_A_MINUTE: Final = 30
MOST_CALLS: Final = 16
"""Maximum number of concurrent calls in one session."""
_MINUTE: Final = 60.0
_MOST_WAITING: Final = 256
_DAY_SECONDS: Final = 24 * 3600
UNAUTHORISED, TOO_MANY, FAILED = -32001, -32000, -32603

Json: TypeAlias = dict[str, Any]


def rpc_error(number: Any, code: int, message: str, data: Json | None = None) -> Json:
    """Return a JSON-RPC error; ``number`` is the id of the request, None if it has none."""
    error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": number, "error": error}


_TEXTS = {
    401: "No key, or one that is not this account's: send Authorization: Bearer <private key, 64 hex digits> and "
    "X-MemWal-Account-Id: 0x<64 hex digits>",
    404: "There is no such session; begin a new one with initialize",
}
_CODES = {401: UNAUTHORISED, 403: UNAUTHORISED, 429: TOO_MANY}


def refusal_of(status: int, message: str) -> Json:
    """Return the JSON-RPC error for a refused request of an MCP client."""
    return rpc_error(None, _CODES.get(status, FAILED), message or _TEXTS.get(status, "Request refused"))


@dataclass(slots=True, eq=False)
class Stream:
    """A stream of server-sent events, which is a session of its own.

    Attributes:
        owner: a digest of account and key.
        account: the account's id as the client knows it.
        used: time of the last activity, on the monotonic clock.
        sending: tasks that send the responses of calls as events.
        waiting: messages to send as events; None ends the stream.
    """

    id: str
    owner: bytes
    key: bytes
    account: str
    peer: str
    gone: Callable[[], bool]
    namespace: str = ""
    used: float = 0.0
    sending: set[asyncio.Task[None]] = field(default_factory=set)
    waiting: asyncio.Queue[Json | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))

    def put(self, message: Json | None) -> None:
        """Queue a message. If the queue is full, the client does not read, and its stream ends."""
        if self.waiting.full():
            self.end()
        else:
            self.waiting.put_nowait(message)

    def send(self, sending: asyncio.Task[None]) -> None:
        """Register a task that sends a response, so that it ends with the stream."""
        self.sending.add(sending)
        sending.add_done_callback(self.sending.discard)

    def end(self) -> None:
        """Cancel all tasks and end the stream."""
        for task in self.sending:
            task.cancel()
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


class Sessions:
    """The sessions of one process; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._begun: LRUCache[str, deque[float]] = LRUCache(10_000)
        self._ended: TTLCache[str, bool] = TTLCache(10_000, ttl=_DAY_SECONDS)
        # The running calls of each session that has any, by type and value of their ids.
        self._calls: dict[str, dict[tuple[type, Any], asyncio.Task[Json]]] = {}

    def begin(self, peer: str, now: float) -> None:
        """Count a new session; raises `CompatError` 429 if the peer opened too many in the last minute."""
        begun = self._begun.setdefault(peer, deque(maxlen=MOST_NEW_A_MINUTE))
        if len(begun) == MOST_NEW_A_MINUTE and now - begun[0] < _MINUTE:
            raise _too_many("Too many sessions were opened from this address", _MINUTE - (now - begun[0]))
        begun.append(now)

    def open(self, stream: Stream, now: float) -> None:
        """Add a stream; raises `CompatError` 429 if its peer has too many, or there are too many in all."""
        for one in list(self._streams.values()):
            # Each beat of a stream updates `used`, unless the stream was never started.
            if one.gone() or now - one.used > _MINUTE:
                self.end(one.id)
        of_peer = sum(one.peer == stream.peer for one in self._streams.values())
        if of_peer >= MOST_OF_PEER or len(self._streams) >= MOST_STREAMS:
            raise _too_many("Too many sessions are open", 30.0)
        stream.used = now
        self._streams[stream.id] = stream

    def find(self, session: str) -> Stream | None:
        """Return an open stream by its session's id, or None."""
        return self._streams.get(session)

    def has_ended(self, session: str) -> bool:
        """Return whether a client has ended this session in this process."""
        return session in self._ended

    def calls(self, session: str) -> Mapping[tuple[type, Any], asyncio.Task[Json]]:
        """Return the running calls of a session, by type and value of their ids."""
        return self._calls.get(session, {})

    def call(self, session: str, number: Any, task: asyncio.Task[Json]) -> None:
        """Register a running call, so that it can be cancelled."""
        name, calls = (type(number), number), self._calls.setdefault(session, {})

        def done(_: asyncio.Task[Json]) -> None:
            del calls[name]
            if not calls:
                self._calls.pop(session, None)

        calls[name] = task
        task.add_done_callback(done)

    def cancel(self, session: str, number: Any) -> None:
        """Cancel a call if it is still running."""
        task = self.calls(session).get((type(number), number))
        if task is not None:
            task.cancel()

    def end(self, session: str) -> None:
        """End a session permanently, with its running calls and its stream."""
        self._ended[session] = True
        for task in self.calls(session).values():
            task.cancel()
        stream = self._streams.pop(session, None)
        if stream is not None:
            stream.end()


def _too_many(message: str, wait: float) -> CompatError:
    return CompatError(429, message, rule="sessions", headers={"Retry-After": str(max(1, -int(-wait // 1)))})
