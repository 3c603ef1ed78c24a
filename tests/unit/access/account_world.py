"""Accounts over a store in memory, for tests: as many processes as a test wants, certificates and revocations."""

from __future__ import annotations

from dataclasses import dataclass

from doubles.seeded_randomness import SeededRandomness
from signed_calls import certificate_of

from relayer.access.accounts import Accounts
from relayer.crypto import RelayerKeys
from relayer.errors import StoreUnavailable
from relayer.log.objects import LogPorts
from relayer.ports import Found
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Revocations, Right

ROOT = RootKeys(b"r" * 32)
KEYS = RelayerKeys.derive(b"k" * 32)


class FlakyStore(RecordingStore):
    """A store that can be away for reads."""

    down = False

    async def get(self, key, **options):
        if self.down:
            raise StoreUnavailable("down")
        return await super().get(key, **options)


@dataclass
class House:
    """One store and clock."""

    clock: FakeClock
    store: FlakyStore

    def ports(self, seed: int = 1) -> LogPorts:
        return LogPorts(self.store, self.clock, SeededRandomness(seed), KEYS)

    def accounts(self, seed: int = 1, **options) -> Accounts:
        return Accounts(self.ports(seed), **options)

    async def data(self, key: str) -> bytes:
        found = await self.store.get(key)
        assert isinstance(found, Found)
        return found.data

    async def put(self, key: str, data: bytes) -> None:
        await self.store.delete(key)
        await self.store.create(key, data)


def certificate(root: RootKeys = ROOT, agent: str = "researcher", serial: bytes = bytes(16)) -> Certificate:
    return certificate_of(root, agent, rights=(Right.READ,), serial=serial)


def revocations(counter: int, root: RootKeys = ROOT, **lists) -> bytes:
    return Revocations(bytes(root.account_identity.verify_key), counter, **lists).issue(root.account_identity)
