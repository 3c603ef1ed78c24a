"""The end of a session: told to the relayer once, durably, and only where something was captured."""

from __future__ import annotations

import pytest
from wire_relayer import COFFEE, SECRET, answer

from gateway_plugin import MemoryPlugin
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox.queue import Outbox, outbox_path
from gateway_plugin.outbox.sender import forget_namespace
from gateway_plugin.sessions import TURNS, SessionBook, Watchdog
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.turn.gates import HostTurn
from relayer.wire.sealing import RootKeys

BERLIN = "I moved from Hamburg to Berlin in the spring of this year."
KEY = "agent:researcher:uuid-456"
NOWHERE = "http://127.0.0.1:9"


def said(*texts):
    return [{"role": "user", "content": text, "id": f"m{number}"} for number, text in enumerate(texts)]


def ends(wire):
    return [body for body in wire.bodies("/v1/analyze") if body.get("session_end")]


@pytest.mark.row("MW-35", level="e2e")
def test_the_end_of_a_session_is_told_after_what_was_said_in_it(make, wire):
    plugin = make()
    report = plugin.flush_session(said(COFFEE), session_key=KEY, host=HostTurn(host="test"), ended=True)
    assert (report.status, report.ended) == ("queued", True)
    assert plugin.flush(10)
    turn, end = wire.bodies("/v1/analyze")
    assert [one["text"] for one in turn["turns"]] == [COFFEE]
    assert end["turns"] == []
    assert (end["session"], end["audience"], end["host"]) == (KEY, turn["audience"], "test")


def test_a_session_that_goes_on_ends_again_and_one_that_does_not_ends_once(make, wire):
    plugin = make()
    for history in ((COFFEE,), (), (COFFEE, BERLIN), ()):
        plugin.flush_session(said(*history), session_key=KEY, ended=True)
        plugin.flush(10)
    assert len(ends(wire)) == 2
    assert len({body["idempotency_key"] for body in ends(wire)}) == 2


def test_a_compaction_ends_nothing_and_an_unused_session_has_no_end(make, wire):
    plugin = make()
    assert not plugin.flush_session((), session_key=KEY, ended=True).ended
    plugin.flush_session(said(COFFEE), session_key=KEY)
    plugin.flush(10)
    assert ends(wire) == []


@pytest.mark.parametrize("off", [{"capture": {"summary": False}}, {"capture": {"enabled": False}}])
def test_summaries_can_be_switched_off_alone_and_go_with_capture(make, wire, off):
    make().after_turn(said(COFFEE), session_key=KEY)
    assert not make(settings=off).flush_session((), session_key=KEY, ended=True).ended
    assert ends(wire) == []


def test_a_session_that_a_person_switched_off_is_not_told_of(make, wire):
    plugin = make()
    plugin.after_turn(said(COFFEE), session_key=KEY)
    plugin.set_session(KEY, enabled=False)
    assert not plugin.flush_session((), session_key=KEY, ended=True).ended


def test_an_end_outlives_the_process_that_saw_it(make, wire, environ):
    with MemoryPlugin(NOWHERE, secret=SECRET, environ=environ) as lost:
        assert lost.flush_session(said(COFFEE), session_key=KEY, ended=True).ended
    holder = RootHolder(RootKeys(bytes.fromhex(SECRET)))
    outbox = Outbox(outbox_path(environ, holder, NOWHERE), holder)
    assert [len(letter.item.request.turns) for letter in outbox.queued()] == [1, 0]
    assert forget_namespace(outbox, NamespaceRef("researcher", "researcher", 1)) == 1
    assert outbox.waiting() == 0
    outbox.close()


def test_a_relayer_that_has_no_use_for_ends_leaves_no_dead_letter(make, wire):
    plugin = make()
    plugin.after_turn(said(COFFEE), session_key=KEY)
    plugin.flush(10)
    wire.script = [answer(422, "invalid")]
    assert plugin.flush_session((), session_key=KEY, ended=True, seconds=10).waiting == 0
    assert (plugin.status().refused, plugin.status().waiting) == (0, 0)


# Turns that recall and are never captured are noticed, once a day.
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


# What is remembered of chat sessions is bounded.
def test_the_session_unused_for_longest_is_forgotten():
    book = SessionBook(None, PluginSettings(), Outbox.in_memory(), max_sessions=2)
    first, second = book.state("n", "a"), book.state("n", "b")
    book.state("n", "a")
    book.state("n", "c")
    assert book.state("n", "a") is first
    assert book.state("n", "b") is not second
