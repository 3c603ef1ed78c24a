"""Replicas agree on the keys of the day, and the past becomes unreadable."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.fleet import FleetKeys
from relayer.crypto import RelayerKeys
from relayer.errors import WrongRelayerKey
from relayer.lib.scheduler import Scheduler
from relayer.log.objects import LogPorts
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.sealed_keys import fleet_key_id

HOUR = 3600
NOON = int(datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


def _fleet(store: RecordingStore, clock: FakeClock, seed: int = 1, key: bytes = b"k" * 32) -> FleetKeys:
    return FleetKeys(LogPorts(store, clock, SeededRandomness(seed), RelayerKeys.derive(key)))


@pytest.fixture
async def fleet(store: RecordingStore, clock: FakeClock) -> FleetKeys:
    started = _fleet(store, clock)
    await started.start()
    return started


async def test_replicas_that_start_together_publish_the_same_key(
    store: RecordingStore, clock: FakeClock
) -> None:
    one, two = _fleet(store, clock, 1), _fleet(store, clock, 2)
    await one.start()
    await two.start()
    assert one.current().keys == two.current().keys
    assert store.count("create", "fleet/") == 1
    public = one.current().keys[0].public_key
    assert bytes(two.private(fleet_key_id(public)).public_key) == public


async def test_the_list_is_signed_now_and_says_until_when_its_keys_are_accepted(
    fleet: FleetKeys, clock: FakeClock
) -> None:
    current = fleet.current()
    current.verify(clock.now_ms() // 1000)
    assert current.identity == bytes(RelayerKeys.derive(b"k" * 32).identity.verify_key)
    assert current.issued_at == clock.now_ms() // 1000
    assert [key.day for key in current.keys] == ["20260310"]
    assert current.keys[0].not_after == datetime(2026, 3, 12, tzinfo=UTC).timestamp()
    await clock.advance(59)
    assert fleet.current() is current
    await clock.advance(2)
    assert fleet.current().issued_at == current.issued_at + 61


async def test_a_new_day_has_a_new_key_and_yesterday_s_is_accepted_until_its_end(
    fleet: FleetKeys, clock: FakeClock
) -> None:
    first = fleet_key_id(fleet.current().keys[0].public_key)
    await clock.advance(24 * HOUR)
    await fleet.refresh()
    assert [key.day for key in fleet.current().keys] == ["20260311", "20260310"]
    assert fleet.private(first) is not None
    await clock.advance(12 * HOUR)
    assert fleet.private(first) is None
    await fleet.refresh()
    assert [key.day for key in fleet.current().keys] == ["20260312", "20260311"]


async def test_private_halves_of_days_that_are_over_are_deleted(
    fleet: FleetKeys, store: RecordingStore, clock: FakeClock
) -> None:
    await clock.advance(2 * 24 * HOUR)
    await fleet.refresh()
    left = sorted([info.key async for info in store.list("fleet/")])
    assert left == ["fleet/20260312"]


async def test_a_replica_whose_clock_is_a_little_behind_opens_what_tomorrow_s_key_sealed(
    store: RecordingStore, clock: FakeClock
) -> None:
    await clock.advance(11.5 * HOUR)
    behind = _fleet(store, clock, 1)
    await behind.start()
    assert [key.day for key in behind.current().keys] == ["20260310"]
    ahead_clock = FakeClock(clock.now_ms() + HOUR * 1000)
    ahead = _fleet(store, ahead_clock, 2)
    await ahead.start()
    tomorrow = ahead.current().keys[0]
    assert tomorrow.day == "20260311"
    assert behind.private(fleet_key_id(tomorrow.public_key)) is not None


async def test_a_replica_far_ahead_deletes_nothing_that_others_need(
    fleet: FleetKeys, store: RecordingStore, clock: FakeClock
) -> None:
    far = FakeClock(clock.now_ms() + 10 * 24 * HOUR * 1000)
    await _fleet(store, far, 2).start()
    assert "fleet/20260310" in [info.key async for info in store.list("fleet/")]


async def test_a_key_sealed_by_another_relayer_key_stops_the_start(
    store: RecordingStore, clock: FakeClock
) -> None:
    await _fleet(store, clock).start()
    with pytest.raises(WrongRelayerKey):
        await _fleet(store, clock, 2, b"o" * 32).start()


async def test_unknown_keys_have_no_private_half(fleet: FleetKeys) -> None:
    assert fleet.private(bytes(8)) is None
    assert fleet.private(b"") is None


async def test_its_task_turns_the_key_over_by_itself(fleet: FleetKeys, clock: FakeClock) -> None:
    async with Scheduler(clock, SeededRandomness(1), lambda name, _: pytest.fail(name)) as scheduler:
        scheduler.start(fleet.task)
        await clock.advance(60)
        clock.jump(24 * HOUR)
        await clock.advance(61)
        assert fleet.current().keys[0].day == "20260311"


async def test_a_clock_that_is_set_back_over_midnight_leaves_a_key_to_seal_to(store: RecordingStore) -> None:
    clock = FakeClock(int(datetime(2026, 3, 10, 1, tzinfo=UTC).timestamp() * 1000))
    fleet = _fleet(store, clock)
    await fleet.start()
    (before,) = fleet.current().keys
    clock.jump(-3 * HOUR)
    assert fleet.current().keys == (before,)
    assert fleet.private(fleet_key_id(before.public_key)) is not None
