"""Works on the thread of a pool: one thread for all of them, which waits a while for more, and then is none."""

from __future__ import annotations

import threading

import pytest

from relayer.lib.work import PoolLimits, WorkPool

HEAVY = 10_000


def who():
    yield threading.current_thread()


async def test_the_next_work_finds_the_thread_of_the_one_before_ready():
    pool = WorkPool()
    made = [(await pool.make("somebody", who(), HEAVY))[0] for _ in range(3)]
    assert made[0] is made[1] is made[2] is not threading.current_thread()


async def test_a_pool_without_work_has_no_thread_after_a_while_and_takes_work_again():
    pool = WorkPool(PoolLimits(idle_seconds=0.01))
    (first,) = await pool.make("somebody", who(), HEAVY)
    first.join(30)
    (second,) = await pool.make("somebody", who(), HEAVY)
    assert not first.is_alive()
    assert second is not first


async def test_what_fails_fails_where_it_is_waited_for_and_the_next_work_is_made():
    def failing():
        yield 1
        raise ValueError("a piece")

    pool = WorkPool()
    with pytest.raises(ValueError, match="a piece"):
        await pool.make("somebody", failing(), HEAVY)
    assert await pool.make("somebody", iter((1, 2)), HEAVY) == [1, 2]
    assert len(pool) == 0
