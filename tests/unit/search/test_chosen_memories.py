"""Which memories a prompt gets, and that an explicit search gets the best ones in the order of their evidence."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.lib.n_grams import read_prompt
from relayer.ports import QueryVectors
from relayer.search import relevance
from relayer.search.baseline import PRIORS, Calibration, shipped_priors
from relayer.search.index import MemoryIndex, _each_by_its_own
from relayer.search.ranking import Baseline, Hit
from relayer.search.relevance import (
    READ_TOGETHER,
    Logistic,
    PromptFacts,
    RelevanceReader,
    Relevances,
    chosen,
    relevance_reader,
    reranked,
    to_read,
    to_rerank,
)
from relayer.wire.relevance import CERTAIN, CHOSEN, LEAST_SHARE, MOST_UNCERTAIN

LIKELY = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=30).map(np.array)
MEMORIES = (
    "My sister Ines lives in Ghent.",
    "I am allergic to peanuts.",
    "The spare key hangs behind the boiler.",
    "My dentist is Dr. Brandt in Mill Road.",
    "We pay 815 for the flat, due on the first.",
    "The car goes to the garage on Thursday.",
    "My locker in the gym is number 118.",
    "I never book flights before nine.",
    "The router password is on the fridge.",
    "Our daughter starts school in September.",
    "I take the tram number four to work.",
    "The cat is called Miso.",
)


@given(LIKELY)
def test_a_prompt_that_does_not_concern_memory_gets_nothing(likely):
    assert (chosen(Relevances(likely, -0.01)) < CHOSEN).all()


@given(LIKELY)
def test_the_most_probable_memory_of_an_admitted_prompt_is_chosen_and_others_by_their_share(likely):
    each = chosen(Relevances(likely, 0.0))
    passed = each >= CHOSEN
    assert passed[likely.argmax()]
    assert (likely[passed] >= LEAST_SHARE * likely.max()).all()
    if likely.max() < CERTAIN:
        assert passed.sum() <= MOST_UNCERTAIN
    else:
        assert passed.sum() == (likely >= LEAST_SHARE * likely.max()).sum()


@given(LIKELY, st.floats(-5, 5))
def test_relevance_rises_with_the_probability_within_0_and_1(likely, admitted):
    each = chosen(Relevances(likely, admitted))
    order = np.argsort(likely, kind="stable")
    strictly = np.diff(likely[order]) > 0
    assert (np.diff(each[order])[strictly] >= 0).all()
    assert ((each >= 0) & (each <= 1)).all()


def test_weights_that_are_not_those_of_this_version_are_refused(monkeypatch):
    relevance._readers.cache_clear()
    monkeypatch.setattr(relevance, "_SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"relevance\.npz"):
        relevance_reader("any")


def test_for_the_vectors_of_another_model_nothing_was_learnt():
    assert relevance_reader("0" * 64) is None


async def _search(*prompts: str, prompt: bool, floor: float) -> list[tuple[Hit, ...]]:
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    sha256 = embedder.model.sha256
    try:
        index = MemoryIndex(
            embedder.model.dimension, Calibration(PRIORS[sha256], (), shipped_priors(sha256), sha256)
        )
        for key, (row, text) in enumerate(zip(await embedder.embed(MEMORIES), MEMORIES, strict=True)):
            index.put(key, row, text)
        rows = await embedder.embed(prompts, query=True, prompt=prompt)
        every = [QueryVectors.split(row, embedder.model.dimension) for row in rows]
        return [
            index.search(
                vectors.query,
                text,
                10,
                floor=floor,
                reading=read_prompt(text).reading(vectors.query, sha256),
                prompt=vectors if prompt else None,
            ).hits
            for text, vectors in zip(prompts, every, strict=True)
        ]
    finally:
        await embedder.close()


def test_a_question_gets_its_answer_and_few_other_lines():
    asked = {"Who is my dentist?": 3, "Which tram do I take to work?": 10, "What is our cat called?": 11}
    found = asyncio.run(_search(*asked, prompt=True, floor=CHOSEN))
    for hits, key in zip(found, asked.values(), strict=True):
        assert hits[0].key == key
        assert len(hits) <= 3


def test_an_explicit_search_gets_as_many_as_it_asks_for_in_the_order_of_their_evidence():
    (hits,) = asyncio.run(_search("Who is my dentist?", prompt=False, floor=0.0))
    assert len(hits) == 10
    scores = [hit.evidence for hit in hits]
    assert scores == sorted(scores, reverse=True)


def _hits(*relevance: float) -> list[Hit]:
    return [
        Hit(key, one, None, None, 0.0, spoken=False, evidence=1.0 - key / 10)
        for key, one in enumerate(relevance)
    ]


def test_a_higher_score_or_probability_moves_a_hit_up_and_each_place_keeps_its_relevance():
    same = dict.fromkeys(range(3), 0.5)
    for hits in (
        reranked(_hits(0.6, 0.5, 0.4), same, {0: -4.0, 1: 3.0}),
        reranked(_hits(0.6, 0.5, 0.4), {0: 0.1, 1: 0.9, 2: 0.01}, {0: 0.0}),
    ):
        assert [hit.key for hit in hits] == [1, 0, 2]
        assert [hit.relevance for hit in hits] == [0.6, 0.5, 0.4]
        evidence = [hit.evidence for hit in hits]
        assert evidence == sorted(evidence, reverse=True)


@given(st.dictionaries(st.integers(0, 3), st.floats(-20, 20), min_size=1))
def test_a_hit_that_was_not_read_passes_none_that_is_as_likely(scores):
    same = dict.fromkeys(range(6), 0.5)
    keys = [hit.key for hit in reranked(_hits(0.6, 0.5, 0.4, 0.35, 0.3, 0.3), same, scores)]
    assert sorted(keys) == [0, 1, 2, 3, 4, 5]
    for unread in {4, 5} - scores.keys():
        assert keys[:unread] == [key for key in keys if key < unread]


@pytest.mark.parametrize("were_read", [False, True])
def test_a_hit_below_less_relevant_ones_is_neither_lost_nor_told_twice(were_read):
    hits = _hits(0.6, 0.05, 0.5)
    told = _each_by_its_own(hits, {0: 0.8, 1: 0.01, 2: 0.4}, 0.0, were_read=were_read)
    assert [hit.key for hit in told] == [0, 2, 1]
    relevance = [hit.relevance for hit in told]
    assert relevance == sorted(relevance, reverse=True)
    if were_read:
        assert relevance[0] == pytest.approx(CHOSEN + (1 - CHOSEN) * 0.8)


def test_the_best_hits_and_the_likeliest_are_read_with_a_query():
    hits = _hits(*[0.5] * 8)
    assert [hit.key for hit in to_rerank(hits, {0: 0.1, 6: 0.9, 7: 0.8})] == [0, 1, 2, 6, 7]
    assert [hit.key for hit in to_rerank(hits, {})] == [0, 1, 2, 3, 4]
    assert [hit.key for hit in to_rerank(hits[:2], {1: 0.4})] == [0, 1]


def test_a_plan_gets_what_would_change_it_and_an_unrelated_prompt_nothing():
    plan, unrelated = asyncio.run(
        _search(
            "Book me a flight to Oslo on Friday",
            "What is the melting point of iron?",
            prompt=True,
            floor=CHOSEN,
        )
    )
    assert [hit.key for hit in plan] == [7]
    assert unrelated == ()


def test_an_explicit_search_is_not_silenced_by_what_silences_a_prompt():
    unrelated = "What is the melting point of iron?"
    (as_prompt,) = asyncio.run(_search(unrelated, prompt=True, floor=CHOSEN))
    (searched,) = asyncio.run(_search(unrelated, prompt=False, floor=0.0))
    assert as_prompt == ()
    assert len(searched) == 10


def _reader(bearing: np.ndarray) -> RelevanceReader:
    flat = Logistic(np.zeros(3))
    return RelevanceReader(bearing, np.eye(2, 4, dtype=np.float32), flat, flat, flat, flat)


def test_what_bears_on_a_prompt_is_the_sum_of_products_of_components():
    bearing = np.array([[2.0, 0.0], [0.0, -4.0], [0.0, 0.0], [0.0, 0.0]], np.float32)
    query = np.array([0.6, 0.8, 0.0, 0.0], np.float32)
    row = np.array([0.5, 0.5, 0.5, 0.5], np.float32)
    direction, scale = _reader(bearing).bearing(query)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert scale * float(row @ direction) == pytest.approx(2 * 0.6 * 0.5 - 4 * 0.8 * 0.5)


def test_a_prompt_that_no_component_concerns_has_a_direction_that_counts_for_nothing():
    query = np.array([0.6, 0.8, 0.0, 0.0], np.float32)
    direction, scale = _reader(np.zeros((4, 2), np.float32)).bearing(query)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert scale == 0


FACTS = PromptFacts(0.2, 0.5, english=True, null=Baseline(0.1, 0.3), doubt=0.0, size=40)


def _weighing(*weights: float) -> RelevanceReader:
    """Return a reader that weighs the earlier logit and the score of a memory, and of the prompt only the likeliest memory."""
    flat, bearing = Logistic(np.zeros(3)), np.eye(4, 2, dtype=np.float32)
    together = Logistic(np.array([*weights, *[0.0] * 7]))
    first = Logistic(np.array([1.0, *[0.0] * 8]))
    return RelevanceReader(bearing, bearing.T, flat, flat, together, first)


@given(LIKELY, st.floats(-1.5, 5))
def test_the_likeliest_memories_of_a_prompt_are_read_with_it(likely, admitted):
    at = to_read(Relevances(likely, admitted))
    assert 1 <= len(at) <= READ_TOGETHER
    assert likely[at].tolist() == sorted(likely, reverse=True)[: len(at)]
    left = np.delete(likely, at)
    assert len(at) == READ_TOGETHER or (left < 0.01).all()


@given(LIKELY, st.floats(-9, -1.6))
def test_a_prompt_that_memories_hardly_concern_is_read_with_none(likely, admitted):
    assert len(to_read(Relevances(likely, admitted))) == 0


def test_what_was_read_is_as_likely_as_its_score_and_what_was_not_is_not_likely():
    reading = Relevances(np.array([0.6, 0.3, 0.3]), 0.5)
    read = _weighing(1.0, 1.0).reestimate(reading, np.array([-8.0, 4.0, np.nan]), FACTS)
    assert read.likely[0] < 0.01
    assert read.likely[1] > 0.9
    assert read.likely[2] == 0
    assert read.admitted > 0
    assert _weighing(1.0, 1.0).reestimate(reading, np.array([-8.0, -8.0, np.nan]), FACTS).admitted < 0


def test_what_was_not_read_at_all_is_as_it_was():
    reading = Relevances(np.array([0.6, 0.3]), 0.5)
    assert _weighing(1.0, 1.0).reestimate(reading, np.full(2, np.nan), FACTS) is reading
