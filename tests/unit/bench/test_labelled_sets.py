"""The labelled sets are those that the page describes, and the rules stay as good on them as it says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bench.sets import FILES, FOLDER, extraction, injection, is_unseen, measured, rows, supersession
from relayer.domain.operations import Role

PAGE = Path(__file__).parents[3] / "docs" / "quality-sets.md"


@pytest.mark.parametrize("name", FILES)
def test_a_set_is_the_one_that_the_page_names(name):
    digest = hashlib.sha256((FOLDER / f"{name}.jsonl").read_bytes()).hexdigest()
    assert f"`{name}.jsonl`" in PAGE.read_text()
    assert digest in PAGE.read_text()


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
