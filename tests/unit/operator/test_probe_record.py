"""A passed probe counts for a week, for one server and one version; a failed one never."""

from __future__ import annotations

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.errors import BrokenPromise
from relayer.log.objects import Layout, LogPorts
from relayer.operator.probe import KEPT_MS, probe, probe_unless_known
from relayer.ports import CreateOutcome, Found
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore


class IgnoresConditions(MemoryStore):
    async def create(self, key: str, data: bytes) -> CreateOutcome:
        await self.delete(key)
        return await super().create(key, data)


def _ports(store, clock: FakeClock, key: bytes = b"k" * 32) -> LogPorts:
    return LogPorts(store, clock, SeededRandomness(1), RelayerKeys.derive(key), Layout("deep/er"))


async def test_a_second_start_within_a_week_asks_once(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    assert await probe_unless_known(ports, "1.0") is not None
    clock.jump(KEPT_MS / 1000 - 1)
    store.clear()
    assert await probe_unless_known(ports, "1.0") is None
    assert store.count() == 1


async def test_after_a_week_it_is_probed_again_and_recorded_anew(
    store: RecordingStore, clock: FakeClock
) -> None:
    ports = _ports(store, clock)
    await probe_unless_known(ports, "1.0")
    clock.jump(KEPT_MS / 1000)
    assert await probe_unless_known(ports, "1.0") is not None
    assert await probe_unless_known(ports, "1.0") is None


async def test_a_record_of_the_future_does_not_count(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    clock.jump(60)
    await probe_unless_known(ports, "1.0")
    clock.jump(-60)
    assert await probe_unless_known(ports, "1.0") is not None


async def test_another_version_or_another_key_asks_anew(store: RecordingStore, clock: FakeClock) -> None:
    await probe_unless_known(_ports(store, clock), "1.0")
    assert await probe_unless_known(_ports(store, clock), "1.1") is not None
    assert await probe_unless_known(_ports(store, clock, b"x" * 32), "1.0") is not None


async def test_always_means_always(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    for _ in range(2):
        assert await probe_unless_known(ports, "1.0", always=True) is not None


async def test_a_failed_probe_is_not_remembered(clock: FakeClock) -> None:
    store = IgnoresConditions(clock)
    for _ in range(2):
        with pytest.raises(BrokenPromise):
            await probe_unless_known(_ports(store, clock), "1.0")
    assert [info.key async for info in store.list("")] == []


async def test_a_forged_record_does_not_count(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    await probe_unless_known(ports, "1.0")
    [key] = [info.key async for info in store.list("deep/er/probed/")]
    found = await store.get(key)
    assert isinstance(found, Found)
    await store.swap(key, found.data[:-1] + bytes([found.data[-1] ^ 1]), found.etag)
    assert await probe_unless_known(ports, "1.0") is not None
    # The forgery was replaced.
    assert await probe_unless_known(ports, "1.0") is None


async def test_only_the_record_stays_and_everything_is_below_the_prefix(
    store: RecordingStore, clock: FakeClock
) -> None:
    await probe_unless_known(_ports(store, clock), "1.0")
    assert store.count() == store.count(prefix="deep/er/") > 0
    [key] = [info.key async for info in store.list("")]
    assert key.startswith("deep/er/probed/")


async def test_each_kept_promise_is_told_as_it_is_kept(clock: FakeClock) -> None:
    told: list[str] = []
    with pytest.raises(BrokenPromise):
        await probe(IgnoresConditions(clock), SeededRandomness(1), kept=told.append)
    assert len(told) == 1
    await probe(MemoryStore(clock), SeededRandomness(1), kept=told.append)
    assert len(told) == 6
