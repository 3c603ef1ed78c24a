import math

import pytest

from bench.scores import Scores


def means(found: list[str], evidence: list[str]) -> dict[str, float]:
    scores = Scores()
    scores.add(found, evidence)
    return scores.means()


def test_recall_is_the_share_of_the_evidence_among_the_first_k():
    found = ["x", "a", "x2", "x3", "x4", "b", *(f"y{at}" for at in range(14))]
    measured = means(found, ["a", "b", "c", "d"])
    assert (measured["r@5"], measured["r@10"], measured["r@20"]) == (25.0, 50.0, 50.0)


def test_the_reciprocal_rank_is_that_of_the_first_piece_of_evidence():
    assert means(["x", "y", "a", "b"], ["b", "a"])["MRR"] == pytest.approx(100 / 3)


def test_gain_is_full_when_the_evidence_comes_first_in_any_order():
    assert means(["b", "a", "x"], ["a", "b"])["nDCG@10"] == pytest.approx(100.0)


def test_gain_falls_with_the_place():
    expected = 100 * (1 / math.log2(3)) / 1.0
    assert means(["x", "a"], ["a"])["nDCG@10"] == pytest.approx(expected)


def test_nothing_found_counts_as_zero_and_not_as_absent():
    scores = Scores()
    scores.add(["a"], ["a"])
    scores.add([], ["b"])
    assert scores.means() == {"r@5": 50.0, "r@10": 50.0, "r@20": 50.0, "MRR": 50.0, "nDCG@10": 50.0}


def test_evidence_named_twice_counts_once():
    assert means(["a"], ["a", "a"])["r@5"] == 100.0


def test_what_stands_behind_the_tenth_place_earns_no_gain():
    measured = means([*(f"x{at}" for at in range(10)), "a"], ["a"])
    assert (measured["nDCG@10"], measured["r@10"], measured["r@20"]) == (0.0, 0.0, 100.0)
