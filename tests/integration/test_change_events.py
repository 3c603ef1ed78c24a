"""The change feed as server-sent events, over a real socket."""

from __future__ import annotations

import asyncio
import json
import time

from border import border
from signed_calls import encode

ACCEPTS = {"accept": "text/event-stream"}


def _request(border, after: str = "0", **extra: str):
    target = f"/v1/changes?after={after}"
    headers = border.gateway.headers(
        "GET", border.authority, target, encode(None), memory_key=border.memory_key()
    )
    return border.http.stream("GET", border.url + target, headers=headers | ACCEPTS | extra)


async def _event(lines) -> dict[str, str]:
    """Read up to the end of the next event that has data."""
    fields: dict[str, str] = {}
    async with asyncio.timeout(10):
        while line := await anext(lines):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields if "data" in fields else await _event(lines)


async def test_changes_come_as_events_and_go_on_after_the_last_one_that_was_heard():
    async with border() as served:
        await served.call("POST", "/v1/memories", {"items": [{"text": "I drink tea"}]})
        async with _request(served) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream"
            lines = answer.aiter_lines()
            first = await _event(lines)
            assert first["event"] == "remembered"
            memory = json.loads(first["data"])["memory"]
            assert memory["text"] == "I drink tea"
            await served.call("POST", "/v1/memories", {"items": [{"text": "I drink coffee"}]})
            assert json.loads((await _event(lines))["data"])["memory"]["text"] == "I drink coffee"
            await served.call("DELETE", f"/v1/memories/{memory['id']}")
            gone = await _event(lines)
            assert (gone["event"], json.loads(gone["data"])["id"]) == ("forgotten", memory["id"])
        async with _request(served, **{"last-event-id": first["id"]}) as answer:
            again = await _event(answer.aiter_lines())
            assert json.loads(again["data"])["memory"]["text"] == "I drink coffee"


async def test_polling_goes_on_beside_it_and_what_is_wrong_is_a_problem_and_no_stream():
    async with border() as served:
        await served.call("POST", "/v1/memories", {"items": [{"text": "I drink tea"}]})
        polled = await served.call("GET", "/v1/changes", extra={"accept": "application/json, */*"})
        assert len(polled.json()["changes"]) == 1
        async with _request(served, after="99") as answer:
            await answer.aread()
            assert (answer.status_code, answer.json()["code"]) == (409, "rollback_detected")
        async with _request(served, **{"last-event-id": "an hour ago"}) as answer:
            await answer.aread()
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
        unsigned = await served.http.get(f"{served.url}/v1/changes", headers=ACCEPTS)
        assert (unsigned.status_code, unsigned.json()["code"]) == (400, "missing_header")


async def test_a_relayer_that_stops_ends_its_streams_as_whole_answers():
    heard: list[str] = []
    listening = asyncio.Event()

    async def listen(served) -> None:
        async with _request(served) as answer:
            async for line in answer.aiter_lines():
                heard.append(line)
                if line.startswith("data"):
                    listening.set()

    async with asyncio.timeout(20), border() as served:
        await served.call("POST", "/v1/memories", {"items": [{"text": "I drink tea"}]})
        listener = asyncio.create_task(listen(served))
        await listening.wait()
        await served.relayer.handler.drain(2.0)
        assert served.relayer.handler.under_way == 0
        await listener
    # httpx raises when an answer breaks off: that it did not is the claim.
    assert heard


async def test_whoever_hangs_up_leaves_no_stream_behind():
    async with border() as served:
        await served.call("POST", "/v1/memories", {"items": [{"text": "I drink tea"}]})
        async with _request(served) as answer:
            await _event(answer.aiter_lines())
        await served.call("POST", "/v1/memories", {"items": [{"text": "I drink coffee"}]})
        async with asyncio.timeout(10):
            while served.relayer.handler.under_way:
                await served.call("POST", "/v1/memories", {"items": [{"text": f"cup {time.monotonic_ns()}"}]})
        [opened] = served.relayer.context.namespaces.all()
        assert opened.users == 0
