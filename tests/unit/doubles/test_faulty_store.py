from __future__ import annotations

import pytest
from doubles.faulty_store import Faults, FaultyStore

from relayer.adapters.memory_store import MemoryStore
from relayer.errors import StoreFull, StoreThrottled, StoreUnavailable
from relayer.ports import Absent, Created, Found, Throttled, Unchanged, Unknown
from relayer.testing.fake_clock import FakeClock

NOW = 1_000_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def inner(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def store(inner: MemoryStore, clock: FakeClock) -> FaultyStore:
    return FaultyStore(inner, clock=clock, seed=1)


async def test_without_faults_it_is_the_inner_store(store: FaultyStore, inner: MemoryStore) -> None:
    created = await store.create("a", b"1")
    assert isinstance(created, Created)
    assert await store.get("a") == await inner.get("a") == Found(b"1", created.etag, NOW)
    assert [info.key async for info in store.list("")] == ["a"]
    assert await store.versions("a") == await store.purge("a") == 1


async def test_down_fails_everything_and_changes_nothing(store: FaultyStore, inner: MemoryStore) -> None:
    store.down = True
    for request in (store.get("a"), store.create("a", b""), store.swap("a", b"", "e"), store.delete("a")):
        with pytest.raises(StoreUnavailable):
            await request
    with pytest.raises(StoreUnavailable):
        [info async for info in store.list("")]
    store.down = False
    assert isinstance(await store.get("a"), Absent)


async def test_full_refuses_writes_and_serves_reads(store: FaultyStore) -> None:
    created = await store.create("a", b"1")
    assert isinstance(created, Created)
    store.full = True
    with pytest.raises(StoreFull):
        await store.create("b", b"")
    with pytest.raises(StoreFull):
        await store.swap("a", b"2", created.etag)
    assert isinstance(await store.get("a"), Found)
    await store.delete("a")


async def test_throttled_writes_are_values_and_reads_raise(store: FaultyStore, inner: MemoryStore) -> None:
    store.faults = Faults(throttled=1)
    assert isinstance(await store.create("a", b"1"), Throttled)
    assert isinstance(await inner.get("a"), Absent)
    with pytest.raises(StoreThrottled):
        await store.get("a")


async def test_an_unanswered_write_happened_and_a_lost_one_did_not(
    store: FaultyStore, inner: MemoryStore
) -> None:
    store.faults = Faults(unanswered=1)
    assert isinstance(await store.create("a", b"1"), Unknown)
    store.faults = Faults(lost=1)
    assert isinstance(await store.create("b", b"1"), Unknown)
    assert isinstance(await inner.get("a"), Found)
    assert isinstance(await inner.get("b"), Absent)


async def test_a_delayed_write_happens_before_a_later_request(
    store: FaultyStore, inner: MemoryStore, clock: FakeClock
) -> None:
    store.faults = Faults(delayed=1, delay=5)
    assert isinstance(await store.create("a", b"1"), Unknown)
    assert isinstance(await store.get("a"), Absent)
    await clock.advance(5)
    assert isinstance(await inner.get("a"), Absent)
    assert isinstance(await store.get("a"), Found)


async def test_delayed_writes_can_be_applied_at_once(store: FaultyStore, inner: MemoryStore) -> None:
    store.faults = Faults(delayed=1)
    await store.create("a", b"1")
    assert await store.apply_delayed() == 1
    assert await store.apply_delayed() == 0
    assert isinstance(await inner.get("a"), Found)


async def test_a_truncated_read_gives_only_the_beginning(store: FaultyStore) -> None:
    await store.create("a", b"0123456789")
    store.faults = Faults(truncated=1)
    found = await store.get("a")
    assert isinstance(found, Found)
    assert len(found.data) < 10
    assert b"0123456789".startswith(found.data)


async def test_a_stale_unchanged_hides_a_swap_from_who_knows_the_old_etag(store: FaultyStore) -> None:
    created = await store.create("a", b"1")
    assert isinstance(created, Created)
    await store.get("a")
    await store.swap("a", b"2", created.etag)
    store.faults = Faults(stale_unchanged=1)
    assert isinstance(await store.get("a", if_none_match=created.etag), Unchanged)
    assert isinstance(await store.get("a", if_none_match="never seen"), Found)


async def test_a_wrong_time_is_off_within_the_bound(store: FaultyStore) -> None:
    store.faults = Faults(wrong_time=1, time_error_ms=1_000)
    times = {(await store.get("a")).store_time - NOW for _ in range(50)}
    assert len(times) > 10
    assert all(-1_000 <= error <= 1_000 for error in times)


async def test_latency_passes_on_the_clock(store: FaultyStore, clock: FakeClock) -> None:
    store.faults = Faults(latency=(2, 4))
    await clock.run(store.get("a"))
    assert 2 <= clock.monotonic() <= 4


async def test_an_unavailable_deletion_changes_nothing(store: FaultyStore, inner: MemoryStore) -> None:
    await store.create("a", b"1")
    store.faults = Faults(unavailable=1)
    with pytest.raises(StoreUnavailable):
        await store.delete("a")
    assert isinstance(await inner.get("a"), Found)


async def test_a_seed_repeats_its_faults_and_another_does_not(clock: FakeClock) -> None:
    async def history(seed: int) -> list[str]:
        store = FaultyStore(
            MemoryStore(clock), clock=clock, seed=seed, faults=Faults(throttled=0.3, unanswered=0.3, lost=0.2)
        )
        return [type(await store.create(f"k{number}", b"")).__name__ for number in range(60)]

    assert await history(7) == await history(7)
    assert await history(7) != await history(8)
    assert set(await history(7)) == {"Created", "Throttled", "Unknown"}


async def test_closing_drops_what_was_delayed(store: FaultyStore, inner: MemoryStore) -> None:
    store.faults = Faults(delayed=1)
    await store.create("a", b"1")
    await store.close()
    assert await store.apply_delayed() == 0
    assert isinstance(await inner.get("a"), Absent)
