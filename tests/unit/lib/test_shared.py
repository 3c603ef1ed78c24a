"""What workers know together: the same sets and numbers in processes that were forked after they were made."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from relayer.errors import QueueFull
from relayer.lib.job_queue import DailyLimits, ModelBudget
from relayer.lib.shared import Seat, Shared, SharedLevels, SharedLock, SharedSlices
from relayer.lib.work import Buckets, Limit

LIMIT = Limit(capacity=10, per_second=1)
DAY_MS = 86_400_000


def in_a_fork(work: Callable[[], bool]) -> bool:
    """Return what ``work`` says in a process that was forked for it."""
    process = os.fork()
    if not process:
        said = False
        try:
            said = work()
        finally:
            os._exit(0 if said else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@pytest.mark.tier("all")
def test_what_one_process_added_another_does_not_add_again() -> None:
    slices = SharedSlices(places=4, most=100)
    assert slices.add(7, b"agent", b"nonce")
    assert in_a_fork(lambda: not slices.add(7, b"agent", b"nonce"))
    assert in_a_fork(lambda: slices.add(7, b"agent", b"another"))
    assert not slices.add(7, b"agent", b"another")
    assert slices.add(8, b"agent", b"another"), "a later slice is another one"


class Hesitating(SharedSlices):
    """Lets the others go first at the worst moment: what it found is no longer true when it writes."""

    def _put(self, place: int, number: int) -> None:
        time.sleep(0.001)
        super()._put(place, number)


@pytest.mark.tier("all")
def test_processes_that_add_the_same_at_once_add_each_thing_once() -> None:
    slices, wins = Hesitating(places=4, most=1_000), SharedLevels()

    def race(racer: int) -> None:
        won, left = 0, list(range(100))
        while left:
            with suppress(QueueFull):
                won += slices.add(3, bytes([left[-1]]))
                left.pop()
        wins.put(str(racer), (float(won), 1.0))

    processes = []
    for racer in range(3):
        process = os.fork()
        if not process:
            race(racer)
            os._exit(0)
        processes.append(process)
    assert [os.waitpid(process, 0)[1] for process in processes] == [0] * 3
    counts = [wins.get(str(racer)) for racer in range(3)]
    assert sum(count[0] for count in counts if count) == 100


def test_a_slice_gives_its_place_to_a_later_one_and_never_to_an_earlier() -> None:
    slices = SharedSlices(places=4, most=100)
    assert slices.add(1, b"a")
    assert slices.add(5, b"a"), "the slice of four minutes ago is over"
    assert not slices.add(5, b"a")
    with pytest.raises(QueueFull):
        slices.add(1, b"b")


def test_a_full_slice_refuses_what_it_cannot_remember() -> None:
    slices = SharedSlices(places=4, most=3)
    for number in range(3):
        assert slices.add(1, bytes([number]))
    with pytest.raises(QueueFull):
        slices.add(1, b"one more")
    assert not slices.add(1, b"\x00"), "what it remembers it still knows"


@pytest.mark.tier("all")
def test_a_lock_whose_holder_is_stopped_is_not_waited_for_and_is_free_when_it_dies() -> None:
    lock = SharedLock()
    here, there = os.pipe()
    holder = os.fork()
    if not holder:
        with lock.held():
            os.write(there, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(here, 1)
    os.kill(holder, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(QueueFull), lock.held():
        pass
    assert time.monotonic() - began < 2
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with lock.held():
        pass
    os.close(here)
    os.close(there)


@pytest.mark.tier("all")
def test_a_bucket_is_emptied_by_all_processes_together() -> None:
    levels = SharedLevels()
    buckets = Buckets(LIMIT, levels=levels.named("accounts"))
    buckets.spend("a", 6, now=100.0)
    assert in_a_fork(lambda: buckets.wait("a", 5, 100.0) == pytest.approx(1.0))
    assert in_a_fork(lambda: buckets.spend("a", 4, 100.0) is None)
    assert buckets.wait("a", 1, 100.0) == pytest.approx(1.0)
    assert buckets.wait("b", 10, 100.0) == 0
    assert Buckets(LIMIT, levels=levels.named("agents")).wait("a", 10, 100.0) == 0, "another table's"


def test_where_too_many_names_meet_the_one_written_longest_ago_is_forgotten() -> None:
    levels = SharedLevels(most=8)
    for number in range(8):
        levels.put(str(number), (float(number), 100.0 + number))
    levels.put("0", (50.0, 200.0))
    levels.put("new", (9.0, 201.0))
    assert levels.get("0") == (50.0, 200.0)
    assert levels.get("1") is None
    assert [levels.get(name) is not None for name in ("2", "7", "new")] == [True] * 3


@pytest.mark.tier("all")
def test_a_models_budget_is_the_relayers_and_not_a_workers() -> None:
    shared = Shared(2)
    budget = ModelBudget(DailyLimits(calls=2), shared)
    budget.spend("a", 10, DAY_MS)
    assert in_a_fork(lambda: budget.spend("a", 10, DAY_MS) is None)
    assert budget.wait_ms("a", DAY_MS) == DAY_MS
    assert budget.wait_ms("b", DAY_MS) == 0
    assert budget.wait_ms("a", 2 * DAY_MS) == 0, "another day"


def test_the_worker_with_fewer_connections_takes_the_next_and_one_that_is_away_takes_none() -> None:
    shared = Shared(2)
    first, second = Seat(0, shared), Seat(1, shared)
    first.has(3)
    assert not first.is_crowded(3), "nobody else is there"
    second.has(2)
    assert first.is_crowded(3)
    assert not second.is_crowded(2)
    shared.connections.away(1)
    assert not first.is_crowded(3)


@pytest.mark.parametrize("drift", [1, 300, 3600])
def test_nonces_have_a_place_however_far_clocks_may_be_off(drift: int) -> None:
    nonces, now = Shared(2, drift).compat, 1_000_000
    for expires in (now, now + 2 * drift):
        assert nonces.add(expires // 60 + 1, b"a nonce", expires.to_bytes(8, "big"))
        assert not nonces.add(expires // 60 + 1, b"a nonce", expires.to_bytes(8, "big"))
    assert nonces.add(now // 60 + 1, b"another")
