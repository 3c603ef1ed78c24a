from __future__ import annotations

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemRandomness
from relayer.ports import Created, Found, ObjectInfo
from relayer.testing.fake_clock import FakeClock


async def test_the_time_is_the_given_clocks() -> None:
    clock = FakeClock(1_000)
    store = MemoryStore(clock)
    assert await store.create("a", b"12") == Created(
        "6b51d431df5d7f141cbececcf79edf3dd861c3b4069f0b11661a3eefacbba918", 1_000
    )
    await clock.advance(2.5)
    found = await store.get("a")
    assert isinstance(found, Found)
    assert found.store_time == 3_500
    assert [info async for info in store.list("")] == [ObjectInfo("a", 2, 1_000)]


async def test_what_is_stored_does_not_change_with_the_callers_buffer() -> None:
    store = MemoryStore(FakeClock())
    buffer = bytearray(b"before")
    await store.create("a", buffer)
    buffer[:] = b"after!"
    found = await store.get("a")
    assert isinstance(found, Found)
    assert found.data == b"before"


def test_system_randomness_gives_as_many_bytes_as_asked_and_never_the_same() -> None:
    randomness = SystemRandomness()
    drawn = {randomness.bytes(16) for _ in range(100)}
    assert len(drawn) == 100
    assert {len(value) for value in drawn} == {16}
