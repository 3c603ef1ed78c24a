"""Spans of requests, sent to an OpenTelemetry collector by the exporter of the extra ``memrelay[otlp]``.

A span holds route, method, status, code and request id, as the log does, and nothing else of a request. The exporter queues a
bounded number of spans, sends them from a thread of its own, and reads the ``OTEL_*`` variables, such as headers.
"""

from __future__ import annotations

import asyncio
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from relayer.ports import RequestSpan

# Timeout of one batch. It also limits how long a stopping relayer waits for an unavailable collector.
_SEND_SECONDS: Final = 2


class OtlpTraces:
    """An implementation of `relayer.ports.Traces` that exports spans by OTLP over HTTP.

    Args:
        url: of the collector, such as ``http://127.0.0.1:4318``; ``/v1/traces`` is appended.
    """

    def __init__(self, url: str, version: str) -> None:
        resource = Resource.create({"service.name": "memrelay", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(url.rstrip("/") + "/v1/traces", timeout=_SEND_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("memrelay")
        self._propagator = TraceContextTextMapPropagator()

    def ended(self, span: RequestSpan) -> None:
        """Queue a span for export, unless the caller's trace context says that it is not sampled."""
        made = self._tracer.start_span(
            f"{span.method} {span.route}",
            context=self._propagator.extract({"traceparent": span.parent}),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": span.method,
                "http.route": span.route,
                "http.response.status_code": span.status,
                "memrelay.code": span.code,
                "memrelay.request_id": span.request_id,
            },
            start_time=span.ended_ns - span.took_ns,
        )
        if span.status >= 500:
            made.set_status(StatusCode.ERROR)
        made.end(span.ended_ns)

    async def close(self) -> None:
        """Send the queued spans and end the exporter's thread."""
        await asyncio.to_thread(self._provider.shutdown)
