"""What is open is bounded by what it takes in memory, never at the cost of a request, and gone when it is dropped."""

from __future__ import annotations

import asyncio
import weakref

import pytest
from index_world import opened_of, remember, replica, write_index

from relayer.errors import RelayerError
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import CacheLimits
from relayer.use_cases.recall import recall
from relayer.wire.schemas import RecallRequest

TINY = CacheLimits(bytes=1)


async def _texts(house, agent: str) -> list[str]:
    request = RecallRequest(query="tea", floor=0)
    found = await recall(house.ctx, house.access(agent), request, house.deadline())
    return [hit.text for hit in found.memories]


def _open(house) -> list[str]:
    return [opened.namespace.pointer.name for opened in house.ctx.namespaces.all()]


async def test_what_was_used_longest_ago_goes_when_memory_is_short(house):
    for agent in ("one", "two", "three"):
        await remember(house, f"tea of {agent}", agent=agent)
    each = house.ctx.namespaces.nbytes // 3
    small = await replica(house, CacheLimits(bytes=each * 5 // 2))
    await _texts(small, "one")
    await _texts(small, "two")
    await _texts(small, "one")
    await _texts(small, "three")
    assert _open(small) == ["one", "three"]
    assert small.ctx.namespaces.evictions == 1
    assert await _texts(small, "two") == ["tea of two"]
    await small.ctx.namespaces.close(1.0)


async def test_the_number_of_open_namespaces_is_bounded_too(house):
    small = await replica(house, CacheLimits(namespaces=2))
    for agent in ("one", "two", "three"):
        await remember(small, "tea", agent=agent)
    assert _open(small) == ["two", "three"]
    await small.ctx.namespaces.close(1.0)


async def test_what_is_in_use_is_not_dropped_and_goes_when_it_is_not(house):
    small = await replica(house, TINY)
    async with small.ctx.namespaces.use(small.access("one"), small.deadline(), create=True) as used:
        await remember(small, "tea", agent="two")
        assert _open(small) == ["one", "two"]
        assert not used.broken
        await remember(small, "coffee", agent="one")
    await remember(small, "tea", agent="three")
    assert _open(small) == ["three"]
    await small.ctx.namespaces.close(1.0)


async def test_a_namespace_that_grew_makes_others_go_at_the_next_round(house):
    await remember(house, "tea", agent="idle")
    await remember(house, "tea", agent="busy")
    limit = house.ctx.namespaces.nbytes + 10_000
    small = await replica(house, CacheLimits(bytes=limit))
    await _texts(small, "idle")
    await remember(small, *(f"tea number {number}" for number in range(60)), agent="busy")
    assert _open(small) == ["idle", "busy"]
    await maintain(small.ctx)
    assert _open(small) == ["busy"]
    await small.ctx.namespaces.close(1.0)


async def test_many_who_ask_at_once_for_more_than_there_is_room_for_are_all_answered(house):
    agents = [f"agent{number}" for number in range(12)]
    for agent in agents:
        await remember(house, f"tea of {agent}", agent=agent)
    small = await replica(house, TINY)
    answers = await asyncio.gather(*(_texts(small, agent) for agent in agents * 2), return_exceptions=True)
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    assert answers == [[f"tea of {agent}"] for agent in agents * 2]
    await maintain(small.ctx)
    assert len(_open(small)) == 1
    await small.ctx.namespaces.close(1.0)


@pytest.mark.parametrize("begin", ["log", "index"])
async def test_nothing_holds_what_was_dropped(house, begin):
    await remember(house, "tea", "coffee")
    if begin == "index":
        await write_index(house)
    small = await replica(house, TINY)
    opened = await opened_of(small)
    await _texts(small, "researcher")
    assert (opened.from_index > 0) == (begin == "index")
    witnesses = [weakref.ref(opened), weakref.ref(opened.view), weakref.ref(opened.view.records)]
    del opened
    await remember(small, "tea", agent="other")
    for _ in range(3):
        await asyncio.sleep(0)  # what closed it has returned
    # Without the collector of cycles: the keys are gone at once.
    assert [witness() for witness in witnesses] == [None, None, None]
    await small.ctx.namespaces.close(1.0)


async def test_what_could_not_be_opened_is_not_held_either(house):
    await remember(house, "tea")
    [key] = [info.key async for info in house.store.list("ns/") if "/wal/" in info.key]
    await house.store.delete(key)
    await house.store.create(key, b"damaged")
    broken = await replica(house)
    before = len(house.ctx.namespaces)
    with pytest.raises(RelayerError):
        await opened_of(broken)
    assert (len(broken.ctx.namespaces), broken.ctx.namespaces.nbytes) == (0, 0)
    assert len(house.ctx.namespaces) == before


async def test_what_is_counted_goes_when_everything_is_closed(house):
    await remember(house, "tea")
    assert house.ctx.namespaces.nbytes > 0
    await house.ctx.namespaces.close(1.0)
    assert house.ctx.namespaces.nbytes == 0
