"""The metered store tells how each call ended, and changes nothing about it."""

from __future__ import annotations

import asyncio

import pytest

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreFull, StoreUnavailable
from relayer.http.metrics import MeteredStore
from relayer.testing.local_relayer import RecordingStore


class _Failing(RecordingStore):
    async def create(self, key, data):
        raise StoreFull("no room")

    async def list(self, prefix):
        async for row in super().list(prefix):
            yield row
            raise StoreUnavailable("gone")

    async def get(self, key, **options):
        await asyncio.Event().wait()


@pytest.fixture
def told() -> list[tuple[str, str]]:
    return []


def _metered(inner, told: list[tuple[str, str]]) -> MeteredStore:
    def observe(call: str, end: str, seconds: float) -> None:
        assert seconds >= 0
        told.append((call, end))

    return MeteredStore(inner, observe)


async def test_each_call_is_told_with_its_outcome(told: list[tuple[str, str]]) -> None:
    store = _metered(MemoryStore(SystemClock()), told)
    created = await store.create("a", b"1")
    await store.create("a", b"2")
    await store.get("a", if_none_match=created.etag)
    await store.get("b")
    await store.swap("a", b"3", created.etag)
    await store.swap("a", b"4", created.etag)
    assert [row.key async for row in store.list("")] == ["a"]
    assert await store.versions("a") == 1
    assert await store.purge("a") == 1
    await store.delete("a")
    assert told == [
        ("create", "created"),
        ("create", "exists"),
        ("get", "unchanged"),
        ("get", "absent"),
        ("swap", "swapped"),
        ("swap", "changed"),
        ("list", "done"),
        ("versions", "done"),
        ("purge", "done"),
        ("delete", "done"),
    ]


async def test_a_call_that_fails_is_told_by_the_kind_of_failure(told: list[tuple[str, str]]) -> None:
    inner = MemoryStore(SystemClock())
    await inner.create("a", b"1")
    store = _metered(_Failing(inner), told)
    with pytest.raises(StoreFull):
        await store.create("b", b"")
    with pytest.raises(StoreUnavailable):
        [row async for row in store.list("")]
    waiting = asyncio.create_task(store.get("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert told == [("create", "full"), ("list", "unavailable"), ("get", "cancelled")]
