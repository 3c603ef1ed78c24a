"""What is remembered of chat sessions is bounded, and a no is not what is forgotten."""

from __future__ import annotations

from gateway_plugin.sessions import Sessions


def test_the_session_unused_for_longest_is_forgotten():
    sessions = Sessions(limit=2)
    first, second = sessions.of("n", "a"), sessions.of("n", "b")
    sessions.of("n", "a")
    sessions.of("n", "c")
    assert sessions.of("n", "a") is first
    assert sessions.of("n", "b") is not second


def test_a_session_that_is_switched_off_stays_off_however_many_others_there_are():
    sessions = Sessions(limit=10)
    sessions.of("n", "quiet").enabled = False
    for number in range(100):
        sessions.of("n", f"busy {number}")
    assert not sessions.of("n", "quiet").enabled


def test_switching_off_more_sessions_than_are_kept_stays_bounded():
    sessions = Sessions(limit=10)
    for number in range(100):
        sessions.of("n", f"quiet {number}").enabled = False
    assert sum(not sessions.of("n", f"quiet {number}").enabled for number in range(90, 100)) == 10
