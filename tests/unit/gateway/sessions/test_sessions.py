"""What is remembered of chat sessions is bounded."""

from __future__ import annotations

from gateway_plugin.outbox.queue import Outbox
from gateway_plugin.sessions import SessionBook
from gateway_plugin.settings.model import PluginSettings


def test_the_session_unused_for_longest_is_forgotten():
    book = SessionBook(None, PluginSettings(), Outbox.in_memory(), max_sessions=2)
    first, second = book.state("n", "a"), book.state("n", "b")
    book.state("n", "a")
    book.state("n", "c")
    assert book.state("n", "a") is first
    assert book.state("n", "b") is not second
