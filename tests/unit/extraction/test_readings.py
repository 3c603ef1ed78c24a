"""What a model says about texts: when it counts, and when n-grams decide alone."""

from __future__ import annotations

import numpy as np
import pytest

from relayer.extraction.readings import BY_N_GRAMS, Readings
from relayer.extraction.statements import Candidate, ConversationTurn, Left, StatementExtractor, Unread
from relayer.lib.n_grams import ESSENTIALS, KINDS, MESSAGE_CLASSES, read_kind, read_message
from relayer.ports import MESSAGE_LOGITS
from relayer.wire.fields import Role

USER = MESSAGE_CLASSES["user"]
FACT = "My sister Ana lives in Lisbon."


def _row(user: str = "", assistant: str = "", kind: str = "", essential: str = "") -> np.ndarray:
    """Logits that are certain of the given classes."""
    heads = (USER, user), (MESSAGE_CLASSES["assistant"], assistant), (KINDS, kind), (ESSENTIALS, essential)
    row = np.array([50.0 * (name == wanted) for names, wanted in heads for name in names], np.float32)
    assert len(row) == MESSAGE_LOGITS
    return row


@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
def test_n_grams_decide_about_a_text_that_was_not_read(role):
    for readings in (BY_N_GRAMS, Readings(["another text"], [_row("unreal", "reply", "task")])):
        assert readings.message(FACT, role) == read_message(FACT, role)
        assert readings.kind(FACT) == read_kind(FACT)
        assert readings.essential(FACT) == ""


def test_each_role_has_its_own_classes():
    readings = Readings([FACT], [_row("unreal", "result", "task", "style")])
    of_user, of_assistant = (readings.message(FACT, role) for role in (Role.USER, Role.ASSISTANT))
    assert of_user.worth < -10 < 10 < of_user.unreal
    assert of_user.otherwise == "unreal"
    assert of_assistant.worth > 10
    assert of_assistant.unreal == -np.inf
    assert readings.kind(FACT) == "task"
    assert readings.essential(FACT) == "style"


def test_a_statement_is_essential_if_it_is_likelier_than_all_else_together():
    row = _row()
    row[-len(ESSENTIALS) :] = 0, 1, 1, 1
    assert Readings([FACT], [row]).essential(FACT) == "none"


def test_space_around_a_text_and_the_middle_of_a_long_one_do_not_matter():
    (unread,) = _unread([ConversationTurn(Role.USER, "a long story " * 200)])
    assert all(len(text) < 400 for text in unread.texts)
    assert Readings([FACT], [_row("unreal")]).message(f"  {FACT}\n", Role.USER).otherwise == "unreal"


def _unread(turns: list[ConversationTurn]) -> list[Unread]:
    return [step for step in StatementExtractor().steps(turns) if isinstance(step, Unread)]


def _sent(turns: list[ConversationTurn], stated: dict[str, np.ndarray]) -> list[Candidate | Left]:
    """Run the extractor with these readings; of other texts the model says nothing."""
    steps, found = StatementExtractor().steps(turns), []
    step = next(steps)
    while True:
        found.append(step)
        readings = None
        if isinstance(step, Unread):
            readings = Readings(step.texts, [stated.get(text, _row()) for text in step.texts])
        try:
            step = steps.send(readings)
        except StopIteration:
            return [one for one in found if isinstance(one, Candidate | Left)]


def test_messages_and_their_sentences_are_asked_for_at_once_and_each_once():
    turns = [
        ConversationTurn(Role.USER, f"{FACT} She is a nurse."),
        ConversationTurn(Role.TOOL, "The build took four minutes."),
        ConversationTurn(Role.ASSISTANT, FACT),
    ]
    (unread,) = _unread(turns)
    assert unread.texts == (f"{FACT} She is a nurse.", FACT, "She is a nurse.")


def test_a_long_message_asks_for_its_first_sentences_and_a_call_for_a_bounded_number():
    sentences = [f"Berth {number} belongs to ship {number}." for number in range(2000)]
    (unread,) = _unread([ConversationTurn(Role.USER, " ".join(sentences))])
    assert len(unread.texts) <= 34
    assert sentences[0] in unread.texts
    turns = [ConversationTurn(Role.USER, " ".join(sentences[at : at + 20])) for at in range(0, 2000, 20)]
    (unread,) = _unread(turns)
    assert len(unread.texts) == 400


def test_a_model_says_that_a_sentence_is_not_worth_keeping():
    turn = ConversationTurn(Role.USER, f"{FACT} I keep eleven geese.")
    geese = "I keep eleven geese."
    assert [one.text for one in _sent([turn], {}) if isinstance(one, Candidate)] == [FACT, geese]
    found = _sent([turn], {geese: _row("one_off"), FACT: _row("keep")})
    assert [one.text for one in found if isinstance(one, Candidate)] == [FACT]


def test_a_model_says_that_a_message_is_fiction():
    text = "I keep eleven geese."
    assert _sent([ConversationTurn(Role.USER, text)], {text: _row("unreal")}) == [Left(0, "unreal")]


def test_what_the_user_asks_to_remember_is_kept_whatever_a_model_says():
    text = "Remember that my sister Ana lives in Lisbon."
    (found,) = _sent([ConversationTurn(Role.USER, text)], {text: _row("unreal")})
    assert isinstance(found, Candidate)


def test_the_kind_is_the_model_s():
    (found,) = _sent([ConversationTurn(Role.USER, FACT)], {FACT: _row("keep", kind="event")})
    assert isinstance(found, Candidate)
    assert found.kind == "event"
