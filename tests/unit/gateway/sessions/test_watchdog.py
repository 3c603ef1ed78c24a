"""Turns that recall and are never captured are noticed, once a day."""

from __future__ import annotations

import pytest

from gateway_plugin import MemoryPlugin
from gateway_plugin.sessions import TURNS, Watchdog

DAY = 24 * 3600


@pytest.fixture
def told():
    return []


@pytest.fixture
def dog(clock, told):
    return Watchdog(clock, told.append, enabled=True)


def recall(dog, times):
    for _ in range(times):
        dog.recalled()


def test_recalls_without_any_capture_are_said_once_a_day(dog, clock, told):
    recall(dog, TURNS - 1)
    assert told == []
    recall(dog, 5)
    assert len(told) == 1
    assert "allowConversationAccess" in told[0]
    clock.at += DAY
    recall(dog, 3)
    assert len(told) == 2


def test_one_turn_that_is_handed_over_ends_the_warning(dog, told):
    recall(dog, TURNS)
    dog.handed_over()
    assert dog.warning == ""
    recall(dog, TURNS - 1)
    assert len(told) == 1


def test_many_sessions_whose_turns_are_under_way_are_no_warning(dog, told):
    for number in range(50):
        dog.recalled(f"session {number}")
    assert told == []
    dog.handed_over()


def test_sessions_that_go_on_without_any_capture_are(dog, told):
    for _ in range(4):
        for number in range(5):
            dog.recalled(f"session {number}")
    assert len(told) == 1


def test_capture_that_is_off_on_purpose_is_not_warned_about(clock, told):
    recall(Watchdog(clock, told.append, enabled=False), 3 * TURNS)
    assert told == []


def test_the_plugin_warns_in_its_status_and_on_standard_error(wire, environ, capsys):
    with MemoryPlugin(wire.url, secret="11" * 32, environ=environ) as plugin:
        for _ in range(TURNS):
            plugin.before_turn("How do I take my coffee?")
            plugin.after_turn([])
        assert "nothing is being remembered" in plugin.status().warning
        plugin.after_turn([{"role": "user", "content": "thanks"}])
        assert plugin.status().warning == ""
    assert capsys.readouterr().err.count("nothing is being remembered") == 1
