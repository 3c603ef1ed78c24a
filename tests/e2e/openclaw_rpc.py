"""The gateway's own protocol over a WebSocket: a command of the host's would take seconds to start for every call."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

PROTOCOL = 4
ADMIN = ("operator.read", "operator.write", "operator.admin")


def call(
    port: int, token: str, method: str, params: dict[str, Any], *, scopes: Sequence[str] = ADMIN
) -> dict[str, Any]:
    """Call a method of a gateway on loopback; what it refuses is raised as `RuntimeError`."""
    return asyncio.run(_call(port, token, method, params, scopes))


def said_in_chat(port: int, token: str, messages: Sequence[tuple[str, str]], *, session: str) -> list[str]:
    """Send messages as a person at the gateway's own chat, each after the other; return what the chat then shows.

    Args:
        port: the gateway's.
        token: the gateway's.
        messages: what is sent, and a text by which what is shown last for it is known.
        session: the session key.
    """
    return asyncio.run(_said(port, token, messages, session))


async def _said(port: int, token: str, messages: Sequence[tuple[str, str]], session: str) -> list[str]:
    shown: list[str] = []
    async with _line(port, token, ADMIN) as line:
        for number, (text, last) in enumerate(messages):
            params = {"sessionKey": session, "message": text, "idempotencyKey": uuid.uuid4().hex}
            request = {"type": "req", "id": f"send-{number}", "method": "chat.send", "params": params}
            await line.send_json(request)
            begun = len(shown)
            while not any(last in one for one in shown[begun:]):
                frame = await line.receive_json()
                told = frame.get("payload") or {}
                if frame.get("event") == "chat" and told.get("state") == "final":
                    content = (told.get("message") or {}).get("content") or []
                    shown += [part["text"] for part in content if part.get("type") == "text"]
    return shown


async def _call(
    port: int, token: str, method: str, params: dict[str, Any], scopes: Sequence[str]
) -> dict[str, Any]:
    async with _line(port, token, scopes) as line:
        return await _asked(line, method, params)


@contextlib.asynccontextmanager
async def _line(
    port: int, token: str, scopes: Sequence[str]
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"ws://127.0.0.1:{port}", max_msg_size=0) as line,
    ):
        # The host's own helpers on the same machine come without a device of their own.
        client = {"id": "gateway-client", "version": "0", "platform": "linux", "mode": "backend"}
        hello = {
            "minProtocol": PROTOCOL, "maxProtocol": PROTOCOL, "client": client, "role": "operator",
            "scopes": list(scopes), "caps": [], "auth": {"token": token},
        }  # fmt: skip
        await _asked(line, "connect", hello)
        yield line


async def _asked(
    line: aiohttp.ClientWebSocketResponse, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    await line.send_json({"type": "req", "id": method, "method": method, "params": params})
    while True:
        frame = await line.receive_json()
        if frame.get("type") == "res" and frame.get("id") == method:
            if not frame["ok"]:
                raise RuntimeError(f"{method}: {frame.get('error')}")
            payload: dict[str, Any] = frame.get("payload") or {}
            return payload
