"""MemWal's sentence about the namespace: where it stands, where it does not, and that it grants nothing."""

from __future__ import annotations

import pytest
from wire_relayer import COFFEE, QUESTION

from gateway_plugin.recall.recaller import Recaller

KEY = "agent:researcher:uuid-456"
SENTENCE = (
    'When using memory_search or memory_store tools, pass namespace="researcher" to scope operations to the '
    "current agent's memory."
)


@pytest.fixture
def memwal(make):
    return make(settings={"preset": "memwal"})


@pytest.mark.row("MW-10", level="e2e")
def test_the_namespace_is_named_whether_something_was_found_or_not(memwal):
    memwal.after_turn([{"role": "user", "content": COFFEE}], session_key=KEY)
    found = memwal.before_turn(QUESTION, session_key=KEY)
    nothing = memwal.before_turn("What is the capital of France?", session_key=KEY)
    assert (found.status, found.instruction) == ("ok", SENTENCE)
    assert (nothing.status, nothing.text, nothing.instruction) == ("empty", "", SENTENCE)


@pytest.mark.row("MW-10", level="e2e")
def test_the_namespace_is_named_when_recall_fails(make):
    turn = make("http://127.0.0.1:9", settings={"preset": "memwal"}).before_turn(QUESTION, session_key=KEY)
    assert (turn.status, turn.instruction) == ("unavailable", SENTENCE)


@pytest.mark.row("MW-10", level="e2e")
def test_the_namespace_is_named_when_the_plugin_itself_fails(memwal, monkeypatch):
    async def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(Recaller, "_search_and_select", broken)
    turn = memwal.before_turn(QUESTION, session_key=KEY)
    assert (turn.status, turn.instruction) == ("failed", SENTENCE)


@pytest.mark.row("MW-10", level="e2e")
def test_a_prompt_that_is_too_short_is_told_nothing(memwal):
    turn = memwal.before_turn("ok", session_key=KEY)
    assert (turn.status, turn.instruction) == ("skipped:min_length", "")


def test_nobody_else_is_told_of_namespaces(plugin):
    assert plugin.before_turn(QUESTION, session_key=KEY).instruction == ""


@pytest.mark.row("MW-10", level="e2e")
def test_a_model_that_obeys_the_sentence_finds_the_agents_memories_and_no_others(memwal):
    memwal.after_turn([{"role": "user", "content": COFFEE}], session_key=KEY)
    memwal.flush(10)
    own = memwal.tool("memory_search", {"query": QUESTION, "namespace": "researcher"}, session_key=KEY)
    assert COFFEE in own.text
    foreign = memwal.tool("memory_search", {"query": QUESTION, "namespace": "coder"}, session_key=KEY)
    assert foreign.failed
