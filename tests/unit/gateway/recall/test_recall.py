"""An answer at hand is never older than what this plugin wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_relayer import COFFEE, QUESTION, TURN, answer, hang

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import LIFE_SECONDS, RecallCache
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox.queue import Outbox, ValueUpdate
from gateway_plugin.recall.consolidation import RecallCounts
from gateway_plugin.recall.recaller import Recaller
from relayer.wire.schemas import MemoryItem, RecallHit, RecallRequest, RecallResponse, RememberRequest

ASKED = RecallRequest(query=QUESTION)
ANSWER = RecallResponse(memories=())


@pytest.fixture
def kept(clock):
    cache = RecallCache(clock)
    cache.put("a", ASKED, ANSWER, since=cache.writes)
    cache.put("b", ASKED, ANSWER, since=cache.writes)
    return cache


def own(plugin):
    return plugin._inner._book.identity_of_owner(NamespaceRef("default", "default", 1))


def call(plugin, work):
    return plugin._loop.call(work)


def client(plugin):
    return plugin._inner._client


def test_an_answer_is_kept_for_its_life_and_no_longer(kept, clock):
    clock.at += LIFE_SECONDS - 0.1
    assert kept.get("a", ASKED) is ANSWER
    clock.at += 0.1
    assert kept.get("a", ASKED) is None


def test_a_write_drops_the_answers_of_its_own_namespace(kept):
    kept.drop("a")
    assert (kept.get("a", ASKED), kept.get("b", ASKED)) == (None, ANSWER)


def test_an_answer_that_was_asked_for_before_a_write_is_not_kept(kept):
    before = kept.writes
    kept.drop("a")
    kept.put("a", ASKED, ANSWER, since=before)
    assert kept.get("a", ASKED) is None


def test_a_memory_forgotten_through_this_plugin_is_not_injected_again(plugin):
    plugin.after_turn(TURN)
    found = plugin.before_turn(QUESTION)
    assert found.status == "ok"
    call(plugin, client(plugin).forget(own(plugin), found.hits[0].id))
    assert plugin.before_turn(QUESTION).status == "empty"


def test_a_forget_that_was_answered_badly_counts_as_one_that_happened(plugin, wire):
    plugin.after_turn(TURN)
    found = plugin.before_turn(QUESTION)
    wire.script = [answer(500, "internal_error")]
    with pytest.raises(RelayerRefused):
        call(plugin, client(plugin).forget(own(plugin), found.hits[0].id))
    plugin.before_turn(QUESTION)
    assert not plugin.why().cached


def test_what_is_remembered_through_this_plugin_is_found_at_once(plugin):
    assert plugin.before_turn(QUESTION).status == "empty"
    call(plugin, client(plugin).remember(own(plugin), RememberRequest(items=(MemoryItem(text=COFFEE),))))
    assert plugin.before_turn(QUESTION).status == "ok"


def test_a_capture_that_was_delivered_late_is_found_at_once(plugin, wire):
    wire.refused_captures["default"] = (503, "queue_full")
    plugin.after_turn(TURN)
    assert plugin.before_turn(QUESTION).status == "empty"
    wire.refused_captures.clear()
    assert plugin.flush(5)
    assert plugin.before_turn(QUESTION).status == "ok"


# What turns were given is counted: by a thread of the outbox's, and by the one that consolidates and reads it right afterwards.
OWNER, GATEWAY = NamespaceRef("researcher", "researcher", 1), NamespaceRef("", "", 0)
HIT = RecallHit(
    id="01m8079zqgt6n9m13psfyd6ak5", text="The ferry leaves at nine.", kind="fact", audience="agent", trust="user",
    created_at="2026-01-01T00:00:00Z", relevance=0.9, distance=0.1,
)  # fmt: skip


class HeldUp(Outbox):
    """A disk that is slow: whoever writes first goes on when it is told to."""

    def __init__(self, path: Path, holder: RootHolder) -> None:
        super().__init__(path, holder)
        self.writing, self.may_write = threading.Event(), threading.Event()

    def compare_and_set(self, update: ValueUpdate) -> None:
        self.writing.set()
        assert self.may_write.wait(30)
        super().compare_and_set(update)


@pytest.fixture
def outbox(tmp_path: Path, holder: RootHolder) -> Iterator[HeldUp]:
    made = HeldUp(tmp_path / "outbox.db", holder)
    yield made
    made.close()


def test_who_persists_while_another_does_reads_all_of_it_afterwards(outbox: HeldUp) -> None:
    counts = RecallCounts(outbox, GATEWAY, SystemClock())
    counts.saw(OWNER, [HIT], "When does the ferry leave?")
    read: list[int] = []

    def consolidates() -> None:
        counts.persist()
        read.extend(one.recalls for one in counts.counts(OWNER).values())

    threads = [threading.Thread(target=counts.persist), threading.Thread(target=consolidates)]
    threads[0].start()
    assert outbox.writing.wait(30)
    threads[1].start()
    # Time in which the second would be through, had it nothing to wait for.
    threads[1].join(0.2)
    outbox.may_write.set()
    for thread in threads:
        thread.join(30)
    assert read == [1]


# MemWal's sentence about the namespace: where it stands, where it does not, and that it grants nothing.
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


# The line about each recall: absent unless asked for, complete when it is, and never with a memory's text in it.
@pytest.fixture
def logged(make):
    def build(**settings):
        plugin = make(settings=settings)
        plugin.after_turn([{"role": "user", "content": COFFEE}])
        plugin.flush(10)
        return plugin

    return build


def outcomes(plugin, wire):
    """One turn of every kind."""
    plugin.before_turn("ok")
    plugin.before_turn(QUESTION)
    plugin.before_turn("What is the capital of France?")
    wire.script = [hang]
    plugin.before_turn("Which coffee do I like best of all?", deadline=0.3)


@pytest.mark.row("AM-22")
def test_nothing_is_logged_unasked(logged, wire, capfd, caplog):
    plugin = logged()
    capfd.readouterr()
    outcomes(plugin, wire)
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


@pytest.mark.row("CP-29")
@pytest.mark.row("AM-22")
@pytest.mark.parametrize("settings", [{"recall": {"logging": True}}, {"logging": True}])
def test_each_recall_that_is_to_be_logged_says_what_it_did_and_no_text(logged, wire, capfd, settings):
    plugin = logged(**settings)
    capfd.readouterr()
    outcomes(plugin, wire)
    plugin.before_turn(QUESTION)
    (hit,) = plugin.why().hits
    printed = capfd.readouterr().err
    lines = [line.partition(" (")[0] for line in printed.splitlines()]
    assert lines == [
        "memrelay: recall skipped",
        "memrelay: injecting 1 memories into context",
        "memrelay: recall returned 0 results",
        "memrelay: recall timeout",
        "memrelay: injecting 1 memories into context",
    ]
    assert "(prompt too short: 2 < 10)" in printed
    assert f"ms) [memory/{hit.id}.md(90%)]" in printed
    assert "query of 30 characters" in printed
    assert not [word for word in ("oat", "coffee", "capital") if word in printed]


@pytest.mark.row("CP-29")
def test_a_query_is_logged_only_where_that_was_asked_for_too_cut_and_without_secrets(logged, capfd):
    plugin = logged(recall={"logging": True, "logQueries": True})
    key = "ghp_" + "a1B2" * 9
    plugin.before_turn(f"What did we do with the token {key} on the way to France? " + "Really? " * 20)
    (line,) = [one for one in capfd.readouterr().err.splitlines() if "0 results" in one]
    query = line.partition("query: ")[2].removesuffix(")")
    assert query.startswith("What did we do with the token")
    assert key not in line
    assert len(query) <= 80
