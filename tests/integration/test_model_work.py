"""A relayer without a model has its questions asked by the gateway, and believes an answer no more than its own model's."""

from __future__ import annotations

import json

import pytest

from relayer.testing.local_relayer import local_relayer

ANA = "My sister Ana moved to Lisbon on 3 May 2026."
FACT = {"text": "The user's sister Ana moved to Lisbon.", "message": 1, "evidence": "Ana moved to Lisbon"}
INVENTED = {"text": "The user's sister Ana works at a bakery.", "message": 1, "evidence": "works at a bakery"}
COFFEE = "I only drink oat milk coffee, never after 2 pm."
QUERY = {"query": "how do I take my coffee?", "floor": 0}


@pytest.fixture
async def relayer():
    async with local_relayer() as running:
        yield running


def says(*facts, summary=""):
    return json.dumps({"facts": facts, "summary": summary})


async def capture(relayer, text=ANA, **more):
    body = {"turns": [{"role": "user", "text": text}], "session": "s1", "host_model": True, **more}
    answer = await relayer.call("POST", "/v1/analyze", body)
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


async def work(relayer, **body):
    answer = await relayer.call("POST", "/v1/model-work", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def answer(relayer, asked, text, **more):
    given = {"ticket": asked["question"]["ticket"], "text": text, "model": "hosted", "tokens": 40}
    return await work(relayer, job_id=asked["job_id"], answer=given, **more)


async def texts(relayer):
    listed = (await relayer.call("GET", "/v1/memories?limit=50")).json()["memories"]
    return {one["text"]: one for one in listed}


@pytest.mark.row("CP-38", level="e2e")
async def test_a_fact_of_the_gateways_model_is_kept_beside_the_words_that_prove_it(relayer):
    captured = await capture(relayer)
    assert (captured["extraction"], captured["host_model"]) == ("pending", True)
    asked = await work(relayer)
    assert asked["work"] == "extract"
    assert ANA in asked["question"]["messages"][1]["text"]
    done = await answer(relayer, asked, says(FACT, INVENTED))
    assert (done["outcome"], done["facts"], done["dropped"]) == ("done", 1, 1)
    kept = await texts(relayer)
    assert set(kept) == {ANA, FACT["text"]}
    assert kept[FACT["text"]]["extractor"].startswith("llm")
    assert (done["question"], done["waiting"]) == (None, 0)


@pytest.mark.row("CP-39", level="e2e")
@pytest.mark.parametrize("silence", ["[SILENT]", "NONE", says()])
async def test_where_the_model_finds_nothing_nothing_is_written(relayer, silence):
    await capture(relayer)
    done = await answer(relayer, await work(relayer), silence)
    assert (done["outcome"], done["facts"]) == ("done", 0)
    assert set(await texts(relayer)) == {ANA}


async def test_without_the_gateways_offer_nothing_is_promised(relayer):
    captured = await capture(relayer, host_model=False)
    assert (captured["extraction"], captured["host_model"], captured["job_id"]) == ("local", False, None)
    assert (await work(relayer))["question"] is None


async def test_one_question_is_out_once_and_an_answer_counts_once(relayer):
    await capture(relayer)
    asked = await work(relayer)
    again = await work(relayer)
    assert (again["question"], again["waiting"]) == (None, 1)
    assert again["retry_in_ms"] > 60_000
    await answer(relayer, asked, says(FACT))
    assert (await answer(relayer, asked, says(FACT)))["outcome"] == "stale"
    assert len(await texts(relayer)) == 2


async def test_an_answer_to_another_question_is_none(relayer):
    await capture(relayer)
    asked = await work(relayer)
    asked["question"]["ticket"] = "0" * 64
    assert (await answer(relayer, asked, says(FACT)))["outcome"] == "stale"
    assert set(await texts(relayer)) == {ANA}


async def test_answers_that_cannot_be_used_are_asked_for_again_and_end_the_job_in_the_end(relayer):
    captured = await capture(relayer)
    asked = await work(relayer)
    outcomes = [(await answer(relayer, asked, "I cannot help with that."))["outcome"] for _ in range(3)]
    assert outcomes == ["unusable", "unusable", "failed"]
    job = (await relayer.call("GET", f"/v1/jobs/{captured['job_id']}")).json()
    assert (job["state"], job["reason"]) == ("failed", "model_answer_not_json")


async def test_what_was_erased_meanwhile_is_not_brought_back_by_an_answer(relayer):
    captured = await capture(relayer)
    asked = await work(relayer)
    memory = captured["memories"][0]["id"]
    assert (await relayer.call("DELETE", f"/v1/memories/{memory}?mode=forget")).status_code == 200
    assert (await answer(relayer, asked, says(FACT)))["outcome"] in {"stale", "done"}
    assert await texts(relayer) == {} or FACT["text"] not in await texts(relayer)


async def test_where_nobody_takes_the_questions_captures_go_on(relayer):
    for number in range(70):
        captured = await capture(relayer, f"My locker at the pool has the number {number + 100}.")
        assert captured["memories"][0]["status"] == "stored"
    assert captured["extraction"] == "local"
    assert (await work(relayer))["waiting"] == 64


@pytest.mark.row("MS-19", level="e2e")
async def test_a_turn_and_a_session_are_summarised_by_the_gateways_model(relayer):
    for text in (ANA, "My sister Ana works at the harbour museum.", "My own flat in Porto is sold."):
        await capture(relayer, text)
    ended = {"turns": [], "session": "s1", "session_end": True, "host_model": True}
    promised = (await relayer.call("POST", "/v1/analyze", ended)).json()
    assert promised["summary_job_id"]
    assert promised["host_model"]
    asked = await work(relayer, turn_summaries=True)
    while asked["question"] is not None:
        if asked["work"] == "summarise":
            text = json.dumps({"points": ["Ana moved to Lisbon.", "The flat in Porto is sold."]})
        else:
            text = says(
                summary="Ana moved to Lisbon on 3 May 2026." if "Lisbon" in str(asked["question"]) else ""
            )
        asked = await answer(relayer, asked, text, turn_summaries=True)
        assert asked["outcome"] == "done"
    summaries = [one for one in (await texts(relayer)).values() if one["kind"] == "summary"]
    assert "- Ana moved to Lisbon.\n- The flat in Porto is sold." in {one["text"] for one in summaries}
    assert "Ana moved to Lisbon on 3 May 2026." in {one["text"] for one in summaries}


async def ask_active(relayer, **more):
    reply = await relayer.call("POST", "/v1/active-recall", QUERY | {"host_model": True} | more)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_a_reminder_of_the_gateways_model_is_checked_like_any_other(relayer):
    await relayer.call("POST", "/v1/memories", {"items": [{"text": COFFEE}]})
    asked = await ask_active(relayer)
    assert (asked["status"], [hit["text"] for hit in asked["memories"]]) == ("ask", [COFFEE])

    def given(text):
        return {"answer": {"ticket": asked["question"]["ticket"], "text": text, "model": "hosted"}}

    good = await ask_active(relayer, **given("Oat milk coffee, never after 2 pm."))
    assert (good["status"], good["summary"], good["model"]) == (
        "ok",
        "Oat milk coffee, never after 2 pm.",
        "hosted",
    )
    assert (await ask_active(relayer, **given("NONE")))["status"] == "empty"
    invented = await ask_active(relayer, **given("Green tea at 7 am in Helsinki."))
    assert (invented["status"], invented["reason"]) == ("fallback", "not_proved")


@pytest.mark.row("MW-39", level="e2e")
async def test_the_model_is_shown_what_is_known_repeats_nothing_and_its_dates_are_anchored(relayer):
    await capture(relayer)
    await answer(relayer, await work(relayer), says(FACT | {"importance": "vital"}))
    assert (await texts(relayer))[FACT["text"]]["importance"] == pytest.approx(0.9)
    monday = 1_788_782_400_000
    text = "My sister Ana moved to Lisbon, and yesterday she got the keys of her flat."
    turn = {"role": "user", "text": text, "occurred_at": monday}
    await capture(relayer, turns=[turn])
    asked = await work(relayer)
    shown = json.loads(asked["question"]["messages"][1]["text"])
    assert any(FACT["text"] in one["memory"] for one in shown["known"])
    known = next(one["number"] for one in shown["known"] if FACT["text"] in one["memory"])
    repeated = FACT | {"relation": "duplicate", "known": known}
    keys = {
        "text": "The user's sister Ana got the keys of her flat.",
        "message": 1,
        "evidence": "yesterday she got the keys of her flat",
        "importance": "trivial",
        "time": "2026-09-06",
    }
    done = await answer(relayer, asked, says(repeated, keys))
    assert done["outcome"] == "done"
    kept = await texts(relayer)
    assert sum(one.startswith("The user's sister Ana moved") for one in kept) == 1
    assert kept[keys["text"]]["occurred_at"] == "2026-09-06T00:00:00.000Z"
    assert kept[keys["text"]]["importance"] == pytest.approx(0.2)
