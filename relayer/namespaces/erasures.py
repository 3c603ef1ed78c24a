"""The background work of erasures: each is continued until it is confirmed.

Erasures in progress are found by listing their reports in the store, so it does not matter which process received the
request, and no key of the namespace is needed. This process starts its own erasures immediately, and leaves those of
other processes to them for a minute. Several relayers may work on the same erasure: each step is a compare-and-swap that
one of them wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass

from cachetools import LRUCache
from msgspec import structs

from relayer.domain.operations import Erase, Origin
from relayer.errors import NamespaceClosed, RelayerError
from relayer.lib.scheduler import OnError, Periodic, Wake
from relayer.log.collector import GRACE_MS, Collector
from relayer.log.creation import find
from relayer.log.erasure.memories import MemoryEraser, still_has
from relayer.log.erasure.namespaces import NamespaceEraser
from relayer.log.erasure.reports import ErasureKind, ErasureReport, ErasureReports, ErasureStage, SeenReport
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import LogPorts
from relayer.log.replica import Replica
from relayer.namespaces.cache import OpenNamespaces
from relayer.wire.retries import doubled

_LOOK_SECONDS = 60.0
_LEAVE_SECONDS = 60.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_MOST_LATE = 4096


@dataclass(slots=True)
class _Due:
    """The schedule of an erasure in progress; times are monotonic, in seconds."""

    not_before: float
    failures: int = 0


class Erasures:
    """Carries out the erasures that this process knows of; the replicas of open namespaces are used if there are any.

    An erasure may be confirmed ``grace_ms`` after the deletion, by the store's time.

    Attributes:
        counts: numbers since the start: ``destroyed``, ``confirmed``, ``failures``.
    """

    def __init__(self, ports: LogPorts, namespaces: OpenNamespaces, grace_ms: int = GRACE_MS) -> None:
        self.counts: Counter[str] = Counter()
        self._ports = ports
        self._namespaces = namespaces
        self._grace_ms = grace_ms
        self._reports = ErasureReports(ports)
        self._due: dict[str, _Due] = {}
        self._tidied: LRUCache[bytes, int] = LRUCache(_MOST_LATE)
        self._look_at = float("-inf")
        self._wake = Wake()

    def note(self, report: ErasureReport) -> None:
        """Schedule an erasure that was requested from this process, to start immediately."""
        if report.stage is not ErasureStage.CONFIRMED:
            self._due[self._reports.key_of(report)] = _Due(self._ports.clock.monotonic())
            self._wake.set()

    async def erase_at_once(self, seen: SeenReport) -> SeenReport:
        """Run the first steps of a namespace's erasure before its request is answered, and schedule the rest.

        Raises:
            RelayerError: a step failed; the rest is scheduled all the same.
        """
        try:
            return await NamespaceEraser(self._ports, self._grace_ms).run(seen)
        finally:
            self.note(seen.report)

    @property
    def task(self) -> Periodic:
        """The periodic task for the scheduler."""
        return Periodic("erasing", self.round, _FIRST_PAUSE, wake=self._wake)

    async def round(self, on_error: OnError) -> None:
        """Run the steps that are due; a failure is passed to ``on_error`` and retried later."""
        clock = self._ports.clock
        if self._look_at <= clock.monotonic():
            await self._guarded(None, self._look(), on_error)
        for key, due in list(self._due.items()):
            if due.not_before <= clock.monotonic():
                await self._guarded(due, self._go_on(key, due), on_error)
        await self._guarded(None, self._tidy(), on_error)

    async def _look(self) -> None:
        """Find erasures that other processes started, or this one before it was restarted."""
        pending = await self._reports.pending()
        now = self._ports.clock.monotonic()
        first = self._look_at == float("-inf")
        for key in pending:
            self._due.setdefault(key, _Due(now if first else now + _LEAVE_SECONDS))
        self._look_at = now + _LOOK_SECONDS

    async def _guarded(self, due: _Due | None, work: Awaitable[None], on_error: OnError) -> None:
        try:
            await work
        except RelayerError as error:
            self.counts["failures"] += 1
            if due is not None:
                pause = doubled(_FIRST_PAUSE, due.failures, _LONGEST_PAUSE)
                due.failures += 1
                due.not_before = self._ports.clock.monotonic() + pause
            on_error(error)

    async def _go_on(self, key: str, due: _Due) -> None:
        seen = await self._reports.read(key)
        if seen is None:
            del self._due[key]  # another relayer confirmed it
            return
        before = seen.report.stage
        if seen.report.what is not ErasureKind.MEMORY:
            seen = await NamespaceEraser(self._ports, self._grace_ms).run(seen)
        else:
            seen = await self._erase_memories(seen)
        now = seen.report.stage
        if before is ErasureStage.ERASED and now is not ErasureStage.ERASED:
            self.counts["destroyed"] += 1
        if now is ErasureStage.CONFIRMED:
            self.counts["confirmed"] += 1
            del self._due[key]
            return
        due.failures = 0
        left = (self._grace_ms - (seen.store_time - seen.report.destroyed_at)) / 1000
        # A collection waits for the grace period twice at most.
        pause = (
            left + _FIRST_PAUSE if left > 0 else max(_FIRST_PAUSE, min(_LOOK_SECONDS, self._grace_ms / 4000))
        )
        due.not_before = self._ports.clock.monotonic() + pause

    async def _erase_memories(self, seen: SeenReport) -> SeenReport:
        report = seen.report
        try:
            replica = await self._replica_of(report)
            if still_has(replica.state, report):
                await self._erase_again(report)
                await replica.catch_up()
            return await self._eraser(replica, report.account).run(seen)
        except NamespaceClosed:
            # The whole namespace was erased: once that erasure is confirmed, nothing is left of these memories either.
            whole = await self._reports.find(report.account, report.incarnation)
            if whole is None or whole.report.stage is not ErasureStage.CONFIRMED:
                return seen
            over = structs.replace(report, stage=ErasureStage.CONFIRMED, confirmed_at=seen.store_time)
            return SeenReport(await self._reports.conclude(over), seen.etag, seen.store_time)

    async def _replica_of(self, report: ErasureReport) -> Replica:
        """Return a replica of the log that contains the erasure: that of the open namespace, or else a new one."""
        opened = self._namespaces.peek(report.account, report.namespace)
        if opened is not None and not opened.broken and opened.incarnation == report.incarnation:
            replica = opened.replica
            await replica.catch_up()
            return replica
        replica = Replica(self._ports, report.account, report.incarnation)
        await replica.reload()
        return replica

    async def _erase_again(self, report: ErasureReport) -> None:
        """Append an erasure again to a log that has lost it; several relayers that do so append it once (I7)."""
        pointer = await find(self._ports, report.account, report.namespace)
        if pointer is None or pointer.incarnation != report.incarnation:
            raise NamespaceClosed("the namespace was erased")
        log = NamespaceLog(self._ports, report.account, pointer)
        try:
            await log.start()
            origin = Origin(author=b"", nonce=report.erasure)
            await log.append([Erase(origin, (*report.records, *report.derived))])
        finally:
            await log.close(0)

    def _eraser(self, replica: Replica, account: str) -> MemoryEraser:
        collector = Collector(self._ports, account, replica.incarnation, self._grace_ms)
        return MemoryEraser(self._ports, replica, collector.run, self._grace_ms)

    async def _tidy(self) -> None:
        for opened in self._namespaces.all():
            late, incarnation = opened.last_late, opened.incarnation
            if late <= self._tidied.get(incarnation, 0) or opened.broken:
                continue
            if await self._eraser(opened.replica, opened.account).tidy():
                self._tidied[incarnation] = late
