"""Maintenance of logs: compact what is open here, collect what was compacted.

One namespace at a time, whatever can wait waits: requests share the store and the event loop with this and never wait for
it. Several relayers may do the same; the log makes that harmless, and uneven pauses make it rare. Neither needs a
namespace's key, so a log is collected to the end although its last key ended meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field

from cachetools import LRUCache

from relayer.errors import NamespaceClosed, RelayerError
from relayer.lib.scheduler import OnError, Periodic
from relayer.lib.work import uneven
from relayer.log.collector import GRACE_MS, Collector, Stage
from relayer.log.compactor import CompactionLimits, Work
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire.retries import doubled

_MOST_AT_A_TIME = 8  # segments made of one namespace before the next one has its turn
_MOST_LOGS = 10_000  # that wait for their collection
_FIRST_LOOK = 30.0  # seconds until the collection of a log that was just opened goes on
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0


@dataclass(frozen=True, slots=True)
class LogMaintenanceLimits:
    """When there is work, and how often is looked.

    Attributes:
        compaction: see `CompactionLimits`.
        collect_after_ms: how long after a collection began its slots are deleted, by the store's time.
        interval: seconds between two rounds, give or take a half.
    """

    compaction: CompactionLimits = field(default_factory=CompactionLimits)
    collect_after_ms: int = GRACE_MS
    interval: float = 2.0


@dataclass(slots=True)
class _Log:
    """What this process knows of one incarnation; times are monotonic, in seconds."""

    collector: Collector
    collect_at: float
    not_before: float = float("-inf")
    failures: int = 0


class LogMaintenance:
    """Looks after the logs of one process.

    Attributes:
        counts: since the start: ``segments``, ``merges``, ``lost`` races, ``bytes`` written, ``slots`` and ``objects``
            deleted, ``failures``.
    """

    def __init__(
        self, ports: LogPorts, namespaces: OpenNamespaces, limits: LogMaintenanceLimits | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._ports = ports
        self._namespaces = namespaces
        self._limits = limits or LogMaintenanceLimits()
        self._logs: LRUCache[bytes, _Log] = LRUCache(_MOST_LOGS)

    @property
    def task(self) -> Periodic:
        """What the scheduler runs."""
        return Periodic("upkeep", self.round, self._limits.interval, uneven=True)

    async def round(self, on_error: OnError) -> None:
        """Do once what is due everywhere; a failure is reported, and tried again later."""
        for opened in self._namespaces.all():
            log = self._note(opened)
            if not opened.broken and self._is_ready(log):
                await self._guarded(log, self._compact(opened), on_error)
        for incarnation, log in list(self._logs.items()):
            if log.collect_at <= self._ports.clock.monotonic() and self._is_ready(log):
                await self._guarded(log, self._collect(incarnation, log), on_error)

    def _note(self, opened: OpenNamespace) -> _Log:
        incarnation = opened.incarnation
        log = self._logs.get(incarnation)
        if log is None:
            collector = Collector(self._ports, opened.account, incarnation, self._limits.collect_after_ms)
            soon = min(_FIRST_LOOK * self._uneven(), self._pause())
            log = self._logs[incarnation] = _Log(collector, self._ports.clock.monotonic() + soon)
        return log

    def _is_ready(self, log: _Log) -> bool:
        return log.not_before <= self._ports.clock.monotonic()

    async def _guarded(self, log: _Log, work: Awaitable[None], on_error: OnError) -> None:
        try:
            await work
        except NamespaceClosed:
            # Erased, perhaps through another relayer. Whoever asks for it next finds out; until then nothing is due.
            log.not_before = self._ports.clock.monotonic() + _LONGEST_PAUSE
        except RelayerError as error:
            self.counts["failures"] += 1
            pause = doubled(_FIRST_PAUSE, log.failures, _LONGEST_PAUSE)
            log.failures += 1
            log.not_before = self._ports.clock.monotonic() + pause * self._uneven()
            on_error(error)
        else:
            log.failures = 0

    async def _compact(self, opened: OpenNamespace) -> None:
        for _ in range(_MOST_AT_A_TIME):
            compaction = await opened.compact(self._limits.compaction)
            if compaction is None:
                return
            self.counts["bytes"] += compaction.written
            if not compaction.won:
                self.counts["lost"] += 1
                return
            self.counts["merges" if compaction.work is Work.MERGE else "segments"] += 1

    async def _collect(self, incarnation: bytes, log: _Log) -> None:
        try:
            collection = await log.collector.run()
        except NamespaceClosed:
            del self._logs[incarnation]  # it was erased, and nothing is left of it
            return
        self.counts["slots"] += collection.slots
        self.counts["objects"] += collection.objects
        log.collect_at = self._ports.clock.monotonic() + self._pause()
        if collection.stage is Stage.NOTHING and not self._is_open(incarnation):
            del self._logs[incarnation]

    def _is_open(self, incarnation: bytes) -> bool:
        return any(opened.incarnation == incarnation for opened in self._namespaces.all())

    def _pause(self) -> float:
        """Return the seconds until the next look at a log's collection: when one that begins now may be over."""
        return max(1.0, self._limits.collect_after_ms / 1000) * (0.5 + self._uneven())

    def _uneven(self) -> float:
        """Return something between a half and one and a half."""
        return uneven(self._ports.randomness)
