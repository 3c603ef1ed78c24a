"""Consolidation proposes what the rules of captures would have done, changes nothing unasked, and can be undone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from relayer.errors import Refused
from relayer.use_cases.capture import analyze
from relayer.use_cases.consolidate import propose, take
from relayer.use_cases.lifecycle import restore, supersede
from relayer.use_cases.memories import forget_memory, get_memory
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import AnalyzeRequest, RecallRequest, RememberRequest, SupersedeRequest
from relayer.wire.service import ConsolidationRequest, TakeRequest

FIRST, AGAIN = "The staging database is called heron.", "Our staging database is called heron, by the way."
PETRA, RAVI = "My manager at work is Petra.", "My manager at work is Ravi."
JENKINS, SWITCHED = (
    "We use Jenkins for our builds.",
    "We use Buildkite for our builds now instead of Jenkins.",
)


@pytest.fixture(autouse=True)
def _stated(house):
    for text in (AGAIN, "Our staging database is called heron."):
        house.relations.state(FIRST, text, "same")
        house.relations.state(text, FIRST, "same")
    house.relations.state(JENKINS, SWITCHED, "replaces")
    house.relations.state(PETRA, RAVI, "replaces", 0.85)


async def said(house, text, *, agent="researcher", role="user", **changes):
    """Capture a text; returns its id."""
    await house.clock.advance(1.0)
    request = AnalyzeRequest(
        turns=[{"role": role, "text": text, "occurred_at": house.clock.now_ms()}], **changes
    )
    return (await house.call(analyze, request, agent=agent)).memories[0].id


async def wrote(house, text, *, agent="researcher", **fields):
    """Store a text by hand, which no rule keeps from repeating what is known; returns its id."""
    await house.clock.advance(1.0)
    request = RememberRequest(items=[{"text": text, **fields}])
    return (await house.call(remember, request, agent=agent)).memories[0].id


async def proposed(house, *, agent="researcher", **fields):
    return await house.call(propose, ConsolidationRequest(**fields), agent=agent)


async def told(house):
    return [(one.reason, one.goes.text, one.stays.text) for one in (await proposed(house)).proposals]


async def taken(house, *ids, agent="researcher", access=None):
    request = TakeRequest(proposals=ids)
    return (await house.call(take, request, agent=agent, access=access)).proposals


async def live(house):
    return sorted(memory.text for memory in await house.listed())


async def found(house, query, **changes):
    request = RecallRequest(query=query, floor=0, **changes)
    return {hit.text for hit in (await house.call(recall, request)).memories}


async def back(house, memory):
    return await house.call(restore, memory)


async def repeated(house):
    """Make a repetition; returns the id of its proposal and of the memory that goes."""
    goes = await said(house, FIRST)
    stays = await wrote(house, AGAIN)
    return f"{goes}-{stays}", goes


async def test_a_difference_names_what_goes_what_stays_and_why_and_changes_nothing(house):
    proposal, goes = await repeated(house)
    answer = await proposed(house)
    assert [(one.id, one.reason, one.goes.id) for one in answer.proposals] == [(proposal, "duplicate", goes)]
    assert (answer.examined, answer.next_cursor) == (2, None)
    assert await proposed(house) == answer
    assert await live(house) == [AGAIN, FIRST]


async def test_what_is_taken_is_neither_listed_nor_recalled_and_restore_brings_it_back_beside_the_other(
    house,
):
    proposal, goes = await repeated(house)
    (done,) = await taken(house, proposal)
    assert done.status == "taken"
    assert await live(house) == [AGAIN]
    assert await found(house, "what is the staging database called") == {AGAIN}
    shown = await house.call(get_memory, goes)
    assert (shown.memory.state, shown.memory.superseded_by) == ("superseded", done.version)
    assert shown.history[-1].extractor == "consolidation/1"
    assert (await proposed(house)).proposals == ()
    await back(house, goes)
    assert await live(house) == [AGAIN, FIRST]


async def test_taking_a_proposal_twice_is_taking_it_once(house):
    proposal, goes = await repeated(house)
    first, second = [await taken(house, proposal) for _ in "12"]
    assert first == second
    history = (await house.call(get_memory, goes)).history
    assert len(history) == 2


async def test_two_that_take_it_at_once_both_learn_that_it_is_done(house):
    proposal, _ = await repeated(house)
    other = await house.another()
    answers = await asyncio.gather(taken(house, proposal), taken(other, proposal))
    assert [answer[0].status for answer in answers] == ["taken", "taken"]


async def test_what_was_replaced_goes_and_is_still_known_to_have_held_before(house):
    old = await said(house, JENKINS)
    between = house.clock.now_ms()
    new = await wrote(house, SWITCHED)
    assert await told(house) == [("replaced", JENKINS, SWITCHED)]
    await taken(house, f"{old}-{new}")
    assert await live(house) == [SWITCHED]
    assert await found(house, "what do we use for builds", as_of=between) == {JENKINS}
    assert await found(house, "what do we use for builds", as_of=house.clock.now_ms()) == {SWITCHED}


async def test_what_was_replaced_may_be_true_again(house):
    old = await said(house, JENKINS)
    new = await wrote(house, SWITCHED)
    await taken(house, f"{old}-{new}")
    await said(house, JENKINS)
    assert JENKINS in await live(house)


async def test_what_was_taken_and_is_said_again_is_stored_again(house):
    proposal, _ = await repeated(house)
    await taken(house, proposal)
    await said(house, FIRST)
    assert await live(house) == [AGAIN, FIRST]


async def test_a_doubtful_conflict_is_shown_and_cannot_be_taken(house):
    old = await said(house, PETRA)
    new = await wrote(house, RAVI)
    assert [reason for reason, *_ in await told(house)] == ["conflict"]
    assert (await taken(house, f"{old}-{new}"))[0].status == "refused"
    assert len(await live(house)) == 2


@pytest.mark.parametrize(
    "apart",
    [{"audience": "group"}, {"trust": "assistant"}, {"suspect": True}, {"source": {"speaker": "Ben"}}],
)
@pytest.mark.parametrize(("one", "two"), [(FIRST, AGAIN), (JENKINS, SWITCHED)])
async def test_other_voices_audiences_and_trust_are_never_compared(house, apart, one, two):
    goes = await said(house, one)
    stays = await wrote(house, two, **apart)
    assert await told(house) == []
    assert (await taken(house, f"{goes}-{stays}"))[0].status == "refused"


async def test_what_is_pinned_never_goes(house):
    pinned = await said(house, JENKINS)
    await house.call(supersede, pinned, SupersedeRequest(pinned=True))
    await wrote(house, SWITCHED)
    assert await told(house) == [("conflict", JENKINS, SWITCHED)]


async def test_what_somebody_wrote_by_hand_is_never_called_a_repetition(house):
    await wrote(house, FIRST)
    await wrote(house, AGAIN)
    assert await told(house) == []


async def test_what_lasts_longer_does_not_go_for_what_ends_sooner(house):
    await said(house, FIRST)
    await wrote(house, AGAIN, ttl_seconds=3600)
    assert await told(house) == []


async def test_what_two_relayers_captured_at_once_is_one_repetition_and_the_first_one_stays(house):
    await said(house, "I keep bees on the roof of the office.")
    other = await house.another()
    await live(other)
    await asyncio.gather(said(house, FIRST), said(other, AGAIN))
    (proposal,) = (await proposed(house)).proposals
    assert proposal.goes.created_at >= proposal.stays.created_at
    assert (await taken(other, proposal.id))[0].status == "taken"
    assert len(await live(house)) == 2


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("by", ["forget", "supersede"])
async def test_a_proposal_whose_memory_changed_meanwhile_changes_nothing(house, which, by):
    proposal, _ = await repeated(house)
    changed = proposal.split("-")[which]
    if by == "forget":
        await house.call(forget_memory, changed)
    else:
        request = SupersedeRequest(text="The staging database is called egret.")
        await house.call(supersede, changed, request)
    before = await live(house)
    assert (await taken(house, proposal))[0].status == "stale"
    assert await live(house) == before


@dataclass
class _Interrupting:
    """An embedder in whose time somebody else changes the namespace."""

    inner: object
    meanwhile: object

    @property
    def model(self):
        return self.inner.model

    async def embed(self, texts, *, query=False, prompt=False):
        await self.meanwhile()
        return await self.inner.embed(texts, query=query, prompt=prompt)


async def test_a_change_of_what_stays_after_the_look_and_before_the_entry_brings_back_what_went(house):
    proposal, goes = await repeated(house)
    other = await house.another()

    async def meanwhile():
        stays = proposal.split("-")[1]
        await other.call(forget_memory, stays)

    slow = replace(house, ctx=replace(house.ctx, embedder=_Interrupting(house.embedder, meanwhile)))
    for opened in house.ctx.namespaces.all():
        # Its vector is known from when it was written; it is to be asked for here.
        opened._forget_vectors()
    assert (await taken(slow, proposal))[0].status == "stale"
    shown = await house.call(get_memory, goes)
    assert (shown.memory.state, await live(house)) == ("live", [FIRST])


async def test_nobody_sees_or_takes_proposals_of_another_agent(house):
    proposal, _ = await repeated(house)
    await wrote(house, "a note of the coder", agent="coder")
    assert (await proposed(house, agent="coder")).proposals == ()
    for agent in ("coder", "nobody"):
        assert (await taken(house, proposal, agent=agent))[0].status == "stale"
    assert await live(house) == [AGAIN, FIRST]


async def test_pages_compare_with_all_that_came_before_and_find_each_pair_once(house):
    proposal, _ = await repeated(house)
    await wrote(house, "The bicycle stands in the cellar.")
    found_ids, cursor, examined = [], None, 0
    for _ in range(3):
        page = await proposed(house, limit=1, cursor=cursor)
        found_ids += [one.id for one in page.proposals]
        examined, cursor = examined + page.examined, page.next_cursor
    assert (found_ids, examined, cursor) == ([proposal], 3, None)


async def test_a_cursor_to_what_is_gone_is_refused(house):
    await repeated(house)
    with pytest.raises(Refused) as caught:
        await proposed(house, cursor="0" * 26)
    assert caught.value.code == "bad_cursor"


async def test_of_proposals_that_exclude_each_other_one_is_taken(house):
    goes = await said(house, FIRST)
    one, two = await wrote(house, AGAIN), await wrote(house, "Our staging database is called heron.")
    answer = await taken(house, f"{goes}-{one}", f"{goes}-{two}", f"{one}-{two}")
    assert [item.status for item in answer] == ["taken", "taken", "refused"]
    assert len(await live(house)) == 2


async def test_memories_past_their_time_are_counted_and_left_alone(house):
    await wrote(house, "The visitor's badge is at the desk.", ttl_seconds=60)
    proposal, _ = await repeated(house)
    await taken(house, proposal)
    await house.clock.advance(120)
    assert (await proposed(house)).expired == 1


async def test_an_id_that_only_looks_like_one_names_nothing(house):
    await repeated(house)
    assert (await taken(house, "u" * 26 + "-" + "u" * 26))[0].status == "stale"
