"""A span of each request, at a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from web_runners import end_runner

from relayer.testing.local_relayer import local_relayer

SECRET = "the canary sings of harbours"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def told(of: Span | Resource) -> dict[str, str]:
    return {one.key: one.value.string_value or str(one.value.int_value) for one in of.attributes}


class Collector:
    """Takes spans, or refuses them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
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
                [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
                assert {"service.name": "memrelay"}.items() <= told(resource.resource).items()
                self.spans += resource.scope_spans[0].spans
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
    await end_runner(runner)


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
    first, other = sorted(collector.spans, key=lambda span: not span.parent_span_id)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert first.name == "POST /v1/memories"
    assert told(first) == {
        "http.request.method": "POST",
        "http.route": "/v1/memories",
        "http.response.status_code": "200",
        "memrelay.code": "ok",
        "memrelay.request_id": "turn-7",
    }
    assert 0 < first.end_time_unix_nano - first.start_time_unix_nano < 60 * 10**9
    assert told(other)["memrelay.code"] == "not_found"
    assert other.trace_id.hex() not in {TRACE, "0" * 32}
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
    assert [span.name for span in collector.spans] == ["GET /health"]


async def test_without_the_setting_nobody_is_told(collector: Collector) -> None:
    async with local_relayer() as at:
        await at.http.get(f"{at.url}/health")
    assert collector.asked == 0
