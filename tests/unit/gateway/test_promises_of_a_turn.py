"""What the five replaced plugins promised about a turn, told through the plugin as hosts use it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from wire_relayer import COFFEE, QUESTION, SECRET, hang

from gateway_plugin import MemoryPlugin
from gateway_plugin.settings.model import load_settings

TURN = [{"role": "user", "content": COFFEE}, {"role": "assistant", "content": "Noted."}]


@pytest.mark.row("CP-19", level="e2e")
@pytest.mark.row("AR-01", level="e2e")
def test_memory_is_searched_before_a_turn_without_being_asked(make, wire):
    plugin = make()
    plugin.after_turn(TURN)
    turn = plugin.before_turn(QUESTION)
    assert COFFEE in turn.text
    assert wire.paths().count("/v1/recall") == 1


def test_a_turn_adds_less_than_a_second_to_an_answer_of_the_relayer(make, wire):
    plugin = make()
    plugin.before_turn(QUESTION)
    start = time.monotonic()
    assert plugin.before_turn("Where is the green bicycle kept in winter?").status in {"ok", "empty"}
    assert time.monotonic() - start < 1


@pytest.mark.row("CP-31", level="e2e")
def test_every_completed_turn_is_captured(make, wire):
    plugin = make()
    said = [f"The berth number {number} belongs to the harbour master." for number in range(3)]
    for text in said:
        assert (
            plugin.after_turn([{"role": "user", "content": text}], session_key="agent:main:s").status
            == "queued"
        )
    assert plugin.flush(10)
    assert wire.texts("default") == said


@pytest.mark.row("AR-09", level="e2e")
def test_the_floor_that_is_set_is_asked_for_and_held_to(make, wire):
    plugin = make(settings={"minScore": 0.95})
    plugin.after_turn(TURN)
    turn = plugin.before_turn(QUESTION)
    assert wire.bodies("/v1/recall")[-1]["floor"] == 0.95
    assert (turn.status, turn.text) == ("empty", "")
    assert plugin.why().hits[0].outcome == "below_floor"


@pytest.mark.row("MW-18", level="e2e")
@pytest.mark.row("MW-19")
def test_a_capture_keeps_its_messages_apart_in_order_and_with_their_times(make, wire):
    plugin = make()
    messages = [
        {"role": "user", "content": COFFEE, "timestamp": "2026-05-01T08:00:00Z"},
        {
            "role": "assistant",
            "content": "I will remember that you like oat milk in it.",
            "timestamp": "2026-05-01T08:01:00Z",
        },
    ]
    plugin.after_turn(messages)
    assert plugin.flush(10)
    (body,) = wire.bodies("/v1/analyze")
    assert [turn["role"] for turn in body["turns"]] == ["user", "assistant"]
    times = [datetime.fromisoformat(turn["occurred_at"]) for turn in body["turns"]]
    assert times == [datetime(2026, 5, 1, 8, minute, tzinfo=UTC) for minute in (0, 1)]
    assert body["idempotency_key"]


@pytest.mark.row("MW-28")
def test_an_account_id_of_the_original_is_accepted():
    assert load_settings({"accountId": "0x" + "ab" * 20}, {}).account_id == "0x" + "ab" * 20


@pytest.mark.row("MS-23", level="e2e")
def test_each_agent_has_a_store_of_its_own(make, wire):
    plugin = make()
    plugin.after_turn(TURN, session_key="agent:work:s")
    assert plugin.before_turn(QUESTION, session_key="agent:work:s").status == "ok"
    assert plugin.before_turn(QUESTION, session_key="agent:main:s").status == "empty"
    assert {namespace for _, namespace in wire.memories} == {"work", "default"}


@pytest.mark.row("AM-18", level="e2e")
def test_the_time_of_a_turn_ends_its_request_and_not_only_the_waiting(make, wire):
    wire.script = [hang]
    plugin = make(settings={"recall": {"deadlineMs": 300}})
    start = time.monotonic()
    assert plugin.before_turn(QUESTION).status == "timeout"
    assert time.monotonic() - start < 2
    assert wire.aborted.wait(5)


@pytest.mark.row("AM-25", level="e2e")
def test_a_recall_ends_with_a_named_status(make, wire, environ):
    plugin = make()
    plugin.after_turn(TURN)
    seen = {plugin.before_turn(QUESTION).status, plugin.before_turn("capital of France, please").status}
    wire.script = [hang]
    seen.add(plugin.before_turn("Which coffee do I like best?", deadline=0.3).status)
    with MemoryPlugin("http://127.0.0.1:9", secret=SECRET, environ=environ) as lost:
        seen.add(lost.before_turn(QUESTION).status)
    assert seen == {"ok", "empty", "timeout", "unavailable"}


def test_a_turn_says_how_it_went_without_any_text_of_a_memory(make):
    plugin = make()
    plugin.after_turn(TURN)
    turn = plugin.before_turn(QUESTION)
    assert turn.line.startswith("🧩 memory: ok ")
    assert "oat milk" not in turn.line + repr(plugin.why()) + repr(turn.status)


@pytest.mark.row("AR-20")
def test_the_penalties_that_are_set_go_along_and_otherwise_the_relayers_own_hold(make, wire):
    make().before_turn(QUESTION)
    assert "penalties" not in wire.bodies("/v1/recall")[-1]
    drafts = [{"match": "*memory/ideas/*", "penalty": 0.3}, {"match": "trust:tool"}]
    make(settings={"recall": {"sourcePenalties": drafts}}).before_turn(QUESTION)
    assert wire.bodies("/v1/recall")[-1]["penalties"] == [drafts[0], {"match": "trust:tool", "penalty": 0.15}]
    make(settings={"recall": {"sourcePenalties": []}}).before_turn(QUESTION)
    assert wire.bodies("/v1/recall")[-1]["penalties"] == []


def test_the_kill_switch_leaves_the_prompt_as_it_was(wire, environ, tmp_path):
    with MemoryPlugin(wire.url, environ={**environ, "MEMRELAY_DISABLE": "1"}) as plugin:
        prompt = f"{plugin.before_turn(QUESTION).text}{QUESTION}"
        plugin.after_turn(TURN)
        plugin.flush_session(TURN, seconds=1)
        assert plugin.tool("memory_search", {"query": QUESTION}).failed
        assert plugin.status().waiting == 0
    assert prompt == QUESTION
    assert wire.seen == []
    assert [*tmp_path.iterdir()] == []
