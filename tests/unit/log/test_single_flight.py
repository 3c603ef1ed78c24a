import asyncio

import pytest
from log_world import settle

from relayer.errors import StoreUnavailable
from relayer.lib.work import SingleFlight


class Action:
    def __init__(self) -> None:
        self.runs: list[asyncio.Future[None]] = []

    async def __call__(self) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.runs.append(gate)
        await gate


async def test_callers_share_a_run_that_began_after_all_of_them() -> None:
    action = Action()
    flight = SingleFlight(action)
    first = asyncio.create_task(flight.run())
    await settle()
    later = [asyncio.create_task(flight.run()) for _ in range(5)]
    await settle()

    action.runs[0].set_result(None)
    await settle()
    assert first.done()
    assert not any(task.done() for task in later)  # that run had begun when they asked

    action.runs[1].set_result(None)
    await asyncio.gather(*later)
    assert len(action.runs) == 2


async def test_a_cancelled_runner_leaves_its_run_to_the_next_caller() -> None:
    action = Action()
    flight = SingleFlight(action)
    first = asyncio.create_task(flight.run())
    second = asyncio.create_task(flight.run())
    await settle()
    first.cancel()
    await settle()

    action.runs[1].set_result(None)
    await second
    assert first.cancelled()


async def test_a_failed_run_fails_everybody_who_shares_it_and_nobody_after() -> None:
    action = Action()
    flight = SingleFlight(action)
    blocker = asyncio.create_task(flight.run())
    await settle()
    sharing = [asyncio.create_task(flight.run()) for _ in range(3)]
    await settle()
    action.runs[0].set_result(None)
    await settle()
    action.runs[1].set_exception(StoreUnavailable("down"))
    outcomes = await asyncio.gather(blocker, *sharing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), *[StoreUnavailable] * 3]
    assert len(action.runs) == 2

    after = asyncio.create_task(flight.run())
    await settle()
    action.runs[2].set_result(None)
    await after


async def test_a_failure_is_not_kept_for_those_who_ask_after_it() -> None:
    action = Action()
    flight = SingleFlight(action)
    failing = asyncio.create_task(flight.run())
    await settle()
    action.runs[0].set_exception(StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await failing

    retry = asyncio.create_task(flight.run())
    await settle()
    action.runs[1].set_result(None)
    await retry
