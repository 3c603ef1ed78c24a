"""What Prometheus may know: counts and times by route, status and code. No name and no id is ever a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

__all__ = ["Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class Metrics:
    """One registry per relayer process, never the library's global one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "memrelay_http_requests",
            "Requests by route, method, status and code.",
            ("route", "method", "status", "code"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "memrelay_http_request_seconds",
            "Time from a request's head to its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._store_requests = Counter(
            "memrelay_store_requests",
            "Calls of the object store by method and end.",
            ("call", "end"),
            registry=self.registry,
        )
        self._store_seconds = Histogram(
            "memrelay_store_seconds",
            "Time of a call of the object store.",
            ("call",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._checks = Gauge(
            "memrelay_ready_check", "1 while a check of /ready is ok.", ("check",), registry=self.registry
        )
        # Finding a child by its labels takes a lock and a sort; requests are few kinds.
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._store_requests_of = cache(self._store_requests.labels)
        self._store_seconds_of = cache(self._store_seconds.labels)

    def observe(self, route: str, method: str, status: int, code: str, seconds: float) -> None:
        """Count one answered request; ``route`` is a template, ``code`` is ``ok`` or a problem's."""
        self._requests_of(route, method, str(status), code).inc()
        self._seconds_of(route).observe(seconds)

    def observe_store(self, call: str, end: str, seconds: float) -> None:
        """Count one call of the object store; see `relayer.adapters.metered_store`."""
        self._store_requests_of(call, end).inc()
        self._store_seconds_of(call).observe(seconds)

    def observe_checks(self, checks: Mapping[str, str]) -> None:
        """Publish what ``GET /ready`` says: the checks by name, each ``ok`` or why not."""
        for check, state in checks.items():
            self._checks.labels(check).set(state == "ok")

    def build(self, **facts: str) -> None:
        """Publish what runs, as the labels of a number that is always 1."""
        Info("memrelay_build", "What this process runs.", registry=self.registry).info(facts)

    def counter(self, name: str, help_text: str, read: Callable[[], int]) -> None:
        """Publish a count that something else keeps; it is read when somebody asks."""
        self.registry.register(_Kept(f"memrelay_{name}", help_text, read))

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Publish a number that is read when somebody asks."""
        Gauge(f"memrelay_{name}", help_text, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Encode everything in the text format."""
        return generate_latest(self.registry)


class _Kept(Collector):
    """A counter whose number is kept elsewhere."""

    def __init__(self, name: str, help_text: str, read: Callable[[], int]) -> None:
        self._name = name
        self._help = help_text
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, value=self._read())
