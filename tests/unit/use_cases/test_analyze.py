from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from relayer.lib.work import Deadline
from relayer.use_cases.capture import analyze
from relayer.wire.schemas import AnalyzeRequest
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


async def test_the_whole_record_is_stored(house):
    request = AnalyzeRequest(turns=TURNS, session="s1", host="a-host", audience="direct")
    await house.call(analyze, request)
    newest, oldest = await house.listed()
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
    await house.call(analyze, AnalyzeRequest(turns=turns, session="s1"))
    newest, oldest = await house.listed()
    assert newest.context_of == oldest.id
    assert "Lisbon" not in newest.text


async def test_the_first_turn_of_a_capture_refers_to_the_session_s_newest_memory(house):
    for turn in (TURNS[0], TURNS[3]):
        await house.call(analyze, AnalyzeRequest(turns=[turn], session="s1"))
    await house.call(
        analyze, AnalyzeRequest(turns=[{"role": "user", "text": "I keep bees on the roof."}], session="s2")
    )
    other_session, newest, oldest = await house.listed()
    assert newest.context_of == oldest.id
    assert other_session.context_of is None


async def test_nothing_worth_keeping_writes_nothing(house):
    request = AnalyzeRequest(
        turns=[{"role": "user", "text": "thanks!"}, {"role": "assistant", "text": "Anytime."}]
    )
    answer = await house.call(analyze, request)
    assert (answer.state, answer.kept, answer.memories) == ("done", 0, ())
    assert not [call for call in house.store.calls if call.operation == "create"]


@pytest.mark.row("CP-41")
async def test_the_same_capture_sent_again_is_stored_once(house):
    request = AnalyzeRequest(turns=TURNS, session="s1", idempotency_key="turn-1")
    first = await house.call(analyze, request, access=house.access(body=b"b"))
    second = await house.call(analyze, request, access=house.access(body=b"b"))
    assert first.memories == second.memories
    assert len(await house.listed()) == 2


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
    # What was not read is asked for once more when it is stored.
    assert reader.asked == [(GEESE,)] * 2


async def test_a_reader_that_does_not_answer_takes_a_part_of_the_time_only(house):
    class Stuck(StatedReadings):
        async def messages(self, texts):
            return await asyncio.Event().wait()

    ctx = replace(house.ctx, messages=Stuck({}))
    turns = [{"role": "user", "text": GEESE}]
    deadline = Deadline.after(house.clock, 1.0)
    answer = await analyze(ctx, house.access(), AnalyzeRequest(turns=turns), deadline)
    assert answer.kept == 1
