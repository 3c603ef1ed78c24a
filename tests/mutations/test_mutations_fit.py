"""Every mutation still fits the source, and its tests exist. That the tests notice it: ``make mutations``."""

from __future__ import annotations

import ast
from datetime import date, timedelta
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation
from run import in_shard

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mutation_changes_one_passage_of_the_source(mutation: Mutation) -> None:
    ast.parse(mutation.apply((ROOT / mutation.file).read_text(encoding="utf-8")))
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutation.tests)


def test_at_least_twenty_mutations_have_names_of_their_own() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) >= 20


def test_three_days_in_a_row_run_every_mutation_once() -> None:
    days = [in_shard("today/3", date(2026, 12, 30) + timedelta(days=day)) for day in range(3)]
    assert sorted(one.name for day in days for one in day) == sorted(one.name for one in MUTATIONS)
    assert days[0] == in_shard("today/3", date(2027, 1, 2))
    assert max(map(len, days)) - min(map(len, days)) <= 1
