"""A relayer inside the caller's own process, for tests: the whole application on a real socket, and a gateway that calls it.

    async with local_relayer() as relayer:
        await relayer.call("POST", "/v1/memories", {"items": [{"text": "The ferry leaves at nine."}]})
        found = await relayer.call("POST", "/v1/recall", {"query": "when does the ferry leave?"})

`SigningGateway` signs requests like a real gateway, and can break each rule on request. `RecordingStore` records the requests to
the store.

Blocking code, such as a command or a `MemoryPlugin`, needs the relayer on another thread: `threaded_relayer`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from aiohttp import web
from nacl.signing import SigningKey

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.bootstrap import Relayer, build
from relayer.http.server import Listener, RelayerServer
from relayer.ports import Clock, Embedder, ObjectStore, RelationReader, T, WrappedStore
from relayer.process import bind
from relayer.settings.config import RelayerSettings
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.sealed_keys import SealedKey
from relayer.wire.sealing import FIRST_GENERATION, RootKeys
from relayer.wire.signing import Certificate, Right


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One request: the method of the port, its key or prefix, and the number of bytes to write."""

    operation: str
    key: str
    size: int = 0


class RecordingStore(WrappedStore):
    """Wraps an object store and records its requests in order."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: list[StoreCall] = []

    def count(self, operation: str | None = None, prefix: str = "") -> int:
        """Return the number of requests of ``operation`` (None counts all) for keys that start with ``prefix``."""
        return sum(operation in {None, call.operation} and call.key.startswith(prefix) for call in self.calls)

    def clear(self) -> None:
        """Delete the recorded requests."""
        self.calls.clear()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Record the request and make it."""
        self.calls.append(StoreCall(operation, key, len(data)))
        return await ask()


AGENT = "researcher"


@dataclass(frozen=True)
class SigningGateway:
    """One agent of an account, with the keys to sign its requests.

    Args:
        made: start of the certificate's validity, in seconds since the epoch; 0 takes the current time.
    """

    root: RootKeys = field(default_factory=lambda: RootKeys(secrets.token_bytes(32)))
    agent: str = AGENT
    namespaces: tuple[str, ...] = (AGENT, f"{AGENT}/*")
    rights: tuple[Right, ...] = (Right.READ, Right.WRITE)
    clock: Clock = field(default_factory=SystemClock)
    made: int = 0
    serial: bytes = bytes(16)

    def __post_init__(self) -> None:
        # All requests use the same certificate, so that the relayer can cache it.
        object.__setattr__(self, "made", self.made or self.now)

    @property
    def now(self) -> int:
        """The time of signing, in seconds since the epoch; read again for each request, because signatures expire."""
        return self.clock.now_ms() // 1000

    @property
    def identity(self) -> SigningKey:
        """The agent's signing key."""
        return self.root.agent(self.agent).identity

    def certificate(self, **changes: Any) -> str:
        """Return the certificate as a header value; ``changes`` are fields of `Certificate`."""
        certificate = Certificate(
            account_key=bytes(self.root.account_identity.verify_key),
            agent=self.agent,
            agent_key=bytes(self.identity.verify_key),
            namespaces=self.namespaces,
            rights=self.rights,
            not_before=self.made - 60,
            not_after=self.made + 24 * 3600,
            serial=self.serial,
        )
        return base64url.encode(replace(certificate, **changes).issue(self.root.account_identity))

    def memory_key(self, fleet_key: bytes, **changes: Any) -> str:
        """Return a sealed key as a header value; ``changes`` are fields of `SealedKey`."""
        namespace = changes.get("namespace", self.agent)
        sealed = SealedKey(
            account=self.root.account,
            agent_key=bytes(self.identity.verify_key),
            namespace=namespace,
            generation=FIRST_GENERATION,
            not_after=self.now + 600,
            secret=self.root.agent(self.agent).namespace_secret(namespace, FIRST_GENERATION),
        )
        return base64url.encode(replace(sealed, **changes).seal(fleet_key))

    def headers(
        self,
        method: str,
        authority: str,
        target: str,
        body: bytes = b"",
        *,
        memory_key: str = "",
        certificate: str | None = None,
        created: int | None = None,
        window: int = 120,
        nonce: bytes | None = None,
        identity: SigningKey | None = None,
        digest_of: bytes | None = None,
    ) -> dict[str, str]:
        """Return the headers of a signed request. Every argument after ``memory_key`` can be used to break a rule."""
        certificate = self.certificate() if certificate is None else certificate
        digest = hashlib.sha256(body if digest_of is None else digest_of).digest()
        signature = signing.sign(
            identity or self.identity,
            method=method,
            authority=authority,
            target=target,
            body_sha256=digest,
            created=self.now if created is None else created,
            nonce=nonce or secrets.token_bytes(16),
            certificate=certificate,
            memory_key=memory_key,
            window=window,
        )
        headers = {
            signing.CERTIFICATE_HEADER: certificate,
            signing.SIGNATURE_HEADER: signature.header(),
            signing.DIGEST_HEADER: signing.content_digest(digest),
        }
        if memory_key:
            headers[signing.KEY_HEADER] = memory_key
        if body:
            headers["content-type"] = "application/json"
        return headers


def encode(body: Mapping[str, Any] | bytes | None) -> bytes:
    """Return a body as the bytes that are signed and sent."""
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


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

    async def raw(self, request: bytes) -> bytes:
        """Send bytes and return the response, up to the end of its head or until the relayer closes the connection."""
        host, _, port = self.authority.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            await writer.drain()
            answer = b""
            async with asyncio.timeout(10):
                while b"\r\n\r\n" not in answer:
                    chunk = await reader.read(65536)
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
