"""The embedding model is changed between two starts of a real relayer: from the one in the process to an endpoint's."""

from __future__ import annotations

import httpx
from doubles.scripted_model_server import ScriptedModelServer
from processes import Served, wait_until
from test_models import Caller

TEXTS = tuple(f"The {name} leaves the harbour of Lisbon at {hour} o'clock" for hour, name in enumerate(
    ("ferry", "trawler", "tanker", "yacht", "steamer"), 5
))  # fmt: skip


def posted(caller: Caller, served: Served, target: str, body: dict) -> dict:
    answer = caller.call(served, "POST", target, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def recalled(caller: Caller, served: Served) -> tuple[str, bool]:
    found = posted(caller, served, "/v1/recall", {"query": "When does the tanker leave?", "floor": 0})
    return found["memories"][0]["text"], found["degraded"]


def _is_converted(served: Served) -> bool:
    figures = httpx.get(f"{served.url}/metrics", trust_env=False).text
    return "\nmemrelay_memories_without_vector 0.0\n" in figures


def test_a_changed_model_serves_all_the_while_and_later_starts_have_nothing_left_to_do(serve):
    caller = Caller()
    with ScriptedModelServer(dimension=48) as models:
        new = ("--embedder", "openai", "--embeddings-url", models.url, "--embeddings-model", "newer")
        first = serve()
        posted(caller, first, "/v1/memories", {"items": [{"text": text} for text in TEXTS]})
        first.stop()
        second = serve(*new, data=first.data)
        assert recalled(caller, second) == (TEXTS[2], False)
        wait_until(lambda: _is_converted(second))
        assert recalled(caller, second) == (TEXTS[2], False)
        second.stop()
        embedded = len(_memories_sent(models))
        assert embedded == len(TEXTS)
        third = serve(*new, data=first.data)
        assert recalled(caller, third) == (TEXTS[2], False)
        assert len(_memories_sent(models)) == embedded


def _memories_sent(models: ScriptedModelServer) -> list[str]:
    return [
        text for request in models.asked("embeddings") for text in request.body["input"] if "o'clock" in text
    ]
