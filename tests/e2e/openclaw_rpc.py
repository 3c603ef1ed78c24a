"""The gateway's own protocol over a WebSocket: a command of the host's would take seconds to start for every call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp

PROTOCOL = 4
ADMIN = ("operator.read", "operator.write", "operator.admin")


def call(
    port: int, token: str, method: str, params: dict[str, Any], *, scopes: Sequence[str] = ADMIN
) -> dict[str, Any]:
    """Call a method of a gateway on loopback; what it refuses is raised as `RuntimeError`."""
    return asyncio.run(_call(port, token, method, params, scopes))


async def _call(
    port: int, token: str, method: str, params: dict[str, Any], scopes: Sequence[str]
) -> dict[str, Any]:
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
        return await _asked(line, method, params)


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
