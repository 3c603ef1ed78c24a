"""A read is answered once, as long as its signature could be accepted."""

from __future__ import annotations

import pytest

from relayer.http.limits import ReplayCache
from relayer.http.problems import HttpProblem

AGENT = b"a" * 32
NOW = 1_700_000_000


def _nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_the_second_one_is_refused() -> None:
    seen = ReplayCache()
    seen.note(AGENT, _nonce(1), expires=NOW + 120, now=NOW)
    with pytest.raises(HttpProblem, match="replayed") as caught:
        seen.note(AGENT, _nonce(1), expires=NOW + 120, now=NOW)
    assert caught.value.status == 401


def test_the_same_nonce_of_another_agent_is_another_read() -> None:
    seen = ReplayCache()
    seen.note(AGENT, _nonce(1), expires=NOW + 120, now=NOW)
    seen.note(b"b" * 32, _nonce(1), expires=NOW + 120, now=NOW)


def test_a_read_is_remembered_until_the_last_second_in_which_it_is_accepted() -> None:
    seen = ReplayCache()
    expires = NOW + 120
    seen.note(AGENT, _nonce(1), expires=expires, now=NOW)
    last = expires + 60
    seen.note(AGENT, _nonce(2), expires=last + 120, now=last)
    with pytest.raises(HttpProblem, match="replayed"):
        seen.note(AGENT, _nonce(1), expires=expires, now=last)


def test_a_nonce_counts_once_whenever_it_is_said_to_run_out() -> None:
    seen = ReplayCache()
    seen.note(AGENT, _nonce(1), expires=NOW + 300, now=NOW)
    with pytest.raises(HttpProblem, match="replayed"):
        seen.note(AGENT, _nonce(1), expires=NOW + 420, now=NOW + 120)


def test_what_is_over_makes_room() -> None:
    seen = ReplayCache()
    for second in range(0, 6000, 30):
        seen.note(AGENT, _nonce(second), expires=NOW + second + 120, now=NOW + second)
    assert len(seen) <= 12


def test_what_cannot_be_remembered_is_not_served() -> None:
    seen = ReplayCache(most=2)
    for number in range(2):
        seen.note(AGENT, _nonce(number), expires=NOW, now=NOW)
    with pytest.raises(HttpProblem, match="queue_full"):
        seen.note(AGENT, _nonce(3), expires=NOW, now=NOW)
    later = NOW + 200
    seen.note(AGENT, _nonce(3), expires=later, now=later)
