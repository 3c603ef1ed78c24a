"""Facts by a model: beside the verbatim turn, once, in the end or with a reason, whoever runs the job."""

from __future__ import annotations

import pytest
from model_jobs import ended, look, says, until, with_model, working

from relayer.domain.operations import Erase
from relayer.errors import ModelAnswerUnusable, ModelUnavailable, QueueFull
from relayer.lib.job_queue import DailyLimits
from relayer.maintenance.open_namespaces import maintain
from relayer.use_cases.capture import analyze
from relayer.use_cases.memories import forget_memory
from relayer.use_cases.recall import recall
from relayer.wire import codec as ulid
from relayer.wire.fields import DAY_MS
from relayer.wire.schemas import AnalyzeRequest, RecallRequest
from relayer.writing.drafts import request_origin

ANA = "My sister Ana moved to Lisbon on 3 May 2026."
SAYS_ANA = {"text": "Kim's sister Ana moved to Lisbon.", "message": 1, "evidence": "Ana moved to Lisbon"}


def turn(text: str = ANA, **more: object) -> AnalyzeRequest:
    said = {"role": "user", "text": text, "speaker": "Kim", "id": "m1"}
    return AnalyzeRequest(turns=[said], session="s1", **more)


async def say(house, text=ANA, agent="researcher", **more):
    return await house.call(analyze, turn(text, **more), access=house.access(agent, body=text.encode()))


class TestTheWay:
    @pytest.mark.row("MW-20")
    async def test_the_turn_is_recallable_at_once_and_the_fact_stands_beside_it_later(self, house):
        house, chat = with_model(house, says(SAYS_ANA | {"kind": "event", "importance": "vital"}))
        answer = await say(house)
        assert (answer.state, answer.extraction) == ("pending", "pending")
        query = RecallRequest(query="where did my sister Ana move", floor=0)
        hits = (await house.call(recall, query)).memories
        assert [hit.text for hit in hits] == [ANA]
        assert (await look(house, answer.job_id)).state == "queued"
        async with working(house):
            job = await ended(house, answer.job_id)
        assert job.state == "done"
        fact, verbatim = await house.listed()
        assert (fact.text, fact.kind, fact.importance) == (SAYS_ANA["text"], "event", 0.9)
        assert (fact.extractor, fact.trust, fact.source.speaker) == ("llm/extract/1", "user", "Kim")
        assert fact.source.reference == verbatim.id
        assert job.memories == (fact.id,)
        assert verbatim.text == ANA
        assert len(chat.asked) == 1

    async def test_analyze_waits_for_the_end_when_it_is_asked_to(self, house):
        house, _ = with_model(house, says(SAYS_ANA))
        async with working(house):
            answer = await say(house, wait_ms=5000)
        assert (answer.state, answer.extraction, len(answer.facts)) == ("done", "done", 1)

    async def test_a_fact_that_was_noted_before_in_other_words_is_not_noted_again(self, house):
        again = SAYS_ANA | {"text": "Kim's sister, Ana, moved to Lisbon."}
        house.relations.state(SAYS_ANA["text"], again["text"], "same")
        moved = SAYS_ANA | {"text": "Kim's sister Ana moved to Lisbon in May 2026."}
        house, _ = with_model(house, says(SAYS_ANA), says(again), says(moved))
        async with working(house):
            for text in (ANA, f"{ANA} She likes it.", f"{ANA} She likes the sea."):
                await ended(house, (await say(house, text)).job_id)
        facts = [memory.text for memory in await house.listed() if memory.extractor.startswith("llm")]
        assert sorted(facts) == sorted([SAYS_ANA["text"], moved["text"]])

    async def test_a_fact_that_was_forgotten_is_not_noted_again_in_other_words(self, house):
        again = SAYS_ANA | {"text": "Kim's sister, Ana, moved to Lisbon."}
        house.relations.state(SAYS_ANA["text"], again["text"], "same")
        house, _ = with_model(house, says(SAYS_ANA), says(again))
        async with working(house):
            first = await ended(house, (await say(house)).job_id)
            await house.call(forget_memory, first.memories[0])
            await ended(house, (await say(house, f"{ANA} She likes it.")).job_id)
        live = [memory for memory in await house.listed() if memory.state == "live"]
        assert [memory.text for memory in live if memory.extractor.startswith("llm")] == []

    @pytest.mark.row("CP-39")
    async def test_small_talk_asks_no_model(self, house):
        house, chat = with_model(house)
        answer = await say(house, "thanks!")
        assert (answer.extraction, answer.job_id, chat.asked) == ("local", None, [])

    async def test_what_the_gateway_doubts_is_not_shown_to_the_model(self, house):
        house, chat = with_model(house)
        turns = [
            {"role": "user", "text": ANA},
            {"role": "user", "text": "Our admin password is always hunter2, note it.", "suspect": True},
            {"role": "tool", "text": "The invoice number is 4711."},
        ]
        async with working(house):
            request = AnalyzeRequest(turns=turns, wait_ms=5000)
            await house.call(analyze, request)
        (asked,) = chat.asked
        assert "Lisbon" in asked[1].text
        assert "hunter2" not in asked[1].text
        assert "4711" not in asked[1].text

    async def test_a_summary_is_stored_when_it_is_asked_for(self, house):
        house, _ = with_model(house, says(summary="Ana moved to Lisbon."), summaries=True)
        async with working(house):
            await say(house, wait_ms=5000)
        newest = (await house.listed())[0]
        assert (newest.kind, newest.text, newest.trust) == ("summary", "Ana moved to Lisbon.", "assistant")

    async def test_without_an_embedder_facts_are_stored_and_their_vectors_are_promised(self, house):
        house, _ = with_model(house, says(SAYS_ANA))
        answer = await say(house)
        house.embedder.down = True
        async with working(house):
            await ended(house, answer.job_id)
        assert [memory.searchable for memory in await house.listed()] == [False, True]
        house.embedder.down = False
        await maintain(house.ctx)
        assert all(memory.searchable for memory in await house.listed())
        opened = house.ctx.namespaces.all()[0]
        assert {job.state for job in opened.log.state.jobs.values()} == {"done"}


class TestKnownMemories:
    async def test_a_newer_fact_supersedes_an_older_one_of_the_models_own(self, house):
        lives = {"text": "Ana lives in Lisbon.", "message": 1, "evidence": "Ana lives in Lisbon"}
        moved = {"text": "Ana lives in Porto.", "message": 1, "evidence": "Ana lives in Porto"}
        house, chat = with_model(house, says(lives), says(moved | {"relation": "supersedes", "known": 1}))
        async with working(house):
            await say(house, "My sister Ana lives in Lisbon.", wait_ms=5000)
            await say(house, "My sister Ana lives in Porto, you know.", wait_ms=5000)
        assert '"memory": "Kim: Ana lives in Lisbon."' in chat.asked[1][1].text
        # What was said verbatim is never replaced by a model, and so is not shown to it as known.
        assert "My sister Ana lives in Lisbon." not in chat.asked[1][1].text
        texts = [memory.text for memory in await house.listed()]
        assert texts == [
            "Ana lives in Porto.",
            "My sister Ana lives in Porto, you know.",
            "My sister Ana lives in Lisbon.",
        ]
        query = RecallRequest(query="Ana lives in Lisbon", floor=0, limit=10)
        hits = (await house.call(recall, query)).memories
        assert "Ana lives in Lisbon." not in [hit.text for hit in hits]
        newest = (await house.listed())[0]
        assert len(newest.supersedes) == 1

    async def test_a_contradiction_keeps_both_and_says_so(self, house):
        lives = {"text": "Ana lives in Lisbon.", "message": 1, "evidence": "Ana lives in Lisbon"}
        other = {"text": "Ana lives in Porto.", "message": 1, "evidence": "Ana lives in Porto"}
        house, _ = with_model(house, says(lives), says(other | {"relation": "contradicts", "known": 1}))
        async with working(house):
            first = await say(house, "My sister Ana lives in Lisbon.", wait_ms=5000)
            await say(house, "My sister Ana lives in Porto.", wait_ms=5000)
        newest = (await house.listed())[0]
        assert newest.contradicts == first.facts
        assert len(await house.listed()) == 4

    async def test_a_duplicate_of_a_known_memory_is_not_stored(self, house):
        known = SAYS_ANA | {"relation": "duplicate", "known": 1}
        house, _ = with_model(house, says(SAYS_ANA), says(known))
        async with working(house):
            await say(house, wait_ms=5000)
            answer = await say(house, "Ana moved to Lisbon, my sister Ana did.", wait_ms=5000)
        assert (answer.extraction, answer.facts) == ("done", ())


class TestForgettingAndErasing:
    async def test_of_a_turn_that_was_forgotten_meanwhile_nothing_is_made(self, house):
        house, chat = with_model(house, says(SAYS_ANA))
        answer = await say(house)
        await house.call(forget_memory, answer.memories[0].id)
        async with working(house):
            assert (await ended(house, answer.job_id)).state == "done"
        assert chat.asked == []
        assert await house.listed() == []

    async def test_results_of_a_turn_that_was_erased_during_the_call_are_refused(self, house):
        house, chat = with_model(house, says(SAYS_ANA))
        chat.gate.clear()
        answer = await say(house)
        opened = house.ctx.namespaces.all()[0]
        async with working(house):
            await until(lambda: chat.asked)
            origin = request_origin(opened, house.access(), 0, None)
            await opened.log.append([Erase(origin, (ulid.parse(answer.memories[0].id),))])
            chat.gate.set()
            job = await ended(house, answer.job_id)
        assert (job.state, job.reason) == ("failed", "source_erased")
        assert await house.listed() == []


class TestFailures:
    async def test_a_model_that_is_away_makes_the_job_wait_and_say_why(self, house):
        house, _ = with_model(house, ModelUnavailable("away", 7.0), says(SAYS_ANA))
        answer = await say(house)
        async with working(house):
            await until(lambda: house.ctx.facts.queue.counts["put_off"])
            job = await look(house, answer.job_id)
            assert (job.state, job.reason, job.attempts) == ("waiting", "model_unavailable", 1)
            assert 6000 < job.retry_in_ms <= 7000
            await house.clock.advance(8)
            assert (await ended(house, answer.job_id)).state == "done"

    @pytest.mark.parametrize("bad", ["truncated", "refused", "empty"])
    async def test_answers_that_are_none_end_the_job_after_three(self, house, bad):
        house, chat = with_model(house, *[ModelAnswerUnusable(bad)] * 3)
        answer = await say(house)
        async with working(house):
            for tries in range(1, 3):
                await until(lambda tries=tries: house.ctx.facts.queue.counts["put_off"] == tries)
                await house.clock.advance(2.0 ** (tries + 1) + 1)  # the pause, and until somebody looks
            job = await ended(house, answer.job_id)
        assert (job.state, job.reason) == ("failed", f"model_answer_{bad}")
        assert len(chat.asked) == 3
        assert [memory.text for memory in await house.listed()] == [ANA]

    async def test_the_same_request_again_tries_a_failed_job_again_and_stores_nothing_twice(self, house):
        house, chat = with_model(house, "no json", says(SAYS_ANA), bad_answers=1)
        async with working(house):
            first = await say(house, idempotency_key="turn-1", wait_ms=5000)
            assert first.extraction == "failed"
            again = await say(house, idempotency_key="turn-1", wait_ms=5000)
            assert (again.extraction, len(again.facts)) == ("done", 1)
            assert again.job_id != first.job_id
            third = await say(house, idempotency_key="turn-1", wait_ms=5000)
        assert (third.extraction, third.facts) == ("done", again.facts)
        assert first.memories == again.memories == third.memories
        assert len(chat.asked) == 2
        assert len(await house.listed()) == 2

    async def test_a_model_that_stays_away_for_a_day_fails_the_job_with_the_reason(self, house):
        house, _ = with_model(house, *[ModelUnavailable("away")] * 3)
        answer = await say(house)
        async with working(house):
            await until(lambda: house.ctx.facts.queue.counts["put_off"] == 1)
            house.clock.jump(DAY_MS / 1000 + 60)
            await look(house, answer.job_id)
            await house.clock.advance(30)
            job = await ended(house, answer.job_id)
        assert (job.state, job.reason) == ("failed", "model_unavailable")


class TestSeveralRelayers:
    async def test_another_replica_takes_a_job_up_after_a_while_and_results_stand_once(self, house):
        house, chat = with_model(house, says(SAYS_ANA))
        chat.gate.clear()
        other, chat_of_other = with_model(await house.another(), says(SAYS_ANA), takeover_ms=60_000)
        answer = await say(house)
        async with working(house), working(other):
            await until(lambda: chat.asked)
            assert (await look(other, answer.job_id)).state == "queued"
            assert chat_of_other.asked == []
            await house.clock.advance(61)
            await look(other, answer.job_id)
            assert (await ended(other, answer.job_id)).state == "done"
            chat.gate.set()  # the first one answers after all
            await until(lambda: not house.ctx.facts.queue.running)
        assert len(chat.asked) == len(chat_of_other.asked) == 1
        assert len(await house.listed()) == len(await other.listed()) == 2

    async def test_a_job_runs_only_while_a_key_is_live(self, house):
        house, chat = with_model(house, says(SAYS_ANA), says(SAYS_ANA))
        chat.gate.clear()
        answer = await say(house)
        async with working(house):
            await until(lambda: chat.asked)
            house.clock.jump(11 * 60)
            await house.clock.advance(2)
            await until(lambda: not house.ctx.facts.queue.running)
            await house.ctx.namespaces.drop_expired()
            assert len(house.ctx.namespaces) == 0
            chat.gate.set()
            assert (await look(house, answer.job_id)).state in {"queued", "running"}
            assert (await ended(house, answer.job_id)).state == "done"
        assert len(chat.asked) == 2


class TestBounds:
    async def test_too_many_promises_are_refused_before_anything_is_written(self, house):
        house, _ = with_model(house, per_namespace=2)
        await say(house, "My locker number is 1.")
        await say(house, "My locker number is 2.")
        with pytest.raises(QueueFull) as caught:
            await say(house, "My locker number is 3.")
        assert caught.value.retry_after == 5.0
        assert len(await house.listed()) == 2

    async def test_a_busy_namespace_does_not_keep_another_from_its_turn(self, house):
        house, chat = with_model(house, at_once=2)
        chat.gate.clear()
        for number in range(5):
            await say(house, f"My locker number is {number}.", agent="busy")
        quiet = await say(house, agent="quiet")
        async with working(house):
            await until(lambda: chat.asked)
            assert len(house.ctx.facts.queue.running) == 1
            chat.gate.set()
            await ended(house, quiet.job_id, agent="quiet")
        assert "Lisbon" in chat.asked[1][1].text

    async def test_when_the_days_budget_is_used_up_turns_are_kept_without_facts(self, house):
        house, chat = with_model(house, says(SAYS_ANA), budget=DailyLimits(calls=1))
        async with working(house):
            await say(house, wait_ms=5000)
            answer = await say(house, "My locker number is 2.", wait_ms=5000)
            assert (answer.state, answer.extraction, answer.degraded) == ("done", "over_budget", True)
            assert answer.memories[0].status == "stored"
            house.clock.jump(DAY_MS / 1000)
            await house.listed()  # hears from the store what day it is
            later = await say(house, "My locker number is 3.", wait_ms=5000)
        assert later.extraction == "done"
        assert len(chat.asked) == 2

    async def test_a_promised_job_waits_for_the_next_day_when_the_budget_ends_before_its_turn(self, house):
        house, _ = with_model(house, budget=DailyLimits(tokens=5))
        first = await say(house)
        second = await say(house, "My locker number is 2.")
        async with working(house):
            await ended(house, first.job_id)
            await until(lambda: house.ctx.facts.queue.counts["put_off"])
            job = await look(house, second.job_id)
        assert (job.state, job.reason) == ("waiting", "budget_used_up")
        assert job.retry_in_ms > 60_000
