"""Maintenance of logs: compaction, garbage collection, and stored indexes.

`LogMaintenance` compacts the open namespaces and collects what compaction replaced. It works on one namespace at a time, so that
requests, which share the store and the event loop with it, do not wait for it. Several relayers may maintain the same log: the
log makes that harmless, and random pauses make it rare. Neither compaction nor collection needs a namespace's key, so a
collection is finished even if the last key expires meanwhile.

`IdleCollection` collects in namespaces that no process has open, in a slow walk over the whole store: it visits every namespace of
every account, then the remnants of erasures, and then twice the collections that have to wait in between. `PacedStore` limits
its rate of store requests. A walk that is interrupted by a failure continues where it stopped.

`IndexMaintenance` writes a new stored index when a namespace has grown enough since the last one. A process that opens a
namespace from a stored index need not read the entries that it covers; all others are decrypted and indexed one by one, which
takes six times as long as writing them to an index. While a namespace is being written to, an index is written each time the
namespace has doubled, so that the last index is half of all index bytes ever written. Once no writes have come for a while,
growth by a quarter is enough, because the next thing may be an opening. A small namespace is opened from its log about as fast,
and gets no index.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias
from weakref import WeakKeyDictionary

from cachetools import LRUCache

from relayer.access.accounts import account_at
from relayer.domain.namespace import LogPosition, PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, StoreError, UpgradeRequired
from relayer.lib.scheduler import OnError, Periodic
from relayer.lib.work import uneven
from relayer.log.collector import GRACE_MS, Collection, CollectionStage, Collector, destroy
from relayer.log.compactor import CompactionLimits, Work
from relayer.log.erasure import ErasureKind, ErasureReports, NamespaceEraser
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.ports import Clock, Found, ObjectStore, T, WrappedStore
from relayer.wire.calls import doubled

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


class PacedStore(WrappedStore):
    """A store wrapper that makes at most ``per_second`` requests a second, however many callers it has.

    A listing counts as one request, although the inner store may need several.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, per_second: float) -> None:
        super().__init__(inner)
        self._clock = clock
        self._gap = 1.0 / per_second
        self._next_at = float("-inf")

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:  # noqa: ARG002 - all alike
        """Delay the request until its turn, and make it."""
        now = self._clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self._gap
        if at > now:
            await self._clock.sleep(at - now)
        return await ask()


_MOST_WAITING = 10_000
# A collection that starts now is finished after one wait. One that was in progress already is followed by another.
_VISITS = 2
_PAUSE_AFTER_FAILURE = 60.0
# Reports that were written longer ago are not read, or every walk would read all of them. No process is suspended for longer
# than this and continues to write then.
_LATE_MS = 30 * 24 * 3600 * 1000
# A claim is deleted after this time. A request is accepted for two hours at most.
_CLAIM_MS = 24 * 3600 * 1000

_Step: TypeAlias = Callable[[], Awaitable[Sequence["_Step"]]]
"""A step of a walk; it returns the steps to run right after it."""
_Steps: TypeAlias = Sequence[_Step]


@dataclass(frozen=True, slots=True)
class IdleLimits:
    """The schedule and the rate of walks over the store.

    Attributes:
        every: mean seconds from the end of a walk to the next one; each pause is between half and one and a half times that.
            A day, because a walk makes eight store requests for each namespace and finds little to delete.
        requests: maximum number of store requests per second.
        collect_after_ms: see `relayer.maintenance.logs.LogMaintenanceLimits`.
    """

    every: float = 86_400.0
    requests: float = 5.0
    collect_after_ms: int = GRACE_MS


class IdleCollection:
    """Walks over the namespaces of all accounts.

    Attributes:
        counts: numbers since the start: ``walks`` finished, ``namespaces`` visited, ``slots`` and other ``objects``
            deleted, ``failures``.
    """

    def __init__(self, ports: LogPorts, limits: IdleLimits | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._limits = limits or IdleLimits()
        self._ports = replace(ports, store=PacedStore(ports.store, ports.clock, self._limits.requests))
        self._sealer = ObjectSealer(self._ports)
        # The remaining steps of the current walk, and the collections that wait for their next visit.
        self._steps: deque[_Step] = deque()
        self._waiting: list[Collector] = []
        self._reports = ErasureReports(self._ports)
        self._eraser = NamespaceEraser(self._ports)

    @property
    def task(self) -> Periodic:
        """The periodic task; it does not start with a walk, so that a relayer that restarts often does not walk as often."""
        return Periodic("idle_collection", self.round, self._limits.every, uneven=True)

    async def round(self, on_error: OnError) -> float | None:
        """Walk once; a failure is passed to ``on_error``, and the walk continues a minute later."""
        try:
            await self.walk(on_error)
        except StoreError as error:
            self._note(error, on_error)
            return _PAUSE_AFTER_FAILURE
        return None

    async def walk(self, on_error: OnError) -> None:
        """Walk once over the whole store, or to the end of a walk that was interrupted.

        Raises:
            StoreError: the store did not respond; the next call continues the walk.
        """
        if not self._steps:
            accounts = sorted([key async for key in self._keys("acct/") if key.endswith("/account")])
            since = self._ports.clock.now_ms() - _LATE_MS
            erased = [key async for key in self._keys(Layout.erased(), since)]
            self._steps += [partial(self._look_into, key) for key in accounts]
            self._steps += [partial(self._look_at_remnants, key) for key in erased]
            self._steps += [self._visit_again] * _VISITS
        while self._steps:
            more: _Steps = ()
            try:
                more = await self._steps[0]()
            except (CorruptNamespace, UpgradeRequired) as error:
                self._note(error, on_error)
            self._steps.popleft()
            self._steps.extendleft(reversed(more))
        self._waiting.clear()
        self.counts["walks"] += 1

    async def _look_into(self, key: str) -> _Steps:
        """Read an account, and return a step for each of its namespaces."""
        found = await self._ports.store.get(key)
        if not isinstance(found, Found):
            return ()
        account = account_at(self._ports.keys, key, found.data)
        pointers = Layout.pointers(self._ports.keys.tag("account", account))
        return [
            partial(self._look_at, account, name)
            for name in sorted([key async for key in self._keys(pointers)])
        ]

    async def _look_at(self, account: str, key: str) -> _Steps:
        found = await self._ports.store.get(key)
        if not isinstance(found, Found):
            return ()
        pointer = self._sealer.unseal_pointer(account, key, found.data)
        if pointer.state is not PointerState.LIVE:
            return ()  # its erasure deletes all of its objects
        self.counts["namespaces"] += 1
        collector = Collector(self._ports, account, pointer.incarnation, self._limits.collect_after_ms)
        return await self._visit(collector, collector.tidy)

    async def _look_at_remnants(self, key: str) -> _Steps:
        seen = await self._reports.read(key)
        if seen is not None and seen.report.is_claim:
            if seen.store_time - seen.report.asked_at > _CLAIM_MS:
                self.counts["objects"] += await destroy(self._ports.store, [key])
        elif seen is not None and seen.report.what is not ErasureKind.MEMORY:
            self.counts["objects"] += await self._eraser.tidy(seen.report)
        return ()

    async def _visit_again(self) -> _Steps:
        """Wait until the collections that have started may continue, and return a step for each."""
        if not self._waiting:
            return ()
        # A second is added because the clocks of the store and of this process may differ a little.
        await self._ports.clock.sleep(self._limits.collect_after_ms / 1000 + 1.0)
        waiting, self._waiting = self._waiting, []
        return [partial(self._visit, collector, collector.run) for collector in waiting]

    async def _visit(self, collector: Collector, work: Callable[[], Awaitable[Collection]]) -> _Steps:
        try:
            collection = await work()
        except NamespaceClosed:
            return ()  # its creation was never finished, or it is being erased
        self.counts["slots"] += collection.slots
        self.counts["objects"] += collection.objects
        if collection.stage is CollectionStage.WAIT and len(self._waiting) < _MOST_WAITING:
            self._waiting.append(collector)
        return ()

    async def _keys(self, start: str, since: int = 0) -> AsyncIterator[str]:
        """Yield the keys that begin with ``start``, without the store's prefix, of objects written since a time in ms."""
        async for row in self._ports.store.list(start):
            if row.modified >= since:
                yield row.key

    def _note(self, error: RelayerError, on_error: OnError) -> None:
        self.counts["failures"] += 1
        on_error(error)


INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """The growth of a namespace from which an index is written.

    Attributes:
        least: number of records that a namespace must have gained since the last index, or since its creation. With this
            many, opening from the log takes three to five times the work of opening from an index, and as much as writing
            an index and opening from it.
        growth: the factor by which it must have grown since the last index.
        quiet_growth: the same, for a namespace without writes for ``quiet`` seconds.
        quiet: the seconds after which ``quiet_growth`` applies.
    """

    least: int = 32
    growth: float = 2.0
    quiet_growth: float = 1.25
    quiet: float = 10.0

    def needed(self, records: int, *, quiet: bool) -> int:
        """Return how many new records a namespace needs for another index, if the last one has ``records`` records."""
        growth = self.quiet_growth if quiet else self.growth
        return max(self.least, int(records * (growth - 1)))


@dataclass(slots=True)
class _Known:
    """The last index of a namespace, and its last write.

    Attributes:
        seq: the last entry that the index covers; 0 if there is no index.
        records: the number of records up to that entry.
        position: the position of the log when it was last checked.
        since: when a change of the position was last noticed, by the clock's `monotonic`.
        not_before: the number of records from which the next attempt is made.
    """

    seq: int
    records: int
    position: LogPosition
    since: float
    not_before: int = 0


class IndexMaintenance:
    """Writes stored indexes of the namespaces that are open in this process, one at a time.

    Attributes:
        written: number of indexes written that the manifest then named.
        lost: number of indexes written in vain, because another process was faster or a memory was erased meanwhile.
        bytes_written: the size of both kinds in bytes.
    """

    def __init__(self, ctx: Context, limits: IndexLimits | None = None) -> None:
        self._ctx = ctx
        self._limits = limits or IndexLimits()
        self._known: WeakKeyDictionary[OpenNamespace, _Known] = WeakKeyDictionary()
        self.written = 0
        self.lost = 0
        self.bytes_written = 0

    @property
    def task(self) -> Periodic:
        """The periodic task for the scheduler."""
        return Periodic("index", self.round, INTERVAL_SECONDS, uneven=True)

    async def round(self, on_error: OnError) -> None:
        """Call `keep` for each open namespace; a failure is passed to ``on_error`` and retried after further growth."""
        await self._ctx.namespaces.in_each(self.keep, on_error)

    async def keep(self, opened: OpenNamespace) -> bool:
        """Write an index of a namespace if one is due, and return whether the manifest names it now.

        Raises:
            RelayerError: it was not written, or it is unknown whether the manifest names it; both are harmless.
        """
        records = opened.records_ever
        if records < self._limits.least or opened.broken or opened.converting:
            # An index has vectors of only one model: those of the new one that have been computed so far would be lost.
            return False
        now = self._ctx.clock.monotonic()
        known = self._known.get(opened)
        if known is None:
            # The index that the namespace was opened from; others may have written a newer one since.
            seq = opened.from_index if opened.former is None else 0
            known = self._known[opened] = _Known(seq, opened.records_up_to(seq), opened.position, now)
        # Whether one is due shows first by the cached state and then by the manifest.
        if opened.position != known.position:
            known.position, known.since = opened.position, now
        quiet = now - known.since >= self._limits.quiet
        if records < max(known.not_before, known.records + self._limits.needed(known.records, quiet=quiet)):
            return False
        seq = await opened.indexed()
        if seq > known.seq:
            known.seq, known.records = seq, opened.records_up_to(seq)
            if records < known.records + self._limits.needed(known.records, quiet=quiet):
                return False
        # This holds also if the attempt fails, so that an index that cannot be written is not retried every few seconds.
        known.not_before = records + max(self._limits.least, records // 2)
        index = await opened.write_index()
        self.bytes_written += index.nbytes
        self.written += index.named
        self.lost += not index.named
        if index.named:
            known.seq, known.records, known.not_before = index.seq, index.records, 0
        return index.named
