from __future__ import annotations

import asyncio

import pytest
from doubles.stepping_store import Fate, SteppingStore

from relayer.adapters.memory_store import MemoryStore
from relayer.errors import StoreUnavailable
from relayer.ports import Absent, Created, Exists, Found, Swapped, Unknown
from relayer.testing.fake_clock import FakeClock
from relayer.testing.recording_store import RecordingStore, StoreCall


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore(FakeClock())


@pytest.fixture
def store(inner: MemoryStore) -> SteppingStore:
    return SteppingStore(inner)


async def test_nothing_happens_before_its_release(store: SteppingStore, inner: MemoryStore) -> None:
    task = asyncio.ensure_future(store.create("a", b"1"))
    [request] = await store.wait_for(1)
    assert (request.number, request.operation, request.key, request.data) == (0, "create", "a", b"1")
    assert isinstance(await inner.get("a"), Absent)
    await store.step()
    assert isinstance(await task, Created)
    assert store.pending == ()


async def test_requests_take_effect_in_the_order_of_release(store: SteppingStore) -> None:
    first = asyncio.ensure_future(store.create("a", b"first"))
    second = asyncio.ensure_future(store.create("a", b"second"))
    waiting = await store.wait_for(2)
    assert [request.data for request in waiting] == [b"first", b"second"]
    store.release(1)
    store.release(0)
    assert isinstance(await second, Created)
    assert isinstance(await first, Exists)


@pytest.mark.parametrize(
    ("fate", "applied"), [(Fate.APPLIED_UNANSWERED, True), (Fate.LOST, False), (Fate.DELAYED, False)]
)
async def test_an_unanswered_create_is_unknown(
    store: SteppingStore, inner: MemoryStore, fate: Fate, applied: bool
) -> None:
    task = asyncio.ensure_future(store.create("a", b"1"))
    await store.wait_for(1)
    await store.step(fate=fate)
    assert isinstance(await task, Unknown)
    assert isinstance(await inner.get("a"), Found if applied else Absent)


async def test_a_delayed_swap_is_applied_when_the_test_says(store: SteppingStore, inner: MemoryStore) -> None:
    created = await inner.create("a", b"old")
    assert isinstance(created, Created)
    task = asyncio.ensure_future(store.swap("a", b"new", created.etag))
    await store.wait_for(1)
    store.release(fate=Fate.DELAYED)
    assert isinstance(await task, Unknown)
    [delayed] = store.delayed
    assert (delayed.operation, delayed.key) == ("swap", "a")
    assert isinstance(await store.apply_delayed(), Swapped)
    assert store.delayed == []
    found = await inner.get("a")
    assert isinstance(found, Found)
    assert found.data == b"new"


async def test_a_deletion_without_an_answer_raises_and_may_have_happened(
    store: SteppingStore, inner: MemoryStore
) -> None:
    await inner.create("a", b"1")
    task = asyncio.ensure_future(store.delete("a"))
    await store.wait_for(1)
    store.release(fate=Fate.APPLIED_UNANSWERED)
    with pytest.raises(StoreUnavailable):
        await task
    assert isinstance(await inner.get("a"), Absent)


async def test_a_cancelled_request_leaves_the_queue_and_never_happens(
    store: SteppingStore, inner: MemoryStore
) -> None:
    task = asyncio.ensure_future(store.create("a", b"1"))
    await store.wait_for(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.pending == ()
    store.open_gates()
    assert isinstance(await inner.get("a"), Absent)


async def test_open_gates_let_everything_through(store: SteppingStore) -> None:
    task = asyncio.ensure_future(store.create("a", b"1"))
    await store.wait_for(1)
    store.open_gates()
    assert isinstance(await task, Created)
    assert [info.key async for info in store.list("")] == ["a"]
    assert await store.versions("a") == 1
    assert await store.purge("a") == 1


async def test_releasing_what_does_not_wait_is_an_error(store: SteppingStore) -> None:
    with pytest.raises(IndexError):
        store.release()


async def test_a_recording_store_counts_what_was_asked(inner: MemoryStore) -> None:
    store = RecordingStore(inner)
    created = await store.create("ns/a", b"123")
    assert isinstance(created, Created)
    await store.get("ns/a")
    await store.get("other")
    await store.swap("ns/a", b"4", created.etag)
    await store.delete("ns/a")
    assert [info async for info in store.list("ns/")] == []
    assert await store.versions("ns/a") + await store.purge("ns/a") == 0
    assert store.calls[:2] == [StoreCall("create", "ns/a", 3), StoreCall("get", "ns/a")]
    assert (store.count(), store.count("get"), store.count("get", "ns/"), store.count(prefix="ns/")) == (
        8,
        2,
        1,
        7,
    )
    store.clear()
    assert store.count() == 0
