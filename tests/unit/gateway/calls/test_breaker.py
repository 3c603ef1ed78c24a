from __future__ import annotations

import pytest

from gateway_plugin.calls.calling import RelayerBreaker
from gateway_plugin.errors import RelayerUnreachable, RelayerUntrusted


@pytest.fixture
def opened(clock):
    breaker = RelayerBreaker(clock)
    for _ in range(3):
        breaker.check()
        breaker.failed_by(None)
    return breaker


@pytest.mark.row("AM-26")
def test_three_failures_close_the_way_for_a_minute(opened, clock):
    clock.at += 59.9
    with pytest.raises(RelayerUnreachable):
        opened.check()


def test_after_the_pause_one_call_tries_and_the_others_wait(opened, clock):
    clock.at += 60
    opened.check()
    with pytest.raises(RelayerUnreachable):
        opened.check()


def test_a_trial_that_succeeds_lets_everybody_through(opened, clock):
    clock.at += 60
    opened.check()
    opened.succeeded()
    opened.check()
    opened.check()


def test_a_trial_that_fails_begins_another_pause(opened, clock):
    clock.at += 60
    opened.check()
    opened.failed_by(None)
    clock.at += 59
    with pytest.raises(RelayerUnreachable):
        opened.check()


def test_a_success_in_between_starts_the_count_again(clock):
    breaker = RelayerBreaker(clock)
    for _ in range(5):
        breaker.failed_by(None)
        breaker.failed_by(None)
        breaker.succeeded()
    breaker.check()
    assert breaker.remaining == 0


def test_while_a_stranger_answers_the_breaker_says_so(opened, clock):
    opened.failed_by(RelayerUntrusted("somebody else answers"))
    with pytest.raises(RelayerUntrusted, match=r"somebody else answers .*next try is in 60 s"):
        opened.check()
    clock.at += 61
    opened.check()
    opened.failed_by(RelayerUnreachable("nobody answers"))
    with pytest.raises(RelayerUnreachable, match="next try is in"):
        opened.check()
