from __future__ import annotations

import asyncio

import pytest

from relayer.testing.fake_clock import FakeClock


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(5_000)
    await asyncio.sleep(0)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    await clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)


async def test_sleepers_wake_in_order_each_at_its_own_deadline() -> None:
    clock = FakeClock(0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 3), ("early", 1), ("too late", 9), ("early too", 1)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(4)
        assert woken == [("early", 1), ("early too", 1), ("late", 3)]
        assert clock.sleeping == 1
        await clock.advance(5)
    assert woken[-1] == ("too late", 9)


async def test_who_falls_asleep_during_an_advance_is_woken_by_it() -> None:
    clock = FakeClock(0)
    laps: list[float] = []

    async def runner() -> None:
        for _ in range(3):
            await clock.sleep(2)
            laps.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(runner())
        await clock.advance(7)
    assert laps == [2, 4, 6]
    assert clock.monotonic() == 7


async def test_a_jump_moves_the_time_of_day_alone() -> None:
    clock = FakeClock(60_000)
    clock.jump(-30)
    assert (clock.now_ms(), clock.monotonic()) == (30_000, 0.0)


async def test_run_needs_no_real_time_for_long_sleeps() -> None:
    clock = FakeClock(0)

    async def work() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(clock.sleep(86_400))
            group.create_task(clock.sleep(3_600))
        return "done"

    assert await clock.run(work()) == "done"
    assert clock.monotonic() == 86_400


async def test_run_refuses_to_wait_for_what_is_not_its_own() -> None:
    with pytest.raises(RuntimeError, match="not this clock"):
        await FakeClock().run(asyncio.Event().wait())


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.ensure_future(clock.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleeping == 0
    await clock.advance(20)
    assert clock.monotonic() == 20
