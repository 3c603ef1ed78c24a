"""A namespace that is opened from its stored index is the namespace that its log tells."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_world import answers, do_something, opened_of, replica, write_index

from relayer.services.open_namespaces import OpenNamespaces


async def _grown(house, seed: int, entries: int) -> random.Random:
    rng = random.Random(seed)
    for _ in range(entries):
        await do_something(house, rng)
    return rng


async def _close(*houses) -> None:
    for house in houses:
        await house.ctx.namespaces.close(1.0)


async def _index_keys(house) -> list[str]:
    return [info.key async for info in house.store.list("ns/") if "/index/" in info.key]


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
async def test_index_and_tail_answer_as_the_whole_log_does_scores_included(house, seed):
    await _close(house)
    writer = await replica(house)
    for agent_entries in (12, 6):
        rng = await _grown(writer, seed, agent_entries)
        await write_index(writer)
        await _grown(writer, rng.randrange(2**32), 4)
    by_index, by_log = await replica(house), await replica(house)
    by_log_opened = None
    original = OpenNamespaces._new
    try:
        OpenNamespaces._new = lambda self, found, access: _distrusting(original(self, found, access))
        by_log_opened = await opened_of(by_log)
    finally:
        OpenNamespaces._new = original
    assert by_log_opened.from_index == 0
    assert (await opened_of(by_index)).from_index > 0
    assert await answers(by_index, seed) == await answers(by_log, seed)
    await _close(writer, by_index, by_log)


def _distrusting(opened):
    opened.trusts_indexes = False
    return opened
