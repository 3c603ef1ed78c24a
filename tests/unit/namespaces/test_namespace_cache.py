"""What is open is bounded by what it takes in memory, never at the cost of a request, and gone when it is dropped."""

from __future__ import annotations

import asyncio
import weakref

import pytest
from index_world import opened_of, write_index

from relayer.errors import RelayerError
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import CacheLimits

TINY = CacheLimits(bytes=1)


def _open(house) -> list[str]:
    return [opened.namespace.pointer.name for opened in house.ctx.namespaces.all()]


async def test_what_was_used_longest_ago_goes_when_memory_is_short(house):
    for agent in ("one", "two", "three"):
        await house.put(f"tea of {agent}", agent=agent)
    each = house.ctx.namespaces.nbytes // 3
    small = await house.another(CacheLimits(bytes=each * 5 // 2))
    await small.found("tea", agent="one")
    await small.found("tea", agent="two")
    await small.found("tea", agent="one")
    await small.found("tea", agent="three")
    assert _open(small) == ["one", "three"]
    assert small.ctx.namespaces.evictions == 1
    assert await small.found("tea", agent="two") == ["tea of two"]


async def test_the_number_of_open_namespaces_is_bounded_too(house):
    small = await house.another(CacheLimits(namespaces=2))
    for agent in ("one", "two", "three"):
        await small.put("tea", agent=agent)
    assert _open(small) == ["two", "three"]


async def test_what_is_in_use_is_not_dropped_and_goes_when_it_is_not(house):
    small = await house.another(TINY)
    async with small.ctx.namespaces.use(small.access("one"), small.deadline(), create=True) as used:
        await small.put("tea", agent="two")
        assert _open(small) == ["one", "two"]
        assert not used.broken
        await small.put("coffee", agent="one")
    await small.put("tea", agent="three")
    assert _open(small) == ["three"]


async def test_a_namespace_that_grew_makes_others_go_at_the_next_round(house):
    await house.put("tea", agent="idle")
    await house.put("tea", agent="busy")
    limit = house.ctx.namespaces.nbytes + 10_000
    small = await house.another(CacheLimits(bytes=limit))
    await small.found("tea", agent="idle")
    await small.put(*(f"tea number {number}" for number in range(60)), agent="busy")
    assert _open(small) == ["idle", "busy"]
    await maintain(small.ctx)
    assert _open(small) == ["busy"]


async def test_many_who_ask_at_once_for_more_than_there_is_room_for_are_all_answered(house):
    agents = [f"agent{number}" for number in range(12)]
    for agent in agents:
        await house.put(f"tea of {agent}", agent=agent)
    small = await house.another(TINY)
    answers = await asyncio.gather(
        *(small.found("tea", agent=agent) for agent in agents * 2), return_exceptions=True
    )
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    assert answers == [[f"tea of {agent}"] for agent in agents * 2]
    await maintain(small.ctx)
    assert len(_open(small)) == 1


@pytest.mark.parametrize("begin", ["log", "index"])
async def test_nothing_holds_what_was_dropped(house, begin):
    await house.put("tea", "coffee")
    if begin == "index":
        await write_index(house)
    small = await house.another(TINY)
    opened = await opened_of(small)
    await small.found("tea", agent="researcher")
    assert (opened.from_index > 0) == (begin == "index")
    witnesses = [weakref.ref(opened), weakref.ref(opened.view), weakref.ref(opened.view.records)]
    del opened
    await small.put("tea", agent="other")
    for _ in range(3):
        await asyncio.sleep(0)  # what closed it has returned
    # Without the collector of cycles: the keys are gone at once.
    assert [witness() for witness in witnesses] == [None, None, None]


async def test_what_could_not_be_opened_is_not_held_either(house):
    await house.put("tea")
    [key] = [info.key async for info in house.store.list("ns/") if "/wal/" in info.key]
    await house.store.delete(key)
    await house.store.create(key, b"damaged")
    broken = await house.another()
    before = len(house.ctx.namespaces)
    with pytest.raises(RelayerError):
        await opened_of(broken)
    assert (len(broken.ctx.namespaces), broken.ctx.namespaces.nbytes) == (0, 0)
    assert len(house.ctx.namespaces) == before


async def test_what_is_counted_goes_when_everything_is_closed(house):
    await house.put("tea")
    assert house.ctx.namespaces.nbytes > 0
    await house.ctx.namespaces.close(1.0)
    assert house.ctx.namespaces.nbytes == 0
