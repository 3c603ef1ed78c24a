"""The fleet keys: one key pair for each day, shared by all replicas, to which gateways seal namespace keys.

`create_or_read` creates an object unless it exists and returns what the store then has, so that all replicas use the pair
of the replica that was first. `FleetKeys` keeps the pairs of the accepted days, issues the signed list of public keys, and
deletes the pairs of past days permanently.
"""

from __future__ import annotations

from collections.abc import Callable

from nacl.public import PrivateKey

from relayer.crypto import DAY_MS, KEPT_DAYS, FleetPair, day_of, live_days
from relayer.errors import StoreError, StoreUnavailable
from relayer.lib.scheduler import Periodic
from relayer.log.erasure.destruction import destroy, left_of
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Absent, Found, Throttled
from relayer.wire.sealed_keys import FleetList, fleet_key_id
from relayer.wire.sealing import SALT_SIZE

_ATTEMPTS = 5
_PAUSE = 0.2  # seconds after an unclear response; a store that throttles says how long to wait


async def create_or_read(ports: LogPorts, key: str, data: bytes) -> Found:
    """Create an object at a key of the layout unless there is one, and return the object that the store has.

    Raises:
        StoreUnavailable: five attempts in a row got no clear response.
        StoreError: as the store.
    """
    store, clock, place = ports.store, ports.clock, ports.layout.store_key(key)
    for _ in range(_ATTEMPTS):
        found = await store.get(place)
        if isinstance(found, Found):
            return found
        if isinstance(found, Absent):
            outcome = await store.create(place, data)
            if isinstance(outcome, Throttled):
                await clock.sleep(outcome.retry_after)
                continue
            # The outcome is Created, Exists or Unknown. In all three cases the next read decides.
            found = await store.get(place)
            if isinstance(found, Found):
                return found
        await clock.sleep(_PAUSE)
    raise StoreUnavailable(f"{store.description} does not say what it holds")


_LIST_AGE_MS = 60_000
_EARLY_MS = 3_600_000
_CHECK_SECONDS = 60.0
# The number of consecutive days without any object after which a sweep stops.
_SWEPT_DAYS = 30


class FleetKeys:
    """The key pairs that this replica accepts. Call `start` before use, and run `task` in the background.

    Args:
        on_left: called at most once a day with the reason why pairs of past days could not be deleted permanently. The
            deletion is retried all the same.
    """

    def __init__(self, ports: LogPorts, on_left: Callable[[StoreError], None] = lambda _: None) -> None:
        self._ports = ports
        self._on_left = on_left
        self._told = ""
        self._clock = ports.clock
        self._pairs: dict[str, FleetPair] = {}
        self._by_id: dict[bytes, FleetPair] = {}
        self._issued: FleetList | None = None
        self._swept = ""

    async def start(self) -> None:
        """Create or read the pairs that are needed today.

        Raises:
            WrongRelayerKey: the object of a day was sealed with another relayer key.
            StoreError: the store does not respond.
        """
        await self.refresh()

    async def refresh(self) -> None:
        """Read the pairs of the accepted days and drop those of past days; raises as `start`."""
        now = self._clock.now_ms()
        days = (day_of(now + _EARLY_MS), *live_days(now))
        pairs = {day: pair for day in days if (pair := await self._pair(day, make=day >= day_of(now)))}
        if pairs.keys() != self._pairs.keys():
            self._issued = None
        self._pairs = pairs
        self._by_id = {fleet_key_id(bytes(pair.private.public_key)): pair for pair in pairs.values()}
        if self._swept != day_of(now):
            await self._try_sweep(day_of(now))

    @property
    def task(self) -> Periodic:
        """The periodic task that keeps the keys current; the scheduler repeats it also after a failure."""
        return Periodic("fleet_keys", lambda _: self.refresh(), _CHECK_SECONDS)

    def current(self) -> FleetList:
        """Return the signed list of public keys, newest first, at most a minute old."""
        now = self._clock.now_ms()
        if self._issued is None or not 0 <= now - self._issued.issued_at * 1000 < _LIST_AGE_MS:
            today = day_of(now)
            # Without a pair of today or earlier, the clock was set back over midnight since the pairs were read.
            listed = sorted((day for day in self._pairs if day <= today), reverse=True) or sorted(self._pairs)
            keys = tuple(self._pairs[day].public for day in listed)
            self._issued = FleetList.issue(self._ports.keys.identity, now // 1000, keys)
        return self._issued

    def private(self, fleet_id: bytes) -> PrivateKey | None:
        """Return the private half that a sealed key names, while it is accepted."""
        pair = self._by_id.get(fleet_id)
        if pair is None or pair.public.not_after * 1000 <= self._clock.now_ms():
            return None
        return pair.private

    async def _pair(self, day: str, *, make: bool) -> FleetPair | None:
        known = self._pairs.get(day)
        if known is not None:
            return known
        metadata, randomness = self._ports.keys.metadata, self._ports.randomness
        if make:
            fresh = FleetPair(day, PrivateKey(randomness.bytes(PrivateKey.SIZE)))
            sealed = fresh.seal(metadata, salt=randomness.bytes(SALT_SIZE))
            found = await create_or_read(self._ports, Layout.fleet(day), sealed)
            return FleetPair.open(day, metadata, found.data)
        read = await self._ports.store.get(self._ports.layout.store_key(Layout.fleet(day)))
        return FleetPair.open(day, metadata, read.data) if isinstance(read, Found) else None

    async def _try_sweep(self, today: str) -> None:
        try:
            await self._sweep()
            self._swept = today
        except StoreError as error:
            # Requests do not depend on the deletion: a store that does not list versions must not stop the service.
            if self._told != today:
                self._told = today
                self._on_left(error)

    async def _sweep(self) -> None:
        """Delete the pairs of past days permanently.

        The store's clock decides which days are past, because this replica's clock may be far ahead. All versions are
        deleted, also those of days that a listing does not show any more because only their latest version was deleted.
        """
        store, folder = self._ports.store, self._ports.layout.store_key(Layout.fleet(""))
        read = await store.get(f"{folder}{day_of(self._clock.now_ms())}")
        oldest = min(read.store_time, self._clock.now_ms()) - (KEPT_DAYS - 1) * DAY_MS
        shown = [info.key async for info in store.list(folder)]
        await destroy(store, [key for key in shown if key.removeprefix(folder) < day_of(oldest)])
        window = range(oldest - DAY_MS, oldest - (_SWEPT_DAYS + 1) * DAY_MS, -DAY_MS)
        while await left_of(store, names := [f"{folder}{day_of(time)}" for time in window]):
            await destroy(store, names)
            window = range(window.stop, window.stop - _SWEPT_DAYS * DAY_MS, -DAY_MS)
