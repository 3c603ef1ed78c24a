"""Prometheus metrics of this process.

`Metrics` owns the registry and counts requests, calls of the store and calls of the embedding model; `MeteredStore` and
`MeteredEmbedder` wrap the two ports to measure them. Counts that other parts keep are read when the page is rendered.
`MetricsPage` renders it for clients that may read it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
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

from relayer.errors import StoreError
from relayer.http.health import PROBE_SECONDS, Readiness
from relayer.http.limits import RATE_CAUSES
from relayer.http.problems import HttpProblem
from relayer.ports import Clock, Embedder, EmbeddingModel, ObjectInfo, ObjectStore, T, WrappedStore
from relayer.wire.calls import is_loopback

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class Metrics:
    """The metrics of one relayer process, in a registry of their own instead of the library's global one."""

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
            "Time from the head of a request to its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._store_requests = Counter(
            "memrelay_store_requests",
            "Calls of the object store by method and outcome.",
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
        self._embedding_seconds = Histogram(
            "memrelay_embedding_seconds",
            "Time of a call of the embedding model, by input: query or memories.",
            ("of",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "memrelay_rate_limited",
            "Requests answered with 429, by the exceeded limit.",
            ("cause",),
            registry=self.registry,
        )
        for cause in RATE_CAUSES:
            # Prometheus sees the first 429 as an increase only if the series exists with 0 before it.
            self._rate_limited.labels(cause)
        self._checks = Gauge(
            "memrelay_ready_check", "1 while a check of /ready is ok.", ("check",), registry=self.registry
        )
        # Finding a child by its labels takes a lock and a sort, and there are few combinations of labels.
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._store_requests_of = cache(self._store_requests.labels)
        self._store_seconds_of = cache(self._store_seconds.labels)

    def observe(self, route: str, method: str, status: int, code: str, seconds: float) -> None:
        """Count a request; ``route`` is a path template, ``code`` is ``ok`` or the code of a problem."""
        self._requests_of(route, method, str(status), code).inc()
        self._seconds_of(route).observe(seconds)

    def observe_limited(self, cause: str) -> None:
        """Count a 429; ``cause`` names a bucket of `relayer.http.limits`, or a layer of MemWal's rate limits."""
        self._rate_limited.labels(cause).inc()

    def observe_embedding(self, of: str, seconds: float) -> None:
        """Record a call of the embedding model; see `MeteredEmbedder`."""
        self._embedding_seconds.labels(of).observe(seconds)

    def observe_store(self, call: str, end: str, seconds: float) -> None:
        """Record a call of the object store; see `Observe`."""
        self._store_requests_of(call, end).inc()
        self._store_seconds_of(call).observe(seconds)

    def observe_checks(self, checks: Mapping[str, str]) -> None:
        """Publish the checks of ``GET /ready`` by name, each ``ok`` or the reason why it is not."""
        for check, state in checks.items():
            self._checks.labels(check).set(state == "ok")

    def build(self, **facts: str) -> None:
        """Publish facts about this process, as labels of a metric that is always 1."""
        Info("memrelay_build", "Version and settings of this process.", registry=self.registry).info(facts)

    def counter(self, name: str, help_text: str, read: Callable[[], int]) -> None:
        """Publish a counter that another part keeps; ``read`` is called when metrics are rendered."""
        self.registry.register(_CountedElsewhere(f"memrelay_{name}", help_text, read))

    def counters(self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Publish counters that another part keeps, by the value of a label; ``read`` is called when metrics are rendered."""
        self.registry.register(_CountedElsewhere(f"memrelay_{name}", help_text, read, label))

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Publish a gauge; ``read`` is called when metrics are rendered."""
        Gauge(f"memrelay_{name}", help_text, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Encode all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class _CountedElsewhere(Collector):
    """A counter whose values another part keeps: one, or one for each value of a label."""

    def __init__(
        self, name: str, help_text: str, read: Callable[[], int | Mapping[str, int]], *labels: str
    ) -> None:
        self._name = name
        self._help = help_text
        self._read = read
        self._labels = labels

    def collect(self) -> Iterator[CounterMetricFamily]:
        family, read = CounterMetricFamily(self._name, self._help, labels=self._labels), self._read()
        if isinstance(read, Mapping):
            for value, count in sorted(read.items()):
                family.add_metric((value,), count)
        else:
            family.add_metric((), read)
        yield family


Observe = Callable[[str, str, float], None]
"""Receives the method of the port, the result and the seconds of a call. The result is the lower-case name of the outcome or of
the error, such as ``found``, ``unknown`` or ``unavailable``; ``done`` for methods without an outcome."""


class MeteredStore(WrappedStore):
    """Wraps an object store and calls ``observe`` after each request."""

    def __init__(self, inner: ObjectStore, observe: Observe) -> None:
        super().__init__(inner)
        self._observe = observe

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects, as the port defines; the recorded time includes what the caller does between rows."""
        began, end = perf_counter(), "done"
        try:
            async for info in self._inner.list(prefix):
                yield info
        except StoreError as error:
            end = _end_of(error)
            raise
        finally:
            self._observe("list", end, perf_counter() - began)

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:  # noqa: ARG002 - metrics have no keys
        """Make the request, and record its result and duration."""
        began, end = perf_counter(), "failed"
        try:
            outcome = await ask()
            end = "done" if outcome is None or isinstance(outcome, int) else type(outcome).__name__.lower()
        except StoreError as error:
            end = _end_of(error)
            raise
        except asyncio.CancelledError:
            end = "cancelled"
            raise
        else:
            return outcome
        finally:
            self._observe(operation, end, perf_counter() - began)


class MeteredEmbedder:
    """Wraps an embedder; calls ``observe`` after each successful call with ``query`` or ``memory`` and the seconds it took."""

    def __init__(self, inner: Embedder, observe: Callable[[str, float], None]) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def model(self) -> EmbeddingModel:
        """The model in use."""
        return self._inner.model

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """Embed texts, as the port defines; the recorded time is the model's own, without the time in an account's queue."""
        began = perf_counter()
        vectors = await self._inner.embed(texts, query=query, prompt=prompt)
        self._observe("query" if query else "memory", perf_counter() - began)
        return vectors

    async def close(self) -> None:
        """Release what the embedder holds."""
        await self._inner.close()


def _end_of(error: StoreError) -> str:
    return type(error).__name__.removeprefix("Store").lower()


# Seconds for which a rendered page is reused. Rendering takes about 15 ms, and scrapes are seconds apart.
_METRICS_SECONDS = 1.0
# Minimum seconds between two requests for the time of the last backup: about as often as a scraper comes. Without a scraper,
# none are made.
_BACKUP_SECONDS = 10.0


class MetricsPage:
    """The metrics page. Clients have to send the token to read it.

    If no token is configured, programs on the same machine may read it, unless ``proxied``: behind a proxy, every
    request comes from the proxy's address.
    """

    def __init__(
        self,
        metrics: Metrics,
        readiness: Readiness,
        clock: Clock,
        *,
        token: str,
        proxied: bool,
        backed_up: Callable[[], Awaitable[int]],
    ) -> None:
        self._metrics = metrics
        self._backed_up = backed_up
        self._backed_up_ms = 0
        self._backup_asked_at = float("-inf")
        metrics.gauge(
            "backup_last_success_timestamp_seconds",
            "Time at which the last complete backup of the store ended, in seconds since 1970; 0 if unknown.",
            lambda: self._backed_up_ms / 1000,
        )
        self._readiness = readiness
        self._clock = clock
        self._token = token
        self._proxied = proxied
        self._rendered = b""
        self._rendered_at = float("-inf")

    async def read(self, peer: str, authorization: str) -> bytes:
        """Return the page, at most one second old.

        Raises:
            HttpProblem: ``unauthorized``.
        """
        if self._token:
            given = authorization.removeprefix("Bearer ").strip()
            allowed = hmac.compare_digest(given.encode(), self._token.encode())
        else:
            allowed = not self._proxied and is_loopback(peer)
        if not allowed:
            raise HttpProblem(
                "unauthorized",
                "Metrics are for the operator: send the relayer's MEMRELAY_METRICS_TOKEN as authorization: Bearer. Without "
                "one they are read on the relayer's own machine, unless it is behind a proxy.",
                rule="metrics_reader",
            )
        if self._clock.monotonic() - self._rendered_at >= _METRICS_SECONDS:
            # Set before the checks are awaited, so that requests in the meantime get the previous page.
            self._rendered_at = self._clock.monotonic() if self._rendered else self._rendered_at
            self._metrics.observe_checks((await self._readiness.check()).checks)
            since = self._clock.monotonic() - self._backup_asked_at
            if self._readiness.store_usable and since >= _BACKUP_SECONDS:
                # If the store does not respond, the cached time stays.
                with suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(PROBE_SECONDS):
                        self._backed_up_ms = await self._backed_up()
                    self._backup_asked_at = self._clock.monotonic()
            self._rendered = self._metrics.render()
            self._rendered_at = self._clock.monotonic()
        return self._rendered
