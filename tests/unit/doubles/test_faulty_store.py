"""The faults that are values among others: a store that left one out would make tests pass and prove nothing."""

from __future__ import annotations

import pytest
from doubles.faulty_store import Faults, FaultyStore

from relayer.adapters.memory_store import MemoryStore
from relayer.ports import Absent, Created, Found, Unchanged, Unknown
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


async def test_a_delayed_write_happens_before_a_later_request(
    store: FaultyStore, inner: MemoryStore, clock: FakeClock
) -> None:
    store.faults = Faults(delayed=1, delay=5)
    assert isinstance(await store.create("a", b"1"), Unknown)
    assert isinstance(await store.get("a"), Absent)
    await clock.advance(5)
    assert isinstance(await inner.get("a"), Absent)
    assert isinstance(await store.get("a"), Found)


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
