from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from relayer.lib.work import Deadline
from relayer.use_cases.capture import analyze
from relayer.use_cases.memories import list_memories
from relayer.use_cases.recall import recall
from relayer.wire.schemas import AnalyzeRequest, RecallRequest
from tests.doubles.stated_readings import StatedReadings

TURNS = [
    {"role": "user", "text": "My sister Ana moved to Lisbon on 3 May 2026.", "id": "m1", "speaker": "Kim"},
    {"role": "assistant", "text": "Sounds good!", "id": "m2"},
    {"role": "user", "text": "ok", "id": "m3"},
    {
        "role": "user",
        "text": "We decided to use PostgreSQL for the billing service.",
        "id": "m4",
        "speaker": "Kim",
    },
]


async def listed(house):
    return (
        await list_memories(
            house.ctx, house.access(), limit=100, cursor=None, kinds=(), states=(), deadline=house.deadline()
        )
    ).memories


async def test_a_turn_is_recallable_when_analyze_answers(house):
    answer = await analyze(
        house.ctx, house.access(), AnalyzeRequest(turns=TURNS, session="s1"), house.deadline()
    )
    assert answer.state == "done"
    assert answer.turns == 4
    assert answer.kept == len(answer.memories) == 2
    found = await recall(
        house.ctx, house.access(), RecallRequest(query="where did my sister Ana move"), house.deadline()
    )
    assert found.memories[0].text == TURNS[0]["text"]


async def test_the_whole_record_is_stored(house):
    request = AnalyzeRequest(turns=TURNS, session="s1", host="a-host", audience="direct")
    await analyze(house.ctx, house.access(), request, house.deadline())
    newest, oldest = await listed(house)
    assert (oldest.source.host, oldest.source.session, oldest.source.speaker) == ("a-host", "s1", "Kim")
    assert oldest.source.message_ids == ("m1",)
    assert oldest.audience == "direct"
    assert oldest.trust == "user"
    assert oldest.lang == "en"
    assert oldest.extractor.startswith("statements/")
    assert oldest.embedding == "hashing"
    assert newest.kind == "decision"


async def test_the_previous_turn_is_a_reference_and_not_a_copy(house):
    turns = [TURNS[0], TURNS[3]]
    await analyze(house.ctx, house.access(), AnalyzeRequest(turns=turns, session="s1"), house.deadline())
    newest, oldest = await listed(house)
    assert newest.context_of == oldest.id
    assert "Lisbon" not in newest.text


async def test_the_first_turn_of_a_capture_refers_to_the_session_s_newest_memory(house):
    for turn in (TURNS[0], TURNS[3]):
        await analyze(house.ctx, house.access(), AnalyzeRequest(turns=[turn], session="s1"), house.deadline())
    await analyze(
        house.ctx,
        house.access(),
        AnalyzeRequest(turns=[{"role": "user", "text": "I keep bees on the roof."}], session="s2"),
        house.deadline(),
    )
    other_session, newest, oldest = await listed(house)
    assert newest.context_of == oldest.id
    assert other_session.context_of is None


async def test_nothing_worth_keeping_writes_nothing(house):
    request = AnalyzeRequest(
        turns=[{"role": "user", "text": "thanks!"}, {"role": "assistant", "text": "Anytime."}]
    )
    answer = await analyze(house.ctx, house.access(), request, house.deadline())
    assert (answer.state, answer.kept, answer.memories) == ("done", 0, ())
    assert not [call for call in house.store.calls if call.operation == "create"]


@pytest.mark.row("CP-41")
async def test_the_same_capture_sent_again_is_stored_once(house):
    request = AnalyzeRequest(turns=TURNS, session="s1", idempotency_key="turn-1")
    first = await analyze(house.ctx, house.access(body=b"b"), request, house.deadline())
    second = await analyze(house.ctx, house.access(body=b"b"), request, house.deadline())
    assert first.memories == second.memories
    assert len(await listed(house)) == 2


async def test_without_an_embedder_the_turn_is_kept_and_the_job_is_pending(house):
    house.embedder.down = True
    answer = await analyze(house.ctx, house.access(), AnalyzeRequest(turns=TURNS), house.deadline())
    assert answer.state == "pending"
    assert answer.degraded
    assert answer.job_id


async def test_a_large_capture_leaves_the_event_loop(house):
    turns = [{"role": "user", "text": f"My locker number {number} is blue. " * 40} for number in range(20)]
    answer = await analyze(house.ctx, house.access(), AnalyzeRequest(turns=turns), house.deadline())
    assert answer.kept == 20


async def test_what_the_gateway_doubts_is_stored_and_comes_only_when_asked_for(house):
    turns = [{"role": "user", "text": "My sister Ana moved to Lisbon on 3 May 2026.", "suspect": True}]
    await analyze(house.ctx, house.access(), AnalyzeRequest(turns=turns), house.deadline())
    query = {"query": "where did my sister Ana move"}
    assert (await recall(house.ctx, house.access(), RecallRequest(**query), house.deadline())).memories == ()
    asked = RecallRequest(**query, include_suspect=True)
    found = await recall(house.ctx, house.access(), asked, house.deadline())
    assert [hit.suspect for hit in found.memories] == [True]


GEESE = "I keep eleven geese in the yard."


async def test_a_reader_of_messages_says_what_is_fiction(house):
    reader = StatedReadings({GEESE: "unreal"})
    ctx = replace(house.ctx, messages=reader)
    turns = [TURNS[0], {"role": "user", "text": GEESE}]
    answer = await analyze(ctx, house.access(), AnalyzeRequest(turns=turns), house.deadline())
    assert [(one.turn, one.reason) for one in answer.verdicts] == [(0, "kept"), (1, "unreal")]
    assert reader.asked == [(TURNS[0]["text"], GEESE)]


async def test_n_grams_decide_while_the_reader_is_not_available(house):
    reader = StatedReadings({GEESE: "unreal"})
    reader.available = False
    ctx = replace(house.ctx, messages=reader)
    turns = [{"role": "user", "text": GEESE}]
    answer = await analyze(ctx, house.access(), AnalyzeRequest(turns=turns), house.deadline())
    assert answer.kept == 1
    assert len(reader.asked) == 1


async def test_a_reader_that_does_not_answer_takes_a_part_of_the_time_only(house):
    class Stuck(StatedReadings):
        async def messages(self, texts):
            return await asyncio.Event().wait()

    ctx = replace(house.ctx, messages=Stuck({}))
    turns = [{"role": "user", "text": GEESE}]
    deadline = Deadline.after(house.clock, 1.0)
    answer = await analyze(ctx, house.access(), AnalyzeRequest(turns=turns), deadline)
    assert answer.kept == 1
