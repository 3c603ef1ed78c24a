"""Requests as spans at an OpenTelemetry collector: OTLP over HTTP, in the JSON form of opentelemetry-proto.

Nothing waits for a collector. Spans wait in a bounded list and are sent in the background; while the collector is away,
the newest are kept. A span says route, method, status, code and request id, as the log does, and nothing of a request else.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from contextlib import suppress
from typing import Any, Final

import aiohttp

from relayer.lib.scheduler import OnError, Periodic
from relayer.ports import Randomness, RequestSpan

_MOST_WAITING: Final = 4096
_MOST_AT_ONCE: Final = 512
_EVERY_SECONDS: Final = 5.0
_SEND_SECONDS: Final = 5.0
_CLOSING_SECONDS: Final = 1.0
_NOT_SENT: Final = (aiohttp.ClientError, OSError, TimeoutError)
# SPAN_KIND_SERVER and STATUS_CODE_ERROR of opentelemetry-proto.
_SERVER, _ERROR = 2, 2
_SERVER_ERROR: Final = 500
# https://www.w3.org/TR/trace-context/: version, trace, parent, flags; the last bit says whether it is recorded.
_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class OtlpTraces:
    """Fulfils `relayer.ports.Traces`.

    Args:
        url: the collector's, such as ``http://127.0.0.1:4318``; ``/v1/traces`` is added.
        version: the relayer's.
        randomness: for ids.
    """

    def __init__(self, url: str, version: str, randomness: Randomness) -> None:
        self._url = url.rstrip("/") + "/v1/traces"
        self._randomness = randomness
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._session: aiohttp.ClientSession | None = None
        self._resource = {"attributes": _attributes({"service.name": "memrelay", "service.version": version})}
        self.task = Periodic("traces", self._round, _EVERY_SECONDS)

    def ended(self, span: RequestSpan) -> None:
        """Keep a span until it is sent; one that its caller does not record is left out."""
        parent = _PARENT.fullmatch(span.parent)
        if parent is not None and not int(parent[3], 16) & 1:
            return
        made: dict[str, Any] = {
            "traceId": parent[1] if parent else self._randomness.bytes(16).hex(),
            "spanId": self._randomness.bytes(8).hex(),
            "name": f"{span.method} {span.route}",
            "kind": _SERVER,
            "startTimeUnixNano": str(span.ended_ns - span.took_ns),
            "endTimeUnixNano": str(span.ended_ns),
            "attributes": _attributes(
                {
                    "http.request.method": span.method,
                    "http.route": span.route,
                    "http.response.status_code": span.status,
                    "memrelay.code": span.code,
                    "memrelay.request_id": span.request_id,
                }
            ),
        }
        if parent:
            made["parentSpanId"] = parent[2]
        if span.status >= _SERVER_ERROR:
            made["status"] = {"code": _ERROR}
        self._waiting.append(made)

    async def send(self) -> None:
        """Send what waits; what cannot be sent waits on.

        Raises:
            aiohttp.ClientError, OSError, TimeoutError: the collector did not take it.
        """
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
            try:
                await self._post(spans)
            except _NOT_SENT:
                room = _MOST_WAITING - len(self._waiting)
                self._waiting.extendleft(reversed(spans[-room:] if room else []))
                raise

    async def close(self) -> None:
        """Send what waits, for a second at most, and let go."""
        with suppress(*_NOT_SENT):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.send()
        if self._session is not None:
            await self._session.close()

    async def _round(self, on_error: OnError) -> None:
        try:
            await self.send()
        except _NOT_SENT as error:
            on_error(error)

    async def _post(self, spans: list[dict[str, Any]]) -> None:
        scope = {"scope": {"name": "memrelay"}, "spans": spans}
        body = json.dumps({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]})
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_SEND_SECONDS), cookie_jar=aiohttp.DummyCookieJar()
            )
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            answer.raise_for_status()


def _attributes(values: dict[str, str | int]) -> list[dict[str, Any]]:
    # 64-bit numbers are text in JSON.
    return [
        {"key": key, "value": {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}}
        for key, one in values.items()
    ]
