"""The slow walk through a whole store: collecting in namespaces that nobody opens, its requests shared out over time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from relayer.access.accounts import account_at
from relayer.domain.namespace import PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, StoreError, UpgradeRequired
from relayer.log.collector import GRACE_MS, Collection, Collector, Stage
from relayer.log.erasure.namespaces import NamespaceEraser
from relayer.log.erasure.reports import ErasureReports, What
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Clock, CreateOutcome, Found, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome


class PacedStore:
    """Passes everything on to ``inner``, at most ``per_second`` requests a second, however many ask at once.

    A listing counts as one request; the inner store may need several.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, per_second: float) -> None:
        self._inner = inner
        self._clock = clock
        self._gap = 1.0 / per_second
        self._next_at = float("-inf")

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.create(key, data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.swap(key, data, etag)

    async def delete(self, key: str) -> None:
        """As the port says, in its turn."""
        await self._turn()
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, in its turn."""
        await self._turn()
        async for info in self._inner.list(prefix):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.versions(key)

    async def purge(self, key: str) -> int:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.purge(key)

    async def close(self) -> None:
        """Nothing: the inner store belongs to others as well."""

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self._gap
        if at > now:
            await self._clock.sleep(at - now)


_MOST_WAITING = 10_000
# A collection that begins now is over after one wait, and one that was under way is followed by another one.
_VISITS = 2
_PAUSE_AFTER_FAILURE = 60.0
# No process sleeps for longer than this and goes on writing; older reports would be read for ever.
_LATE_MS = 30 * 24 * 3600 * 1000

OnError = Callable[[BaseException], None]
_Visit = Callable[[], Awaitable[Collection]]


@dataclass(frozen=True, slots=True)
class IdleLimits:
    """How often and how fast.

    Attributes:
        every: seconds from the end of a walk to the next one, give or take a half.
        requests: to the store, in a second.
        collect_after_ms: see `relayer.maintenance.compaction.UpkeepLimits`.
    """

    every: float = 86_400.0
    requests: float = 5.0
    collect_after_ms: int = GRACE_MS


class IdleCollection:
    """Walks over the namespaces of every account.

    Attributes:
        counts: since the start: ``walks`` ended, ``namespaces`` looked at, ``slots`` and other ``objects`` deleted,
            ``failures``.
    """

    def __init__(self, ports: LogPorts, limits: IdleLimits | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._limits = limits or IdleLimits()
        self._ports = replace(ports, store=PacedStore(ports.store, ports.clock, self._limits.requests))
        self._sealer = ObjectSealer(self._ports)
        self._under_way = False
        self._accounts: deque[str] = deque()
        self._names: deque[tuple[str, str]] = deque()
        self._waiting: deque[Collector] = deque()
        self._erased: deque[str] = deque()
        self._reports = ErasureReports(self._ports)
        self._eraser = NamespaceEraser(self._ports)

    async def run(self, on_error: OnError) -> None:
        """Walk until cancelled; a failure is reported, and the walk goes on."""
        # Not at once: relayers that were started together shall not walk together, nor a relayer that starts often.
        await self._ports.clock.sleep(self._limits.every * self._draw())
        while True:
            try:
                await self.walk(on_error)
                pause = self._limits.every * (0.5 + self._draw())
            except StoreError as error:
                self._note(error, on_error)
                pause = _PAUSE_AFTER_FAILURE * (0.5 + self._draw())
            await self._ports.clock.sleep(pause)

    async def walk(self, on_error: OnError) -> None:
        """Walk once over everything, or to the end of the walk that was broken off.

        Raises:
            StoreError: the store did not answer; the next call goes on.
        """
        if not self._under_way:
            keys = [key async for key in self._keys("acct/") if key.endswith("/account")]
            self._accounts = deque(sorted(keys))
            since = self._ports.clock.now_ms() - _LATE_MS
            self._erased = deque([key async for key in self._keys(Layout.erased(), since)])
            self._under_way = True
        while self._accounts or self._names:
            await self._next(on_error)
        while self._erased:
            await self._look_at_remnants(self._erased[0], on_error)
            self._erased.popleft()
        for _ in range(_VISITS):
            if self._waiting:
                # A second more than it takes: the store's clock and this one need not agree to the moment.
                await self._ports.clock.sleep(self._limits.collect_after_ms / 1000 + 1.0)
            await self._visit_again(on_error)
        self._waiting.clear()
        self._under_way = False
        self.counts["walks"] += 1

    async def _next(self, on_error: OnError) -> None:
        """Look at the next name, or into the next account."""
        try:
            if self._names:
                account, key = self._names[0]
                await self._look_at(account, key)
                self._names.popleft()
            else:
                await self._look_into(self._accounts[0])
                self._accounts.popleft()
        except (CorruptNamespace, UpgradeRequired) as error:
            (self._names or self._accounts).popleft()
            self._note(error, on_error)

    async def _look_into(self, key: str) -> None:
        found = await self._ports.store.get(self._ports.layout.at(key))
        if not isinstance(found, Found):
            return
        account = account_at(self._ports.keys, key, found.data)
        pointers = self._ports.layout.pointers(self._ports.keys.tag("account", account))
        self._names.extend(sorted([(account, name) async for name in self._keys(pointers)]))

    async def _look_at(self, account: str, key: str) -> None:
        found = await self._ports.store.get(self._ports.layout.at(key))
        if not isinstance(found, Found):
            return
        pointer = self._sealer.unseal_pointer(account, key, found.data)
        if pointer.state is not PointerState.LIVE:
            return  # its erasure leaves nothing
        self.counts["namespaces"] += 1
        collector = Collector(self._ports, account, pointer.incarnation, self._limits.collect_after_ms)
        if await self._collect(collector.tidy) is Stage.WAIT and len(self._waiting) < _MOST_WAITING:
            self._waiting.append(collector)

    async def _look_at_remnants(self, key: str, on_error: OnError) -> None:
        try:
            seen = await self._reports.read(key)
            if seen is not None and seen.report.what is What.NAMESPACE:
                self.counts["objects"] += await self._eraser.tidy(seen.report)
        except (CorruptNamespace, UpgradeRequired) as error:
            self._note(error, on_error)

    async def _visit_again(self, on_error: OnError) -> None:
        for _ in range(len(self._waiting)):
            collector = self._waiting[0]
            try:
                stage = await self._collect(collector.run)
            except (CorruptNamespace, UpgradeRequired) as error:
                self._note(error, on_error)
                stage = Stage.NOTHING
            self._waiting.popleft()
            if stage is Stage.WAIT:
                self._waiting.append(collector)

    async def _collect(self, visit: _Visit) -> Stage:
        try:
            collection = await visit()
        except NamespaceClosed:
            return Stage.NOTHING  # it was never finished, or is being erased
        self.counts["slots"] += collection.slots
        self.counts["objects"] += collection.objects
        return collection.stage

    async def _keys(self, start: str, since: int = 0) -> AsyncIterator[str]:
        """Yield the keys that begin so, without the store's prefix, of what was written since a time in ms."""
        async for row in self._ports.rows_below(start):
            if row.modified >= since:
                yield row.key

    def _note(self, error: RelayerError, on_error: OnError) -> None:
        self.counts["failures"] += 1
        on_error(error)

    def _draw(self) -> float:
        """Return something between 0 and 1."""
        return int.from_bytes(self._ports.randomness.bytes(4), "big") / 2**32
