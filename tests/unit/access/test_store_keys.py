"""The store key: generated once, opened by one relayer key only, replaced by one write, and never generated again.

The fleet keys: replicas agree on the keys of the day, and the past becomes unreadable.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.accounts import Accounts
from relayer.access.store_keys import (
    FleetKeys,
    StoredKey,
    open_store_key,
    probe,
    read_store_key,
    rotate_relayer_key,
)
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.errors import UpgradeRequired, WrongRelayerKey
from relayer.lib.scheduler import Scheduler
from relayer.log.objects import LogPorts
from relayer.ports import Found
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.sealed_keys import fleet_key_id
from relayer.wire.sealing import account_id

KEY, OTHER = b"k" * 32, b"o" * 32


def _key(relayer_key: bytes) -> LocalKey:
    return LocalKey(relayer_key, SeededRandomness(2))


async def _open(store: RecordingStore, clock: FakeClock, key: bytes = KEY) -> LogPorts:
    """Start a relayer with this key; return its ports."""
    randomness = SystemRandomness()
    store_key = await open_store_key(store, clock, randomness, _key(key))
    return LogPorts(store, clock, randomness, RelayerKeys.derive(store_key))


async def _data(store: RecordingStore) -> bytes:
    found = await store.get("relayer")
    assert isinstance(found, Found)
    return found.data


async def test_the_first_start_writes_and_the_next_ones_read(store: RecordingStore, clock: FakeClock) -> None:
    identities = {bytes((await _open(store, clock)).keys.identity.verify_key) for _ in range(3)}
    assert (store.count("create"), len(identities)) == (1, 1)


async def test_another_key_is_told_whose_the_bucket_is_not(store: RecordingStore, clock: FakeClock) -> None:
    await _open(store, clock)
    with pytest.raises(WrongRelayerKey, match=r"belongs to another relayer key.*memrelay keys rotate"):
        await _open(store, clock, OTHER)
    assert store.count("swap") == store.count("delete") == 0


async def test_the_probe_gives_the_store_s_time_and_notices_that_the_object_is_gone(
    store: RecordingStore, clock: FakeClock
) -> None:
    ports = await _open(store, clock)
    assert (await probe(ports)).store_time == clock.now_ms()
    await store.delete("relayer")
    with pytest.raises(WrongRelayerKey):
        await probe(ports)


@pytest.mark.parametrize("key", [KEY, OTHER])
async def test_a_store_that_lost_its_store_key_gets_no_other_one(
    store: RecordingStore, clock: FakeClock, key: bytes
) -> None:
    ports = await _open(store, clock)
    await Accounts(ports).make(account_id(bytes(32)))
    kept = await _data(store)
    await store.delete("relayer")
    with pytest.raises(WrongRelayerKey, match=r"lost its object relayer.*store-key of a backup"):
        await _open(store, clock, key)
    await store.create("relayer", kept)
    assert await probe(await _open(store, clock))


async def test_a_rotation_is_one_write_and_leaves_the_store_key(
    store: RecordingStore, clock: FakeClock
) -> None:
    before = await _open(store, clock)
    assert await rotate_relayer_key(store, clock, _key(KEY), _key(OTHER))
    assert store.count("swap") == 1
    after = await _open(store, clock, OTHER)
    assert bytes(after.keys.identity) == bytes(before.keys.identity)
    # The relayer that started with the old key is ready still.
    assert await probe(before)
    with pytest.raises(WrongRelayerKey, match="belongs to another relayer key"):
        await _open(store, clock)
    # Once more does no harm, and a key that opens nothing replaces nothing.
    assert not await rotate_relayer_key(store, clock, _key(KEY), _key(OTHER))
    with pytest.raises(WrongRelayerKey):
        await rotate_relayer_key(store, clock, _key(KEY), _key(b"x" * 32))
    assert store.count("swap") == 1


async def test_a_damaged_store_key_and_one_of_a_newer_version_are_told_apart(
    store: RecordingStore, clock: FakeClock
) -> None:
    await _open(store, clock)
    data = await _data(store)
    for changed, error in ((data[:-5], WrongRelayerKey), (data[:1] + b"\x02" + data[2:], UpgradeRequired)):
        await store.delete("relayer")
        await store.create("relayer", changed)
        with pytest.raises(error):
            await read_store_key(store, _key(KEY))


async def test_every_changed_bit_of_the_wrapped_key_is_refused(
    store: RecordingStore, clock: FakeClock
) -> None:
    await _open(store, clock)
    stored = StoredKey.decode(await _data(store))
    for at in range(len(stored.wrapped)):
        changed = bytearray(stored.wrapped)
        changed[at] ^= 1
        assert await _key(KEY).unwrap(bytes(changed)) is None


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
