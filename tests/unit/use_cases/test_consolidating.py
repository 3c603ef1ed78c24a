"""What captures do to each other: repeat, replace, contradict, and stay away when they were taken back."""

from __future__ import annotations

import asyncio
from calendar import month_name
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from relayer.namespaces.records import RecordTable
from relayer.use_cases.capture import analyze
from relayer.use_cases.lifecycle import restore, supersede
from relayer.use_cases.memories import forget_memory, get_memory
from relayer.use_cases.overview import standing
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire import codec as ulid
from relayer.wire.schemas import AnalyzeRequest, RecallRequest, RememberRequest, SupersedeRequest
from relayer.writing import merging

HOUR_MS = 3_600_000
HERON, AGAIN = "The staging database is called heron.", "Our staging database is called heron, by the way."
JENKINS, BUILDKITE = (
    "We use Jenkins for our builds.",
    "We use Buildkite for our builds now instead of Jenkins.",
)
BEES = "I keep bees on the roof of the office."
PETRA, RAVI = "My manager at work is Petra.", "My manager at work is Ravi."


@pytest.fixture(autouse=True)
def _stated(house):
    for new in (AGAIN, "Our staging database is called heron."):
        house.relations.state(HERON, new, "same", 0.95)
    for tool in ("Buildkite", "Woodpecker"):
        house.relations.state(
            JENKINS, f"We use {tool} for our builds now instead of Jenkins.", "replaces", 0.999
        )
    house.relations.state(PETRA, RAVI, "replaces", 0.85)


async def said(house, *texts, role="user", **changes):
    """Capture each text in a request of its own; returns the last answer's first memory."""
    answers = []
    for text in texts:
        await house.clock.advance(1.0)
        turn = {"role": role, "text": text, "occurred_at": house.clock.now_ms()} | changes.pop("turn", {})
        request = AnalyzeRequest(turns=[turn], **changes)
        answers.append(await house.call(analyze, request))
    return answers[-1].memories[0]


async def wrote(house, text, **item):
    """Store a text by hand, which is not split into statements; returns its answer."""
    request = RememberRequest(items=[{"text": text, **item}])
    return (await house.call(remember, request)).memories[0]


async def live(house):
    return [memory.text for memory in await house.listed()]


async def got(house, memory_id):
    return await house.call(get_memory, memory_id)


async def recalled(house, query, **changes):
    request = RecallRequest(query=query, floor=0.05, **changes)
    found = await house.call(recall, request)
    return [memory.text for memory in found.memories]


async def test_a_question_replaces_nothing_whatever_the_reader_says(house):
    asked = "We use Buildkite for our builds now instead of Jenkins, right?"
    house.relations.state(JENKINS, asked, "replaces", 0.999)
    await said(house, JENKINS, asked)
    assert await live(house) == [asked, JENKINS]


async def test_the_same_in_other_words_is_kept_beside_it(house):
    await said(house, HERON)
    again = await said(house, AGAIN)
    assert again.status == "stored"
    assert sorted(await live(house)) == sorted([HERON, AGAIN])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I'm allergic to peanuts.", "I'm allergic to shellfish."),
        ("The standup of my team is at 9:30.", "The retro of my team is at 9:30."),
        ("I prefer tabs over spaces.", "I prefer spaces over tabs."),
        ("We can deploy on Fridays.", "We can not deploy on Fridays."),
        ("Locker 2 of row 5 is rented.", "Locker 5 of row 2 is rented."),
    ],
)
async def test_another_object_order_or_polarity_is_another_memory(house, first, second):
    await said(house, first, second)
    assert sorted(await live(house)) == sorted([first, second])


async def test_what_a_person_forgot_is_not_captured_again_in_other_words(house):
    first = await said(house, HERON)
    await house.call(forget_memory, first.id)
    again = await said(house, "Our staging database is called heron.")
    assert (again.status, again.code) == ("refused", "forgotten_before")
    assert await live(house) == []


async def test_other_words_in_another_voice_are_kept(house):
    await said(house, HERON, audience="direct")
    second = await said(house, "Our staging database is called heron.", audience="group")
    assert second.status == "stored"


async def test_an_explicit_change_takes_the_place_of_what_it_changes(house):
    old = await said(house, JENKINS)
    new = await said(house, BUILDKITE)
    assert await live(house) == [BUILDKITE]
    found = await got(house, new.id)
    assert [memory.id for memory in found.history] == [old.id, new.id]
    assert found.history[0].state == "superseded"
    assert found.history[0].valid_to == found.memory.valid_from


async def test_what_was_stored_by_hand_is_replaced_by_an_explicit_change_that_is_said(house):
    await house.put(JENKINS)
    await said(house, BUILDKITE)
    assert await live(house) == [BUILDKITE]


async def test_a_likely_change_keeps_both_and_calls_neither_a_contradiction(house):
    old = await said(house, PETRA)
    new = await said(house, RAVI)
    assert len(await live(house)) == 2
    shown = (await got(house, new.id)).memory
    assert (shown.contradicts, shown.follows) == ((), (old.id,))


async def test_below_the_lower_bound_nothing_is_linked(house):
    house.relations.state(PETRA, RAVI, "replaces", 0.79)
    await said(house, PETRA)
    new = await said(house, RAVI)
    assert (await got(house, new.id)).memory.follows == ()


async def test_only_the_likeliest_of_several_candidates_is_replaced(house):
    others = ["We use Jenkins for our builds at home.", "We use Jenkins for our builds of the website."]
    for text in others:
        house.relations.state(text, BUILDKITE, "replaces", 0.98)
    await said(house, others[0], JENKINS, others[1], BUILDKITE)
    assert sorted(await live(house)) == sorted([*others, BUILDKITE])


async def test_without_a_reader_both_statements_stay(house):
    house = replace(house, ctx=replace(house.ctx, relations=None))
    await said(house, HERON, AGAIN, JENKINS, BUILDKITE)
    assert sorted(await live(house)) == sorted([HERON, AGAIN, JENKINS, BUILDKITE])


WORKSHOP, APRON = "The pottery workshop is in room 214.", "Bring your own apron to it."
BOTH = f"{WORKSHOP} {APRON}"
MOVED = "The pottery workshop is in room 118 now, and no longer in room 214."
CLAUSES = "The workshop is in room 214, bring your own laptop, we finish at six"


def doubted(house, new):
    """State that a newer text may replace the memory of several clauses, as a whole improbably."""
    house.relations.state(CLAUSES, new, "replaces", 0.1)


def replaced_by_moved(house, *texts):
    for text in texts:
        house.relations.state(text, MOVED, "replaces", 0.999)


async def test_of_a_memory_with_two_statements_one_is_replaced_and_the_other_stays(house):
    replaced_by_moved(house, BOTH, WORKSHOP)
    old = await wrote(house, BOTH)
    new = await said(house, MOVED)
    assert await live(house) == [MOVED, APRON]
    shown = (await got(house, old.id)).memory
    assert (shown.state, [(gone.text, gone.by) for gone in shown.replaced]) == ("live", [(WORKSHOP, new.id)])
    assert await recalled(house, "apron") == [APRON]
    async with house.ctx.namespaces.use(house.access(), house.deadline(), create=False) as opened:
        assert opened.record(ulid.parse(old.id)).text == BOTH
        table, _ = RecordTable.of_parts(opened.view.table.parts(()))
        assert table.replaced(ulid.parse(old.id)) == [(ulid.parse(new.id), 0, len(WORKSHOP))]


async def test_a_replaced_statement_comes_back_beside_what_replaced_it(house):
    replaced_by_moved(house, BOTH, WORKSHOP)
    old = await wrote(house, BOTH)
    await said(house, MOVED)
    pinned = await house.call(supersede, old.id, SupersedeRequest(pinned=True))
    assert sorted(await live(house)) == sorted([APRON, MOVED])
    await house.call(restore, pinned.id)
    assert sorted(await live(house)) == sorted([BOTH, MOVED])


async def test_what_replaced_a_statement_and_is_forgotten_gives_it_back(house):
    replaced_by_moved(house, BOTH, WORKSHOP)
    await wrote(house, BOTH)
    new = await said(house, MOVED)
    await house.call(forget_memory, new.id)
    assert await live(house) == [BOTH]


EARLIER = "The workshop ends at five now."


async def test_the_clause_that_is_over_is_replaced_though_the_memory_as_a_whole_seems_true(house):
    doubted(house, MOVED)
    replaced_by_moved(house, "The workshop is in room 214")
    old = await wrote(house, CLAUSES)
    new = await said(house, MOVED)
    assert await live(house) == [MOVED, "bring your own laptop, we finish at six"]
    shown = (await got(house, old.id)).memory
    assert [(gone.text, gone.by) for gone in shown.replaced] == [("The workshop is in room 214, ", new.id)]


ROOM, LAPTOP = "The workshop is in room 214", "bring your own laptop"
MILL, MUEHLE = "Our flour comes from the mill in Hove", "Das Mehl kommt von der Mühle in Aue"
SUMMER = "but no longer since the summer."


@pytest.mark.parametrize(
    ("text", "over", "new", "rest"),
    [
        pytest.param(f"{ROOM}, {LAPTOP}", (ROOM,), MOVED, LAPTOP, id="the other clause stays"),
        pytest.param(CLAUSES, (ROOM, LAPTOP), MOVED, "we finish at six", id="neighbours go together"),
        pytest.param(
            f"{MILL} and my baker is called Pieter, we open at seven",
            (MILL,),
            f"{MILL}, {SUMMER}",
            "and my baker is called Pieter, we open at seven",
            id="what an and joins stays",
        ),
        pytest.param(
            f"{MUEHLE} und mein Bäcker heißt Jens",
            (MUEHLE,),
            f"{MUEHLE}, {SUMMER}",
            "und mein Bäcker heißt Jens",
            id="and what und joins",
        ),
        pytest.param(
            "We bake bread and butter cake, we open at seven",
            ("We bake bread and butter cake",),
            f"We bake bread and butter cake, {SUMMER}",
            "we open at seven",
            id="an and inside of a clause",
        ),
        pytest.param(
            "studio 在 214室,我对青霉素过敏",
            ("studio 在 214室",),
            "studio 搬到 310室",
            "我对青霉素过敏",
            id="a comma of another script without a space",
        ),
        pytest.param(
            "studio 在 214室 我对青霉素过敏",
            ("studio 在 214室",),
            "studio 搬到 310室",
            "我对青霉素过敏",
            id="a space between han characters",
        ),
        pytest.param(
            "The long run on Saturday, 18 km",
            ("The long run on Saturday",),
            "The long run on Saturday has 22 km now.",
            None,
            id="a bare value goes with what says what it is",
        ),
        pytest.param(
            f"{ROOM}, opened 12.03.1971",
            (ROOM,),
            MOVED,
            "opened 12.03.1971",
            id="a number whose word says what it is",
        ),
        pytest.param(
            "Knees hate stairs", ("Knees hate stairs",), MOVED, "Knees hate stairs", id="about something else"
        ),
    ],
)
async def test_the_clauses_that_are_over_go_and_what_stays_true_stays(house, text, over, new, rest):
    for clause in over:
        for part in (clause, *(clause[slice(*span)] for span in merging.thing_spans(clause))):
            house.relations.state(part, new, "replaces", 0.999)
    await wrote(house, text)
    await said(house, new)
    assert sorted(await live(house)) == sorted([new, rest] if rest else [new])


@pytest.mark.parametrize(
    ("new", "stays"),
    [
        ("The landlord is Mr. Verdi now.", True),
        ("I am not allergic to peanuts, my husband is a plumber and the landlord is Mr. Verdi.", False),
    ],
)
async def test_a_danger_disappears_only_by_what_speaks_of_one(house, new, stays):
    old = "I am allergic to peanuts my husband is a plumber and the landlord is Mr. Bruni"
    house.relations.state(old, new, "replaces", 0.999)
    await wrote(house, old)
    await said(house, new)
    assert (old in await live(house)) is stays


async def test_two_statements_of_one_message_end_a_memory_together(house):
    first, second = "The workshop is in room 118 now.", "The workshop ends at five now."
    house.relations.state("The workshop is in room 214", first, "replaces", 0.999)
    house.relations.state("it ends at six", second, "replaces", 0.999)
    old = await wrote(house, "The workshop is in room 214, it ends at six")
    await said(house, f"{first} {second}")
    assert sorted(await live(house)) == sorted([first, second])
    assert (await got(house, old.id)).memory.state == "superseded"


async def test_a_replaced_statement_is_told_as_such_where_the_rest_may_lean_on_it(house):
    new = "My aunt Carla stays at home on Friday."
    house.relations.state("My aunt Carla is coming on Friday", new, "replaces", 0.999)
    old = await wrote(house, "My aunt Carla is coming on Friday, she needs an aisle seat")
    await said(house, new)
    (gone,) = (await got(house, old.id)).memory.replaced
    assert (gone.text, gone.followed) == ("My aunt Carla is coming on Friday, ", True)
    async with house.ctx.namespaces.use(house.access(), house.deadline(), create=False) as opened:
        told = opened.memory(ulid.parse(old.id)).told
    assert told == 'she needs an aisle seat (no longer so: "My aunt Carla is coming on Friday")'


@pytest.mark.parametrize(
    ("old", "days", "stays"),
    [
        ("I work at Siemens as a welder", 60, True),
        ("I work at Siemens as a welder", -60, False),
        ("In {month} I begin at Siemens as a welder", 60, False),
    ],
    ids=["announced", "past", "both are announced"],
)
async def test_what_is_announced_for_later_does_not_hide_what_is_true_until_then(house, old, days, stays):
    begins = datetime.fromtimestamp(house.clock.now_ms() / 1000, UTC) + timedelta(days=days)
    old, new = (text.format(month=month_name[begins.month]) for text in (old, "In {month} I work at Bosch"))
    house.relations.state(old, new, "replaces", 0.999)
    await wrote(house, old)
    await said(house, new)
    assert sorted(await live(house)) == sorted([old, new] if stays else [new])


async def standing_texts(house):
    found = await standing(
        house.ctx, house.access(), lines=9, audiences=(), trusts=(), deadline=house.deadline()
    )
    return [line.text for line in found.lines]


async def test_a_danger_stands_below_what_may_have_replaced_it(house):
    old, new = "I am allergic to peanuts", "I am fine with peanuts since May."
    house.relations.state(old, new, "replaces", 0.9)
    await wrote(house, old)
    await said(house, new)
    assert await standing_texts(house) == [new, old]


async def test_what_is_left_of_a_danger_is_judged_anew(house):
    new = "I am allergic to peanuts no more."
    house.relations.state("I am allergic to peanuts", new, "replaces", 0.999)
    await wrote(house, "I am allergic to peanuts, my bicycle is blue")
    assert await standing_texts(house) == ["I am allergic to peanuts, my bicycle is blue"]
    await said(house, new)
    assert not any(text.startswith("my bicycle") for text in await standing_texts(house))


async def test_another_clause_of_the_same_memory_is_replaced_later(house):
    doubted(house, MOVED)
    replaced_by_moved(house, "The workshop is in room 214")
    house.relations.state("we finish at six", EARLIER, "replaces", 0.999)
    await wrote(house, CLAUSES)
    await said(house, MOVED, EARLIER)
    assert sorted(await live(house)) == sorted([MOVED, EARLIER, "bring your own laptop"])


async def test_a_memory_of_which_every_clause_is_over_is_replaced_whole(house):
    replaced_by_moved(house, *CLAUSES.split(", "))
    old = await wrote(house, CLAUSES)
    await said(house, MOVED)
    assert await live(house) == [MOVED]
    assert (await got(house, old.id)).memory.state == "superseded"


@pytest.mark.parametrize(
    ("likely", "pinned"), [(0.9, False), (0.999, True)], ids=["probably over", "over, but pinned"]
)
async def test_a_clause_stays_and_the_newer_statement_is_shown_first(house, likely, pinned):
    house.relations.state("The workshop is in room 214", MOVED, "replaces", likely)
    await wrote(house, CLAUSES, pinned=pinned)
    await said(house, MOVED)
    assert sorted(await live(house)) == sorted([CLAUSES, MOVED])
    assert await recalled(house, "workshop room") == [MOVED, CLAUSES]


async def test_only_one_of_the_two_nearest_is_replaced(house):
    new = "We use Buildkite for our builds and for our deploys now instead of Jenkins."
    nearer = [new.replace("now", day) for day in ("on Mondays", "on Fridays")]
    house.relations.state(JENKINS, new, "replaces", 0.999)
    await said(house, JENKINS, *nearer, new)
    assert sorted(await live(house)) == sorted([JENKINS, *nearer, new])


@pytest.mark.parametrize("by_rare_words", [True, False], ids=["as it is", "by meaning alone"])
async def test_what_a_change_names_by_a_rare_word_is_among_the_nearest(house, monkeypatch, by_rare_words):
    if not by_rare_words:
        monkeypatch.setattr(merging, "nearest_first", partial(sorted, key=lambda hit: -hit.cosine))
    new = "We use no Jenkins now."
    nearer = [f"We use no {thing} at all." for thing in ("pens", "cups", "bikes", "vans", "wax", "ropes")]
    house.relations.state(JENKINS, new, "replaces", 0.999)
    await said(house, JENKINS, *nearer, new)
    assert (JENKINS in await live(house)) is not by_rare_words


async def test_what_was_replaced_as_a_whole_comes_back_beside_it(house):
    old = await said(house, JENKINS)
    await said(house, BUILDKITE)
    assert await live(house) == [BUILDKITE]
    await house.call(restore, old.id)
    assert sorted(await live(house)) == sorted([JENKINS, BUILDKITE])


async def test_the_mark_of_a_contradiction_is_taken_away(house):
    old = await said(house, JENKINS)
    other = await house.another()
    await live(other)
    turns = [f"We use {tool} for our builds now instead of Jenkins." for tool in ("Buildkite", "Woodpecker")]
    await asyncio.gather(said(house, turns[0]), said(other, turns[1]))
    await other.ctx.namespaces.close(1.0)
    (marked,) = [memory for memory in await house.listed() if memory.contradicts]
    assert marked.contradicts == (old.id,)
    request = SupersedeRequest(contradicts=())
    new = await house.call(supersede, marked.id, request)
    assert (await got(house, new.id)).memory.contradicts == ()


async def test_nobody_else_s_word_and_no_assistant_changes_what_the_user_said(house):
    await said(house, JENKINS)
    await said(house, BUILDKITE, turn={"speaker": "Ben"})
    await said(house, "I set our builds to use Buildkite now instead of Jenkins.", role="assistant")
    assert JENKINS in await live(house)


async def test_an_old_conversation_captured_late_replaces_nothing(house):
    await said(house, JENKINS)
    earlier = {"occurred_at": house.clock.now_ms() - HOUR_MS}
    await said(house, BUILDKITE, turn=earlier)
    assert len(await live(house)) == 2


@pytest.mark.row("MW-40")
async def test_overlapping_captures_through_two_replicas_at_once_leave_no_duplicates(house):
    texts = [
        "My sister Ana moved to Lisbon in May.",
        BEES,
        "Our budget for the pilot is 40,000 euros.",
        "Please always answer me in French.",
    ]
    other = await house.another()
    turns = [{"role": "user", "text": text, "occurred_at": house.clock.now_ms()} for text in texts]

    async def capture(replica, start, end):
        request = AnalyzeRequest(turns=turns[start:end], session="s")
        await replica.call(analyze, request)

    windows = [(0, 2), (0, 3), (1, 4), (0, 4), (2, 4)]
    async with asyncio.TaskGroup() as group:
        for replica in (house, other):
            for start, end in windows:
                group.create_task(capture(replica, start, end))
    assert sorted(await live(house)) == sorted(texts)
    assert sorted(await live(other)) == sorted(texts)


async def test_of_two_changes_at_once_one_replaces_and_the_other_is_kept_and_flagged(house):
    old = await said(house, JENKINS)
    other = await house.another()
    await live(other)

    async def change(replica, tool):
        turn = {
            "role": "user",
            "text": f"We use {tool} for our builds now instead of Jenkins.",
            "occurred_at": 1 + replica.clock.now_ms(),
        }
        request = AnalyzeRequest(turns=[turn])
        answer = await replica.call(analyze, request)
        return answer.memories[0]

    answers = await asyncio.gather(change(house, "Buildkite"), change(other, "Woodpecker"))
    assert {answer.status for answer in answers} == {"stored"}
    shown = [(await got(house, answer.id)).memory for answer in answers]
    assert sorted(memory.state for memory in shown) == ["live", "live"]
    assert sorted(memory.supersedes for memory in shown) == [(), (old.id,)]
    assert sorted(memory.contradicts for memory in shown) == [(), (old.id,)]


async def test_recall_answers_from_what_held_at_a_time(house):
    await said(house, JENKINS)
    then = house.clock.now_ms()
    await said(house, BUILDKITE)
    assert await recalled(house, "Jenkins builds", as_of=then) == [JENKINS]
    assert await recalled(house, "Jenkins builds", as_of=then - HOUR_MS) == []
    assert await recalled(house, "Jenkins builds", as_of=house.clock.now_ms()) == [BUILDKITE]


async def test_recall_returns_what_is_superseded_or_forgotten_only_when_asked_to(house):
    await said(house, JENKINS, BUILDKITE)
    bees = await said(house, BEES)
    await house.call(forget_memory, bees.id)
    assert JENKINS not in await recalled(house, "Jenkins builds")
    assert JENKINS in await recalled(house, "Jenkins builds", include=["superseded"])
    assert BEES not in await recalled(house, "bees on the roof", include=["superseded"])
    assert (await recalled(house, "bees on the roof", include=["forgotten"]))[0] == (BEES)


async def test_what_was_restored_is_found_again_at_once(house):
    bees = await said(house, BEES)
    await house.call(forget_memory, bees.id)
    await house.call(restore, bees.id)
    assert await recalled(house, "bees on the roof") == [BEES]
    assert (await got(house, bees.id)).memory.searchable


async def test_what_contradicts_a_memory_is_told_before_it_even_if_it_was_not_found(house):
    await said(house, PETRA)
    await said(house, RAVI)
    found = await recalled(house, "Is Petra the manager at work?", limit=1)
    assert found == [RAVI]
    found = await recalled(house, "Is Petra the manager at work?")
    assert found == [RAVI, PETRA]


async def test_what_may_be_over_is_not_told_where_a_wish_keeps_out_the_newer_memory(house):
    await said(house, PETRA)
    await said(house, RAVI)
    question = "Is Petra the manager at work?"
    assert len(await recalled(house, question, prompt=True)) == 2
    await said(house, "please never mention Ravi")
    assert await recalled(house, question, prompt=True) == []
    assert len(await recalled(house, question)) == 2


async def test_what_was_said_earlier_and_captured_late_is_told_after(house):
    await said(house, PETRA)
    earlier = {"occurred_at": house.clock.now_ms() - HOUR_MS}
    await said(house, RAVI, turn=earlier)
    found = await recalled(house, "Is Petra the manager at work?")
    assert found == [PETRA, RAVI]


async def test_the_newer_one_is_told_first_after_the_index_was_read_back(house):
    await said(house, PETRA)
    await said(house, RAVI)
    async with house.ctx.namespaces.use(house.access(), house.deadline(), create=False) as opened:
        table, _ = RecordTable.of_parts(opened.view.table.parts(()))
        assert [table.newer(number) for number in (0, 1)] == [{1}, set()]


async def test_however_near_it_is_nothing_is_replaced_below_what_must_be_read(house):
    new = f"{JENKINS[:-1]}, mostly."
    house.relations.state(JENKINS, new, "replaces", 0.89)
    await said(house, JENKINS, new)
    assert sorted(await live(house)) == sorted([JENKINS, new])
    assert await recalled(house, "builds") == [new, JENKINS]


@pytest.mark.parametrize("text", [WORKSHOP, CLAUSES], ids=["statement", "clause"])
@pytest.mark.parametrize("bar", ["SURE_FROM", "CLAUSE_SURE_FROM"])
async def test_a_statement_and_a_clause_of_several_have_a_bar_each(house, monkeypatch, bar, text):
    monkeypatch.setattr(merging, bar, 1.1)
    replaced_by_moved(house, "The workshop is in room 214", WORKSHOP)
    await wrote(house, text)
    await said(house, MOVED)
    its_own = "SURE_FROM" if text == WORKSHOP else "CLAUSE_SURE_FROM"
    assert (text in await live(house)) is (bar == its_own)
