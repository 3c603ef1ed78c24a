"""A relayer inside the test's own process, behind a real socket, and a gateway that calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import web
from signed_calls import Gateway, encode

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.bootstrap import Relayer, build
from relayer.config import RelayerSettings
from relayer.http.server import RelayerServer
from relayer.process import bind
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.recording_store import RecordingStore


@dataclass
class Border:
    """A relayer inside this process, behind a real socket, and a gateway that calls it."""

    relayer: Relayer
    store: RecordingStore
    url: str
    http: httpx.AsyncClient
    gateway: Gateway = field(default_factory=Gateway)

    @property
    def authority(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def fleet_key(self) -> bytes:
        return self.relayer.fleet.current().keys[0].public_key

    def memory_key(self, **changes: Any) -> str:
        return self.gateway.memory_key(self.fleet_key, **changes)

    async def call(
        self,
        method: str,
        target: str,
        body: dict[str, Any] | bytes | None = None,
        *,
        key: bool | str = True,
        extra: dict[str, str] | None = None,
        gateway: Gateway | None = None,
        **broken: Any,
    ) -> httpx.Response:
        """Send a signed request; ``broken`` goes to `Gateway.headers`."""
        raw = encode(body)
        memory_key = key if isinstance(key, str) else (self.memory_key() if key else "")
        headers = (gateway or self.gateway).headers(
            method, self.authority, target, raw, memory_key=memory_key, **broken
        )
        headers |= extra or {}
        return await self.http.request(method, self.url + target, content=raw, headers=headers)

    async def raw(self, request: bytes, *, most: int = 65536) -> bytes:
        """Send bytes and return what comes back until the relayer closes or pauses."""
        host, _, port = self.authority.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            await writer.drain()
            answer = b""
            async with asyncio.timeout(10):
                while b"\r\n\r\n" not in answer:
                    chunk = await reader.read(most)
                    if not chunk:
                        break
                    answer += chunk
            return answer
        finally:
            # What the relayer did not want to read must not keep the socket open beyond the test.
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def border(
    store: Any = None, clock: Any = None, *, bucket: str | None = None, embedder: Any = None, **settings: Any
) -> AsyncIterator[Border]:
    """Run a relayer over a memory store on a free port of this machine; ``bucket`` is the setting ``store``."""
    recording = RecordingStore(store or MemoryStore(SystemClock()))
    chosen = RelayerSettings(port=0, store=bucket, **settings)
    async with AsyncExitStack() as stack:
        listening = bind(chosen)
        stack.callback(listening.close)
        port = listening.getsockname()[1]
        relayer = await stack.enter_async_context(
            build(
                chosen,
                b"k" * 32,
                port=port,
                store=recording,
                embedder=embedder or HashingEmbedder(),
                clock=clock,
            )
        )
        runner = web.ServerRunner(RelayerServer(relayer.front), shutdown_timeout=2.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listening).start()
        # Plain http: without certificates to load, a client is made in no time.
        http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=30, verify=False))
        yield Border(relayer, recording, f"http://127.0.0.1:{port}", http)
