"""Facts that a model turned around are dropped, and faithful ones are kept, in four languages."""

from __future__ import annotations

import pytest

from bench.turned import FAITHFUL, HALVES, kept_facts


@pytest.mark.tier("all")
@pytest.mark.parametrize("half", HALVES)
async def test_turned_facts_are_dropped_and_faithful_ones_kept(half: str) -> None:
    results = await kept_facts(half)
    turned = [kept for case, kept in results if case.kind != FAITHFUL]
    faithful = [kept for case, kept in results if case.kind == FAITHFUL]
    assert len(turned) >= 148
    assert len(faithful) >= 100
    assert sum(turned) <= 0.02 * len(turned)
    assert sum(faithful) >= 0.95 * len(faithful)
