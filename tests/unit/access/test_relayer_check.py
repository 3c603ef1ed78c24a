"""A store belongs to the key it was first used with."""

from __future__ import annotations

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.accounts import Accounts
from relayer.access.relayer_check import check_relayer_key, probe
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.errors import WrongRelayerKey
from relayer.log.objects import Layout, LogPorts
from relayer.testing.fake_clock import FakeClock
from relayer.testing.recording_store import RecordingStore
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Right


def _ports(store: RecordingStore, clock: FakeClock, key: bytes = b"k" * 32, prefix: str = "") -> LogPorts:
    return LogPorts(store, clock, SeededRandomness(1), RelayerKeys.derive(key), Layout(prefix))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> RecordingStore:
    return RecordingStore(MemoryStore(clock))


async def test_the_first_start_writes_and_the_next_ones_read(store: RecordingStore, clock: FakeClock) -> None:
    for _ in range(3):
        await check_relayer_key(_ports(store, clock))
    assert store.count("create") == 1


async def test_another_key_is_told_whose_the_bucket_is_not(store: RecordingStore, clock: FakeClock) -> None:
    await check_relayer_key(_ports(store, clock))
    with pytest.raises(WrongRelayerKey, match="belongs to another relayer key"):
        await check_relayer_key(_ports(store, clock, b"o" * 32))
    assert store.count("swap") == store.count("delete") == 0


async def test_another_prefix_is_another_deployment(store: RecordingStore, clock: FakeClock) -> None:
    await check_relayer_key(_ports(store, clock))
    await check_relayer_key(_ports(store, clock, b"o" * 32, prefix="other"))


async def test_the_probe_gives_the_store_s_time_and_notices_that_the_object_is_gone(
    store: RecordingStore, clock: FakeClock
) -> None:
    await check_relayer_key(_ports(store, clock))
    assert await probe(_ports(store, clock)) == clock.now_ms()
    await store.delete("relayer")
    with pytest.raises(WrongRelayerKey):
        await probe(_ports(store, clock))


async def test_a_store_that_lost_its_constant_is_claimed_by_no_other_key(
    store: RecordingStore, clock: FakeClock
) -> None:
    ports = _ports(store, clock)
    await check_relayer_key(ports)
    root = RootKeys(b"r" * 32)
    identity = bytes(root.agent("researcher").identity.verify_key)
    account = bytes(root.account_identity.verify_key)
    certificate = Certificate(
        account, "researcher", identity, ("researcher",), tuple(Right), 0, 2**40, bytes(16)
    )
    await Accounts(ports).make(certificate.account)
    await store.delete("relayer")
    with pytest.raises(WrongRelayerKey, match="belongs to another relayer key"):
        await check_relayer_key(_ports(store, clock, b"o" * 32))
    await check_relayer_key(ports)
    assert await probe(ports) == clock.now_ms()
