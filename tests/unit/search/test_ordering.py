from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.search.ranking import Hit, diverse, faded, in_order


def hit(key: int, relevance: float) -> Hit:
    return Hit(key, relevance, cosine=None, bm25=None, covered=0.0, spoken=False, evidence=relevance)


def test_a_score_decides_the_order_and_relevance_falls_along_it():
    ordered = in_order([hit(1, 0.9), hit(2, 0.6), hit(3, 0.5)], {1: 0.1, 2: 0.6, 3: 0.5})
    assert [(found.key, found.relevance) for found in ordered] == [(2, 0.6), (3, 0.5), (1, 0.5)]


def test_equal_scores_keep_the_order_of_relevance():
    assert [found.key for found in in_order([hit(5, 0.9), hit(1, 0.6)], {5: 0.2, 1: 0.2})] == [5, 1]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 2)), max_size=12))
def test_every_hit_stays_and_none_gains_relevance(drawn):
    hits = [hit(key, relevance) for key, (relevance, _) in enumerate(drawn)]
    ordered = in_order(hits, {key: score for key, (_, score) in enumerate(drawn)})
    assert sorted(found.key for found in ordered) == list(range(len(hits)))
    assert all(found.relevance <= hits[found.key].relevance for found in ordered)
    assert all(one.relevance >= other.relevance for one, other in pairwise(ordered))


def test_half_of_a_score_is_left_after_its_half_life():
    assert faded(0.8, 30, 30) == pytest.approx(0.4)
    assert faded(0.8, 0, 30) == 0.8


def test_the_future_has_not_aged_and_age_makes_nothing_of_nothing_better():
    assert faded(0.8, -400, 30) == 0.8
    assert faded(-0.2, 400, 30) == -0.2


def test_what_repeats_the_best_comes_behind_what_is_different():
    rows = {1: np.array([1.0, 0.0]), 2: np.array([1.0, 0.01]), 3: np.array([0.0, 1.0])}
    scores = {1: 1.0, 2: 0.9, 3: 0.6}
    places = diverse(scores, rows.get, 0.5, 3)
    assert sorted(places, key=lambda key: -places[key]) == [1, 3, 2]


def test_no_diversity_leaves_the_order_alone_with_and_without_vectors():
    scores = {1: 0.2, 2: 0.9, 3: 0.9}
    for row in (lambda _: np.array([1.0]), lambda _: None):
        places = diverse(scores, row, 0.0, 2)
        assert sorted(places, key=lambda key: -places[key]) == [2, 3, 1]
