"""Tasks come again, whatever fails, and end together."""

from __future__ import annotations

import asyncio

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.errors import StoreUnavailable
from relayer.lib.scheduler import OnError, Periodic, Scheduler, Wake
from relayer.testing.fake_clock import FakeClock


class World:
    """A scheduler on a test's clock, the times of a task's rounds, and what was reported."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reported: list[tuple[str, str]] = []
        self.rounds: list[float] = []
        self.scheduler = Scheduler(self.clock, SeededRandomness(7), self.report)

    def report(self, name: str, error: BaseException) -> None:
        self.reported.append((name, str(error)))

    async def round(self, _: OnError) -> float | None:
        self.rounds.append(self.clock.monotonic())
        return None


@pytest.fixture
def world() -> World:
    return World()


async def test_a_task_comes_again_after_its_pause_and_not_at_the_start(world: World) -> None:
    async with world.scheduler:
        world.scheduler.start(Periodic("t", world.round, 10.0))
        await world.clock.advance(35.0)
    assert world.rounds == [10.0, 20.0, 30.0]


async def test_a_round_says_itself_when_the_next_one_is_due(world: World) -> None:
    async def round_(on_error: OnError) -> float:
        await world.round(on_error)
        return 1.0

    async with world.scheduler:
        world.scheduler.start(Periodic("t", round_, 10.0))
        await world.clock.advance(12.5)
    assert world.rounds == [10.0, 11.0, 12.0]


async def test_uneven_pauses_are_a_half_to_one_and_a_half_and_the_first_up_to_one(world: World) -> None:
    async with world.scheduler:
        world.scheduler.start(Periodic("t", world.round, 10.0, uneven=True))
        await world.clock.advance(500.0)
    pauses = [later - sooner for sooner, later in zip(world.rounds, world.rounds[1:], strict=False)]
    assert 0.0 <= world.rounds[0] < 10.0
    assert all(5.0 <= pause < 15.0 for pause in pauses)
    assert len(set(pauses)) == len(pauses) > 30


@pytest.mark.parametrize("error", [StoreUnavailable("down"), ZeroDivisionError("a mistake")])
async def test_a_round_that_fails_is_reported_counted_and_followed_by_the_next(world, error) -> None:
    async def fails(on_error: OnError) -> None:
        on_error(ValueError("one of several"))
        raise error

    async with world.scheduler:
        world.scheduler.start(Periodic("t", fails, 10.0))
        await world.clock.advance(20.0)
    assert world.reported == [("t", "one of several"), ("t", str(error))] * 2
    assert world.scheduler.failures == {"t": 4}


async def test_a_signal_begins_the_next_round_at_once_and_counts_once(world: World) -> None:
    wake = Wake()
    async with world.scheduler:
        world.scheduler.start(Periodic("t", world.round, 10.0, wake=wake))
        await world.clock.advance(3.0)
        wake.set()
        wake.set()
        await world.clock.advance(4.0)
        assert world.rounds == [0.0, 3.0]
        await world.clock.advance(6.0)
    assert world.rounds == [0.0, 3.0, 13.0]
    assert world.clock.sleeping == 0


async def test_the_end_cancels_rounds_and_what_they_began_and_waits_for_them(world: World) -> None:
    ended: list[str] = []

    async def for_ever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def round_(_: OnError) -> None:
        world.scheduler.spawn(for_ever("begun"), "begun")
        await for_ever("round")

    async with world.scheduler:
        world.scheduler.start(Periodic("t", round_, 1.0))
        await world.clock.advance(1.0)
    assert sorted(ended) == ["begun", "round"]
    assert world.reported == []
