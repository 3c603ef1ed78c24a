"""The metrics of this process: what is counted, the store and the embedder that are watched for it, and the page."""

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
from relayer.wire.loopback import is_loopback

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
        self._embedding_seconds = Histogram(
            "memrelay_embedding_seconds",
            "Time of the embedding model for a call, by what it read: a query, or memories.",
            ("of",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "memrelay_rate_limited",
            "Requests answered 429, by what was too much.",
            ("cause",),
            registry=self.registry,
        )
        for cause in RATE_CAUSES:
            # From nothing to one is an increase only where there was a nothing.
            self._rate_limited.labels(cause)
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

    def observe_limited(self, cause: str) -> None:
        """Count a 429; ``cause`` names a bucket of `relayer.http.limits`, or a layer of MemWal's."""
        self._rate_limited.labels(cause).inc()

    def observe_embedding(self, of: str, seconds: float) -> None:
        """Count a call of the embedding model; see `MeteredEmbedder`."""
        self._embedding_seconds.labels(of).observe(seconds)

    def observe_store(self, call: str, end: str, seconds: float) -> None:
        """Count one call of the object store; see `Observe`."""
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
        self.registry.register(_CountedElsewhere(f"memrelay_{name}", help_text, read))

    def counters(self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Publish counts that something else keeps, by a label; they are read when somebody asks."""
        self.registry.register(_KeptByLabel(f"memrelay_{name}", help_text, label, read))

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Publish a number that is read when somebody asks."""
        Gauge(f"memrelay_{name}", help_text, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Encode everything in the text format."""
        return generate_latest(self.registry)


class _CountedElsewhere(Collector):
    """A counter whose number is kept elsewhere."""

    def __init__(self, name: str, help_text: str, read: Callable[[], int]) -> None:
        self._name = name
        self._help = help_text
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, value=self._read())


class _KeptByLabel(Collector):
    """A counter whose numbers are kept elsewhere, one for each value of a label."""

    def __init__(self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        self._name = name
        self._help = help_text
        self._label = label
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=(self._label,))
        for value, count in sorted(self._read().items()):
            family.add_metric((value,), count)
        yield family


Observe = Callable[[str, str, float], None]


"""Takes a method of the port, how it ended, and seconds. The end is the outcome's or the error's name in lower case:
``found``, ``unknown``, ``unavailable``; ``done`` for what has no outcome."""


class MeteredStore(WrappedStore):
    """Tells ``observe`` about each call."""

    def __init__(self, inner: ObjectStore, observe: Observe) -> None:
        super().__init__(inner)
        self._observe = observe

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says; the time counted includes what the caller does between rows."""
        began, end = perf_counter(), "done"
        try:
            async for info in self._inner.list(prefix):
                yield info
        except StoreError as error:
            end = _end_of(error)
            raise
        finally:
            self._observe("list", end, perf_counter() - began)

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:  # noqa: ARG002 - no name is told
        """Make the request, and tell how it ended and what time it took."""
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
    """Tells ``observe`` about each call that succeeds: what was embedded, ``query`` or ``memory``, and the seconds it took."""

    def __init__(self, inner: Embedder, observe: Callable[[str, float], None]) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model in use."""
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """As the port says; time in an account's queue is not counted, the model's own is."""
        began = perf_counter()
        vectors = await self._inner.embed(texts, query=query)
        self._observe("query" if query else "memory", perf_counter() - began)
        return vectors

    async def close(self) -> None:
        """Release what the embedder holds."""
        await self._inner.close()


def _end_of(error: StoreError) -> str:
    return type(error).__name__.removeprefix("Store").lower()


# Asked about as often as a scraper comes, and only while one does.
_LOOK_SECONDS = 10.0


class _LastBackup:
    """When the store was last backed up, as it was known when it was last asked."""

    def __init__(self, clock: Clock, ask: Callable[[], Awaitable[int]]) -> None:
        self._clock = clock
        self._ask = ask
        self._known_ms = 0
        self._asked_at = float("-inf")

    def seconds(self) -> float:
        """Return it in seconds since the epoch; 0 for never."""
        return self._known_ms / 1000

    async def look(self) -> None:
        """Ask the store unless that was done a moment ago; a store that does not answer leaves what was known."""
        if self._clock.monotonic() - self._asked_at < _LOOK_SECONDS:
            return
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                self._known_ms = await self._ask()
            self._asked_at = self._clock.monotonic()


# Rendering takes about 15 ms, and scrapes are seconds apart.
_METRICS_SECONDS = 1.0


class MetricsPage:
    """The metrics for who may read them: whoever shows the token; without one, programs of this machine, unless ``proxied``.

    Behind a proxy everybody comes from the proxy's address.
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
        self._backups = _LastBackup(clock, backed_up)
        metrics.gauge(
            "backup_last_success_timestamp_seconds",
            "When the last backup of everything in the store ended, in seconds since 1970; 0 if none is noted.",
            self._backups.seconds,
        )
        self._readiness = readiness
        self._clock = clock
        self._token = token
        self._proxied = proxied
        self._rendered = b""
        self._rendered_at = float("-inf")

    async def read(self, peer: str, authorization: str) -> bytes:
        """Return the page to who asks from an address with that header, at most a second old.

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
            # Before the checks are waited for: whoever asks meanwhile gets what there was.
            self._rendered_at = self._clock.monotonic() if self._rendered else self._rendered_at
            self._rendered = await self._own()
            self._rendered_at = self._clock.monotonic()
        return self._rendered

    async def _own(self) -> bytes:
        self._metrics.observe_checks((await self._readiness.check()).checks)
        if self._readiness.store_usable:
            await self._backups.look()
        return self._metrics.render()
