"""A relayer inside the caller's own process: the whole application behind a real socket, and a gateway that calls it.

    async with local_relayer() as relayer:
        await relayer.call("POST", "/v1/memories", {"items": [{"text": "The ferry leaves at nine."}]})
        found = await relayer.call("POST", "/v1/recall", {"query": "when does the ferry leave?"})

What blocks, such as a command or a `MemoryPlugin`, calls one on another thread: `threaded_relayer`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import web

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.bootstrap import Relayer, build
from relayer.http.server import Door, RelayerServer
from relayer.ports import Clock, Embedder, ObjectStore
from relayer.process import bind
from relayer.settings.config import RelayerSettings
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.recording_store import RecordingStore
from relayer.testing.signing_gateway import SigningGateway, encode

__all__ = ["RELAYER_KEY", "LocalRelayer", "local_relayer", "threaded_relayer"]

RELAYER_KEY = b"k" * 32


@dataclass
class LocalRelayer:
    """A relayer that answers at ``url``: its parts, its store with all that was asked of it, and who calls it."""

    relayer: Relayer
    store: RecordingStore
    url: str
    http: httpx.AsyncClient
    gateway: SigningGateway = field(default_factory=SigningGateway)

    @property
    def authority(self) -> str:
        """Host and port, as requests are signed for."""
        return self.url.removeprefix("http://")

    @property
    def fleet_key(self) -> bytes:
        """The public key that memory keys are sealed to."""
        return self.relayer.fleet.current().keys[0].public_key

    def memory_key(self, **changes: Any) -> str:
        """Return a sealed key for this relayer; ``changes`` are fields of `SealedKey`."""
        return self.gateway.memory_key(self.fleet_key, **changes)

    async def call(
        self,
        method: str,
        target: str,
        body: dict[str, Any] | bytes | None = None,
        *,
        key: bool | str = True,
        extra: dict[str, str] | None = None,
        gateway: SigningGateway | None = None,
        **broken: Any,
    ) -> httpx.Response:
        """Send a signed request; ``broken`` goes to `SigningGateway.headers`."""
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
            # What the relayer did not want to read must not keep the socket open any longer.
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def local_relayer(
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    *,
    embedder: Embedder | None = None,
    real_model: bool = False,
    port: int = 0,
    bucket: str | None = None,
    **settings: Any,
) -> AsyncIterator[LocalRelayer]:
    """Run a relayer on this machine's loopback address.

    Args:
        store: closed by the caller; a `MemoryStore`, if none is given.
        clock: the relayer's; the machine's, if none is given. Requests are signed by `LocalRelayer.gateway`'s.
        embedder: closed by the caller; a `HashingEmbedder`, if none is given.
        real_model: embed as the settings say, if no embedder is given; the local model takes a second to load.
        port: 0 for a free one.
        bucket: the setting ``store``.
        settings: more of `RelayerSettings`.
    """
    recording = RecordingStore(store or MemoryStore(SystemClock()))
    chosen = RelayerSettings(port=port, store=bucket, **settings)
    async with AsyncExitStack() as stack:
        listening = bind(chosen)
        stack.callback(listening.close)
        taken = listening.getsockname()[1]
        relayer = await stack.enter_async_context(
            build(
                chosen,
                RELAYER_KEY,
                port=taken,
                store=recording,
                embedder=embedder or (None if real_model else HashingEmbedder()),
                clock=clock,
            )
        )
        server = RelayerServer(relayer.handler)
        runner = web.ServerRunner(server, shutdown_timeout=2.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await Door(runner, listening, server).start()
        # Plain http: without certificates to load, a client is made in no time.
        http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=30, verify=False))  # noqa: S501
        yield LocalRelayer(relayer, recording, f"http://127.0.0.1:{taken}", http)


@contextmanager
def threaded_relayer(
    start: Callable[[], AbstractAsyncContextManager[LocalRelayer]] = local_relayer,
) -> Iterator[LocalRelayer]:
    """Run a relayer on a thread of its own; only its ``url`` and ``store`` are for other threads to use."""
    ready: Future[tuple[LocalRelayer, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with start() as relayer:
            ready.set_result((relayer, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=work, name="relayer", daemon=True)
    thread.start()
    relayer, stop = ready.result()
    try:
        yield relayer
    finally:
        stop()
        thread.join()
