"""What is remembered of chat sessions is bounded."""

from __future__ import annotations

from gateway_plugin.sessions.book import Sessions


def test_the_session_unused_for_longest_is_forgotten():
    sessions = Sessions(limit=2)
    first, second = sessions.of("n", "a"), sessions.of("n", "b")
    sessions.of("n", "a")
    sessions.of("n", "c")
    assert sessions.of("n", "a") is first
    assert sessions.of("n", "b") is not second
