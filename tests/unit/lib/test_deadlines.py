"""A bound ends what takes too long, and nothing else: whoever is cancelled by somebody else stays cancelled."""

from __future__ import annotations

import asyncio

import pytest

from relayer.adapters.system import SystemClock
from relayer.errors import DeadlineExceeded
from relayer.lib.work import Bound, Deadline


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_what_takes_too_long_is_ended_and_its_task_goes_on():
    with pytest.raises(TimeoutError):
        async with Bound(0.001):
            await _for_ever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_what_is_in_time_is_left_alone():
    async with Bound(0.001):
        pass
    await asyncio.sleep(0.005)


async def test_the_inner_of_two_bounds_ends_what_is_inside_of_it_only():
    async with Bound(5):
        with pytest.raises(TimeoutError):
            async with Bound(0.001):
                await _for_ever()
        await asyncio.sleep(0)


async def test_an_outer_bound_ends_what_is_inside_of_an_inner_one():
    async def inside() -> None:
        async with Bound(5):
            await _for_ever()

    async def work() -> None:
        async with Bound(0.001):
            with pytest.raises(asyncio.CancelledError):
                await inside()
            raise asyncio.CancelledError

    with pytest.raises(TimeoutError):
        await work()


async def test_a_task_that_somebody_cancels_is_cancelled_also_when_its_time_is_up():
    async def work() -> None:
        async with Bound(0):
            try:
                await _for_ever()
            finally:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


async def test_an_error_from_inside_stays_what_it_is():
    with pytest.raises(KeyError):
        async with Bound(5):
            raise KeyError("inside")


async def test_a_step_says_which_one_took_too_long():
    with pytest.raises(DeadlineExceeded) as caught:
        async with Deadline.after(SystemClock(), 0.001).step("append"):
            await _for_ever()
    assert "append" in str(caught.value)


async def test_a_step_says_so_too_when_something_inside_ran_out_of_time():
    with pytest.raises(DeadlineExceeded):
        async with Deadline.after(SystemClock(), 5).step("read"):
            raise TimeoutError
