"""Active recall over real HTTP: the model's call ends with the deadline, and with the caller."""

from __future__ import annotations

import httpx
import pytest
from processes import Served
from signed_calls import Gateway, encode

from relayer.testing.scripted_model_server import Fault, ScriptedModelServer, says
from relayer.wire import base64url

COFFEE = "I only drink oat milk coffee, never after 2 pm."
QUERY = {"query": "how do I take my coffee?", "floor": 0}


@pytest.fixture
def models():
    with ScriptedModelServer(chat="NONE") as server:
        yield server


@pytest.fixture
def served(serve, models) -> Served:
    # No --extractor llm: a model answers questions without extracting facts.
    return serve("--model-url", models.url, "--model-name", "chatty")


class Asking:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.gateway = Gateway()
        keys = httpx.get(f"{served.url}/v1/keys", trust_env=False).json()["keys"]
        self.key = base64url.decode(keys[0]["public_key"])

    def call(self, target, body, *, patience=30.0, deadline_ms=None):
        raw = encode(body)
        headers = self.gateway.headers(
            "POST", self.served.authority, target, raw, memory_key=self.gateway.memory_key(self.key)
        )
        if deadline_ms is not None:
            headers["x-deadline-ms"] = str(deadline_ms)
        with httpx.Client(trust_env=False, timeout=patience) as http:
            return http.post(self.served.url + target, content=raw, headers=headers)


@pytest.fixture
def asking(served):
    made = Asking(served)
    assert made.call("/v1/memories", {"items": [{"text": COFFEE}]}).status_code == 200
    return made


@pytest.mark.row("AM-01")
def test_one_request_retrieves_and_reminds(asking, models):
    models.will_chat("Oat milk coffee, never after 2 pm.")
    answer = asking.call("/v1/active-recall", QUERY).json()
    assert (answer["status"], answer["summary"]) == ("ok", "Oat milk coffee, never after 2 pm.")
    assert [hit["text"] for hit in answer["memories"]] == [COFFEE]


@pytest.mark.row("AM-18")
def test_a_model_that_hangs_is_given_up_in_time_and_its_call_is_ended(asking, models):
    models.will_chat(Fault.HANG)
    answer = asking.call("/v1/active-recall", QUERY, deadline_ms=2500)
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["reason"]) == ("fallback", "model_timeout")
    assert [hit["text"] for hit in answer.json()["memories"]] == [COFFEE]
    models.wait_for(lambda: models.left == 1)


@pytest.mark.row("AM-18")
def test_a_caller_who_goes_away_takes_the_question_with_them(asking, models):
    models.will_chat(Fault.HANG)
    asked = len(models.asked("chat"))
    with pytest.raises(httpx.ReadTimeout):
        asking.call("/v1/active-recall", QUERY, patience=1.5, deadline_ms=60_000)
    assert len(models.asked("chat")) == asked + 1
    models.wait_for(lambda: models.left == 1)


def test_an_answer_cites_and_a_missing_one_is_a_good_one(asking, models):
    models.will_chat(says({"answer": "Oat milk coffee, never after 2 pm.", "citations": [1]}))
    answer = asking.call("/v1/ask", {"question": "How do I take my coffee?", "floor": 0}).json()
    assert (answer["status"], [hit["text"] for hit in answer["citations"]]) == ("answered", [COFFEE])
    assert (
        asking.call("/v1/ask", {"question": "How tall is the tower?", "floor": 0}).json()["status"]
        == "unknown"
    )


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [(Fault.MALFORMED, 502, "model_answer_unusable"), (Fault.UNAUTHORIZED, 503, "model_unavailable")],
)
def test_what_is_wrong_with_the_model_has_a_code_of_its_own(asking, models, fault, status, code):
    models.will_chat(*[fault] * 8)
    answer = asking.call("/v1/ask", {"question": "How do I take my coffee?", "floor": 0}, deadline_ms=8000)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_relayer_without_a_model_says_how_to_get_one(serve):
    asking = Asking(serve())
    asking.call("/v1/memories", {"items": [{"text": COFFEE}]})
    refused = asking.call("/v1/ask", {"question": "How do I take my coffee?"})
    assert (refused.status_code, refused.json()["code"]) == (409, "no_model")
    assert "--model-url" in refused.json()["detail"]
    assert asking.call("/v1/active-recall", QUERY).json()["reason"] == "no_model"
