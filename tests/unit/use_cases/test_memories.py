from __future__ import annotations

import asyncio

import pytest

from relayer.errors import Refused
from relayer.maintenance.open_namespaces import maintain
from relayer.use_cases.capture import get_job
from relayer.use_cases.memories import forget_memory, get_memory, list_memories
from relayer.use_cases.overview import list_namespaces
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RememberRequest

UNKNOWN = "0" * 26


async def page(house, *, limit=100, cursor=None, kinds=(), states=()):
    return await house.call(list_memories, limit=limit, cursor=cursor, kinds=kinds, states=states)


@pytest.mark.row("MW-31")
async def test_ids_of_another_agent_are_not_found(house):
    (theirs,) = await house.put("a note of the coder", agent="coder")
    await house.put("a note of the researcher")
    for attempt in (get_memory, forget_memory):
        with pytest.raises(Refused) as caught:
            await house.call(attempt, theirs, agent="researcher")
        assert caught.value.code == "not_found"


async def test_pages_cover_everything_once_newest_first(house):
    ids = []
    for number in range(7):
        await house.clock.advance(1)
        ids += await house.put(f"note number {number}")
    seen, cursor = [], None
    while True:
        answer = await page(house, limit=3, cursor=cursor)
        assert answer.total == 7
        seen += [memory.id for memory in answer.memories]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == ids[::-1]


async def test_a_cursor_of_somebody_s_invention_is_refused(house):
    await house.put("a note")
    for cursor in ("nonsense", UNKNOWN):
        with pytest.raises(Refused) as caught:
            await page(house, cursor=cursor)
        assert caught.value.code == "bad_cursor"


async def test_two_that_forget_at_once_through_two_relayers_both_succeed(house):
    (wanted,) = await house.put("a note")
    other = await house.another()
    await other.call(get_memory, wanted)
    house.store.clear()
    answers = await asyncio.gather(*(each.call(forget_memory, wanted) for each in (house, other)))
    assert {answer.state for answer in answers} == {"forgotten"}
    # Both had read it live and both wrote, one of them once more in the next slot: this is the race that was meant.
    assert house.store.count("create") == 3


async def test_a_job_tells_the_truth_before_and_after(house):
    house.embedder.down = True
    request = RememberRequest(items=[{"text": "a note without a vector"}])
    job_id = (await house.call(remember, request)).job_id
    pending = await house.call(get_job, job_id, 0)
    assert (pending.state, pending.work) == ("queued", "embed")
    house.embedder.down = False
    await maintain(house.ctx)
    done = await house.call(get_job, job_id, 0)
    assert done.state == "done"
    assert done.finished_at >= done.accepted_at


async def test_an_account_lists_the_namespaces_its_certificate_covers(house):
    await house.put("one", "two")
    await house.put("three", agent="coder")
    answer = await house.call(list_namespaces, limit=10, cursor=None, access=house.principal("researcher"))
    assert [(view.name, view.memories, view.custody) for view in answer.namespaces] == [
        ("researcher", 2, "agent")
    ]


async def test_counts_of_a_namespace_that_is_not_open_are_not_invented(house):
    await house.put("one")
    fresh = await house.another()
    answer = await list_namespaces(
        fresh.ctx, house.principal("researcher"), limit=10, cursor=None, deadline=house.deadline()
    )
    assert answer.namespaces[0].memories is None


async def test_a_nonce_of_another_operation_is_refused_and_claims_nothing(house):
    nonce = b"n" * 16
    request = RememberRequest(items=[{"text": "a note"}])
    access = house.access(nonce=nonce)
    wanted = (await house.call(remember, request, access=access)).memories[0].id
    with pytest.raises(Refused) as caught:
        await house.call(forget_memory, wanted, access=access)
    assert caught.value.code == "nonce_reused"
    assert (await house.call(get_memory, wanted)).memory.state == "live"
    used = house.access(nonce=b"m" * 16)
    await house.call(forget_memory, wanted, access=used)
    with pytest.raises(Refused) as caught:
        await house.call(remember, request, access=used)
    assert caught.value.code == "nonce_reused"
