"""A step ends when its time is up, and a task that is cancelled for another reason stays cancelled."""

from __future__ import annotations

import asyncio

import pytest

from relayer.adapters.system import SystemClock
from relayer.errors import DeadlineExceeded
from relayer.lib.work import Deadline


def _step(seconds: float, name: str = "read"):
    return Deadline.after(SystemClock(), seconds).step(name)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_step_says_which_one_took_too_long_and_its_task_goes_on():
    with pytest.raises(DeadlineExceeded) as caught:
        async with _step(0.001, "append"):
            await _for_ever()
    assert "append" in str(caught.value)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_step_says_so_too_when_something_inside_ran_out_of_time():
    with pytest.raises(DeadlineExceeded):
        async with _step(5):
            raise TimeoutError


async def test_a_task_that_is_cancelled_is_cancelled_also_when_its_time_is_up():
    async def work() -> None:
        async with _step(0):
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
        async with _step(5):
            raise KeyError("inside")
