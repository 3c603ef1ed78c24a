"""A memory's life after it was stored: new versions, back again, and many forgotten at once."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from relayer.errors import Refused
from relayer.maintenance.open_namespaces import maintain
from relayer.use_cases.capture import get_job
from relayer.use_cases.lifecycle import delete, restore, supersede
from relayer.use_cases.memories import forget_memory, get_memory
from relayer.wire.schemas import DeleteRequest, SupersedeRequest

UNKNOWN = "0" * 26
DAY_MS = 86_400_000
OLD, NEW = "The spare key hangs behind the door.", "The spare key lies in the blue bowl."


async def change(house, memory, *, access=None, **fields):
    return await house.call(supersede, memory, SupersedeRequest(**fields), access=access)


async def get(house, memory):
    return await house.call(get_memory, memory)


async def back(house, memory, *, access=None):
    return await house.call(restore, memory, access=access)


async def hide(house, memory):
    return await house.call(forget_memory, memory)


async def drop(house, *, access=None, **fields):
    return await house.call(delete, DeleteRequest(**fields), access=access)


async def found(house):
    return set(await house.found("where is the spare key"))


async def live(house):
    return {memory.text for memory in await house.listed()}


async def refusal(attempt):
    with pytest.raises(Refused) as caught:
        await attempt
    return caught.value.code


async def test_a_new_version_is_recalled_in_place_of_the_old_one_which_stays_in_the_history(house):
    (old,) = await house.put(OLD, kind="decision", pinned=True)
    await house.clock.advance(1)
    new = await change(house, old, text=NEW)
    assert (new.supersedes, await found(house)) == (old, {NEW})
    shown = await get(house, new.id)
    assert [(item.id, item.state) for item in shown.history] == [(old, "superseded"), (new.id, "live")]
    assert (shown.memory.kind, shown.memory.pinned, shown.memory.supersedes) == ("decision", True, (old,))
    assert (await get(house, old)).memory.superseded_by == new.id


async def test_another_relayer_sees_the_same_history(house):
    (old,) = await house.put(OLD)
    new = await change(house, old, text=NEW)
    other = await house.another()
    assert (await get(other, old)).history == (await get(house, new.id)).history
    assert await found(other) == {NEW}


@pytest.mark.parametrize("bad", [UNKNOWN, "x", "I" * 26, "", "../../etc"])
async def test_ids_that_are_unknown_or_none_are_not_found(house, bad):
    await house.put(OLD)
    attempts = [get(house, bad), hide(house, bad), change(house, bad, text=NEW), back(house, bad)]
    for attempt in (*attempts, house.call(get_job, bad, 0)):
        assert await refusal(attempt) == "not_found"


@pytest.mark.row("MW-31")
async def test_nobody_changes_or_restores_a_memory_of_another_agent(house):
    (theirs,) = await house.put(OLD, agent="coder")
    await house.put("a note of the researcher")
    for attempt in (change(house, theirs, text=NEW), back(house, theirs)):
        assert await refusal(attempt) == "not_found"
    assert (await drop(house, ids=[theirs])).matched == 0


async def test_only_the_live_version_takes_a_new_one(house):
    (old,) = await house.put(OLD)
    new = await change(house, old, text=NEW)
    assert await refusal(change(house, old, text="a third place")) == "stale_head"
    await hide(house, new.id)
    assert await refusal(change(house, new.id, text="a third place")) == "stale_head"
    assert await live(house) == set()


async def test_two_that_change_a_memory_at_once_leave_one_version(house):
    (old,) = await house.put(OLD)
    answers = await asyncio.gather(
        *(change(house, old, text=text) for text in ("first", "second")), return_exceptions=True
    )
    assert [getattr(answer, "code", "ok") for answer in answers].count("stale_head") == 1
    assert len(await live(house)) == 1


async def test_a_change_with_the_same_key_is_made_once_and_answered_alike(house):
    (old,) = await house.put(OLD)
    first, second = [
        await change(house, old, text=NEW, idempotency_key="k", access=house.access(body=b"one"))
        for _ in "12"
    ]
    assert first.id == second.id
    other = house.access(body=b"another")
    assert await refusal(change(house, old, text="x", idempotency_key="k", access=other)) == (
        "idempotency_conflict"
    )


async def test_secrets_do_not_get_in_by_a_change(house):
    (old,) = await house.put(OLD)
    token = "gh" + "p_" + "Z9" * 18
    new = await change(house, old, text=f"the mirror takes {token}")
    assert token not in (await get(house, new.id)).memory.text


async def test_without_an_embedder_a_new_version_is_found_by_its_words_and_later_by_meaning(house):
    (old,) = await house.put(OLD)
    house.embedder.down = True
    new = await change(house, old, text=NEW)
    assert (new.degraded, new.job_id is not None) == (True, True)
    assert NEW in await found(house)
    house.embedder.down = False
    await maintain(house.ctx)
    assert (await get(house, new.id)).memory.searchable


async def test_pinning_changes_nothing_else_and_can_be_undone(house):
    (memory,) = await house.put(OLD, importance=0.8, lang="en")
    pinned = await change(house, memory, pinned=True)
    shown = (await get(house, pinned.id)).memory
    assert (shown.text, shown.pinned, shown.importance, shown.lang) == (OLD, True, 0.8, "en")
    again = await change(house, pinned.id, pinned=False)
    assert (await get(house, again.id)).memory.pinned is False
    assert await found(house) == {OLD}


async def test_a_memory_can_be_made_to_expire_and_to_stay(house):
    (memory,) = await house.put(OLD)
    short = await change(house, memory, ttl_seconds=60)
    kept = await change(house, short.id, ttl_seconds=0)
    await house.clock.advance(120)
    assert await found(house) == {OLD}
    await change(house, kept.id, ttl_seconds=60)
    await house.clock.advance(120)
    assert await found(house) == set()


async def test_null_takes_a_time_away_and_silence_keeps_it(house):
    (memory,) = await house.put(OLD, occurred_at="2026-05-08T13:56:00Z", valid_from="2026-05-01T00:00:00Z")
    new = await change(house, memory, text=NEW, occurred_at=None)
    shown = (await get(house, new.id)).memory
    assert shown.occurred_at is None
    assert shown.valid_from is not None


@pytest.mark.parametrize("fields", [{}, {"idempotency_key": "k"}, {"vector": [0.1]}])
async def test_a_change_that_changes_nothing_is_refused(fields):
    with pytest.raises(ValidationError):
        SupersedeRequest(**fields)


async def test_what_was_forgotten_comes_back_once_and_for_all(house):
    (memory,) = await house.put(OLD)
    await hide(house, memory)
    first = await back(house, memory)
    assert (first.state, first.replaced) == ("live", None)
    assert await found(house) == {OLD}
    assert (await back(house, memory)).state == "live"


async def test_an_old_version_takes_the_place_of_the_newest_and_no_version_is_lost(house):
    (first,) = await house.put(OLD)
    await house.clock.advance(1)
    second = (await change(house, first, text=NEW)).id
    await house.clock.advance(1)
    third = (await change(house, second, text="The spare key is lost.")).id
    answer = await back(house, first)
    assert (answer.replaced, await found(house)) == (third, {OLD})
    for version in (first, second, third):
        history = (await get(house, version)).history
        assert [item.id for item in history] == [first, second, third]
        assert [item.state for item in history] == ["live", "superseded", "superseded"]


async def test_an_old_version_does_not_come_back_around_a_newest_one_that_is_forgotten(house):
    (old,) = await house.put(OLD)
    new = await change(house, old, text=NEW)
    await hide(house, new.id)
    assert await refusal(back(house, old)) == "stale_head"
    await back(house, new.id)
    await back(house, old)
    assert await live(house) == {OLD}


async def test_two_that_restore_at_once_both_succeed(house):
    (memory,) = await house.put(OLD)
    await hide(house, memory)
    answers = await asyncio.gather(back(house, memory), back(house, memory))
    assert {answer.state for answer in answers} == {"live"}


async def test_a_dry_run_counts_and_forgets_nothing(house):
    await house.put("one", "two", kind="event")
    await house.put("three", kind="task")
    counted = await drop(house, kinds=["event"], dry_run=True)
    assert (counted.matched, counted.forgotten, counted.remaining) == (2, 0, 2)
    assert await live(house) == {"one", "two", "three"}
    done = await drop(house, kinds=["event"])
    assert (done.matched, done.forgotten, done.remaining, set(done.ids)) == (2, 2, 0, set(counted.ids))
    assert await live(house) == {"three"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dry_run": True},
        {"kinds": []},
        {"everything": True, "pinned": False},
        {"kinds": ["event"], "sesions": ["s"]},
    ],
    ids=["none", "only a dry run", "an empty one", "two", "a filter that does not exist"],
)
def test_deleting_needs_one_scope_that_exists(fields):
    with pytest.raises(ValidationError):
        DeleteRequest(**fields)


async def test_everything_is_forgotten_only_on_that_word_and_can_be_brought_back(house):
    ids = await house.put("one", "two")
    assert (await drop(house, everything=True)).forgotten == 2
    assert await live(house) == set()
    await back(house, ids[0])
    assert await live(house) == {"one"}


@pytest.mark.parametrize(
    ("fields", "gone"),
    [
        ({"audiences": ["group"]}, {"g"}),
        ({"sessions": ["s1"]}, {"g"}),
        ({"speakers": ["Ana"]}, {"d"}),
        ({"hosts": ["openclaw"]}, {"g", "d"}),
        ({"trusts": ["tool"]}, {"d"}),
        ({"suspect": True}, {"p"}),
        ({"pinned": True}, {"p"}),
        ({"occurred_before": "2026-01-01T00:00:00Z"}, {"d"}),
        ({"occurred_after": "2026-01-01T00:00:00Z"}, set()),
        ({"created_after": "2100-01-01T00:00:00Z"}, set()),
        ({"hosts": ["openclaw"], "speakers": ["Ana"]}, {"d"}),
    ],
)
async def test_every_filter_means_what_it_says_and_they_narrow_each_other(house, fields, gone):
    await house.put("g", audience="group", source={"host": "openclaw", "session": "s1"})
    await house.put(
        "d", trust="tool", occurred_at="2025-05-01T00:00:00Z", source={"host": "openclaw", "speaker": "Ana"}
    )
    await house.put("p", suspect=True, pinned=True)
    await drop(house, **fields)
    assert await live(house) == {"g", "d", "p"} - gone


async def test_what_lay_idle_is_told_from_what_was_said_again(house):
    await house.put("idle", "said again")
    await house.clock.advance(10 * DAY_MS / 1000)
    await house.put("said again")
    await house.put("new")
    since = house.clock.now_ms() - 5 * DAY_MS
    assert (await drop(house, inactive_since=since)).forgotten == 1
    assert await live(house) == {"said again", "new"}


async def test_a_nonce_of_another_operation_deletes_and_restores_nothing(house):
    _, hidden = await house.put("one", "two")
    nonce = {"nonce": b"n" * 16}
    await house.call(forget_memory, hidden, access=house.access(**nonce))
    assert await refusal(drop(house, everything=True, access=house.access(**nonce))) == "nonce_reused"
    assert await refusal(back(house, hidden, access=house.access(**nonce))) == "nonce_reused"
    assert await live(house) == {"one"}


async def test_more_than_a_thousand_are_forgotten_in_rounds_and_a_repeated_request_tells_of_its_own(house):
    for start in range(0, 1010, 100):
        await house.put(*(f"note {number}" for number in range(start, min(start + 100, 1010))))
    nonce = b"n" * 16
    first = await drop(house, everything=True, access=house.access(nonce=nonce))
    assert (first.matched, first.forgotten, first.remaining, len(first.ids)) == (1010, 1000, 10, 100)
    await house.put("stored after it")
    again = await drop(house, everything=True, access=house.access(nonce=nonce))
    assert (again.remaining, again.ids) == (10, first.ids)
    second = await drop(house, everything=True)
    assert (second.forgotten, second.remaining) == (11, 0)
