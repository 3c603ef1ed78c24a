"""Sessions of MCP clients in one process: their number, their owners, their running calls and their pending messages.

The id of a session of Streamable HTTP is encrypted and contains its owner, so every relayer of the store can read it. A
session that was dropped here to make room for a newer one of its peer is restored when its client uses it again. A stream
of server-sent events is a session that ends with the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cachetools import LRUCache, TTLCache

from relayer.fronts.memwal.contract import CompatError

MCP_PATH: Final = "/api/mcp"
MOST_SESSIONS: Final = 1000
MOST_OF_PEER: Final = 16
MOST_NEW_A_MINUTE: Final = 30
MOST_CALLS: Final = 16
"""Maximum number of concurrent calls in one session."""
_IDLE_SECONDS: Final = 30 * 60
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
class Session:
    """A session of an MCP client.

    Attributes:
        id: the id by which its client names it.
        owner: a digest of account and key.
        key: the public key of the client that opened it.
        account: the account's id as the client knows it.
        peer: the address that opened it.
        namespace: the namespace of calls that name none.
        used: time of the last activity, on the monotonic clock.
        streams: whether the session is a stream of events, which its responses are sent on.
        gone: returns whether the connection of its stream is closed.
        calls: running calls, by type and value of their ids.
        sending: tasks that send the responses of calls as events.
        waiting: messages to send as events; None ends the stream.
        over: whether the session has ended.
    """

    id: str
    owner: bytes
    key: bytes
    account: str
    peer: str
    namespace: str = ""
    used: float = 0.0
    streams: bool = False
    gone: Callable[[], bool] = lambda: False
    calls: dict[tuple[type, Any], asyncio.Task[Json]] = field(default_factory=dict)
    sending: set[asyncio.Task[None]] = field(default_factory=set)
    waiting: asyncio.Queue[Json | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))
    over: bool = False

    def put(self, message: Json | None) -> None:
        """Queue a message. If the queue is full, the client does not read, and its session ends."""
        if self.waiting.full():
            self.end()
        elif not self.over:
            self.waiting.put_nowait(message)

    def begin(self, number: Any, task: asyncio.Task[Json]) -> None:
        """Register a call, so that it can be cancelled."""
        name = (type(number), number)
        self.calls[name] = task
        task.add_done_callback(lambda _: self.calls.pop(name, None))

    def send(self, sending: asyncio.Task[None]) -> None:
        """Register a task that sends a response, so that it ends with the session."""
        self.sending.add(sending)
        sending.add_done_callback(self.sending.discard)

    def cancel(self, number: Any) -> None:
        """Cancel a call if it is still running."""
        task = self.calls.get((type(number), number))
        if task is not None:
            task.cancel()

    def end(self) -> None:
        """Cancel all running calls and end the stream."""
        if self.over:
            return
        self.over = True
        for task in [*self.calls.values(), *self.sending]:
            task.cancel()
        while self.waiting.full():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


class Sessions:
    """The sessions of one process; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}
        self._begun: LRUCache[str, deque[float]] = LRUCache(10_000)
        self._ended: TTLCache[str, bool] = TTLCache(10_000, ttl=_DAY_SECONDS)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, session: Session, now: float) -> None:
        """Add a new session; raises `CompatError` 429 if there are too many, or the peer opened too many in the last minute."""
        begun = self._begun.setdefault(session.peer, deque(maxlen=MOST_NEW_A_MINUTE))
        if len(begun) == MOST_NEW_A_MINUTE and now - begun[0] < _MINUTE:
            raise _too_many("Too many sessions were opened from this address", _MINUTE - (now - begun[0]))
        self.keep(session, now)
        begun.append(now)

    def keep(self, session: Session, now: float) -> None:
        """Add a session; if its peer has too many, the longest idle one is dropped. Raises `CompatError` 429 if none is idle."""
        self._sweep(now)
        if sum(one.peer == session.peer for one in self._open.values()) >= MOST_OF_PEER:
            self._make_room(lambda one: one.peer == session.peer)
        if len(self._open) >= MOST_SESSIONS:
            self._make_room(lambda _: True)
        session.used = now
        self._open[session.id] = session

    def find(self, name: str) -> Session | None:
        """Return an open session by its id, or None."""
        return self._open.get(name)

    def has_ended(self, name: str) -> bool:
        """Return whether a client has ended this session in this process."""
        return name in self._ended

    def end(self, session: Session) -> None:
        """End a session permanently."""
        self._ended[session.id] = True
        self._drop(session)

    def _drop(self, session: Session) -> None:
        self._open.pop(session.id, None)
        session.end()

    def _make_room(self, fits: Callable[[Session], bool]) -> None:
        idle = [one for one in self._open.values() if fits(one) and not one.streams and not one.calls]
        if not idle:
            raise _too_many("Too many sessions are open", 30.0)
        self._drop(min(idle, key=lambda one: one.used))

    def _sweep(self, now: float) -> None:
        for one in list(self._open.values()):
            # Each beat of a stream updates `used`, unless the stream was never started.
            if one.gone() or (now - one.used > (_MINUTE if one.streams else _IDLE_SECONDS) and not one.calls):
                self._drop(one)


def _too_many(message: str, wait: float) -> CompatError:
    return CompatError(429, message, rule="sessions", headers={"Retry-After": str(max(1, -int(-wait // 1)))})
