"""The HTTP form of the server: reachable from this machine only, with a token for each client and a limit on sessions.

It supports Streamable HTTP and, for older clients, the stream of server-sent events (SSE) that preceded it. A token
belongs to an agent, so two clients with tokens of different agents never see each other's memories. Needs the extra
``memrelay[mcp]``.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Final, cast

import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gateway_plugin.hosting import Clock
from gateway_plugin.hosts.mcp.memory import ToolCaller
from relayer.wire.connections import ConnectionLimits, Connections, connections_within_files

PATH: Final = "/mcp"
SSE_PATH: Final = "/sse"
_MESSAGES_PATH: Final = "/messages/"
MAX_SESSIONS: Final = 1000
MAX_SESSIONS_OF_ONE: Final = 16
MAX_NEW_A_MINUTE: Final = 30
IDLE_SECONDS: Final = 30 * 60
MAX_CONNECTIONS: Final = 512
_BACKLOG: Final = 64
_LOOK_SECONDS: Final = 1.0
_MINUTE: Final = 60.0
_CALLER: Final = "memrelay.caller"
_SESSION_HEADER: Final = b"mcp-session-id"
_NAMESPACE_HEADERS: Final = (b"x-memrelay-namespace", b"x-memwal-namespace")
_UNAUTHORISED: Final = -32001
_TOO_MANY: Final = -32000

AgentOf = Callable[[str], str | None]
"""Returns the agent of a token, or None for an unknown token."""


@dataclass(slots=True)
class _Client:
    """The clients of one agent: open sessions with the time of their last use, and the times when the newest were opened."""

    sessions: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    opened: deque[float] = field(default_factory=deque)


class Guard:
    """Middleware that requires a token, identifies the caller by it, and limits sessions."""

    def __init__(self, app: ASGIApp, agent_of: AgentOf, clock: Clock) -> None:
        self._app = app
        self._agent_of = agent_of
        self._clock = clock
        self._clients: dict[str, _Client] = {}
        self.connections = Connections(ConnectionLimits(most=connections_within_files(MAX_CONNECTIONS)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        agent = self._agent_of(token.strip()) if kind.lower() == "bearer" else None
        if agent is None:
            said = "no token, or an unknown one: memrelay-gateway mcp token --agent NAME prints one"
            challenge = (b"www-authenticate", b'Bearer realm="memrelay", error="invalid_token"')
            await _refuse(send, 401, _UNAUTHORISED, said, challenge)
            return
        self.connections.accepted(scope.get("client"), agent)
        client = self._clients.setdefault(agent, _Client())
        session = headers.get(_SESSION_HEADER)
        others = (one for name, one in self._clients.items() if name != agent)
        if session is not None and any(session in other.sessions for other in others):
            await _refuse(send, 403, _UNAUTHORISED, "this session was opened with another token")
            return
        streams = scope["path"] == SSE_PATH
        opens = streams or (session is None and scope["method"] == "POST" and scope["path"] == PATH)
        if opens and (wait := self._full(client)):
            retry = (b"retry-after", str(math.ceil(wait)).encode())
            await _refuse(
                send, 429, _TOO_MANY, "too many sessions of this token are open, or were opened", retry
            )
            return
        named = next((headers[name] for name in _NAMESPACE_HEADERS if headers.get(name)), b"")
        scope[_CALLER] = ToolCaller(agent, named.decode("latin-1").strip())
        # The SDK uses this user to restrict a session to the client that opened it.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=agent, scopes=[]))
        if streams:
            await self._streamed(client, scope, receive, send)
        else:
            await self._app(scope, receive, self._noting(send, client, session, scope["method"]))

    async def _streamed(self, client: _Client, scope: Scope, receive: Receive, send: Send) -> None:
        name = secrets.token_bytes(16)
        now = self._clock.monotonic()
        client.sessions[name] = now
        client.opened.append(now)
        try:
            await self._app(scope, receive, send)
        finally:
            client.sessions.pop(name, None)

    def _full(self, client: _Client) -> float:
        """Return for how many seconds no session may be opened; 0 if one may be opened now."""
        now = self._clock.monotonic()
        while client.sessions and next(iter(client.sessions.values())) < now - IDLE_SECONDS:
            client.sessions.popitem(last=False)
        while client.opened and client.opened[0] <= now - _MINUTE:
            client.opened.popleft()
        if len(client.opened) >= MAX_NEW_A_MINUTE:
            return client.opened[0] + _MINUTE - now
        return _MINUTE if len(client.sessions) >= MAX_SESSIONS_OF_ONE else 0.0

    def _noting(self, send: Send, client: _Client, session: bytes | None, method: str) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                now = self._clock.monotonic()
                opened = dict(message.get("headers", [])).get(_SESSION_HEADER)
                ended = session is not None and (
                    message["status"] == 404 or (method == "DELETE" and message["status"] < 300)
                )
                if ended and session is not None:
                    client.sessions.pop(session, None)
                elif (used := opened or session) is not None and message["status"] < 400:
                    if used not in client.sessions and session is None:
                        client.opened.append(now)
                    client.sessions[used] = now
                    client.sessions.move_to_end(used)
            await send(message)

        return noting


def caller_of(ctx: ServerRequestContext[Any, Any]) -> ToolCaller:
    """Return the sender of the HTTP request of a context, as recorded by the guard."""
    scope = ctx.request.scope if ctx.request is not None else {}
    found: ToolCaller = scope[_CALLER]
    return found


class _Streams:
    """The older transport: a stream of events, and the messages that a client posts separately."""

    def __init__(self, server: Server[dict[str, Any]], security: TransportSecuritySettings) -> None:
        self._server = server
        self._transport = SseServerTransport(_MESSAGES_PATH, security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == _MESSAGES_PATH:
            await self._transport.handle_post_message(scope, receive, send)
            return
        async with self._transport.connect_sse(scope, receive, send) as (reading, writing):
            await self._server.run(reading, writing, self._server.create_initialization_options())


def application(server: Server[dict[str, Any]], agent_of: AgentOf, clock: Clock) -> Guard:
    """Return the HTTP application: the protocol at `PATH` and `SSE_PATH`, behind the guard.

    Requests with a ``Host`` or ``Origin`` of another machine are refused, so that web pages in a browser cannot use it.
    """
    hosts = ("127.0.0.1:*", "localhost:*", "[::1]:*")
    security = TransportSecuritySettings(
        allowed_hosts=list(hosts), allowed_origins=[f"http://{host}" for host in hosts]
    )
    streams = _Streams(server, security)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=IDLE_SECONDS,
        transport_security=security,
        custom_starlette_routes=[
            Route(SSE_PATH, streams, methods=["GET"]),
            Route(_MESSAGES_PATH, streams, methods=["POST"]),
        ],
    )
    return Guard(app, agent_of, clock)


def _counting(connections: Connections) -> type[H11Protocol]:
    """Return uvicorn's protocol, extended to limit connections and the time of request heads before tokens are checked."""

    class Counting(H11Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(cast("asyncio.Transport", transport))
            host = self.client[0] if self.client else ""
            # The guard identifies a connection by its client address, too.
            if not connections.enter(self.client, self.transport.abort, host, self.loop.time()):
                self.transport.abort()

        def data_received(self, data: bytes) -> None:
            connections.heard(self.client, self.loop.time())
            super().data_received(data)
            # There is no cycle before the first request head.
            request = cast("RequestResponseCycle | None", self.cycle)
            if request is not None and not request.response_complete:
                connections.asked(self.client)

        def on_response_complete(self) -> None:
            connections.answered(self.client)
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.leave(self.client)
            super().connection_lost(exc)

    return Counting


async def serve_http(app: Guard, listening: socket) -> None:
    """Serve until the process receives a signal to end."""
    config = uvicorn.Config(
        app,
        http=_counting(app.connections),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=3,
        server_header=False,
        # Up to this many connections may be accepted before the first is counted; the reserved files suffice for them.
        backlog=_BACKLOG,
    )

    async def end_late() -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            app.connections.end_late(loop.time())

    watching = asyncio.create_task(end_late())
    try:
        await uvicorn.Server(config).serve([listening])
    finally:
        watching.cancel()


async def _refuse(send: Send, status: int, code: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}).encode()
    length = (b"content-length", str(len(body)).encode())
    start = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
