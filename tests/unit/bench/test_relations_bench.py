"""The bench of relations measures captures: what it counts is what the relayer's reader says."""

from __future__ import annotations

import pytest
from doubles.stated_relations import StatedRelations

from bench.relations import capturing


@pytest.mark.parametrize(
    ("relation", "outcome"),
    [("replaces", "replaced"), ("same", "beside"), ("refines", "beside"), ("both", "beside")],
)
async def test_the_bench_counts_what_a_capture_does_by_the_relayers_reader(relation, outcome):
    reader, pair = StatedRelations(relation), ("I live in Porto", "My sister works in Lisbon as a nurse")
    async with capturing(reader) as captures:
        assert await captures.outcome(*pair) == outcome
    assert reader.asked[0] == pair
