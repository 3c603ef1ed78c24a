"""A relayer without HTTP: services over a memory store, with an account, agents, and a clock that stands still."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from doubles.seeded_randomness import SeededRandomness
from doubles.stated_relations import StatedRelations
from signed_calls import certificate_of

from relayer.access.accounts import Access, Principal
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.extraction.statements import StatementExtractor
from relayer.lib.work import Deadline
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import CacheLimits, OpenNamespaces
from relayer.namespaces.context import Context
from relayer.ports import ObjectStore
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import RecordingStore
from relayer.use_cases.memories import list_memories
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import Memory, RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys

MINUTE_MS = 60_000


@dataclass
class House:
    """One relayer process and the gateways that call it."""

    clock: FakeClock
    store: RecordingStore
    embedder: HashingEmbedder
    ctx: Context
    randomness: SeededRandomness
    calibration: Calibration
    relations: StatedRelations
    others: list[OpenNamespaces] = field(default_factory=list)
    root: RootKeys = field(default_factory=lambda: RootKeys(hashlib.sha256(b"a root secret").digest()))

    def principal(self, agent: str, *, nonce: bytes | None = None, body: bytes = b"") -> Principal:
        return Principal(
            certificate_of(self.root, agent, agent, f"{agent}/*"),
            nonce or self.randomness.bytes(16),
            self.clock.now_ms() + 2 * MINUTE_MS,
            hashlib.sha256(body).digest(),
        )

    def access(
        self,
        agent: str = "researcher",
        *,
        nonce: bytes | None = None,
        body: bytes = b"",
        custody: Custody = Custody.AGENT,
        generation: int = 0,
        secret: bytes | None = None,
    ) -> Access:
        return Access(
            self.principal(agent, nonce=nonce, body=body),
            agent,
            generation,
            custody,
            self.clock.now_ms() + 10 * MINUTE_MS,
            secret or self.root.agent(agent).namespace_secret(agent, generation),
        )

    def deadline(self, seconds: float = 30) -> Deadline:
        return Deadline.after(self.clock, seconds)

    async def call(
        self,
        use_case: Callable[..., Awaitable[Any]],
        *given: Any,
        agent: str = "researcher",
        access: Access | Principal | None = None,
        **named: Any,
    ) -> Any:
        """Let an agent ask for something, as a route does."""
        access = access or self.access(agent)
        return await use_case(self.ctx, access, *given, **named, deadline=self.deadline())

    async def listed(self, *states: str, agent: str = "researcher") -> list[Memory]:
        """The newest hundred memories, live ones unless other states are named."""
        asked = {"limit": 100, "cursor": None, "kinds": (), "states": states}
        return list((await self.call(list_memories, agent=agent, **asked)).memories)

    async def put(self, *texts: str, agent: str = "researcher", **fields: object) -> list[str]:
        """Store texts by hand, and return their ids."""
        request = RememberRequest(items=[{"text": text, **fields} for text in texts])
        return [one.id for one in (await self.call(remember, request, agent=agent)).memories]

    async def found(self, query: str, *, agent: str = "researcher", **fields: Any) -> list[str]:
        """The texts that a recall finds, however little they are about the query."""
        request = RecallRequest(query=query, **{"floor": 0, **fields})
        return [hit.text for hit in (await self.call(recall, request, agent=agent)).memories]

    async def another(self, limits: CacheLimits | None = None, store: ObjectStore | None = None) -> House:
        """A second replica, over the same store unless another is given, which ends with this one."""
        ports = replace(self.ctx.ports, store=store) if store else self.ctx.ports
        namespaces = OpenNamespaces(ports, self.embedder.model, self.calibration, limits)
        self.others.append(namespaces)
        ctx = replace(self.ctx, ports=ports, namespaces=namespaces)
        return replace(self, store=store or self.store, ctx=ctx)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> RecordingStore:
    return RecordingStore(MemoryStore(clock))


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    """Of the hashing model, which no table knows: fitted once for the whole session."""
    return asyncio.run(calibrate(HashingEmbedder()))


@pytest.fixture
async def house(clock: FakeClock, store: RecordingStore, calibration: Calibration) -> AsyncIterator[House]:
    embedder = HashingEmbedder()
    randomness = SeededRandomness(1)
    ports = LogPorts(store, clock, randomness, RelayerKeys.derive(hashlib.sha256(b"a relayer key").digest()))
    namespaces = OpenNamespaces(ports, embedder.model, calibration)
    relations = StatedRelations()
    ctx = Context(ports, embedder, StatementExtractor(), namespaces, relations=relations)
    built = House(clock, store, embedder, ctx, randomness, calibration, relations)
    yield built
    for each in (namespaces, *built.others):
        await each.close(1.0)
