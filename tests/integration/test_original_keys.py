"""Each key of memory-core-plus and auto-recall does in a turn what it says, with its default where it is left out."""

from __future__ import annotations

import math
import secrets

import pytest
from plugin_site import PluginSite

from gateway_plugin import MemoryPlugin
from gateway_plugin.errors import SettingsError

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


@pytest.fixture(scope="module")
def taught(shared_relayer, tmp_path_factory):
    """The secret of a gateway that was told eight facts, to which the tests that ask for `told` add nothing."""
    secret, place = secrets.token_hex(32), tmp_path_factory.mktemp("taught")
    environ = {"XDG_CONFIG_HOME": str(place / "gateway"), "XDG_STATE_HOME": str(place / "state")}
    with MemoryPlugin(shared_relayer, secret=secret, environ=environ) as memory:
        memory.after_turn([{"role": "user", "content": fact} for fact in FACTS])
        assert memory.flush(PATIENCE)
    return secret


@pytest.fixture
def secret(request):
    return request.getfixturevalue("taught") if "told" in request.fixturenames else secrets.token_hex(32)


@pytest.fixture
def told(taught):
    """A gateway that was told eight facts."""


def texts(memory, question=QUESTION):
    return [hit.text for hit in memory.before_turn(question, deadline=PATIENCE).hits]


@pytest.mark.row("CP-11", "CP-12", "AR-08", "MW-29", level="e2e")
@pytest.mark.parametrize("key", ["autoRecallMaxResults", "maxResults", "maxRecallResults", "top_k"])
def test_so_many_memories_are_put_into_a_turn_at_most(plugin, told, key):
    assert len(texts(plugin(**{key: 2}))) == 2
    assert len(texts(plugin(autoRecall=True))) > 2
    # Without a floor, the default has room for all of them.
    assert len(texts(plugin(**{"recall.minScore": 0}))) == len(FACTS)


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
    status = plugin(**config).before_turn("dinghies ", deadline=PATIENCE).status
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


@pytest.mark.row("CP-16", level="e2e")
@pytest.mark.parametrize("value", [True, None, 0, 1, "yes", []])
def test_whatever_is_not_false_leaves_recall_and_capture_on(plugin, value):
    memory = plugin(autoRecall=value, autoCapture=value)
    memory.after_turn([{"role": "user", "content": FACTS[0]}])
    assert memory.flush(PATIENCE)
    assert texts(memory) == [FACTS[0]]


@pytest.mark.row("CP-16", level="e2e")
def test_a_count_is_floored_and_one_that_counts_nothing_is_the_default(plugin, told):
    by_default = len(texts(plugin()))
    assert by_default > 2
    for value, number in ((2.9, 2), (1, 1), (0, by_default), (-2, by_default), (0.5, by_default),
                          (math.nan, by_default), (math.inf, by_default), (None, by_default), ("2", by_default),
                          (True, by_default)):  # fmt: skip
        assert len(texts(plugin(autoRecallMaxResults=value))) == number, value


@pytest.mark.row("CP-16", level="e2e")
@pytest.mark.parametrize(("value", "asked"), [(7.9, True), (0, False), ("5", False), (None, False)])
def test_a_least_length_is_read_as_leniently(plugin, told, value, asked):
    status = plugin(autoRecallMinPromptLength=value).before_turn("dinghies ", deadline=PATIENCE).status
    assert (not status.startswith("skipped")) is asked


@pytest.mark.row("CP-16", level="e2e")
@pytest.mark.parametrize("config", [[], "x", 7, True])
def test_what_is_no_object_is_refused_with_the_originals_words(secret, tmp_path, config):
    with pytest.raises(SettingsError, match="config must be an object"):
        MemoryPlugin(settings=config, secret=secret, environ={"XDG_STATE_HOME": str(tmp_path)})


SKETCH = "The launch of our regatta is planned for the ninth of June."
PLAN = "The launch of our regatta is planned for the eleventh of June."
DRAFTS = "When is the launch of our regatta planned? Not in July, but in June?"


@pytest.mark.row("AR-20", level="e2e")
def test_what_is_a_draft_and_what_it_costs_is_as_set_in_a_turn(shared_relayer, secret, tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "memory" / "sketches").mkdir(parents=True)
    (workspace / "memory" / "sketches" / "regatta.md").write_text(f"- {SKETCH}\n")
    (workspace / "MEMORY.md").write_text(f"- {PLAN}\n")
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        site.command("index", "--workspace", workspace, "--agent", "main")

        def order(**config):
            turn = site.plugin(minScore=0.05, **config).before_turn(
                DRAFTS, session_key="agent:main:main", deadline=PATIENCE
            )
            return [hit.text for hit in turn.hits]

        ours = {"DRAFT_PATH_PATTERNS": ["/memory\\/sketches\\//"]}
        assert order() == [SKETCH, PLAN]
        assert order(**ours) == [PLAN, SKETCH]
        assert order(**ours, DRAFT_PATH_PENALTY=0) == [SKETCH, PLAN]
        assert order(DRAFT_PATH_PENALTY=0.5) == [SKETCH, PLAN]
        assert order(DRAFT_PATH_PATTERNS=["/MEMORY/"], DRAFT_PATH_PENALTY=0.5)[0] == SKETCH
