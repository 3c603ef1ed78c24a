"""A relayer without HTTP: services over a memory store, with an account, agents, and a clock that stands still."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
from doubles.seeded_randomness import SeededRandomness
from doubles.stated_relations import StatedRelations

from relayer.access.accounts import Access, Principal
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.extraction.statements import StatementExtractor
from relayer.lib.work import Deadline
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.context import Context
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.recording_store import RecordingStore
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Right

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
    root: RootKeys = field(default_factory=lambda: RootKeys(hashlib.sha256(b"a root secret").digest()))

    def principal(self, agent: str, *, nonce: bytes | None = None, body: bytes = b"") -> Principal:
        keys = self.root.agent(agent)
        certificate = Certificate(
            bytes(self.root.account_identity.verify_key),
            agent,
            bytes(keys.identity.verify_key),
            (agent, f"{agent}/*"),
            tuple(Right),
            0,
            2**40,
            bytes(16),
        )
        return Principal(
            certificate,
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

    async def another(self) -> House:
        """A second replica over the same store."""
        namespaces = OpenNamespaces(self.ctx.ports, self.embedder.model, self.calibration)
        return replace(self, ctx=replace(self.ctx, namespaces=namespaces))


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    """Of the hashing model, which no table knows: fitted once for the whole session."""
    return asyncio.run(calibrate(HashingEmbedder()))


@pytest.fixture
async def house(calibration) -> AsyncIterator[House]:
    clock = FakeClock()
    store = RecordingStore(MemoryStore(clock))
    embedder = HashingEmbedder()
    randomness = SeededRandomness(1)
    ports = LogPorts(store, clock, randomness, RelayerKeys.derive(hashlib.sha256(b"a relayer key").digest()))
    namespaces = OpenNamespaces(ports, embedder.model, calibration)
    relations = StatedRelations()
    ctx = Context(ports, embedder, StatementExtractor(), namespaces, relations=relations)
    built = House(clock, store, embedder, ctx, randomness, calibration, relations)
    yield built
    await built.ctx.namespaces.close(1.0)
