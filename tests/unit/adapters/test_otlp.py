"""A span of each request, at a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from relayer.testing.local_relayer import local_relayer

SECRET = "the canary sings of harbours"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """Takes spans, or refuses them."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.raw = b""
        self.status = 200
        self.asked = 0
        self.url = ""
        self._changed = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with self._changed:
            self.asked += 1
            if self.status == 200:
                self.raw += body
                [resource] = (await request.json())["resourceSpans"]
                assert {"key": "service.name", "value": {"stringValue": "memrelay"}} in resource["resource"][
                    "attributes"
                ]
                self.spans += resource["scopeSpans"][0]["spans"]
            self._changed.notify_all()
        return web.Response(status=self.status)

    async def until(self, true: Callable[[], bool]) -> None:
        async with self._changed, asyncio.timeout(30):
            await self._changed.wait_for(true)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def told(span: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@pytest.mark.row("MW-43", level="e2e")
async def test_each_request_is_a_span_below_its_callers_and_says_nothing_of_what_was_said(
    collector: Collector,
) -> None:
    async with local_relayer(otlp_url=collector.url) as at:
        traced = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "turn-7"}
        stored = await at.call("POST", "/v1/memories", {"items": [{"text": SECRET}]}, extra=traced)
        assert stored.status_code == 200
        await at.call("GET", "/v1/memories/canary-id", extra={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        await at.http.get(f"{at.url}/canary-path")
    # What waited went out when the relayer ended.
    first, other = sorted(collector.spans, key=lambda span: "parentSpanId" not in span)
    assert (first["traceId"], first["parentSpanId"], first["name"]) == (TRACE, PARENT, "POST /v1/memories")
    assert told(first) == {
        "http.request.method": "POST",
        "http.route": "/v1/memories",
        "http.response.status_code": "200",
        "memrelay.code": "ok",
        "memrelay.request_id": "turn-7",
    }
    assert 0 < int(first["endTimeUnixNano"]) - int(first["startTimeUnixNano"]) < 60 * 10**9
    assert told(other)["memrelay.code"] == "not_found"
    assert other["traceId"] not in {TRACE, "0" * 32}
    for word in (b"canary", SECRET.encode(), at.gateway.root.account.encode(), at.gateway.agent.encode()):
        assert word not in collector.raw


@pytest.mark.tier("all")  # it is asked again after five seconds
async def test_a_collector_that_is_away_costs_nothing_and_is_told_later(collector: Collector) -> None:
    collector.status = 503
    async with local_relayer(otlp_url=collector.url) as at:
        assert (await at.http.get(f"{at.url}/health")).status_code == 200
        await collector.until(lambda: collector.asked > 0)
        assert collector.spans == []
        collector.status = 200
    assert [span["name"] for span in collector.spans] == ["GET /health"]


async def test_without_the_setting_nobody_is_told(collector: Collector) -> None:
    async with local_relayer() as at:
        await at.http.get(f"{at.url}/health")
    assert collector.asked == 0
