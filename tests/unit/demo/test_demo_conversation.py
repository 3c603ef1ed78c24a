"""The demonstration's conversation: the sample keeps its promises, and a malformed file is named by field."""

import copy
import json
from datetime import UTC, datetime

import pytest

from demo.conversation import ConversationFileError, ProbeKind, load_conversation

SAID = {
    "id": "t-1",
    "role": "user",
    "speaker": "owner",
    "occurred_at": "2026-01-02T03:04:05Z",
    "text": "The cat is called Biscuit.",
}
SMALL = {
    "format": "memrelay-conversation/1",
    "agents": [
        {
            "name": "solo",
            "sessions": [{"id": "s-1", "turns": [SAID]}],
            "probes": [
                {"kind": "related", "prompt": "What is the cat called?", "expect": "Biscuit"},
                {"kind": "unrelated", "prompt": "What is ethanol?"},
                {"kind": "cross", "prompt": "What is the dog called?", "forbid": "Rusty"},
            ],
        }
    ],
}


def dialogue_turn(name, session, day, speaker, text, **more):
    return {
        "id": name,
        "session": session,
        "date": f"2023-05-{day}T13:56",
        "speaker": speaker,
        "text": text,
        **more,
    }


DIALOGUES = {
    "meta": {"any": "thing"},
    "conversations": [
        {
            "id": f"pair-{number}",
            "speakers": ["Ann", "Ben"],
            "turns": [
                dialogue_turn("D1:1", 1, "08", "Ann", f"I have {number} cats."),
                dialogue_turn("D1:2", 1, "08", "Ben", " ", caption="a cat"),
                dialogue_turn("D2:1", 2, "09", "Ben", "I moved."),
            ],
            "observations": [],
            "questions": [
                {"q": "How many cats?", "a": number, "cat": "single_hop", "evidence": ["D1:1"]},
                {"q": "Who moved with a cat?", "a": "?", "cat": "multi_hop", "evidence": ["D1:1", "D2:1"]},
                {"q": "When did Ann move?", "a": "?", "cat": "adversarial", "evidence": ["D2:1"]},
                {"q": "What is in the picture?", "a": "a cat", "cat": "single_hop", "evidence": ["D1:2"]},
            ],
        }
        for number in (2, 3, 4)
    ],
}


def load(tmp_path, content):
    path = tmp_path / "talk.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return load_conversation(path)


@pytest.fixture(scope="module")
def sample():
    return load_conversation()


@pytest.mark.parametrize(("asked", "knows"), [("researcher", "coder"), ("coder", "researcher")])
def test_what_the_sample_forbids_only_the_other_agent_was_told(sample, asked, knows):
    own = "\n".join(turn.text for turn in sample.agents[asked].turns)
    others = "\n".join(turn.text for turn in sample.agents[knows].turns)
    for probe in sample.agents[asked].probes_of(ProbeKind.CROSS):
        assert probe.forbid in others
        assert probe.forbid not in own


def test_an_own_file_is_read_into_values(tmp_path):
    agent = load(tmp_path, SMALL).agents["solo"]
    [turn] = agent.turns
    assert (turn.id, turn.role, turn.speaker, turn.text) == tuple(
        SAID[field] for field in ("id", "role", "speaker", "text")
    )
    assert turn.occurred_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [probe.expect for probe in agent.probes_of(ProbeKind.RELATED)] == ["Biscuit"]
    assert [probe.forbid for probe in agent.probes_of(ProbeKind.CROSS)] == ["Rusty"]


def test_the_first_two_dialogues_become_agents(tmp_path):
    conversation = load(tmp_path, DIALOGUES)
    assert list(conversation.agents) == ["pair-2", "pair-3"]
    first = conversation.agents["pair-2"]
    assert [[turn.id for turn in session.turns] for session in first.sessions] == [["D1:1"], ["D2:1"]]
    assert first.turns[0].occurred_at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert {turn.role for turn in first.turns} == {"user"}


def test_questions_with_one_evidence_turn_become_related_probes(tmp_path):
    [probe] = load(tmp_path, DIALOGUES).agents["pair-2"].probes_of(ProbeKind.RELATED)
    assert (probe.prompt, probe.expect) == ("How many cats?", "I have 2 cats.")


def test_dialogue_agents_are_asked_about_each_other(tmp_path):
    [probe] = load(tmp_path, DIALOGUES).agents["pair-2"].probes_of(ProbeKind.CROSS)
    assert (probe.prompt, probe.forbid) == ("How many cats?", "I have 3 cats.")


def test_dialogue_agents_get_unrelated_prompts(tmp_path):
    assert len(load(tmp_path, DIALOGUES).agents["pair-2"].probes_of(ProbeKind.UNRELATED)) >= 4


def change(path, value):
    changed = copy.deepcopy(SMALL)
    *way, last = path
    place = changed
    for step in way:
        place = place[step]
    place[last] = value
    return changed


AGENT = ("agents", 0)
TURN = (*AGENT, "sessions", 0, "turns", 0)
PROBE = (*AGENT, "probes", 0)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("format",), "other/9", "format"),
        (("agents",), [], "agents"),
        (("agents",), SMALL["agents"] * 2, "same name"),
        ((*AGENT, "name"), "Not A Name", "agents[0].name"),
        ((*AGENT, "sessions"), [], "agents[0].sessions"),
        ((*AGENT, "sessions"), SMALL["agents"][0]["sessions"] * 2, "same id"),
        ((*AGENT, "extra"), 1, "agents[0].extra"),
        ((*TURN, "text"), "", "agents[0].sessions[0].turns[0].text"),
        ((*TURN, "role"), "tool", "agents[0].sessions[0].turns[0].role"),
        ((*TURN, "occurred_at"), "yesterday", "agents[0].sessions[0].turns[0].occurred_at"),
        ((*PROBE, "prompt"), 7, "agents[0].probes[0].prompt"),
        ((*PROBE, "expect"), None, "agents[0].probes[0]: "),
        ((*PROBE, "forbid"), "x", "agents[0].probes[0]: "),
    ],
)
def test_a_malformed_field_is_named(tmp_path, path, value, named):
    with pytest.raises(ConversationFileError) as caught:
        load(tmp_path, change(path, value))
    assert str(caught.value).startswith("talk.json: ")
    assert named in str(caught.value)


def test_a_malformed_dialogue_is_named_by_field(tmp_path):
    broken = copy.deepcopy(DIALOGUES)
    del broken["conversations"][1]["turns"][0]["speaker"]
    with pytest.raises(
        ConversationFileError, match=r"conversations\[1\]\.turns\[0\]\.speaker: Field required"
    ):
        load(tmp_path, broken)


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "is not JSON"), ("[1]", "the file"), ("[" * 200_000, "is not JSON"), ('{"a": 1}', "format")],
)
def test_a_file_that_is_no_conversation_is_refused(tmp_path, content, said):
    with pytest.raises(ConversationFileError, match=said):
        load(tmp_path, content)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConversationFileError, match=r"nowhere\.json: cannot be read"):
        load_conversation(tmp_path / "nowhere.json")


def test_an_error_never_repeats_what_the_file_says(tmp_path):
    with pytest.raises(ConversationFileError) as caught:
        load(tmp_path, change((*TURN, "text"), {"private": "secret words"}))
    assert "secret words" not in str(caught.value)
