"""A large write must not hold the event loop: others get their turn while it is indexed, and reads wait for it."""

from __future__ import annotations

import asyncio

import pytest

from relayer.errors import CorruptNamespace
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest

LONG = [f"volume {number} " + "about the harbour and its many boats " * 1500 for number in range(8)]


async def test_a_large_write_leaves_turns_to_others_while_it_is_indexed(house):
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    request = RememberRequest(items=[{"text": text} for text in LONG])
    await house.call(remember, request)
    (opened,) = house.ctx.namespaces.all()
    everybody = asyncio.create_task(others())
    while_indexing = turns
    await opened.wait_indexed()
    while_indexing = turns - while_indexing
    everybody.cancel()
    assert while_indexing >= len(LONG) - 1


async def test_a_read_waits_until_what_was_acknowledged_is_indexed(house):
    request = RememberRequest(items=[{"text": text} for text in LONG])
    answer = await house.call(remember, request)
    found = await house.call(recall, RecallRequest(query="harbour boats volume", floor=0, limit=20))
    assert {hit.id for hit in found.memories} == {memory.id for memory in answer.memories}


async def test_what_comes_after_a_large_write_is_indexed_after_it(house):
    large = RememberRequest(items=[{"text": text} for text in LONG])
    small = RememberRequest(items=[{"text": "the last word on boats"}])
    await asyncio.gather(house.call(remember, large), house.call(remember, small))
    (opened,) = house.ctx.namespaces.all()
    await opened.wait_indexed()
    assert list(opened.view.table.numbers) == opened.ids()


async def test_a_namespace_whose_view_failed_while_indexing_is_opened_anew(house, monkeypatch):
    request = RememberRequest(items=[{"text": text} for text in LONG])
    await house.call(remember, RememberRequest(items=[{"text": "a note"}]))
    (opened,) = house.ctx.namespaces.all()

    def fail(*_):
        raise RuntimeError("a defect in the view")

    monkeypatch.setattr(opened.view, "apply", fail)
    await house.call(remember, request)
    with pytest.raises(CorruptNamespace):
        await opened.wait_indexed()
    found = await house.call(recall, RecallRequest(query="harbour boats volume", floor=0, limit=20))
    assert len(found.memories) == len(LONG) + 1
    assert house.ctx.namespaces.all() != [opened]


async def test_who_waits_for_the_index_of_a_namespace_that_is_let_go_of_is_told_and_not_cancelled(house):
    request = RememberRequest(items=[{"text": text} for text in LONG])
    await house.call(remember, request)
    (opened,) = house.ctx.namespaces.all()
    waiting = asyncio.create_task(opened.wait_indexed())
    await asyncio.sleep(0)
    await house.ctx.namespaces.drop_agent(house.access().account, ["researcher"])
    (told,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(told, CorruptNamespace)
