"""A captured turn is on the disk before it is sent: no absent relayer and no end of a process loses it."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from stoppable_relayer import StoppableRelayer

from memrelay import AsyncMemory, InvalidInput, MemrelayError
from memrelay.integrations.turns import TurnMemory

BIKE = "My bike is a red Brompton from 2019."
HOUSE = "I live in a yellow house in Bern."

pytestmark = pytest.mark.enable_socket


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "Nice."}]


async def stored(memory: AsyncMemory) -> list[str]:
    return sorted([one.text async for one in memory.list(user="ana")])


async def until_stored(memory: AsyncMemory, *texts: str) -> None:
    async with asyncio.timeout(90):
        while await stored(memory) != sorted(texts):  # noqa: ASYNC110 - the relayer does not tell
            await asyncio.sleep(0.05)


def assert_nothing_readable(home: Path) -> None:
    on_disk = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert b"SQLite" in on_disk
    assert not any(word in on_disk for word in (b"yellow house", b"Thun", b"sender-ana"))


def opened(relayer: StoppableRelayer, home: Path, **more: Any) -> AsyncMemory:
    return AsyncMemory(url=relayer.url, secret="5a" * 32, environ={"HOME": str(home)}, **more)


async def test_a_capture_is_stored_when_it_returns(stoppable: StoppableRelayer, tmp_path: Path) -> None:
    async with opened(stoppable, tmp_path) as memory:
        assert await memory.capture(said(BIKE), user="ana", session="s1", metadata={"ticket": 4711})
        (one,) = [each async for each in memory.list(user="ana")]
        assert (one.text, one.session, one.metadata) == (BIKE, "s1", {"ticket": 4711})
        for nothing in ([], [{"role": "system", "content": "Be kind."}]):
            with pytest.raises(InvalidInput, match="content: must have a message of a user"):
                await memory.capture(nothing, user="ana")


@pytest.mark.parametrize("durable", [True, False])
async def test_a_turn_of_any_size_is_captured(
    stoppable: StoppableRelayer, tmp_path: Path, *, durable: bool
) -> None:
    settings = {"capture": {"durable": durable}}
    async with opened(stoppable, tmp_path, settings=settings) as memory:
        answers = [{"role": "assistant", "content": f"Step {number}."} for number in range(99)]
        pasted = [{"role": "user", "content": f"{BIKE}\n" + "ß line of output\n" * 4000}]
        said_last = [{"role": "user", "content": HOUSE}]
        assert await memory.capture([*pasted, *answers, *said_last], user="ana")
        texts = await stored(memory)
        assert any(BIKE in text for text in texts)
        assert HOUSE in texts


async def test_a_turn_that_was_captured_while_the_relayer_was_away_is_delivered_once(
    stoppable: StoppableRelayer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(stoppable, tmp_path) as memory:
        turns = TurnMemory(memory, deadline=0.5)
        await turns.capture(said(BIKE), user="ana")
        await stoppable.stop()
        begun = time.monotonic()
        await turns.capture(said(HOUSE), user="ana", session="s2")
        assert time.monotonic() - begun < 2
        await turns.flush()
        with caplog.at_level(logging.WARNING):
            await turns.capture(said("I work at a mill near Thun."), user="ana")
        assert "waits in the outbox" in caplog.text
        assert_nothing_readable(tmp_path)
        async with opened(stoppable, tmp_path) as other:
            with pytest.raises(MemrelayError):
                await other.add(said("I have two cats."), user="ana")
        await stoppable.start()
        # The first object delivers what waits.
        async with opened(stoppable, tmp_path) as other:
            await until_stored(other, BIKE, HOUSE, "I work at a mill near Thun.")


async def test_a_call_works_a_second_after_the_relayer_is_back(
    stoppable: StoppableRelayer, tmp_path: Path
) -> None:
    async with opened(stoppable, tmp_path) as memory:
        await memory.add(BIKE, user="ana")
        await stoppable.stop()
        for _ in range(4):
            with pytest.raises(MemrelayError):
                await memory.search("bike", user="ana")
        await stoppable.start()
        await asyncio.sleep(1)
        assert await stored(memory) == [BIKE]


async def test_the_next_process_delivers_what_an_earlier_one_left(
    stoppable: StoppableRelayer, tmp_path: Path
) -> None:
    await stoppable.stop()
    async with opened(stoppable, tmp_path) as memory:
        assert not await memory.capture(said(BIKE), user="ana")
    await stoppable.start()
    async with opened(stoppable, tmp_path) as memory:
        assert await stored(memory) == []
        assert await memory.capture(said(HOUSE), user="ana")
        await until_stored(memory, BIKE, HOUSE)


async def test_erasing_a_user_also_deletes_what_waits(stoppable: StoppableRelayer, tmp_path: Path) -> None:
    async with opened(stoppable, tmp_path) as memory:
        await memory.capture(said(HOUSE), user="ana")
    await stoppable.stop()
    async with opened(stoppable, tmp_path) as memory:
        assert not await memory.capture(said(BIKE), user="ana")
    await stoppable.start()
    async with opened(stoppable, tmp_path) as memory:
        assert (await memory.erase_all(user="ana")).waiting_turns == 2
        await memory.capture(said(HOUSE), user="ana")
        assert await stored(memory) == [HOUSE]


@pytest.mark.parametrize("settings", [None, {"capture": {"durable": False}}])
async def test_without_an_outbox_on_disk_a_turn_is_only_sent(
    stoppable: StoppableRelayer, tmp_path: Path, settings: dict[str, Any] | None
) -> None:
    if settings is None:
        (tmp_path / ".local").write_text("a file in the way of the outbox's directory")
    async with opened(stoppable, tmp_path, settings=settings) as memory:
        assert await memory.capture(said(BIKE), user="ana")
        assert await stored(memory) == [BIKE]
        await stoppable.stop()
        with pytest.raises(MemrelayError):
            await memory.capture(said(HOUSE), user="ana")


async def test_what_waits_does_not_keep_memories_from_being_collected(
    stoppable: StoppableRelayer, tmp_path: Path
) -> None:
    await stoppable.stop()
    memory = opened(stoppable, tmp_path)
    assert not await memory.capture(said(BIKE), user="ana")
    assert "memrelay-sender" in {task.get_name() for task in asyncio.all_tasks()}
    del memory
    gc.collect()
    async with asyncio.timeout(10):
        while "memrelay-sender" in {task.get_name() for task in asyncio.all_tasks()}:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
