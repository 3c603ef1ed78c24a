"""The weighing of a pair's reading with what is around it, before a statement replaces another one."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from relayer.writing.merging import FEATURES, SURE_FROM, Candidate, Relation, likely_over

NEW = "Since Monday my doctor is Dr. Okoye."


def of_one_clause(likely: float, cosine: float = 0.6, covered: float = 0.3) -> Candidate:
    return Candidate(Relation(0.0, likely, (likely,)), cosine, covered)


def test_the_weights_are_those_of_the_features():
    stored = json.loads((files("relayer.writing") / "data" / "replacing.json").read_text("utf-8"))
    assert list(stored) == [*FEATURES, "constant"]


@pytest.mark.parametrize(("likely", "is_sure"), [(0.999, True), (0.3, False), (0.0, False)])
def test_what_was_read_decides_at_first(likely, is_sure):
    (weighed,) = likely_over([of_one_clause(likely)], NEW)
    assert bool(weighed >= SURE_FROM) is is_sure


def test_the_same_reading_counts_for_more_of_a_nearer_memory():
    (far,) = likely_over([of_one_clause(0.95, 0.3, 0.0)], NEW)
    (near,) = likely_over([of_one_clause(0.95, 0.8, 0.6)], NEW)
    assert far < SURE_FROM <= near


def test_another_memory_that_seems_over_leaves_doubt():
    alone = likely_over([of_one_clause(0.95)], NEW)[0]
    beside_true = likely_over([of_one_clause(0.95), of_one_clause(0.01)], NEW)[0]
    beside_over = likely_over([of_one_clause(0.95), of_one_clause(0.95)], NEW)[0]
    assert beside_over < beside_true < alone


def test_the_second_nearest_needs_more():
    nearest, second = likely_over([of_one_clause(0.95), of_one_clause(0.95)], NEW)
    assert second < nearest


def test_without_a_reading_nothing_is_sure():
    assert likely_over([Candidate(Relation(), 0.95, 1.0)], NEW)[0] < SURE_FROM
