"""A large write must not hold the event loop: others get their turn while it is indexed, and reads wait for it."""

from __future__ import annotations

import asyncio

import pytest

from relayer.errors import CorruptNamespace

LONG = [f"volume {number} " + "about the harbour and its many boats " * 1500 for number in range(8)]


async def test_a_large_write_leaves_turns_to_others_while_it_is_indexed(house):
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await house.put(*LONG)
    (opened,) = house.ctx.namespaces.all()
    everybody = asyncio.create_task(others())
    while_indexing = turns
    await opened.wait_indexed()
    while_indexing = turns - while_indexing
    everybody.cancel()
    assert while_indexing >= len(LONG) - 1


async def test_a_read_waits_until_what_was_acknowledged_is_indexed(house):
    await house.put(*LONG)
    assert set(await house.found("harbour boats volume", limit=20)) == set(LONG)


async def test_what_comes_after_a_large_write_is_indexed_after_it(house):
    await asyncio.gather(house.put(*LONG), house.put("the last word on boats"))
    (opened,) = house.ctx.namespaces.all()
    await opened.wait_indexed()
    assert list(opened.view.table.numbers) == opened.ids()


async def test_a_namespace_whose_view_failed_while_indexing_is_opened_anew(house, monkeypatch):
    await house.put("a note")
    (opened,) = house.ctx.namespaces.all()

    def fail(*_):
        raise RuntimeError("a defect in the view")

    monkeypatch.setattr(opened.view, "apply", fail)
    await house.put(*LONG)
    with pytest.raises(CorruptNamespace):
        await opened.wait_indexed()
    assert len(await house.found("harbour boats volume", limit=20)) == len(LONG) + 1
    assert house.ctx.namespaces.all() != [opened]


async def test_who_waits_for_the_index_of_a_namespace_that_is_let_go_of_is_told_and_not_cancelled(house):
    await house.put(*LONG)
    (opened,) = house.ctx.namespaces.all()
    waiting = asyncio.create_task(opened.wait_indexed())
    await asyncio.sleep(0)
    await house.ctx.namespaces.drop_agent(house.access().account, ["researcher"])
    (told,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(told, CorruptNamespace)
