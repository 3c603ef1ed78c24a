"""Each key of memory-core-plus and auto-recall does in a turn what it says, with its default where it is left out."""

from __future__ import annotations

import pytest

from gateway_plugin import MemoryPlugin

PATIENCE = 60.0
BOATS = ("dinghy", "skiff", "tug", "yacht", "ferry", "barge", "cutter", "ketch")
FACTS = [f"The {boat} of our sailing club is painted {colour}." for boat, colour in zip(
    BOATS, ("red", "green", "blue", "white", "black", "yellow", "grey", "orange"), strict=True)]  # fmt: skip
QUESTION = "Which colours are the boats of our sailing club painted in?"


@pytest.fixture
def plugin(shared_relayer, secret, tmp_path):
    """Makes a plugin of one gateway with these settings."""
    opened = []

    def make(**config):
        environ = {"XDG_CONFIG_HOME": str(tmp_path / "gateway"), "XDG_STATE_HOME": str(tmp_path / "state")}
        settings = {"url": shared_relayer, "recall.deadlineMs": 60_000, **config}
        memory = MemoryPlugin(settings=settings, secret=secret, environ=environ)
        opened.append(memory)
        return memory

    yield make
    for memory in opened:
        memory.close()


@pytest.fixture
def told(plugin):
    """A gateway that was told eight facts."""
    memory = plugin()
    memory.after_turn([{"role": "user", "content": fact} for fact in FACTS])
    assert memory.flush(PATIENCE)


def texts(memory, question=QUESTION):
    return [hit.text for hit in memory.before_turn(question, deadline=PATIENCE).hits]


@pytest.mark.row("CP-11", "CP-12", "AR-08", "MW-29", level="e2e")
@pytest.mark.parametrize("key", ["autoRecallMaxResults", "maxResults", "maxRecallResults", "top_k"])
def test_so_many_memories_are_put_into_a_turn_at_most(plugin, told, key):
    assert len(texts(plugin(**{key: 3}))) == 3
    assert len(texts(plugin(autoRecall=True))) > 3


@pytest.mark.row("CP-11", level="e2e")
def test_auto_recall_is_on_unless_it_is_false(plugin, told):
    assert texts(plugin())
    off = plugin(autoRecall=False).before_turn(QUESTION, deadline=PATIENCE)
    assert (off.text, off.hits, off.status.partition(":")[0]) == ("", (), "skipped")


@pytest.mark.row("CP-13", "CP-20", level="e2e")
@pytest.mark.parametrize(("config", "asked"), [
    ({}, False), ({"autoRecallMinPromptLength": 5}, True), ({"preset": "memory-core-plus"}, True),
    ({"preset": "memory-core-plus", "autoRecallMinPromptLength": 9}, False),
])  # fmt: skip
def test_a_prompt_of_eight_characters_is_too_short_or_not(plugin, told, config, asked):
    status = plugin(**config).before_turn("dinghy? ", deadline=PATIENCE).status
    assert (not status.startswith("skipped")) is asked


@pytest.mark.row("CP-14", level="e2e")
def test_auto_capture_is_on_unless_it_is_false(plugin):
    plugin(autoCapture=False).after_turn([{"role": "user", "content": FACTS[0]}])
    later = plugin()
    assert later.flush(PATIENCE)
    assert texts(later) == []
    later.after_turn([{"role": "user", "content": FACTS[1]}])
    assert later.flush(PATIENCE)
    assert texts(later) == [FACTS[1]]


@pytest.mark.row("CP-15", level="e2e")
@pytest.mark.parametrize("key", ["autoCaptureMaxMessages", "captureMaxMessages"])
def test_the_newest_messages_of_a_turn_are_captured_and_no_older_ones(plugin, key):
    memory = plugin(**{key: 2})
    memory.after_turn([{"role": "user", "content": fact} for fact in FACTS])
    assert memory.flush(PATIENCE)
    assert set(texts(memory)) == set(FACTS[-2:])
