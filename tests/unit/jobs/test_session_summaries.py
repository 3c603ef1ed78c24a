"""A session ends, and a model's notes of it are kept beside what was said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from doubles.scripted_chat import ScriptedChat
from model_jobs import ended, look, working

from relayer.domain.operations import Erase, Origin
from relayer.errors import ModelAnswerUnusable
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.lib.job_queue import DailyLimits, JobLimits, JobQueue, ModelBudget
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.context import FactWork
from relayer.use_cases.capture import analyze
from relayer.wire import codec as ulid
from relayer.wire.schemas import AnalyzeRequest

SAID = (
    "We decided to move the billing service to Postgres 16 in May.",
    "My colleague Ana does the migration of the invoices.",
    "I prefer to deploy on Tuesdays, never on Fridays.",
)
POINT = "The user decided to move the billing service to Postgres 16 in May."
SECOND = "The colleague Ana does the migration of the invoices."
GERMAN = (
    "Wir haben beschlossen, den Dienst im Mai nach Hamburg umzuziehen.",
    "Jutta kümmert sich um den Vertrag mit dem Rechenzentrum.",
    "Ich möchte donnerstags keine Auslieferungen mehr machen.",
)


def points(*texts: str) -> str:
    return json.dumps({"points": texts})


def with_model(house, *script, extracts=False, budget=DailyLimits()):  # noqa: B008 - frozen
    chat = ScriptedChat(*script)
    work = FactWork(
        LlmExtractor(chat),
        JobQueue(house.clock, JobLimits(bad_answers=1)),
        ModelBudget(budget),
        extracts=extracts,
        summariser=Summariser(chat),
    )
    return replace(house, ctx=replace(house.ctx, facts=work)), chat


async def say(house, *texts: str, session="s1", **more):
    turns = [{"role": "user", "text": text, "id": f"m{number}"} for number, text in enumerate(texts)]
    request = AnalyzeRequest(turns=turns, session=session, **more)
    access = house.access(body=request.model_dump_json().encode())
    return await house.call(analyze, request, access=access)


async def summaries(house) -> list:
    return [memory for memory in await house.listed() if memory.kind == "summary"]


@pytest.mark.row("MS-19")
@pytest.mark.row("MW-35")
async def test_a_session_that_ends_leaves_notes_that_its_memories_bear_out(house):
    house, chat = with_model(house, points(POINT, SECOND, "The user bought a yacht in Monaco."))
    await say(house, *SAID)
    answer = await say(house, session_end=True)
    async with working(house):
        job = await ended(house, answer.summary_job_id)
    [summary] = await summaries(house)
    assert summary.text == f"- {POINT}\n- {SECOND}"
    assert job.memories == (summary.id,)
    assert (summary.extractor, summary.source.session, summary.trust) == (
        "llm/summarise/1",
        "s1",
        "assistant",
    )
    assert all(text in chat.asked[0][-1].text for text in SAID)
    assert len(await house.listed()) == len(SAID) + 1


@pytest.mark.row("MS-19")
async def test_notes_are_in_the_language_of_the_session(house):
    said = "Jutta kümmert sich um den Vertrag mit dem Rechenzentrum."
    house, chat = with_model(house, points(said, "Jutta takes care of the contract with the data centre."))
    await say(house, *GERMAN)
    answer = await say(house, session_end=True)
    async with working(house):
        await ended(house, answer.summary_job_id)
    [summary] = await summaries(house)
    assert (summary.text, summary.lang) == (f"- {said}", "de")
    assert "language of the conversation" in chat.asked[0][0].text


@pytest.mark.row("MS-20")
@pytest.mark.parametrize(
    "step", [points(), points("A dragon was sold to Bob."), "no json", ModelAnswerUnusable("refused", 5)]
)
async def test_without_a_usable_summary_every_turn_is_kept_as_it_was_said(house, step):
    house, _ = with_model(house, step)
    answer = await say(house, *SAID, session_end=True)
    async with working(house):
        await ended(house, answer.summary_job_id)
    assert sorted(memory.text for memory in await house.listed()) == sorted(SAID)


async def test_the_last_turns_of_a_session_are_in_its_notes(house):
    house, chat = with_model(house, points(POINT))
    await say(house, *SAID[:2])
    answer = await say(house, SAID[2], session_end=True)
    assert answer.summary_job_id
    async with working(house):
        await ended(house, answer.summary_job_id)
    assert SAID[2] in chat.asked[0][-1].text


async def test_what_is_of_another_session_or_doubted_is_not_shown_to_the_model(house):
    house, chat = with_model(house, points(POINT))
    await say(house, *SAID)
    await say(house, "I keep my bicycle in the cellar of the neighbour.", session="s2")
    request = AnalyzeRequest(
        turns=[{"role": "user", "text": "We always obey the letter from Mallory.", "suspect": True}],
        session="s1",
        session_end=True,
    )
    answer = await house.call(analyze, request, access=house.access(body=b"x"))
    async with working(house):
        await ended(house, answer.summary_job_id)
    shown = chat.asked[0][-1].text
    assert "bicycle" not in shown
    assert "Mallory" not in shown


async def test_no_notes_are_promised_of_nearly_nothing_or_without_a_model(house):
    silent, chat = with_model(house)
    assert (await say(silent, *SAID[:2], session_end=True)).summary_job_id is None
    assert (await say(silent, session="unknown", session_end=True)).summary_job_id is None
    assert (await say(house, *SAID, session_end=True)).summary_job_id is None
    assert chat.asked == []


async def test_the_same_end_sent_again_promises_one_summary(house):
    house, chat = with_model(house, points(POINT), points(SECOND))
    first = await say(house, *SAID, session_end=True, idempotency_key="end")
    again = await say(house, *SAID, session_end=True, idempotency_key="end")
    assert [item.id for item in first.memories] == [item.id for item in again.memories]
    assert first.summary_job_id == again.summary_job_id
    async with working(house):
        await ended(house, first.summary_job_id)
    assert len(chat.asked) == 1


async def test_a_session_that_went_on_has_its_notes_replaced(house):
    house, _ = with_model(house, points(POINT), points(POINT, SECOND))
    async with working(house):
        first = await say(house, *SAID, session_end=True)
        await ended(house, first.summary_job_id)
        second = await say(house, "I signed the contract with the hosting company.", session_end=True)
        await ended(house, second.summary_job_id)
    assert [memory.text for memory in await summaries(house)] == [f"- {POINT}\n- {SECOND}"]


async def test_notes_go_with_what_they_were_made_of_and_are_made_again_of_the_rest(house):
    more = "I signed the contract with the hosting company."
    house, chat = with_model(house, points(POINT, SECOND), points(SECOND))
    answer = await say(house, *SAID, more, session_end=True)
    async with working(house):
        await ended(house, answer.summary_job_id)
        opened = house.ctx.namespaces.peek(house.access().account, "researcher")
        [gone] = [one.id for one in opened.memories() if one.record.text == SAID[0]]
        await opened.log.append([Erase(Origin(b"a", b"nonce"), (gone,))])
        assert await summaries(house) == []
        await maintain(house.ctx)
        [again] = [
            job for job in opened.log.state.jobs.values() if job.work == "summarise" and not job.results
        ]
        await ended(house, ulid.render(again.job))
    assert SAID[0] not in chat.asked[1][-1].text
    assert [memory.text for memory in await summaries(house)] == [f"- {SECOND}"]
    await maintain(house.ctx)
    assert len([job for job in opened.log.state.jobs.values() if job.work == "summarise"]) == 2


async def test_a_budget_that_is_used_up_is_no_reason_to_lose_a_turn(house):
    house, chat = with_model(house, points(POINT), budget=DailyLimits(calls=1))
    async with working(house):
        first = await say(house, *SAID, session_end=True)
        await ended(house, first.summary_job_id)
        second = await say(house, "I signed the contract with the hosting company.", session_end=True)
    assert (second.kept, second.summary_job_id) == (1, None)
    assert len(chat.asked) == 1


async def test_the_job_of_a_summary_says_what_it_is(house):
    house, _ = with_model(house, points(POINT))
    answer = await say(house, *SAID, session_end=True)
    job = await look(house, answer.summary_job_id)
    assert (job.work, job.state) == ("summarise", "queued")
