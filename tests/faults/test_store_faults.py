"""What a relayer over a real S3 server does under each fault of docs/operations/s3.md, and that it gets over it by itself."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from border import Border, border
from certificates import self_signed
from doubles.set_clocks import AheadClock
from fault_rows import DONE, FAULTS, LATE, READY, STARTS, UNAVAILABLE, Fault, locked, unversioned
from s3_proxy import S3Proxy, proxied
from s3_servers import CREDENTIALS, S3Server
from signed_calls import Gateway

from relayer.access.store_keys import open_store_key
from relayer.adapters.local_key import LocalKey
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.s3_store import S3Store, Timeouts
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.errors import StoreError
from relayer.log.objects import Layout, LogPorts
from relayer.operator.probe import probe_unless_known
from relayer.process import product_version
from relayer.testing.local_relayer import RELAYER_KEY

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations" / "s3.md"
# As in service, but a test has less time.
PATIENCE = Timeouts(connect=1.0, silence=1.0, call=3.0)
# A request answers within its deadline, plus what a busy machine may need.
SLACK = 2.0
PATIENT, HURRIED = (
    20_000,
    1500,
)  # ms: deadlines of requests that are to succeed or be refused, and of those that run into it


class _Named(MemoryStore):
    """A good store that says to be another."""

    def __init__(self, description: str) -> None:
        super().__init__(SystemClock())
        self._description = description

    @property
    def description(self) -> str:
        return self._description


@dataclass
class _Certificates:
    trusted: Path
    stranger: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> _Certificates:
    found = []
    for name in ("trusted", "stranger"):
        certificate, key = self_signed(tmp_path_factory.mktemp(name))
        both = certificate.with_name("both.pem")
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        found.append(both)
    return _Certificates(*found)


@pytest.fixture(scope="module")
def proxy(seaweed: S3Server, certificates: _Certificates) -> Iterator[S3Proxy]:
    with proxied(seaweed.url, certificates.trusted) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in (CREDENTIALS | {"AWS_CA_BUNDLE": str(certificates.trusted)}).items():
            patch.setenv(name, value)
        yield proxy


@dataclass
class _World:
    """A bucket, the way to it through the proxy and beside it, and what was sent and acknowledged."""

    seaweed: S3Server
    proxy: S3Proxy
    bucket: str
    gateway: Gateway
    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)

    def become(self, agent: str, *relayers: Border) -> None:
        """Go on as another agent, whose namespace is empty."""
        self.gateway = Gateway(self.gateway.root, agent, (agent,))
        self.sent, self.acknowledged = set(), set()
        for at in relayers:
            at.gateway = self.gateway

    @asynccontextmanager
    async def relayer(self, *, clean: bool = False, probe: str = "off") -> AsyncIterator[Border]:
        async with AsyncExitStack() as stack:
            clock = AheadClock()
            url = self.seaweed.url if clean else self.proxy.url
            store = await S3Store.open(
                self.bucket, clock=clock, endpoint_url=url, patience=Timeouts() if clean else PATIENCE
            )
            stack.push_async_callback(store.close)
            running = await stack.enter_async_context(
                border(store, clock, bucket=f"s3://{self.bucket}/team", endpoint_url=url, probe=probe)
            )
            yield running

    async def write(self, at: Border, text: str, deadline_ms: int) -> str:
        """Remember a text under an idempotency key of its own; returns status and code."""
        self.sent.add(text)
        began = time.monotonic()
        answer = await at.call(
            "POST",
            "/v1/memories",
            {"items": [{"text": text}], "idempotency_key": re.sub(r"\W+", "-", text)},
            extra={"x-deadline-ms": str(deadline_ms)},
        )
        assert time.monotonic() - began < deadline_ms / 1000 + SLACK
        # An item can be refused inside a 200.
        if answer.status_code == 200 and answer.json()["memories"][0]["status"] != "refused":
            self.acknowledged.add(text)
        return _said(answer.status_code, answer.json())

    async def recall(self, at: Border, deadline_ms: int, query: str = "harbour") -> tuple[str, set[str]]:
        began = time.monotonic()
        answer = await at.call(
            "POST",
            "/v1/recall",
            {"query": query, "floor": 0, "limit": 20},
            extra={"x-deadline-ms": str(deadline_ms)},
        )
        assert time.monotonic() - began < deadline_ms / 1000 + SLACK
        found = {memory["text"] for memory in answer.json().get("memories", ())}
        return _said(answer.status_code, answer.json()), found

    async def start(self) -> str:
        """Start another relayer as in service; returns what it says."""
        try:
            async with self.relayer(probe="cached"):
                return STARTS
        except StoreError as error:
            return f"`{error.code}`" if error.fix else "no fix is named"

    async def listed(self, at: Border) -> Counter[str]:
        answer = await at.call("GET", "/v1/memories?limit=100")
        assert answer.status_code == 200, answer.text
        return Counter(memory["text"] for memory in answer.json()["memories"])


def _said(status: int, body: dict[str, object]) -> str:
    return DONE if status == 200 else f"{status} `{body['code']}`"


def _deadline(said: str) -> int:
    return HURRIED if said == LATE else PATIENT


async def _ready(at: Border) -> str:
    answer = await at.http.get(f"{at.url}/ready")
    checks = answer.json()["checks"]
    assert answer.json()["ready"] is (answer.status_code == 200)
    if answer.status_code == 200:
        return READY
    if checks["store"] != "ok":
        code, _, fix = checks["store"].partition(": ")
        assert fix
        assert "127.0.0.1" not in fix
        return f"`{code}`"
    return "`clock`" if re.match(r"3[56]\d\d s away", checks["clock"]) else str(checks)


async def _record_probe(world: _World) -> None:
    """Put the record of a passed probe into the bucket: a probe of this server takes seconds, and is another test's."""
    named = _Named(f"s3://{world.bucket} at {world.proxy.url}")
    clock, randomness = SystemClock(), SystemRandomness()
    provider = LocalKey(RELAYER_KEY, randomness)
    keys = RelayerKeys.derive(await open_store_key(named, clock, randomness, provider))
    ports = LogPorts(named, clock, randomness, keys)
    await probe_unless_known(ports, product_version())
    for place in (Layout.relayer(), Layout.probed(keys.tag("probe", named.description, product_version()))):
        record = await named.get(place)
        world.seaweed.admin.put_object(Bucket=world.bucket, Key=f"team/{place}", Body=record.data)


@dataclass
class _Service:
    """A world, and two relayers in it: one that meets the faults, and one that reaches the store without any."""

    world: _World
    at: Border
    other: Border


@asynccontextmanager
async def _service(seaweed: S3Server, proxy: S3Proxy, fault: Fault | None = None) -> AsyncIterator[_Service]:
    bucket = f"fault-{secrets.token_hex(4)}"
    seaweed.admin.create_bucket(
        Bucket=bucket, ObjectLockEnabledForBucket=bool(fault and fault.bucket is locked)
    )
    if fault is not None:
        fault.bucket(seaweed.admin, bucket)
    world = _World(seaweed, proxy, bucket, Gateway())
    await _record_probe(world)
    async with world.relayer() as at, world.relayer(clean=True) as other:
        yield _Service(world, at, other)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(seaweed: S3Server, proxy: S3Proxy) -> AsyncIterator[_Service]:
    """Most faults befall one and the same relayer, one after the other."""
    async with _service(seaweed, proxy) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def service(
    fault: Fault, shared: _Service, seaweed: S3Server, proxy: S3Proxy, certificates: _Certificates
) -> AsyncIterator[_Service]:
    async with AsyncExitStack() as stack:
        own = fault.bucket is not unversioned
        chosen = await stack.enter_async_context(_service(seaweed, proxy, fault)) if own else shared
        chosen.world.become(fault.name.replace("_", "-"), chosen.at, chosen.other)
        yield chosen
        proxy.heal()
        if proxy.certificate != certificates.trusted:
            proxy.present(certificates.trusted)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_fault(fault: Fault, service: _Service, proxy: S3Proxy, certificates: _Certificates) -> None:
    world, at, other = service.world, service.at, service.other
    assert await world.write(at, "The harbour opens at six.", PATIENT) == DONE
    # What the relayer under test has to read, because another one wrote it.
    assert await world.write(other, "The harbour master is called Ines.", PATIENT) == DONE
    known = set(world.acknowledged)
    at.relayer.context.clock.ahead += 11.0

    fault.make(proxy, certificates.stranger)
    start, write, (recall, found), ready = await asyncio.gather(
        world.start(),
        world.write(at, "The harbour crane is blue.", _deadline(fault.write)),
        world.recall(at, _deadline(fault.recall)),
        _ready(at),
    )
    # A write that waits for the read of the recall ends as that does, if a busy machine lets the recall be first.
    writes = {fault.write, *([UNAVAILABLE] if (fault.write, fault.recall) == (LATE, UNAVAILABLE) else [])}
    assert write in writes
    assert (start, recall, ready) == (fault.start, fault.recall, fault.ready)
    assert known <= found or recall != DONE
    # What was acknowledged is in the store, whatever the fault: somebody who meets none reads it.
    assert world.acknowledged <= set(await world.listed(other))

    proxy.heal()
    if proxy.certificate != certificates.trusted:
        proxy.present(certificates.trusted)
    at.relayer.context.clock.ahead += 3.0
    assert await world.write(at, "The harbour crane is blue.", PATIENT) == DONE
    assert await world.recall(at, PATIENT) == (DONE, world.sent)
    assert await _ready(at) == READY
    assert start == STARTS or fault.bucket is locked or await world.start() == STARTS
    assert await world.listed(other) == Counter(world.sent)


def test_the_table_of_faults_says_what_the_tests_show() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    _, _, after = text.partition("| fault | what happens |")
    table = after.partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    # Faults that end alike share a row.
    assert sorted(
        (name, row[2].partition(":")[0].removeprefix("refuses "), *row[3:6])
        for row in rows
        for name in re.findall(r"`(\w+)`", row[0])
    ) == sorted((fault.name, fault.start, fault.write, fault.recall, fault.ready) for fault in FAULTS)
    assert all(len(row) == 7 and row[1] and row[6] for row in rows)
