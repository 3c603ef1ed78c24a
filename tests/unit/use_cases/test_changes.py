"""The change feed tells every change once, in the log's order, the same through every relayer."""

from __future__ import annotations

import asyncio

import pytest

from relayer.errors import Refused
from relayer.use_cases.lifecycle import restore, supersede
from relayer.use_cases.memories import changes, forget_memory
from relayer.wire.schemas import SupersedeRequest


async def feed(house, after="0", *, limit=100, wait_ms=0):
    return await house.call(changes, after=after, limit=limit, wait_ms=wait_ms)


def told(answer):
    return [(item.change, item.id) for item in answer.changes]


async def test_every_memory_is_told_once_and_then_nothing_more(house):
    ids = await house.put("one", "two")
    answer = await feed(house)
    assert told(answer) == [("remembered", one) for one in ids]
    assert [item.memory.text for item in answer.changes] == ["one", "two"]
    assert told(await feed(house, answer.next)) == []
    assert told(await feed(house, str(answer.position.seq))) == []


async def test_what_becomes_of_a_memory_is_told_as_what_became_of_it_last(house):
    first, second, third = await house.put("one", "two", "three")
    begun = (await feed(house)).next
    new = (await house.call(supersede, first, SupersedeRequest(text="uno"))).id
    await house.call(forget_memory, second)
    await house.call(forget_memory, third)
    await house.call(restore, third)
    assert told(await feed(house, begun)) == [
        ("superseded", first), ("remembered", new), ("forgotten", second), ("restored", third)
    ]  # fmt: skip
    assert len(told(await feed(house))) == 4


async def test_an_old_version_that_comes_back_tells_what_it_replaced(house):
    (old,) = await house.put("one")
    new = (await house.call(supersede, old, SupersedeRequest(text="uno"))).id
    begun = (await feed(house)).next
    await house.call(restore, old)
    assert told(await feed(house, begun)) == [("superseded", new), ("restored", old)]


async def test_pages_tell_everything_once_also_within_one_entry(house):
    ids = await house.put(*(f"note {number}" for number in range(7)))
    seen, after, more = [], "0", True
    while more:
        answer = await feed(house, after, limit=3)
        seen += [item.id for item in answer.changes]
        after, more = answer.next, answer.more
    assert seen == ids


async def test_a_duplicate_is_no_change(house):
    await house.put("one")
    begun = (await feed(house)).next
    await house.put("one")
    assert told(await feed(house, begun)) == []


async def test_another_relayer_tells_the_same_with_the_same_cursors(house):
    first, _ = await house.put("one", "two")
    await house.call(forget_memory, first)
    other = await house.another()
    assert await feed(other) == await feed(house)


async def test_who_waits_is_told_when_it_happens(house):
    await house.put("one")
    begun = (await feed(house)).next
    waiting = asyncio.create_task(feed(house, begun, wait_ms=20_000))
    await asyncio.sleep(0)
    (new,) = await house.put("two")
    assert told(await waiting) == [("remembered", new)]


async def test_a_cursor_above_the_head_is_a_rollback(house):
    with pytest.raises(Refused) as caught:
        await feed(house, "5.1")
    assert caught.value.code == "rollback_detected"
    await house.put("one")
    with pytest.raises(Refused) as caught:
        await feed(house, "999")
    assert caught.value.code == "rollback_detected"
