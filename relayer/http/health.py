"""How the service is: ready or not, each check by name, and its metrics."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

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

from relayer.access.fleet import FleetKeys
from relayer.access.relayer_check import check_rights, probe
from relayer.errors import StoreError, StoreFull, StoreUnavailable, WrongRelayerKey
from relayer.http.limits import RATE_CAUSES
from relayer.http.problems import HttpProblem
from relayer.http.summed_metrics import families_of
from relayer.log.objects import LogPorts
from relayer.ports import Clock
from relayer.telemetry import log
from relayer.wire.loopback import is_loopback
from relayer.wire.schemas import ReadyResponse

MOST_SKEW_MS = 30_000
# Balancers of several kinds may ask every second; the store is asked less often.
_FRESH_SECONDS = 2.0
_PROBE_SECONDS = 5.0
# Rights are withdrawn seldom, and asking about them takes a write: not at every probe.
_RIGHTS_SECONDS = 10.0


class Readiness:
    """Answers ``GET /ready``; draining makes it false for good."""

    def __init__(self, ports: LogPorts, fleet: FleetKeys) -> None:
        self._ports = ports
        self._fleet = fleet
        self._model = "loading"
        self._draining = False
        self._probed: dict[str, str] = {}
        self._probed_at = float("-inf")
        self._probing = asyncio.Lock()
        self._watched: dict[str, Callable[[], str]] = {}
        self._rights_at = float("-inf")
        self._store_state = "ok"

    def watch(self, name: str, trouble: Callable[[], str]) -> None:
        """Show a check without which the relayer still serves; ``trouble`` says what is wrong, or nothing."""
        self._watched[name] = trouble

    def model_loaded(self) -> None:
        """Say that vectors can be computed."""
        self._model = "ok"

    def drain(self) -> None:
        """Say that this process is about to end."""
        self._draining = True

    @property
    def store_usable(self) -> bool:
        """Whether the store was usable when it was last asked; asks nothing."""
        return self._store_state == "ok"

    async def check(self) -> ReadyResponse:
        """Run all checks; the store's at most every two seconds."""
        checks = {
            "accepting": "draining" if self._draining else "ok",
            "model": self._model,
            "fleet_key": "ok" if self._fleet.current().keys else "none for today",
            **await self._store_checks(),
        }
        watched = {name: trouble() or "ok" for name, trouble in self._watched.items()}
        return ReadyResponse(
            ready=all(state == "ok" for state in checks.values()),
            checks=checks | watched,
            degraded=any(state != "ok" for state in watched.values()),
        )

    async def _store_checks(self) -> dict[str, str]:
        clock = self._ports.clock
        async with self._probing:
            if clock.monotonic() - self._probed_at >= _FRESH_SECONDS:
                self._probed = await self._probe()
                self._probed_at = clock.monotonic()
            return self._probed

    async def _probe(self) -> dict[str, str]:
        clock = self._ports.clock
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                store_time = await probe(self._ports)
                await self._check_rights()
        except WrongRelayerKey:
            return {
                "store": "ok",
                "relayer_key": "the store belongs to another relayer key",
                "clock": "unknown",
            }
        except TimeoutError:
            silent = StoreUnavailable(
                f"{self._ports.store.description} did not answer within {_PROBE_SECONDS:g} s",
                code="silent",
                fix=f"no answer within {_PROBE_SECONDS:g} s: look at the store's load and what is in between",
            )
            return self._failed(silent)
        except StoreError as error:
            return self._failed(error)
        self._note("ok", "")
        skew = abs(store_time - clock.now_ms())
        clock_state = (
            "ok" if skew <= MOST_SKEW_MS else f"{skew // 1000} s away from the store's: set this machine's"
        )
        return {"store": "ok", "relayer_key": "ok", "clock": clock_state}

    async def _check_rights(self) -> None:
        """See that requests would not be refused, at most every ten seconds while they would not."""
        now = self._ports.clock.monotonic()
        if now - self._rights_at >= _RIGHTS_SECONDS:
            # Where there is no room, reads go on, and writes are told what is missing.
            with suppress(StoreFull):
                await check_rights(self._ports)
            self._rights_at = now

    def _failed(self, error: StoreError) -> dict[str, str]:
        self._rights_at = float("-inf")
        self._note(error.code, str(error))
        # The error's own text names addresses, which are not for everybody who may ask.
        return {"store": f"{error.code}: {error.fix}", "relayer_key": "unknown", "clock": "unknown"}

    def _note(self, state: str, why: str) -> None:
        """Log the store's state when it is another than before."""
        if state == self._store_state:
            return
        self._store_state = state
        if state == "ok":
            log.info("store_usable_again")
        else:
            log.warning("store_not_usable", code=state, what=why)


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
        """Count a call of the embedding model; see `relayer.adapters.system`."""
        self._embedding_seconds.labels(of).observe(seconds)

    def observe_store(self, call: str, end: str, seconds: float) -> None:
        """Count one call of the object store; see `relayer.adapters.system`."""
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
            async with asyncio.timeout(_PROBE_SECONDS):
                self._known_ms = await self._ask()
            self._asked_at = self._clock.monotonic()


# Rendering takes about 15 ms, and scrapes are seconds apart.
_METRICS_SECONDS = 1.0


class MetricsPage:
    """The metrics for who may read them: whoever shows the token; without one, programs of this machine, unless ``proxied``.

    Behind a proxy everybody comes from the proxy's address. ``gathered`` returns those of all workers, where there are several.
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
        gathered: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._gathered = gathered
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
            self._rendered = await (self._own() if self._gathered is None else self._gathered())
            self._rendered_at = self._clock.monotonic()
        return self._rendered

    async def families(self) -> list[Any]:
        """Return what this process has to show, for the page of the relayer whose worker it is."""
        await self._look()
        return families_of(self._metrics.registry)

    async def _own(self) -> bytes:
        await self._look()
        return self._metrics.render()

    async def _look(self) -> None:
        self._metrics.observe_checks((await self._readiness.check()).checks)
        if self._readiness.store_usable:
            await self._backups.look()
