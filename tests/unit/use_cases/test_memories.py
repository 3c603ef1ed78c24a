from __future__ import annotations

import asyncio

import pytest

from relayer.errors import Refused
from relayer.maintenance.open_namespaces import maintain
from relayer.use_cases.capture import get_job
from relayer.use_cases.memories import forget_memory, get_memory, list_memories
from relayer.use_cases.overview import list_namespaces
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest

UNKNOWN = "0" * 26


async def put(house, *texts, agent="researcher"):
    request = RememberRequest(items=[{"text": text} for text in texts])
    answer = await remember(house.ctx, house.access(agent), request, house.deadline())
    return [memory.id for memory in answer.memories]


async def page(house, *, limit=100, cursor=None, kinds=(), states=()):
    return await list_memories(
        house.ctx,
        house.access(),
        limit=limit,
        cursor=cursor,
        kinds=kinds,
        states=states,
        deadline=house.deadline(),
    )


@pytest.mark.row("MW-31")
async def test_ids_of_another_agent_are_not_found(house):
    (theirs,) = await put(house, "a note of the coder", agent="coder")
    await put(house, "a note of the researcher")
    for attempt in (get_memory, forget_memory):
        with pytest.raises(Refused) as caught:
            await attempt(house.ctx, house.access("researcher"), theirs, house.deadline())
        assert caught.value.code == "not_found"


@pytest.mark.parametrize("bad", [UNKNOWN, "x", "I" * 26, "", "../../etc"])
async def test_unknown_and_malformed_ids_look_alike(house, bad):
    await put(house, "a note")
    for attempt in (get_memory, forget_memory):
        with pytest.raises(Refused) as caught:
            await attempt(house.ctx, house.access(), bad, house.deadline())
        assert caught.value.code == "not_found"
    with pytest.raises(Refused) as caught:
        await get_job(house.ctx, house.access(), bad, 0, house.deadline())
    assert caught.value.code == "not_found"


async def test_pages_cover_everything_once_newest_first(house):
    ids = []
    for number in range(7):
        await house.clock.advance(1)
        ids += await put(house, f"note number {number}")
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
    await put(house, "a note")
    for cursor in ("nonsense", UNKNOWN):
        with pytest.raises(Refused) as caught:
            await page(house, cursor=cursor)
        assert caught.value.code == "bad_cursor"


async def test_forgotten_leaves_recall_and_the_list_and_stays_on_request(house):
    (wanted,) = await put(house, "the spare key hangs behind the door")
    answer = await forget_memory(house.ctx, house.access(), wanted, house.deadline())
    assert answer.state == "forgotten"
    query = RecallRequest(query="where hangs the spare key", floor=0)
    assert (await recall(house.ctx, house.access(), query, house.deadline())).memories == ()
    assert (await page(house)).memories == ()
    assert [memory.state for memory in (await page(house, states=["forgotten"])).memories] == ["forgotten"]
    assert (await get_memory(house.ctx, house.access(), wanted, house.deadline())).memory.state == "forgotten"


async def test_forgetting_twice_answers_the_same(house):
    (wanted,) = await put(house, "a note")
    first = await forget_memory(house.ctx, house.access(), wanted, house.deadline())
    second = await forget_memory(house.ctx, house.access(), wanted, house.deadline())
    assert (first.id, first.state) == (second.id, second.state)


async def test_two_that_forget_at_once_through_two_relayers_both_succeed(house):
    (wanted,) = await put(house, "a note")
    other = await house.another()
    await get_memory(other.ctx, other.access(), wanted, other.deadline())
    house.store.clear()
    answers = await asyncio.gather(
        *(forget_memory(each.ctx, each.access(), wanted, each.deadline()) for each in (house, other))
    )
    assert {answer.state for answer in answers} == {"forgotten"}
    # Both had read it live and both wrote, one of them once more in the next slot: this is the race that was meant.
    assert house.store.count("create") == 3
    await other.ctx.namespaces.close(1.0)


async def test_a_job_tells_the_truth_before_and_after(house):
    house.embedder.down = True
    request = RememberRequest(items=[{"text": "a note without a vector"}])
    job_id = (await remember(house.ctx, house.access(), request, house.deadline())).job_id
    pending = await get_job(house.ctx, house.access(), job_id, 0, house.deadline())
    assert (pending.state, pending.work) == ("queued", "embed")
    house.embedder.down = False
    await maintain(house.ctx)
    done = await get_job(house.ctx, house.access(), job_id, 0, house.deadline())
    assert done.state == "done"
    assert done.finished_at >= done.accepted_at


async def test_an_account_lists_the_namespaces_its_certificate_covers(house):
    await put(house, "one", "two")
    await put(house, "three", agent="coder")
    answer = await list_namespaces(
        house.ctx, house.principal("researcher"), limit=10, cursor=None, deadline=house.deadline()
    )
    assert [(view.name, view.memories, view.custody) for view in answer.namespaces] == [
        ("researcher", 2, "agent")
    ]


async def test_counts_of_a_namespace_that_is_not_open_are_not_invented(house):
    await put(house, "one")
    fresh = await house.another()
    answer = await list_namespaces(
        fresh.ctx, house.principal("researcher"), limit=10, cursor=None, deadline=house.deadline()
    )
    assert answer.namespaces[0].memories is None


async def test_a_nonce_of_another_operation_is_refused_and_claims_nothing(house):
    nonce = b"n" * 16
    request = RememberRequest(items=[{"text": "a note"}])
    access = house.access(nonce=nonce)
    wanted = (await remember(house.ctx, access, request, house.deadline())).memories[0].id
    with pytest.raises(Refused) as caught:
        await forget_memory(house.ctx, access, wanted, house.deadline())
    assert caught.value.code == "nonce_reused"
    assert (await get_memory(house.ctx, house.access(), wanted, house.deadline())).memory.state == "live"
    used = house.access(nonce=b"m" * 16)
    await forget_memory(house.ctx, used, wanted, house.deadline())
    with pytest.raises(Refused) as caught:
        await remember(house.ctx, used, request, house.deadline())
    assert caught.value.code == "nonce_reused"
