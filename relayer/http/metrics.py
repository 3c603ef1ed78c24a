"""What Prometheus may know: counts and times by route, status and code. No name and no id is ever a label."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

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
        # Finding a child by its labels takes a lock and a sort; requests are few kinds.
        self._request_children: dict[tuple[str, str, int, str], Counter] = {}
        self._second_children: dict[str, Histogram] = {}

    def observe(self, route: str, method: str, status: int, code: str, seconds: float) -> None:
        """Count one answered request; ``route`` is a template, ``code`` is ``ok`` or a problem's."""
        key = (route, method, status, code)
        counter = self._request_children.get(key)
        if counter is None:
            counter = self._request_children[key] = self._requests.labels(route, method, str(status), code)
        counter.inc()
        histogram = self._second_children.get(route)
        if histogram is None:
            histogram = self._second_children[route] = self._seconds.labels(route)
        histogram.observe(seconds)

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Publish a number that is read when somebody asks."""
        Gauge(f"memrelay_{name}", help_text, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Encode everything in the text format."""
        return generate_latest(self.registry)
