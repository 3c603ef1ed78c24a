"""Who is down is asked by one at a time, less and less often."""

from __future__ import annotations

from relayer.testing.fake_clock import FakeClock
from relayer.wire.calls import Breaker, doubled


def test_a_pause_doubles_up_to_a_bound_however_many_failures_there_were():
    assert [doubled(2.0, failures, 300.0) for failures in (0, 1, 2, 8, 100_000)] == [
        2.0,
        4.0,
        8.0,
        300.0,
        300.0,
    ]


def opened(clock: FakeClock) -> Breaker:
    breaker = Breaker(clock.monotonic, limit=3, first=1.0, longest=30.0)
    for _ in range(3):
        assert breaker.wait() == 0.0
        breaker.failed()
    return breaker


async def test_one_request_at_a_time_looks_whether_the_outage_is_over():
    clock = FakeClock()
    breaker = opened(clock)
    assert breaker.wait() > 0
    await clock.advance(1.0)
    assert breaker.wait() == 0.0
    assert breaker.wait() > 0
    breaker.succeeded()
    assert (breaker.wait(), breaker.failures, breaker.remaining) == (0.0, 0, 0.0)


async def test_pauses_grow_with_every_trial_that_fails():
    clock = FakeClock()
    breaker = opened(clock)
    pauses = []
    for _ in range(7):
        pauses.append(breaker.remaining)
        await clock.advance(breaker.remaining)
        assert breaker.wait() == 0.0
        breaker.failed()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_what_is_asked_for_holds_everybody_back_at_the_first_failure():
    breaker = Breaker(FakeClock().monotonic, limit=3, first=1.0, longest=30.0)
    breaker.failed(at_least=45.0)
    assert breaker.wait() == 45.0
