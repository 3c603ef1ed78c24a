"""Long memories as a user lives them: plugin, relayer and the real model, a fact somewhere in the middle of a long note."""

from __future__ import annotations

import asyncio
import secrets
from itertools import product

import pytest
from processes import wait_until

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import RootHolder, identify, parse_session_key
from gateway_plugin.recall.formatting import estimate_tokens
from relayer.testing.local_relayer import local_relayer, threaded_relayer
from relayer.wire.schemas import MemoryItem, RememberRequest
from relayer.wire.sealing import RootKeys

PATIENCE = 20.0
# Embedding what these tell takes seconds each; a fast run reads one note in English and one in German.
costly = pytest.mark.tier("all")
WHEN = (
    "In spring",
    "Early in June",
    "On a rainy weekend",
    "Before the fair",
    "Late in autumn",
    "One quiet evening",
)
WHAT = (
    "kitchen", "garden shed", "library shelf", "boat", "bicycle", "choir hall", "orchard", "staircase", "workshop",
    "cellar",
)  # fmt: skip
DONE = ("was painted by two neighbours", "needed new hinges", "was swept on Monday", "got a second coat of varnish",
        "was measured for the insurance", "was lent to the scouts", "stayed closed for a week", "was photographed")  # fmt: skip
GERMAN = (("Im Frühling", "Anfang Juni", "An einem Regentag", "Spät im Herbst", "Vor der Kirmes"),
          ("wurde die Küche", "wurde der Schuppen", "wurde das Gewächshaus", "wurde das Fahrrad", "wurde die Treppe", "wurde das Boot"),
          ("frisch gestrichen", "gründlich gefegt", "für die Versicherung vermessen", "zwei Nachbarn gezeigt", "neu lackiert"))  # fmt: skip
CHINESE = (("春天", "六月初", "周末", "深秋", "集市之前"), ("厨房", "花园小屋", "书架", "自行车", "楼梯", "果园"),
           ("重新刷了漆。", "换了新铰链。", "打扫干净了。", "借给了邻居。", "拍了照片。"))  # fmt: skip
VIOLIN = "Grandmother's violin lies in the attic, in the trunk behind the green suitcase."


def note(fact: str, sentences: list[str], count: int) -> str:
    """A text of so many sentences in paragraphs of seven, the fact in its middle."""
    said = [sentences[at * 101 % len(sentences)] for at in range(count)]
    said.insert(count // 2, fact)
    return "\n\n".join(" ".join(said[at : at + 7]) for at in range(0, count + 1, 7))


ENGLISH_SENTENCES = [f"{when} the {what} {done}." for when, what, done in product(WHEN, WHAT, DONE)]


@pytest.fixture(scope="module")
def relayer():
    with threaded_relayer(lambda: local_relayer(real_model=True, rate_limits="off")) as running:
        yield running


@pytest.fixture
def memory(relayer, secret, tmp_path):
    with plugin_of(relayer, secret, tmp_path) as plugin:
        yield plugin


def plugin_of(relayer, secret, folder) -> MemoryPlugin:
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "gateway")}
    return MemoryPlugin(relayer.url, agent="researcher", secret=secret, environ=environ)


@pytest.fixture
def store(relayer, secret, tmp_path):
    """Store texts by hand and wait until they have all their vectors; returns the ids."""
    return lambda *texts: stored(relayer, secret, tmp_path, *texts)


def stored(relayer, secret, folder, *texts: str) -> list[str]:
    holder = RootHolder(RootKeys(bytes.fromhex(secret)))
    identity = identify(holder, parse_session_key("agent:researcher:s"), default_agent=None)

    async def send() -> list[str]:
        items = tuple(MemoryItem(text=text) for text in texts)
        async with RelayerClient(relayer.url, trust=TrustStore(folder / "trust.json")) as client:
            answer = await client.remember(identity, RememberRequest(items=items), deadline=PATIENCE)
        return [one.id for one in answer.memories]

    ids = asyncio.run(send())
    # Read from this thread, because the page of metrics may be a second old.
    opened = relayer.relayer.context.namespaces.all
    wait_until(lambda: not any(one.lacking or one.needs_maintenance for one in opened()))
    return ids


@pytest.fixture(scope="module")
def long_note(relayer, tmp_path_factory):
    """The id of a note of five thousand words, and who asks for it: embedding it takes two seconds."""
    folder, secret = tmp_path_factory.mktemp("long-note"), secrets.token_hex(32)
    text = note(VIOLIN, ENGLISH_SENTENCES, 600)
    assert len(text.split()) > 5_000
    (known,) = stored(relayer, secret, folder, text)
    with plugin_of(relayer, secret, folder) as plugin:
        yield known, plugin


def test_a_fact_in_a_note_of_five_thousand_words_is_found_by_words_and_by_meaning(long_note):
    known, memory = long_note
    for question in (
        "Where is the violin of my grandmother?",
        "Which instrument from grandma is up in the attic?",
    ):
        turn = memory.before_turn(question, deadline=PATIENCE)
        assert turn.status == "ok", turn.detail
        assert "Grandmother's violin lies in the attic" in turn.text
        assert f"… (a passage; all of it: memory_get {known})" in turn.text
        assert estimate_tokens(turn.text) <= 300
    assert VIOLIN in memory.tool("memory_get", {"id": known}).text


def test_an_unrelated_prompt_finds_nothing_in_a_long_note(long_note):
    _, memory = long_note
    for prompt in (
        "How do I sort a list in Python?",
        "What is the capital of Mongolia?",
        "Translate good morning to French",
    ):
        turn = memory.before_turn(prompt, deadline=PATIENCE)
        assert (turn.status, turn.text) == ("empty", "")


@costly
def test_several_long_notes_share_the_budget(memory, store):
    facts = [f"The {name} key hangs on hook number {number} in the hall." for number, name in enumerate(
        ("cellar", "garage", "garden", "attic", "letterbox", "workshop"), 1)]  # fmt: skip
    store(*(note(fact, ENGLISH_SENTENCES[at:], 120) for at, fact in enumerate(facts)))
    turn = memory.before_turn("On which hooks in the hall do the keys hang?", deadline=PATIENCE)
    assert sum(fact in turn.text for fact in facts) >= 3
    assert estimate_tokens(turn.text) <= 768


def test_a_german_note_shows_its_passage(memory, store):
    sentences = [" ".join(parts) + "." for parts in product(*GERMAN)]
    fact = "Der Schlüssel für die Gartentür hängt über dem Türrahmen im Gewächshaus."
    store(note(fact, sentences, 300))
    turn = memory.before_turn("Wo hängt der Schlüssel für die Gartentür?", deadline=PATIENCE)
    assert fact in turn.text
    assert estimate_tokens(turn.text) <= 768


@costly
def test_a_chinese_note_shows_its_passage(memory, store):
    sentences = ["".join(parts) for parts in product(*CHINESE)]
    fact = "备用钥匙放在阳台的蓝色花盆下面。"
    store(note(fact, sentences, 600))
    turn = memory.before_turn("我的备用钥匙放在阳台的哪个地方来着", deadline=PATIENCE)
    assert fact in turn.text
    assert estimate_tokens(turn.text) <= 768


@costly
def test_a_pasted_hundred_kilobytes_are_no_exception_and_no_flood(memory, store):
    store(note(VIOLIN, ENGLISH_SENTENCES, 600))
    paste = "\n".join(ENGLISH_SENTENCES * 5)
    assert len(paste) > 100_000
    turn = memory.before_turn(paste, deadline=PATIENCE)
    assert turn.status in {"ok", "empty"}, turn.detail
    assert estimate_tokens(turn.text) <= 768
    memory.after_turn([{"role": "user", "content": paste}, {"role": "assistant", "content": "Read."}])
    assert memory.flush(PATIENCE)
    turn = memory.before_turn("Where is the violin of my grandmother?", deadline=PATIENCE)
    assert "violin lies in the attic" in turn.text
