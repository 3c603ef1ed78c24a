"""What a session that begins is told: the newest memories of the newest days, by the reader's calendar."""

from __future__ import annotations

import pytest

from relayer.use_cases.memories import forget_memory
from relayer.use_cases.overview import newest_days


async def put(house, text, at, **fields):
    return (await house.put(text, occurred_at=at, **fields))[0]


async def shown(house, *, days=2, items=15, offset=0, audiences=(), trusts=()):
    answer = await house.call(
        newest_days, days=days, items=items, offset_minutes=offset, audiences=audiences, trusts=trusts
    )
    return {day.date: [one.text for one in day.memories] for day in answer.days}, answer


@pytest.mark.row("MS-01")
@pytest.mark.row("MS-02")
async def test_the_newest_days_that_have_memories_and_the_newest_items_of_each(house):
    for number in range(4):
        await put(house, f"monday {number}", f"2023-05-08T1{number}:00:00Z")
    await put(house, "a week before", "2023-05-01T10:00:00Z")
    await put(house, "long ago", "2022-01-01T10:00:00Z")
    days, answer = await shown(house, items=3)
    assert days == {"2023-05-08": ["monday 1", "monday 2", "monday 3"], "2023-05-01": ["a week before"]}
    assert list(days) == ["2023-05-08", "2023-05-01"]
    assert ([day.total for day in answer.days], answer.total) == ([4, 1], 6)


COMING = {
    "en": ("2023-11-20T10:00:00Z", "The rent is due on 1 December."),
    "de": ("2023-11-20T10:00:00Z", "Am 3. Dezember ist der Zahnarzt."),
    "ja": ("2023-09-20T10:00:00Z", "12月2日に歯医者の予約があります。"),
    "iso": ("2022-01-01T10:00:00Z", "The passport ends on 2023-11-30."),
}
NOT_COMING = {
    "over": ("2022-11-20T10:00:00Z", "The rent is due on 1 December."),
    "past": ("2023-11-20T10:00:00Z", "I met Ana on 14 November."),
    "far": ("2023-11-20T10:00:00Z", "The trip to Rome begins on 14 March 2024."),
    "month": ("2023-11-20T10:00:00Z", "We ski in December."),
}


async def test_what_names_a_coming_day_is_told_at_any_age_the_soonest_first(house):
    await house.clock.advance(86_400 * 10)  # 24 November
    for at, text in (COMING | NOT_COMING).values():
        await put(house, text, at)
    await put(house, "doubtful on 2 December", "2023-11-20T10:00:00Z", suspect=True)
    await put(house, "for a group on 2 December", "2023-11-20T10:00:00Z", audience="group")
    _, answer = await shown(house, days=1, audiences=("agent",))
    assert [one.text for one in answer.coming] == [COMING[name][1] for name in ("iso", "en", "ja", "de")]
    _, answer = await shown(house, items=1)
    assert [one.text for one in answer.coming] == [COMING["iso"][1]]


async def test_a_day_begins_where_the_reader_is(house):
    await put(house, "late in the evening", "2023-05-08T22:30:00Z")
    assert list((await shown(house))[0]) == ["2023-05-08"]
    assert list((await shown(house, offset=120))[0]) == ["2023-05-09"]
    assert list((await shown(house, offset=-23 * 60))[0]) == ["2023-05-07"]


async def test_what_could_not_be_recalled_begins_no_session(house):
    await put(house, "doubtful", "2023-05-08T10:00:00Z", suspect=True)
    await put(house, "planned", "2199-05-08T10:00:00Z")
    await put(house, "short-lived", "2023-05-08T10:00:00Z", ttl_seconds=60)
    gone = await put(house, "forgotten", "2023-05-08T10:00:00Z")
    await house.call(forget_memory, gone)
    await house.clock.advance(61)
    days, answer = await shown(house)
    assert (days, answer.total) == ({}, 0)


async def test_only_the_audiences_and_voices_that_were_asked_for(house):
    await put(house, "said in private", "2023-05-08T10:00:00Z", audience="direct")
    await put(house, "said in the group", "2023-05-08T11:00:00Z", audience="group")
    await put(house, "printed by a tool", "2023-05-08T12:00:00Z", trust="tool")
    days, answer = await shown(house, audiences=("group",), trusts=("user",))
    assert days == {"2023-05-08": ["said in the group"]}
    assert answer.total == 3


async def test_what_has_no_time_of_its_own_belongs_to_the_day_it_was_stored_on(house):
    await house.put("a note")
    assert list((await shown(house))[0]) == ["2023-11-14"]
