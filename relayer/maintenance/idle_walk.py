"""Garbage collection in namespaces that no process has open: a slow walk over the whole store.

`IdleCollection` visits every namespace of every account, then the remnants of erasures, and then twice the collections that
have to wait in between. `PacedStore` limits its rate of store requests. A walk that is interrupted by a failure continues
where it stopped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from relayer.access.accounts import account_at
from relayer.domain.namespace import PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, StoreError, UpgradeRequired
from relayer.lib.scheduler import OnError, Periodic
from relayer.log.collector import GRACE_MS, Collection, CollectionStage, Collector
from relayer.log.erasure.destruction import destroy
from relayer.log.erasure.namespaces import NamespaceEraser
from relayer.log.erasure.reports import ErasureKind, ErasureReports
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.ports import Clock, Found, ObjectStore, T, WrappedStore


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
        collect_after_ms: see `relayer.maintenance.compaction.LogMaintenanceLimits`.
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
            self._steps.extend(await self._whole_walk())
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

    async def _whole_walk(self) -> list[_Step]:
        accounts = sorted([key async for key in self._keys("acct/") if key.endswith("/account")])
        since = self._ports.clock.now_ms() - _LATE_MS
        erased = [key async for key in self._keys(Layout.erased(), since)]
        steps: list[_Step] = [partial(self._look_into, key) for key in accounts]
        return (
            steps + [partial(self._look_at_remnants, key) for key in erased] + [self._visit_again] * _VISITS
        )

    async def _look_into(self, key: str) -> _Steps:
        """Read an account, and return a step for each of its namespaces."""
        found = await self._ports.store.get(self._ports.layout.store_key(key))
        if not isinstance(found, Found):
            return ()
        account = account_at(self._ports.keys, key, found.data)
        pointers = self._ports.layout.pointers(self._ports.keys.tag("account", account))
        return [
            partial(self._look_at, account, name)
            for name in sorted([key async for key in self._keys(pointers)])
        ]

    async def _look_at(self, account: str, key: str) -> _Steps:
        found = await self._ports.store.get(self._ports.layout.store_key(key))
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
                self.counts["objects"] += await destroy(
                    self._ports.store, [self._ports.layout.store_key(key)]
                )
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
        async for row in self._ports.rows_below(start):
            if row.modified >= since:
                yield row.key

    def _note(self, error: RelayerError, on_error: OnError) -> None:
        self.counts["failures"] += 1
        on_error(error)
