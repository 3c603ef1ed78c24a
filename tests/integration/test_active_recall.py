"""Active recall over real HTTP: the model's call ends with the deadline, and with the caller."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from doubles.scripted_model_server import Fault, ScriptedModelServer, says

from relayer.testing.local_relayer import local_relayer

COFFEE = "I only drink oat milk coffee, never after 2 pm."
QUERY = {"query": "how do I take my coffee?", "floor": 0}


@pytest.fixture
def models():
    with ScriptedModelServer(chat="NONE") as server:
        yield server


@pytest.fixture
async def asking(models):
    # No extractor of its own: a model answers questions without extracting facts.
    async with local_relayer(model_url=models.url, model_name="chatty") as relayer:
        stored = await relayer.call("POST", "/v1/memories", {"items": [{"text": COFFEE}]})
        assert stored.status_code == 200
        yield relayer


def within(milliseconds):
    return {"x-deadline-ms": str(milliseconds)}


@pytest.mark.row("AM-01", level="e2e")
async def test_one_request_retrieves_and_reminds(asking, models):
    models.will_chat("Oat milk coffee, never after 2 pm.")
    answer = (await asking.call("POST", "/v1/active-recall", QUERY)).json()
    assert (answer["status"], answer["summary"]) == ("ok", "Oat milk coffee, never after 2 pm.")
    assert [hit["text"] for hit in answer["memories"]] == [COFFEE]


@pytest.mark.row("AM-18", level="e2e")
async def test_a_model_that_hangs_is_given_up_in_time_and_its_call_is_ended(asking, models):
    models.will_chat(Fault.HANG)
    answer = await asking.call("POST", "/v1/active-recall", QUERY, extra=within(2500))
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["reason"]) == ("fallback", "model_timeout")
    assert [hit["text"] for hit in answer.json()["memories"]] == [COFFEE]
    await asyncio.to_thread(models.wait_for, lambda: models.left == 1)


@pytest.mark.row("AM-18", level="e2e")
async def test_a_caller_who_goes_away_takes_the_question_with_them(asking, models):
    models.will_chat(Fault.HANG)
    asked = len(models.asked("chat"))
    asking.http.timeout = httpx.Timeout(1.5)
    with pytest.raises(httpx.ReadTimeout):
        await asking.call("POST", "/v1/active-recall", QUERY, extra=within(60_000))
    assert len(models.asked("chat")) == asked + 1
    await asyncio.to_thread(models.wait_for, lambda: models.left == 1)


async def test_an_answer_cites_and_a_missing_one_is_a_good_one(asking, models):
    models.will_chat(says({"answer": "Oat milk coffee, never after 2 pm.", "citations": [1]}))
    question = {"question": "How do I take my coffee?", "floor": 0}
    answer = (await asking.call("POST", "/v1/ask", question)).json()
    assert (answer["status"], [hit["text"] for hit in answer["citations"]]) == ("answered", [COFFEE])
    unknown = await asking.call("POST", "/v1/ask", {"question": "How tall is the tower?", "floor": 0})
    assert unknown.json()["status"] == "unknown"


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [(Fault.MALFORMED, 502, "model_answer_unusable"), (Fault.UNAUTHORIZED, 503, "model_unavailable")],
)
async def test_what_is_wrong_with_the_model_has_a_code_of_its_own(asking, models, fault, status, code):
    models.will_chat(*[fault] * 8)
    question = {"question": "How do I take my coffee?", "floor": 0}
    answer = await asking.call("POST", "/v1/ask", question, extra=within(8000))
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_relayer_without_a_model_says_how_to_get_one():
    async with local_relayer() as asking:
        await asking.call("POST", "/v1/memories", {"items": [{"text": COFFEE}]})
        refused = await asking.call("POST", "/v1/ask", {"question": "How do I take my coffee?"})
        assert (refused.status_code, refused.json()["code"]) == (409, "no_model")
        assert "--model-url" in refused.json()["detail"]
        reminded = await asking.call("POST", "/v1/active-recall", QUERY)
        assert reminded.json()["reason"] == "no_model"


@pytest.mark.row("AM-15", level="e2e")
async def test_a_model_that_is_not_here_is_said_and_never_taken_for_another(asking, models):
    models.will_chat("Oat milk coffee, never after 2 pm.", "Oat milk coffee, never after 2 pm.")
    other = (await asking.call("POST", "/v1/active-recall", QUERY | {"model": "mine"})).json()
    assert (other["status"], other["model"], other["model_missing"]) == ("ok", "chatty", True)
    own = (await asking.call("POST", "/v1/active-recall", QUERY | {"model": "chatty"})).json()
    assert (own["model"], own["model_missing"]) == ("chatty", False)
    only = QUERY | {"model": "mine", "model_fallback": "resolved-only"}
    refused = (await asking.call("POST", "/v1/active-recall", only)).json()
    assert (refused["status"], refused["reason"], refused["model_missing"]) == ("fallback", "no_model", True)
