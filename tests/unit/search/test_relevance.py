from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.search.baseline import LEXICAL_PRIOR, PRIORS
from relayer.search.ranking import (
    CALIBRATION_POINT,
    ENOUGH_MEMORIES,
    LEAST_STEPS,
    MOST_ABOVE_PRIOR,
    MOST_BELOW_PRIOR,
    MOST_LOGITS,
    MOST_LOGITS_BY_MODEL,
    SLOPE_BEYOND,
    Baseline,
    Prior,
    baseline_for,
    evenness_of,
    gate,
    in_steps,
    judged_steps,
    never_rising,
    prompt_relevance,
)

NULL = Baseline(median=0.2, high=0.4)
PRIOR = Prior(((1, Baseline(0.0, 0.2)), (100, Baseline(0.2, 0.4))))
EVIDENCE = st.floats(-1, 2, allow_nan=False)


def test_the_nulls_99_percent_quantile_is_relevance_0_3():
    assert prompt_relevance(in_steps(NULL.high, NULL)) == pytest.approx(CALIBRATION_POINT)


@given(EVIDENCE, EVIDENCE)
def test_relevance_rises_with_evidence_within_0_and_1(one, other):
    low, high = sorted((one, other))
    assert 0 <= prompt_relevance(in_steps(low, NULL)) <= prompt_relevance(in_steps(high, NULL)) < 1


def test_what_half_of_the_unrelated_prompts_reach_is_worth_nothing():
    assert prompt_relevance(in_steps(NULL.median, NULL)) == 0.0


def test_no_evidence_is_no_relevance_even_where_unrelated_prompts_find_none():
    assert prompt_relevance(in_steps(0.0, Baseline(0.0, 0.0))) == 0.0
    assert prompt_relevance(in_steps(-0.5, Baseline(-0.9, -0.6))) == 0.0


def test_a_prompt_below_the_floor_gets_silence():
    assert gate(np.array([0.39, 0.1]), prompt_relevance(in_steps(0.39, NULL)), 0.3) == []


def test_a_prompt_above_the_floor_gets_its_best_memories_in_order():
    passed = gate(np.array([0.1, 0.9, 0.7]), 0.6, 0.3)
    assert [index for index, _ in passed] == [1, 2]
    assert passed[0][1] == pytest.approx(0.6)
    assert passed[1][1] == pytest.approx(passed[0][1] * 0.7 / 0.9)


def test_a_floor_of_zero_returns_everything_with_its_relevance():
    assert [index for index, _ in gate(np.array([0.1, 0.3, -0.2]), 0.1, 0.0)] == [1, 0, 2]


def test_nothing_found_is_silence():
    assert gate(np.array([]), 0.9, 0.0) == []


@given(st.lists(EVIDENCE, min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_relevance_follows_the_rank_and_respects_the_floor(evidence, relevance, floor):
    passed = gate(np.array(evidence), relevance, floor)
    for (one, above), (other, below) in pairwise(passed):
        assert above >= below
        assert evidence[one] >= evidence[other]
    assert all(floor <= relevance <= 1 for _, relevance in passed)


@pytest.mark.parametrize("prior", [*PRIORS.values(), LEXICAL_PRIOR], ids=["model", "multilingual", "terms"])
def test_a_shipped_prior_asks_for_more_evidence_among_more_memories(prior):
    sizes = [size for size, _ in prior.points]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    for (_, fewer), (_, more) in pairwise(prior.points):
        assert fewer.high <= more.high
        assert fewer.median <= fewer.high


def test_the_prior_is_linear_in_the_logarithm_of_size():
    assert PRIOR.baseline_at(1) == Baseline(0.0, 0.2)
    assert PRIOR.baseline_at(10).high == pytest.approx(0.3)
    assert PRIOR.baseline_at(100).high == pytest.approx(0.4)
    assert PRIOR.baseline_at(0) == PRIOR.baseline_at(1)


def test_beyond_what_was_measured_the_null_rises_more_slowly():
    decade = PRIOR.baseline_at(100).high - PRIOR.baseline_at(10).high
    assert PRIOR.baseline_at(1_000).high == pytest.approx(0.4 + SLOPE_BEYOND * decade)
    assert PRIOR.baseline_at(100_000).high == pytest.approx(0.4 + 3 * SLOPE_BEYOND * decade)
    assert PRIOR.baseline_at(100_000).median == pytest.approx(0.2 + 3 * SLOPE_BEYOND * decade)


@pytest.mark.parametrize("point", [1, 7])
def test_a_prior_of_one_size_is_the_same_for_all(point):
    assert Prior(((point, Baseline(0.1, 0.2)),)).baseline_at(10_000) == Baseline(0.1, 0.2)


def test_a_null_measured_over_a_sample_is_carried_to_the_size_of_the_namespace():
    sampled = Baseline(0.15, 0.35)
    assert baseline_for(100, PRIOR, sampled, own_size=400).high < sampled.high
    grown = baseline_for(40_000, PRIOR, sampled, own_size=400)
    rise = PRIOR.baseline_at(40_000).high - PRIOR.baseline_at(400).high
    assert rise > 0
    assert grown.high == pytest.approx(
        max(sampled.high + rise, PRIOR.baseline_at(40_000).high - MOST_BELOW_PRIOR)
    )


def test_the_prior_decides_until_the_namespace_has_enough_memories():
    assert baseline_for(150, PRIOR, Baseline(0.0, 0.3), own_size=ENOUGH_MEMORIES) == PRIOR.baseline_at(150)


def test_the_own_null_takes_over_gradually():
    own = Baseline(0.1, 0.3)
    between = (PRIOR.baseline_at(300).high + own.high) / 2
    assert baseline_for(300, PRIOR, own, own_size=300).high == pytest.approx(between)
    assert baseline_for(400, PRIOR, own, own_size=400) == own


def test_a_filtered_search_is_judged_by_fewer_memories():
    own = Baseline(0.1, PRIOR.baseline_at(1000).high - 0.02)
    assert baseline_for(10, PRIOR, own, own_size=1000).high == pytest.approx(0.28)


def test_probes_about_the_namespaces_own_subject_do_not_silence_it():
    null = baseline_for(1000, PRIOR, Baseline(0.6, 0.95), own_size=1000)
    assert null.high == pytest.approx(PRIOR.baseline_at(1000).high + MOST_ABOVE_PRIOR)
    assert null.median <= null.high


def test_an_unusually_quiet_namespace_does_not_let_everything_pass():
    assert baseline_for(1000, PRIOR, Baseline(-0.3, -0.2), own_size=1000).high == pytest.approx(
        PRIOR.baseline_at(1000).high - MOST_BELOW_PRIOR
    )


def test_who_asks_is_told_by_less_evidence_and_who_does_not_by_more():
    just = in_steps(NULL.high, NULL)
    assert judged_steps(just, asks=4.0, concerns=5.0) > 1 > judged_steps(just, asks=-5.0, concerns=-4.0)
    assert judged_steps(just, 99.0, 99.0) == judged_steps(just, MOST_LOGITS, MOST_LOGITS)


def test_who_reads_vectors_may_be_surer_of_a_form_than_n_grams_are():
    ((model, most),) = MOST_LOGITS_BY_MODEL.items()
    just = in_steps(NULL.high, NULL)
    assert judged_steps(just, 99.0, -99.0) == judged_steps(just, MOST_LOGITS, -MOST_LOGITS)
    assert judged_steps(just, 99.0, -99.0, model) == judged_steps(just, most, -most, model)
    quiet = in_steps(NULL.median, NULL)
    assert judged_steps(quiet, -most, most, model) - judged_steps(quiet, -MOST_LOGITS, MOST_LOGITS, model) > 0


def test_nobody_is_told_for_the_form_of_a_prompt_alone():
    assert judged_steps(LEAST_STEPS - 0.01, asks=99.0, concerns=99.0) < 1


def test_who_surely_asks_hears_of_lesser_hits_too():
    found = np.array([0.5, 0.2])
    assert len(gate(found, 0.5, 0.3)) == 1
    assert len(gate(found, 0.5, 0.3, evenness_of(4.0))) == 2


@given(st.lists(st.floats(0, 1), max_size=30))
def test_pooled_values_never_rise_and_keep_their_sum(values):
    pooled = never_rising(values)
    assert all(one >= other - 1e-9 for one, other in pairwise(pooled))
    assert sum(pooled) == pytest.approx(sum(values))
    falling = sorted(values, reverse=True)
    assert never_rising(falling) == pytest.approx(falling)
