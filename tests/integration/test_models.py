"""Real relayer processes and a model server on loopback: facts, faults, and a kill in the middle of a call."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from doubles.scripted_model_server import Fault, ModelRequest, ScriptedModelServer
from processes import Served, run_memrelay
from signed_calls import Gateway, Line

KEY = "sk-a-key-that-nobody-must-see"
ANA = "My sister Ana moved to Lisbon on 3 May 2026."
FACT = "Kim's sister Ana moved to Lisbon."


def proves(request: ModelRequest) -> str:
    """Answer as a good model would, and tell a lie beside it."""
    shown = json.loads(request.body["messages"][1]["content"])
    number = next(line["message"] for line in shown["conversation"] if "Lisbon" in line["text"])
    true = {"text": FACT, "message": number, "evidence": "Ana moved to Lisbon"}
    lie = {"text": "Ana married Bob in Porto.", "message": number, "evidence": "Ana moved to Lisbon"}
    return json.dumps({"facts": [true, lie], "summary": ""})


@pytest.fixture
def models() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(chat=proves) as server:
        yield server


class Caller:
    """A gateway that calls one relayer after another with the same keys."""

    def __init__(self) -> None:
        self.gateway = Gateway()

    def call(
        self, served: Served, method: str, target: str, body: dict | None = None, **more: str
    ) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=40) as http:
            sent = Line(http, served.url).sign(self.gateway, method, target, body)
            return Line(http, served.url).repeat(replace(sent, headers=sent.headers | more))

    def say(self, served: Served, **more: object) -> dict:
        turn = {"role": "user", "text": ANA, "speaker": "Kim"}
        answer = self.call(served, "POST", "/v1/analyze", {"turns": [turn], **more})
        assert answer.status_code in {200, 202}, answer.text
        return answer.json() | {"status": answer.status_code}

    def texts(self, served: Served) -> list[str]:
        listed = self.call(served, "GET", "/v1/memories?limit=100").json()["memories"]
        return [memory["text"] for memory in listed]


def options(models: ScriptedModelServer, *more: str) -> list[str]:
    llm = ["--extractor", "llm", "--model-url", models.url, "--model-name", "chatty"]
    vectors = ["--embedder", "openai", "--embeddings-url", models.url, "--embeddings-model", "tiny"]
    return [*llm, *vectors, *more]


@pytest.mark.row("MW-20", level="e2e")
def test_a_killed_relayers_job_is_finished_by_another_one_and_its_results_stand_once(serve, models):
    caller = Caller()
    first = serve(*options(models, "--job-takeover", "1"))
    asked = len(models.asked("chat"))
    models.hold()
    promised = caller.say(first)
    assert (promised["status"], promised["extraction"]) == (202, "pending")
    models.wait_for(lambda: len(models.asked("chat")) > asked and models.under_way > 0)
    first.stop(signal.SIGKILL)
    models.release()
    second = serve(*options(models, "--job-takeover", "1"), data=first.data)
    third = serve(*options(models, "--job-takeover", "1"), data=first.data)
    for relayer in (second, third):
        job = caller.call(relayer, "GET", f"/v1/jobs/{promised['job_id']}?wait_ms=20000").json()
        assert job["state"] == "done", job
        assert sorted(caller.texts(relayer)) == [FACT, ANA]
    assert len(job["memories"]) == 1


NOTE = "Kim decided to sell the boat in Lisbon."


def test_a_session_that_ends_leaves_a_summary_where_there_is_a_model_without_extraction(serve):
    caller = Caller()
    with ScriptedModelServer(chat=lambda _: json.dumps({"points": [NOTE, "Kim bought a castle."]})) as models:
        served = serve("--model-url", models.url, "--model-name", "chatty")
        for text in (ANA, "I decided to sell the boat in Lisbon.", "I prefer trains to planes."):
            turn = {"role": "user", "text": text, "speaker": "Kim"}
            kept = caller.call(served, "POST", "/v1/analyze", {"turns": [turn], "session": "s1"}).json()
            assert (kept["kept"], kept["extraction"]) == (1, "local")
        ended = caller.call(
            served, "POST", "/v1/analyze", {"turns": [], "session": "s1", "session_end": True}
        ).json()
        job = caller.call(served, "GET", f"/v1/jobs/{ended['summary_job_id']}?wait_ms=20000").json()
        assert (job["state"], job["work"]) == ("done", "summarise")
        found = caller.call(
            served, "POST", "/v1/recall", {"query": "What became of Kim's boat?", "kinds": ["summary"]}
        ).json()
        assert [hit["text"] for hit in found["memories"]] == [f"- {NOTE}"]


def test_when_the_models_are_away_turns_are_kept_and_recall_answers_by_words(serve, models):
    caller = Caller()
    served = serve(*options(models, "--embeddings-dimension", "64"))
    models.will_embed(*[Fault.SERVER_ERROR] * 30)
    models.will_chat(*[Fault.RESET] * 30)
    promised = caller.say(served)
    assert (promised["extraction"], promised["degraded"]) == ("pending", True)
    query = {"query": "where did Ana move to", "floor": 0}
    found = caller.call(served, "POST", "/v1/recall", query).json()
    assert [hit["text"] for hit in found["memories"]] == [ANA]
    assert found["degraded"]
    ready = httpx.get(f"{served.url}/ready", trust_env=False)
    assert ready.status_code == 200
    assert ready.json()["degraded"]
    assert ready.json()["checks"]["embeddings_endpoint"] == "HTTP 500"
    models.forget_script()
    job = caller.call(served, "GET", f"/v1/jobs/{promised['job_id']}?wait_ms=30000").json()
    assert job["state"] == "done", job
    assert httpx.get(f"{served.url}/ready", trust_env=False).json()["checks"]["model_endpoint"] == "ok"


def test_a_hanging_embeddings_endpoint_costs_the_meaning_and_not_the_answer(serve, models):
    caller = Caller()
    served = serve(*options(models))
    caller.say(served, wait_ms=10_000)
    models.will_embed(Fault.HANG)
    query = {"query": "a question that was never asked before", "floor": 0}
    answer = caller.call(served, "POST", "/v1/recall", query, **{"x-deadline-ms": "1500"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["degraded"]


def test_neither_key_nor_text_is_in_a_log_or_a_metric_and_lies_are_counted(serve, models, tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    environment = {"MEMRELAY_MODEL_API_KEY_FILE": str(file), "MEMRELAY_EMBEDDINGS_API_KEY": KEY}
    caller = Caller()
    served = serve(*options(models, "--log-level", "debug"), environment=environment)
    answer = caller.say(served, wait_ms=20_000)
    assert (answer["status"], answer["extraction"], len(answer["facts"])) == (200, "done", 1)
    models.will_chat(Fault.UNAUTHORIZED)
    caller.call(served, "POST", "/v1/analyze", {"turns": [{"role": "user", "text": "I live in Lisbon now."}]})
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in models.requests)
    metrics = httpx.get(f"{served.url}/metrics", trust_env=False).text
    assert "memrelay_facts_found_total 1.0" in metrics
    assert "memrelay_facts_dropped_name_not_said_total 1.0" in metrics
    served.stop()
    said = served.log.read_text() + (served.process.stdout.read() if served.process.stdout else "") + metrics
    for secret in (KEY, "Lisbon", "Kim", "Porto"):
        assert secret not in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--embeddings-dimension", "32"], "--embeddings-dimension: is 32, and tiny answers with 64 numbers"),
        (["--model-url", "http://10.0.0.7/v1"], "would be sent unencrypted"),
        (["--model-url", "http://127.0.0.1/v1?key=1"], "--model-url (MEMRELAY_MODEL_URL): must be a URL"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_the_fix(models, tmp_path, more, said):
    ended = run_memrelay(["serve", "--port", "0", "--data", str(tmp_path), *options(models, *more)])
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_key_that_is_not_accepted_is_asked_for_by_name(models, tmp_path):
    models.will_embed(Fault.UNAUTHORIZED)
    ended = run_memrelay(["serve", "--port", "0", "--data", str(tmp_path), *options(models)])
    assert ended.returncode == 2
    assert "MEMRELAY_EMBEDDINGS_API_KEY" in ended.stderr
