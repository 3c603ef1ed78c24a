"""Works on the thread of a pool: one thread for all of them, which rests for queries, waits a while for more, and then is none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from relayer.lib.work import ExecutorLimits, FairExecutor

HEAVY = 10_000


def who():
    yield threading.current_thread()


async def test_the_next_work_finds_the_thread_of_the_one_before_ready():
    pool = FairExecutor()
    made = [(await pool.make("somebody", who(), HEAVY))[0] for _ in range(3)]
    assert made[0] is made[1] is made[2] is not threading.current_thread()


async def test_a_pool_without_work_has_no_thread_after_a_while_and_takes_work_again():
    pool = FairExecutor(ExecutorLimits(idle_seconds=0.01))
    (first,) = await pool.make("somebody", who(), HEAVY)
    first.join(30)
    (second,) = await pool.make("somebody", who(), HEAVY)
    assert not first.is_alive()
    assert second is not first


async def test_what_fails_fails_where_it_is_waited_for_and_the_next_work_is_made():
    def failing():
        yield 1
        raise ValueError("a piece")

    pool = FairExecutor()
    with pytest.raises(ValueError, match="a piece"):
        await pool.make("somebody", failing(), HEAVY)
    assert await pool.make("somebody", iter((1, 2)), HEAVY) == [1, 2]
    assert len(pool) == 0


@pytest.mark.parametrize(("rest", "before"), [(60.0, False), (0.0, True)])
async def test_the_thread_rests_while_a_query_is_under_way(rest, before):
    pool = FairExecutor(ExecutorLimits(rest_seconds=rest))
    made = threading.Event()
    async with asyncio.TaskGroup() as group:
        with pool.queries, pool.queries:
            group.create_task(pool.make("somebody", (made.set() for _ in range(1)), HEAVY))
            assert await asyncio.to_thread(made.wait, 30 if before else 0.1) is before


async def test_the_thread_works_as_long_as_it_rests_however_many_queries_there_are():
    pool = FairExecutor(ExecutorLimits(rest_seconds=0.001))
    with pool.queries:
        assert await pool.make("somebody", iter(range(50)), HEAVY) == list(range(50))
