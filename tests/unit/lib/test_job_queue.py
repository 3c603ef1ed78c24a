"""Slots go round: by account first, then by namespace, and never all to one."""

from __future__ import annotations

from relayer.domain.operations import JobState
from relayer.lib.job_queue import DailyLimits, JobLimits, JobQueue, ModelBudget, PendingJob
from relayer.testing.fake_clock import FakeClock
from relayer.wire.fields import DAY_MS


def candidate(account: str, namespace: str, number: int) -> PendingJob:
    job = f"{account}/{namespace}/{number}".encode()
    return PendingJob((account, namespace), JobState(job, "extract", (), b"", number))


def drain(queue: JobQueue, waiting: list[PendingJob]) -> list[str]:
    """Start what may start, one after the other, and say in which order."""
    order = []
    while (item := queue.choose(waiting)) is not None:
        queue.started(item)
        order.append(item.job.job.decode())
    return order


def test_no_account_holds_every_slot_and_no_namespace_two():
    queue = JobQueue(FakeClock(), JobLimits(at_once=3))
    greedy = [candidate("a", f"n{number}", number) for number in range(10)]
    assert drain(queue, [*greedy, candidate("a", "n0", 99)]) == ["a/n0/0", "a/n1/1"]
    assert drain(queue, [*greedy, candidate("b", "n", 50)]) == ["b/n/50"]
    assert drain(queue, greedy) == []


def test_whoever_waited_longest_is_next():
    queue = JobQueue(FakeClock(), JobLimits(at_once=1))
    waiting = [candidate(account, "n", number) for number in range(3) for account in "ab"]
    order = []
    while waiting:
        item = queue.choose(waiting)
        assert item is not None
        queue.started(item)
        queue.stopped(item.job.job)
        waiting.remove(item)
        order.append(item.account)
    assert order == ["a", "b", "a", "b", "a", "b"]


async def test_a_job_of_another_replica_is_left_alone_for_a_while():
    clock = FakeClock()
    queue = JobQueue(clock, JobLimits(takeover_ms=60_000))
    item = candidate("a", "n", clock.now_ms())
    assert queue.choose([item]) is None
    queue.accepted(item.job.job)
    assert queue.choose([item]) is item
    other = JobQueue(clock, JobLimits(takeover_ms=60_000))
    await clock.advance(61)
    assert other.choose([item]) is item


async def test_each_pause_is_longer_than_the_one_before():
    clock = FakeClock()
    queue = JobQueue(clock, JobLimits(takeover_ms=0))
    item = candidate("a", "n", 0)
    waits = []
    for _ in range(12):
        queue.started(item)
        queue.stopped(item.job.job)
        queue.put_off(item.job.job, "model_unavailable")
        assert queue.choose([item]) is None
        state, progress, wait = queue.look(item.job.job)
        assert (state, progress.reason) == ("waiting", "model_unavailable")
        waits.append(wait)
        await clock.advance(wait)
        assert queue.choose([item]) is item
    assert waits[:3] == [4.0, 8.0, 16.0]
    assert waits == sorted(waits)
    assert waits[-1] == 300.0


def test_a_budget_is_an_accounts_own_and_comes_back_with_the_day():
    budget = ModelBudget(DailyLimits(calls=2, tokens=100))
    noon = DAY_MS // 2
    budget.spend("a", 10, noon)
    assert budget.wait_ms("a", noon) == 0
    budget.spend("a", 10, noon)
    assert budget.wait_ms("a", noon) == DAY_MS // 2
    assert budget.wait_ms("b", noon) == 0
    budget.spend("b", 100, noon)
    assert budget.wait_ms("b", noon) == DAY_MS // 2
    assert budget.wait_ms("a", noon + DAY_MS) == 0
    assert ModelBudget(DailyLimits()).wait_ms("a", noon) == 0
