"""Maintenance of logs: compaction of the open namespaces, and garbage collection of the objects that it replaced.

`LogMaintenance` works on one namespace at a time, so that requests, which share the store and the event loop with it, do not
wait for it. Several relayers may maintain the same log: the log makes that harmless, and random pauses make it rare. Neither
compaction nor collection needs a namespace's key, so a collection is finished even if the last key expires meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field

from cachetools import LRUCache

from relayer.errors import NamespaceClosed, RelayerError
from relayer.lib.scheduler import OnError, Periodic
from relayer.lib.work import uneven
from relayer.log.collector import GRACE_MS, CollectionStage, Collector
from relayer.log.compactor import CompactionLimits, Work
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire.retries import doubled

_MOST_AT_A_TIME = 8  # segments written for one namespace before the next namespace's turn
_MOST_LOGS = 10_000  # logs that wait for their collection
_FIRST_LOOK = 30.0  # seconds until the collection of a log that was just opened continues
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0


@dataclass(frozen=True, slots=True)
class LogMaintenanceLimits:
    """The limits and the schedule of log maintenance.

    Attributes:
        compaction: see `CompactionLimits`.
        collect_after_ms: how long after the start of a collection its slots are deleted, by the store's time.
        interval: mean seconds between two rounds; each pause is between half and one and a half times that.
    """

    compaction: CompactionLimits = field(default_factory=CompactionLimits)
    collect_after_ms: int = GRACE_MS
    interval: float = 2.0


@dataclass(slots=True)
class _Log:
    """The schedule of the log of one incarnation; times are monotonic, in seconds."""

    collector: Collector
    collect_at: float
    not_before: float = float("-inf")
    failures: int = 0


class LogMaintenance:
    """Compacts and collects the logs that this process has opened.

    Attributes:
        counts: numbers since the start: ``segments``, ``merges``, ``lost`` races, ``bytes`` written, ``slots`` and
            ``objects`` deleted, ``failures``.
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
        """The periodic task for the scheduler."""
        return Periodic("upkeep", self.round, self._limits.interval, uneven=True)

    async def round(self, on_error: OnError) -> None:
        """Do all work that is due; a failure is passed to ``on_error`` and retried later."""
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
            # It was erased, perhaps through another relayer. The next request finds out; until then nothing is due.
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
            del self._logs[incarnation]  # it was erased
            return
        self.counts["slots"] += collection.slots
        self.counts["objects"] += collection.objects
        log.collect_at = self._ports.clock.monotonic() + self._pause()
        is_open = any(opened.incarnation == incarnation for opened in self._namespaces.all())
        if collection.stage is CollectionStage.NOTHING and not is_open:
            del self._logs[incarnation]

    def _pause(self) -> float:
        """Return the seconds until the next step of a log's collection: a collection that starts now may then be finished."""
        return max(1.0, self._limits.collect_after_ms / 1000) * (0.5 + self._uneven())

    def _uneven(self) -> float:
        """Return a random factor between 0.5 and 1.5."""
        return uneven(self._ports.randomness)
