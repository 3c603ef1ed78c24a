"""The profile says what is live now, once, newest first in doubt, within its budget, and the same bytes every time."""

from __future__ import annotations

import re

import pytest
from model_jobs import says, with_model, working

from relayer.use_cases.capture import analyze
from relayer.use_cases.lifecycle import supersede
from relayer.use_cases.memories import forget_memory
from relayer.use_cases.overview import profile
from relayer.wire.schemas import AnalyzeRequest, SupersedeRequest
from relayer.wire.service import INTRODUCTION


async def put(house, text, kind="fact", **fields):
    return (await house.put(text, kind=kind, **fields))[0]


async def told(house, *, max_tokens=1000, audiences=(), trusts=(), agent="researcher"):
    return await house.call(profile, max_tokens=max_tokens, audiences=audiences, trusts=trusts, agent=agent)


async def texts(house, **asked):
    return [line.text for section in (await told(house, **asked)).sections for line in section.lines]


async def said(house, text, role="user"):
    await house.clock.advance(1.0)
    request = AnalyzeRequest(turns=[{"role": role, "text": text}])
    return (await house.call(analyze, request)).memories[0].id


async def test_memories_stand_in_the_section_of_their_kind_in_the_order_in_which_they_were_stored(house):
    kinds = ("statement", "imported", "event", "task", "decision", "preference", "fact", "profile")
    ids = {kind: await put(house, f"a {kind}", kind) for kind in kinds}
    await put(house, "notes of a session", "summary")
    assert (await told(house)).document == (
        f"{INTRODUCTION}\n## About the user\n\n- a fact [{ids['fact']}]\n- a profile [{ids['profile']}]\n"
        f"\n## Preferences and standing instructions\n\n- a preference [{ids['preference']}]\n"
        f"\n## Projects and decisions\n\n- a decision [{ids['decision']}]\n"
        f"\n## Tasks\n\n- a task [{ids['task']}]\n"
        f"\n## Events\n\n- a event [{ids['event']}]\n"
        f"\n## Other notes\n\n- a statement [{ids['statement']}]\n- a imported [{ids['imported']}]\n"
    )


async def test_what_no_longer_holds_or_does_not_hold_yet_is_left_out(house):
    await put(house, "doubtful", suspect=True)
    await put(house, "short-lived", ttl_seconds=60)
    await put(house, "held until now", valid_to=house.clock.now_ms() + 60_000)
    await put(house, "holds later", valid_from="2199-01-01T00:00:00Z")
    gone = await put(house, "forgotten")
    old = await put(house, "lives in Lisbon")
    await house.call(supersede, old, SupersedeRequest(text="lives in Porto"))
    await house.call(forget_memory, gone)
    assert await texts(house) == ["short-lived", "held until now", "lives in Porto"]
    await house.clock.advance(61)
    answer = await told(house)
    assert (await texts(house), answer.shown, answer.total) == (["lives in Porto"], 1, 1)


async def test_the_same_state_gives_the_same_bytes_on_every_replica_and_at_any_time(house):
    for number in range(230):
        await put(house, f"fact number {number}", importance=number % 7 / 10)
    first = await told(house)
    await house.clock.advance(86_400)
    assert await told(house) == first
    assert await told(await house.another()) == first


async def test_a_new_memory_that_fits_stands_after_what_was_there(house):
    await put(house, "first", importance=0.3)
    before = (await told(house)).document
    await put(house, "second", importance=1.0)
    assert (await told(house)).document.startswith(before)


async def test_an_entry_that_changes_no_line_moves_the_position_and_not_the_document(house):
    await put(house, "lives in Porto", audience="agent")
    before = await told(house, audiences=("agent",))
    await put(house, "said in private", audience="direct")
    after = await told(house, audiences=("agent",))
    assert after.document == before.document
    assert after.position.seq > before.position.seq


async def test_pinned_goes_before_important_before_said_again_before_new(house):
    await put(house, "fact one", importance=0.2, pinned=True)
    await put(house, "fact two", importance=0.9)
    await put(house, "fact tri", importance=0.52)
    await house.clock.advance(1)
    await put(house, "fact for", importance=0.54)
    for _ in range(2):
        await put(house, "fact tri", importance=0.52)
    line = len("- fact one [] \n") + 26
    room = len(INTRODUCTION) + len("\n## About the user\n\n")
    orders = [await texts(house, max_tokens=-(-(room + count * line) // 4)) for count in range(1, 5)]
    assert orders == [
        ["fact one"],
        ["fact one", "fact two"],
        ["fact one", "fact two", "fact tri"],
        ["fact one", "fact two", "fact tri", "fact for"],
    ]


@pytest.mark.parametrize("max_tokens", [1, 60, 90, 150, 400])
async def test_the_document_never_exceeds_its_budget_and_holds_whole_memories(house, max_tokens):
    for number in range(40):
        await put(house, f"čtyřicet {number} " + "slov " * number, kind=("fact", "task")[number % 2])
    answer = await told(house, max_tokens=max_tokens)
    assert len(answer.document.encode()) <= max_tokens * 4
    assert len(re.findall(r"^- .* \[[0-9a-z]{26}\]$", answer.document, re.MULTILINE)) == answer.shown
    assert answer.total == 40


async def test_a_page_of_text_stands_there_only_when_somebody_pinned_it(house):
    await put(house, "long " * 200)
    await put(house, "pinned " * 150, pinned=True)
    assert [text[:6] for text in await texts(house)] == ["pinned"]


async def test_the_same_words_stand_once_and_another_speakers_beside_them(house):
    await put(house, "I drink tea.", audience="direct")
    await put(house, "I  drink TEA.", audience="agent")
    await put(house, "I drink tea.", audience="group", source={"speaker": "Ravi"})
    document = (await told(house)).document
    assert document.count("drink") == 2
    assert "- Ravi: I drink tea. [" in document


async def test_a_guess_that_one_may_replace_the_other_keeps_neither_out(house):
    house.relations.state("My manager at work is Petra.", "My manager at work is Ravi.", "replaces", 0.85)
    await said(house, "My manager at work is Petra.")
    await said(house, "My manager at work is Ravi.")
    assert len(await texts(house)) == 2


async def test_what_was_said_in_private_takes_nothing_out_of_the_groups_profile(house):
    request = {"turns": [{"role": "user", "text": "My manager at work is Petra."}], "audience": "group"}
    await house.call(analyze, AnalyzeRequest(**request))
    asked = {"audiences": ("agent", "group")}
    before = await told(house, **asked)
    request = {"turns": [{"role": "user", "text": "My manager at work is Ravi."}], "audience": "direct"}
    await house.call(analyze, AnalyzeRequest(**request))
    assert (await told(house, **asked)).document == before.document
    assert await texts(house, **asked) == ["My manager at work is Petra."]


SPOKEN = "My sister Ana moved to Lisbon on 3 May 2026."


@pytest.fixture
async def with_facts(house):
    """A relayer whose model takes one fact out of whatever is said."""
    fact = {"text": "The user's sister Ana moved to Lisbon.", "message": 1, "evidence": "Ana moved to Lisbon"}
    house, _ = with_model(house, says(fact))
    async with working(house):
        yield house


@pytest.mark.parametrize("forgets_fact", [False, True])
async def test_a_fact_stands_for_the_words_it_was_taken_from_while_it_lives(with_facts, forgets_fact):
    request = AnalyzeRequest(turns=[{"role": "user", "text": SPOKEN}], wait_ms=5000)
    answer = await with_facts.call(analyze, request)
    assert answer.facts
    if forgets_fact:
        for one in answer.facts:
            await with_facts.call(forget_memory, one)
    said = SPOKEN if forgets_fact else "The user's sister Ana moved to Lisbon."
    assert await texts(with_facts) == [said]
