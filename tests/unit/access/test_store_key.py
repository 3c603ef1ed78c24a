"""The store key: generated once, opened by one relayer key only, replaced by one write, and never generated again."""

from __future__ import annotations

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.accounts import Accounts
from relayer.access.store_key import StoredKey, open_store_key, probe, read_store_key, rotate_relayer_key
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.errors import UpgradeRequired, WrongRelayerKey
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Found
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.sealing import account_id

KEY, OTHER = b"k" * 32, b"o" * 32


def _key(relayer_key: bytes) -> LocalKey:
    return LocalKey(relayer_key, SeededRandomness(2))


async def _open(store: RecordingStore, clock: FakeClock, key: bytes = KEY, prefix: str = "") -> LogPorts:
    """Start a relayer with this key; return its ports."""
    layout, randomness = Layout(prefix), SystemRandomness()
    store_key = await open_store_key(store, layout, clock, randomness, _key(key))
    return LogPorts(store, clock, randomness, RelayerKeys.derive(store_key), layout)


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


async def test_another_prefix_is_another_deployment(store: RecordingStore, clock: FakeClock) -> None:
    first, second = await _open(store, clock), await _open(store, clock, OTHER, prefix="other")
    assert first.keys.tag("account") != second.keys.tag("account")


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
    assert await rotate_relayer_key(store, Layout(), clock, _key(KEY), _key(OTHER))
    assert store.count("swap") == 1
    after = await _open(store, clock, OTHER)
    assert bytes(after.keys.identity) == bytes(before.keys.identity)
    # The relayer that started with the old key is ready still.
    assert await probe(before)
    with pytest.raises(WrongRelayerKey, match="belongs to another relayer key"):
        await _open(store, clock)
    # Once more does no harm, and a key that opens nothing replaces nothing.
    assert not await rotate_relayer_key(store, Layout(), clock, _key(KEY), _key(OTHER))
    with pytest.raises(WrongRelayerKey):
        await rotate_relayer_key(store, Layout(), clock, _key(KEY), _key(b"x" * 32))
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
            await read_store_key(store, Layout(), _key(KEY))


async def test_every_changed_bit_of_the_wrapped_key_is_refused(
    store: RecordingStore, clock: FakeClock
) -> None:
    await _open(store, clock)
    stored = StoredKey.decode(await _data(store))
    for at in range(len(stored.wrapped)):
        changed = bytearray(stored.wrapped)
        changed[at] ^= 1
        assert await _key(KEY).unwrap(bytes(changed)) is None
