"""Traffic recorded three days ago opens nothing, not with everything that the relayer and its store hold today.

A tap between the gateway and the relayer records every byte. What it reads without any key, such as responses over plain
http, it had then; the question is what the sealed memory keys and the sealed bodies still give away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from border import Border, border
from bucket_dumps import VECTOR, Dump, dump_of
from nacl.public import PrivateKey

import gateway_plugin.calls.clock as gateway_clock
from gateway_plugin.plugin import AsyncMemoryPlugin
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import Found
from relayer.testing.local_relayer import RELAYER_KEY
from relayer.wire import codec as base64url
from relayer.wire.codec import NotAccepted, UnsealError
from relayer.wire.sealed_keys import SealedKey, named_fleet_key
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import KEY_HEADER, SIGNATURE_HEADER, RequestSignature, open_body

DAY = 24 * 3600
SECRET = bytes(range(32))
ACCOUNT = RootKeys(SECRET).account
KEY = "agent:researcher:main"
OLD = "I decided that the archive of the observatory moves to Thessaloniki in March."
NEW = "I decided that the dome of the observatory is painted green in October."
QUESTION = "Where does the archive of the observatory move?"


class ShiftedClock(SystemClock):
    """The relayer's clock and that of its store: this machine's, and some days."""

    days = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.days * DAY * 1000)


class GatewayClock(gateway_clock.SystemClock):
    """The same time, as gateways read it."""

    def __init__(self, clock: ShiftedClock) -> None:
        self.now = lambda: clock.now_ms() / 1000


@dataclass(frozen=True)
class Request:
    """A recorded request."""

    start: str
    headers: dict[str, str]
    body: bytes


class Tap:
    """Passes connections to a relayer and keeps every byte, in both directions."""

    def __init__(self) -> None:
        self.url = ""
        self.relayer_port = 0
        self._streams: list[tuple[bytearray, bytearray]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def sent(self) -> list[Request]:
        """All requests, in the order of their connections."""
        return [request for up, _ in self._streams for request in _requests(bytes(up))]

    @property
    def answered(self) -> bytes:
        """All bytes of responses."""
        return b"".join(bytes(down) for _, down in self._streams)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            # A connection that outlives the loop fails whichever test runs when it is collected.
            for writer in self._writers:
                writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relayer_reader, relayer_writer = await asyncio.open_connection("127.0.0.1", self.relayer_port)
        self._writers += [writer, relayer_writer]
        up, down = bytearray(), bytearray()
        self._streams.append((up, down))
        await asyncio.gather(_pass_on(reader, relayer_writer, up), _pass_on(relayer_reader, writer, down))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            record += chunk
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _requests(stream: bytes) -> Iterator[Request]:
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        start, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert "transfer-encoding" not in headers
        length = int(headers.get("content-length", "0"))
        yield Request(start, headers, stream[:length])
        stream = stream[length:]


@dataclass
class Site:
    """A relayer whose clock can be moved, and the tap in front of it."""

    relayer: Border
    clock: ShiftedClock
    tap: Tap
    folder: Path

    async def use(self, text: str) -> None:
        """Let a gateway remember a text, and recall."""
        environ = {
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder),
        }
        async with AsyncMemoryPlugin(
            self.tap.url, secret=SECRET.hex(), environ=environ, clock=GatewayClock(self.clock)
        ) as plugin:
            said = [{"role": "user", "content": text}]
            assert (await plugin.after_turn(said, session_key=KEY)).status == "queued"
            assert await plugin.flush(30)
            await plugin.before_turn(QUESTION, session_key=KEY, deadline=30)

    async def days_later(self, days: float) -> None:
        """Move the clock, and let the relayer do what it does every minute."""
        self.clock.days += days
        await self.relayer.relayer.fleet.refresh()

    async def dump(self) -> Dump:
        """Take everything that the store holds, with the relayer key."""
        store = self.relayer.store
        keys = [info.key async for info in store.list("")]
        found = {key: await store.get(key) for key in keys}
        objects = {key: read.data for key, read in found.items() if isinstance(read, Found)}
        return await dump_of(objects, RELAYER_KEY)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    clock, tap = ShiftedClock(), Tap()
    # Noon, so that no test runs across midnight.
    clock.days = 0.5 - clock.now_ms() / 1000 % DAY / DAY
    async with tap.listening():
        settings: dict[str, Any] = {"public_url": tap.url, "accounts": "open"}
        async with border(MemoryStore(clock), clock, **settings) as relayer:
            tap.relayer_port = int(relayer.url.rpartition(":")[2])
            yield Site(relayer, clock, tap, tmp_path)


def every_key(site: Site, dump: Dump) -> list[PrivateKey]:
    """Return everything of today that may open a sealed memory key: the fleet keys, and any other 32 bytes as one."""
    relayer = dump.relayer
    raw = [
        RELAYER_KEY,
        relayer.metadata.secret,
        bytes(relayer.identity),
        relayer.tokens[:32],
        relayer.tokens[32:],
    ]
    raw += [relayer._names, relayer._custody]
    named = {named_fleet_key(_sealed(request)) for request in site.tap.sent if KEY_HEADER in request.headers}
    in_memory = [key for one in named if (key := site.relayer.relayer.fleet.private(one)) is not None]
    return [*dump.fleet_keys(), *in_memory, *map(PrivateKey, raw)]


@dataclass(frozen=True)
class Loot:
    """What opens: secrets of namespaces, bodies of requests, and texts in the store."""

    secrets: frozenset[bytes]
    bodies: tuple[bytes, ...]
    stored: frozenset[str]


def open_all(traffic: Iterable[Request], keys: list[PrivateKey], dump: Dump) -> Loot:
    """Try keys on every recorded request, and what comes out on the store."""
    found: set[bytes] = set()
    bodies: list[bytes] = []
    for request in traffic:
        if KEY_HEADER not in request.headers:
            continue
        for key in keys:
            with suppress(NotAccepted):
                found.add(SealedKey.open(_sealed(request), key).secret)
    for request in traffic:
        if SIGNATURE_HEADER not in request.headers:
            continue
        nonce = RequestSignature.parse(request.headers[SIGNATURE_HEADER]).nonce
        for secret in {*found, *map(bytes, keys)}:
            with suppress(UnsealError):
                bodies.append(open_body(secret, nonce, request.body))
    return Loot(
        frozenset(found), tuple(bodies), frozenset(dump.opened_by(ACCOUNT, {*found, *map(bytes, keys)}))
    )


def _sealed(request: Request) -> bytes:
    return base64url.decode(request.headers[KEY_HEADER])


NOTHING = Loot(frozenset(), (), frozenset())


async def recorded(site: Site) -> list[Request]:
    """Use the relayer, and return what the tap recorded of it."""
    await site.use(OLD)
    traffic = site.tap.sent
    targets = {request.start.split()[1] for request in traffic if KEY_HEADER in request.headers}
    assert {"/v1/analyze", "/v1/recall"} <= targets
    assert site.tap.answered.count(b"HTTP/1.1 ") == len(traffic)
    assert not any(OLD.encode() in request.body for request in traffic)
    return traffic


async def test_traffic_of_three_days_ago_opens_with_no_key_of_today(site: Site) -> None:
    traffic = await recorded(site)
    of_then = (await site.dump()).fleet_keys()
    await site.days_later(3)
    await site.use(NEW)
    dump = await site.dump()
    assert dump.fleet_keys()
    assert open_all(traffic, every_key(site, dump), dump) == NOTHING
    # With the fleet key of then the same steps open all of it, and what was written since: a stolen one is forever.
    opened = open_all(traffic, of_then, dump)
    assert opened.secrets == {RootKeys(SECRET).agent("researcher").namespace_secret("researcher", 1)}
    assert any(OLD.encode() in body for body in opened.bodies)
    assert {OLD, NEW, VECTOR} <= opened.stored


@pytest.mark.parametrize(("days", "opens"), [(0, True), (1, True), (2, False), (30, False)])
async def test_the_store_holds_the_key_of_a_day_for_two_days(site: Site, days: int, *, opens: bool) -> None:
    traffic = await recorded(site)
    await site.days_later(days)
    dump = await site.dump()
    opened = open_all(traffic, every_key(site, dump), dump)
    assert any(OLD.encode() in body for body in opened.bodies) is opens
    assert (OLD in opened.stored) is opens


async def test_a_relayer_that_was_down_meanwhile_deletes_the_key_when_it_starts(site: Site) -> None:
    traffic = await recorded(site)
    site.clock.days += 3
    # The store is that of the relayer which has not noticed yet: a dump taken before any relayer runs opens the traffic.
    before = await site.dump()
    assert OLD in open_all(traffic, before.fleet_keys(), before).stored
    async with border(site.relayer.store, site.clock):
        dump = await site.dump()
    assert open_all(traffic, dump.fleet_keys(), dump) == NOTHING


async def test_todays_relayer_refuses_the_recorded_requests(site: Site) -> None:
    traffic = [request for request in await recorded(site) if KEY_HEADER in request.headers]
    await site.days_later(3)
    for request in traffic:
        method, target, _ = request.start.split()
        answer = await site.relayer.http.request(
            method, site.relayer.url + target, content=request.body, headers=request.headers
        )
        assert answer.status_code == 401, answer.text
        assert OLD not in answer.text
