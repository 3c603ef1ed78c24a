"""A recall of a namespace that takes long to open is answered from what is indexed of it by then."""

from __future__ import annotations

import asyncio

import pytest
from index_world import opened_of

from relayer.domain.operations import Erase, Forget, Origin
from relayer.use_cases.recall import recall
from relayer.wire.schemas import RecallRequest

COUNT = 300


@pytest.fixture
def slow_openings(monkeypatch):
    """A memory is indexed in a step, and a recall waits for no more than a few."""
    monkeypatch.setattr("relayer.namespaces.namespace.SLICE_BYTES", 1)
    monkeypatch.setattr("relayer.use_cases.recall._OPENING_SHARE", 0.0)
    monkeypatch.setattr("relayer.namespaces.cache._AGAIN_SECONDS", 0.0)


@pytest.mark.usefixtures("slow_openings")
async def test_a_part_is_recalled_marked_degraded_without_what_is_forgotten_or_erased_at_the_end(house):
    await house.put("the harbour froze", "the harbour thawed", "the harbour is deep")
    opened = await opened_of(house)
    forgotten, erased, _ = opened.ids()
    for start in range(0, COUNT, 100):
        await house.put(*(f"note {start + at} about tea" for at in range(100)))
    await opened.log.append([Forget(Origin(b"a", b"1"), forgotten), Erase(Origin(b"a", b"2"), (erased,))])
    other = await house.another()
    request = RecallRequest(query="harbour", floor=0.2)
    part = await other.call(recall, request)
    assert part.degraded
    assert 0 < part.considered < COUNT
    assert [hit.text for hit in part.memories] == ["the harbour is deep"]
    opened_now = await opened_of(other)
    whole = await other.call(recall, request)
    assert not whole.degraded
    assert whole.considered == COUNT + 1
    assert [hit.text for hit in whole.memories][:1] == ["the harbour is deep"]
    # An open namespace that is written to is waited for.
    writing = asyncio.create_task(other.put(*(f"the harbour of day {at}" for at in range(60))))
    await opened_now.changed(5)
    assert len(opened_now.view) < COUNT + 61
    whole = await other.call(recall, request)
    assert not whole.degraded
    assert whole.considered == COUNT + 61
    await writing
