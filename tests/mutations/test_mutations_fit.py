"""Every mutation still fits the source, and its tests exist. That the tests notice it: ``make mutations``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mutation_changes_one_passage_of_the_source(mutation: Mutation) -> None:
    ast.parse(mutation.apply((ROOT / mutation.file).read_text(encoding="utf-8")))
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutation.tests)


def test_at_least_twenty_mutations_have_names_of_their_own() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) >= 20
