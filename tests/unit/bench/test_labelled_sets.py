"""The labelled sets are those that the page describes, and the rules stay as good on them as it says."""

from __future__ import annotations

import pytest

from bench.sets import FILES, extraction, injection, is_unseen, measured, rows, supersession
from relayer.wire.fields import Role


@pytest.mark.parametrize("name", FILES)
def test_which_half_a_case_belongs_to_follows_from_its_number(name):
    cases = rows(name)
    assert [case["unseen"] for case in cases] == [is_unseen(name, case["id"]) for case in cases]
    messages = sum(len(case.get("turns", "x")) for case in cases)
    assert messages >= 100


@pytest.mark.row("MW-17")
@pytest.mark.parametrize("half", ["seen", "unseen"])
def test_attacks_are_told_from_ordinary_speech(half):
    scores = measured(list(injection()), "attack")[half]
    assert scores["precision"] >= 0.95
    # Forms and the best known phrases; the rest of the attacks are plain words, which provenance and framing answer.
    assert scores["recall"] >= 0.45


@pytest.mark.tier("all")
async def test_hardly_anything_is_replaced_that_was_not_taken_back():
    decided = [one for one in await supersession() if one.wanted != "conflict"]
    for scores in measured(decided, "replaces").values():
        assert scores["passed"] >= 0.96
        assert scores["recall"] >= 0.35


@pytest.mark.row("CP-38")
@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
@pytest.mark.parametrize("half", ["seen", "unseen"])
def test_what_is_worth_keeping_is_kept_of_both_sides(role, half):
    scores = measured(list(extraction(role)), "keep")[half]
    assert scores["precision"] >= 0.9
    assert scores["recall"] >= 0.9
