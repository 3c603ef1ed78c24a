"""A relayer inside the caller's own process, for tests: the whole application on a real socket, and a gateway that calls it.

    async with local_relayer() as relayer:
        await relayer.call("POST", "/v1/memories", {"items": [{"text": "The ferry leaves at nine."}]})
        found = await relayer.call("POST", "/v1/recall", {"query": "when does the ferry leave?"})

Blocking code, such as a command or a `MemoryPlugin`, needs the relayer on another thread: `threaded_relayer`.
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
from relayer.http.server import Listener, RelayerServer
from relayer.ports import Clock, Embedder, ObjectStore, RelationReader
from relayer.process import bind
from relayer.settings.config import RelayerSettings
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.recording_store import RecordingStore
from relayer.testing.signing_gateway import SigningGateway, encode

RELAYER_KEY = b"k" * 32


@dataclass
class LocalRelayer:
    """A running relayer at ``url``, with its parts, its recording store, a client and a gateway."""

    relayer: Relayer
    store: RecordingStore
    url: str
    http: httpx.AsyncClient
    gateway: SigningGateway = field(default_factory=SigningGateway)

    @property
    def authority(self) -> str:
        """Host and port, as requests sign them."""
        return self.url.removeprefix("http://")

    @property
    def fleet_key(self) -> bytes:
        """The public key that memory keys are sealed for."""
        return self.relayer.fleet.current().keys[0].public_key

    def memory_key(self, **changes: Any) -> str:
        """Return a sealed key for this relayer as a header value; ``changes`` are fields of `SealedKey`."""
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
        """Send a signed request.

        A body is encoded as JSON unless it is bytes. ``key`` says whether to send a memory-key, or is the one to send;
        ``broken`` are further arguments of `SigningGateway.headers`.
        """
        raw = encode(body)
        memory_key = key if isinstance(key, str) else (self.memory_key() if key else "")
        headers = (gateway or self.gateway).headers(
            method, self.authority, target, raw, memory_key=memory_key, **broken
        )
        headers |= extra or {}
        return await self.http.request(method, self.url + target, content=raw, headers=headers)

    async def raw(self, request: bytes, *, most: int = 65536) -> bytes:
        """Send bytes and return the response, up to the end of its head or until the relayer closes the connection."""
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
            # Request data that the relayer does not read must not keep the socket open.
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def local_relayer(
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    *,
    embedder: Embedder | None = None,
    relations: RelationReader | None = None,
    real_model: bool = False,
    port: int = 0,
    bucket: str | None = None,
    **settings: Any,
) -> AsyncIterator[LocalRelayer]:
    """Run a relayer on this machine's loopback address.

    Args:
        store: closed by the caller; by default a new `MemoryStore`.
        clock: the relayer's clock; by default the machine's. Requests are signed by the clock of `LocalRelayer.gateway`.
        embedder: closed by the caller; by default a new `HashingEmbedder`.
        relations: instead of the reader that belongs to the embedder.
        real_model: create the embedder from the settings, if none is given; the local model takes a second to load.
        port: 0 takes any free port.
        bucket: the setting ``store``.
        settings: further settings, see `RelayerSettings`.
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
                relations=relations,
                clock=clock,
            )
        )
        server = RelayerServer(relayer.handler)
        runner = web.ServerRunner(server, shutdown_timeout=2.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await Listener(runner, listening, server).start()
        # Only plain HTTP is used; without certificates to load, creating a client takes no time.
        http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=30, verify=False))  # noqa: S501
        yield LocalRelayer(relayer, recording, f"http://127.0.0.1:{taken}", http)


@contextmanager
def threaded_relayer(
    start: Callable[[], AbstractAsyncContextManager[LocalRelayer]] = local_relayer,
) -> Iterator[LocalRelayer]:
    """Run a relayer on its own thread; other threads may only use its ``url`` and ``store``."""
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
