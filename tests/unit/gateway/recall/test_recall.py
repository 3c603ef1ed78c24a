"""An answer at hand is never older than what this plugin wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_relayer import COFFEE, QUESTION, TURN, answer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import LIFE_SECONDS, RecallCache
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox.queue import Outbox, ValueUpdate
from gateway_plugin.recall.consolidation import RecallCounts
from relayer.wire.memories import RecallHit
from relayer.wire.schemas import MemoryItem, RecallRequest, RecallResponse, RememberRequest

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
