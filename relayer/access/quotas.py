"""Quotas: how much an account may store, across all processes that serve a store.

All processes add what they write to one shared object of the account (`read_usage`, `write_usage`). A process may write up to a
256th of the remaining quota, as of its last look at that object, before it adds its writes there; closer to the quota it
adds each write before making it. So a single process never exceeds a quota, and each further process exceeds it by at most
a 256th. If a process dies, the writes that it has not added are missing. So the object is compared with the store, after erasures,
after a refusal, and every six hours: in the background, since counting takes up to three requests for each namespace.

Only writes that a request asks for are refused. The results of jobs that were accepted earlier are stored, and forgetting
and erasing are never refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import msgspec
from cachetools import LRUCache

from relayer.access.accounts import AccountLimits
from relayer.domain.namespace import Pointer, PointerState
from relayer.domain.operations import (
    Close,
    Erase,
    JobAccepted,
    JobFinished,
    Operation,
    OperationResult,
    Outcome,
    Put,
    Supersede,
)
from relayer.errors import CorruptNamespace, NamespaceClosed, Refused, RelayerError, UpgradeRequired
from relayer.lib.scheduler import OnError, Periodic, Wake
from relayer.lib.work import in_windows
from relayer.log.creation import list_pointers
from relayer.log.objects import Layout, LogPorts, ManifestView, ObjectLocation, ObjectSealer
from relayer.ports import Created, Found, Swapped, Throttled
from relayer.wire.sealing import ObjectType

# A process may run ahead of the shared object by one part in this many of the remaining quota.
_AHEAD_SHARE = 256
# Seconds between two rounds that add what was written to the shared objects.
_ADD_SECONDS = 30.0
# The age in seconds up to which the cached shared object is used to report the usage of an account.
_FRESH_SECONDS = 15.0
# The time between two comparisons with the store, for an account that writes.
_COMPARED_MS = 6 * 3600 * 1000
# Seconds from an erasure to a comparison: most of what it frees is gone by then.
_ERASED_SECONDS = 60.0
# The seconds for which a comparison waits for writes in progress, and for which the end of the process waits for the store.
_WRITING_SECONDS, _CLOSING_SECONDS = 60.0, 5.0
# Comparisons of one account take at most a tenth of the time, and come no sooner than this.
_PAUSE_SHARE, _PAUSE_SECONDS = 10.0, 15.0
_ATTEMPTS = 8
# What quotas limit, in the order in which an excess is told.
_COUNTED = ("namespaces", "bytes", "memories")
_MAX_TALLIES = 10_000
_NOT_KEPT = (OperationResult.REFUSED, OperationResult.DUPLICATE)


_FORMAT = 1
# The least size of a memory in an entry: its seal alone takes 104 bytes, ids and times the rest.
_LEAST_BYTES = 200
# A smaller entry does not contain a memory with a vector: it forgets or erases memories, or ends a job.
_USUAL_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of namespaces and memories (all versions, including forgotten ones), and the bytes they take in the store."""

    namespaces: int = 0
    memories: int = 0
    bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.namespaces + other.namespaces, self.memories + other.memories, self.bytes + other.bytes
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.namespaces - other.namespaces, self.memories - other.memories, self.bytes - other.bytes
        )

    def not_negative(self) -> Usage:
        """Return a copy with 0 in place of negative numbers."""
        return Usage(max(0, self.namespaces), max(0, self.memories), max(0, self.bytes))


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    namespaces: int
    memories: int
    bytes: int
    counted_at: int


@dataclass(frozen=True, slots=True)
class SeenUsage:
    """The shared object as read from the store.

    Attributes:
        counted_at: when it was last compared with the store, in ms of the store's time; 0 for never.
        etag: the etag of the object; None if there is no object.
        store_time: the store's time at its response, in ms.
    """

    usage: Usage
    counted_at: int
    etag: str | None
    store_time: int


async def read_usage(ports: LogPorts, account: str) -> SeenUsage:
    """Read an account's shared object. One that cannot be decrypted counts as empty, but its etag is returned.

    Raises:
        StoreError: the store did not respond.
    """
    place = _place_of(ports, account)
    found = await ports.store.get(place.key)
    if not isinstance(found, Found):
        return SeenUsage(Usage(), 0, None, found.store_time)
    try:
        stored = msgspec.msgpack.decode(ObjectSealer(ports).unseal(place, found.data), type=_Stored)
    except (CorruptNamespace, msgspec.MsgspecError):
        return SeenUsage(Usage(), 0, found.etag, found.store_time)
    usage = Usage(stored.namespaces, stored.memories, stored.bytes)
    return SeenUsage(usage, stored.counted_at, found.etag, found.store_time)


async def write_usage(
    ports: LogPorts, account: str, usage: Usage, counted_at: int, etag: str | None
) -> SeenUsage | None:
    """Replace an account's shared object if its etag is still ``etag`` (None: create it if there is none).

    Returns:
        The new object, or None if it is not certain that it was replaced.

    Raises:
        StoreError: the store did not respond.
    """
    place = _place_of(ports, account)
    stored = _Stored(_FORMAT, usage.namespaces, usage.memories, usage.bytes, counted_at)
    data = ObjectSealer(ports).seal(place, msgspec.msgpack.encode(stored))
    at, store = place.key, ports.store
    outcome = await (store.create(at, data) if etag is None else store.swap(at, data, etag))
    if isinstance(outcome, Throttled):
        await ports.clock.sleep(outcome.retry_after)
    if isinstance(outcome, Created | Swapped):
        return SeenUsage(usage, counted_at, outcome.etag, outcome.store_time)
    return None


def _place_of(ports: LogPorts, account: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.CONSTANT, "", b"", Layout.usage(ports.keys.tag("account", account)))


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """The usage of an account as counted from the store.

    The number of memories is a range, because entries that are not in a segment yet are not read to count theirs.

    Attributes:
        usage: namespaces, bytes, and about the least possible number of memories.
    """

    usage: Usage = Usage()
    most_memories: int = 0

    def __add__(self, other: CountedUsage) -> CountedUsage:
        return CountedUsage(self.usage + other.usage, self.most_memories + other.most_memories)

    def corrects(self, sum_before: Usage) -> Usage:
        """Return the correction of a sum of writes; its number of memories changes only if it is outside of the range."""
        memories = min(max(sum_before.memories, self.usage.memories), self.most_memories)
        return Usage(self.usage.namespaces, memories, self.usage.bytes) - sum_before


async def count_usage(ports: LogPorts, account: str) -> CountedUsage:
    """Count the usage of an account with one listing, and up to three requests for each namespace.

    Raises:
        CorruptNamespace: a pointer cannot be decrypted at its key.
        StoreError: the store did not respond.
    """
    pointers = [
        pointer for pointer in await list_pointers(ports, account) if pointer.state is not PointerState.ERASED
    ]
    total = CountedUsage(Usage(namespaces=len(pointers)))
    for usage in await in_windows(partial(_usage_of, ports, account), pointers):
        total += usage
    return total


async def _usage_of(ports: LogPorts, account: str, pointer: Pointer) -> CountedUsage:
    incarnation = pointer.incarnation
    try:
        manifest = await ManifestView(ports, account, incarnation).read()
    except (CorruptNamespace, UpgradeRequired, NamespaceClosed):
        return CountedUsage()  # nothing can be written to it either until an operator has repaired it
    fewest = most = manifest.live_count
    size = manifest.live_bytes
    async for row in ports.store.list(Layout.entries(incarnation)):
        if int(row.key.rpartition("/")[2]) > manifest.snap_seq:
            fewest += row.size >= _USUAL_BYTES
            most += 1 + row.size // _LEAST_BYTES
            size += row.size
    return CountedUsage(Usage(0, fewest, size), most)


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of what one account may store; 0 is no limit."""

    bytes: int = 0
    namespaces: int = 0
    memories: int = 0


@dataclass(slots=True, eq=False)
class _Tally:
    """The usage of one account as this process knows it.

    Attributes:
        seen: the shared object as last read or written; None before the first time.
        seen_at: when that was, by the clock's `monotonic`.
        added: what was written here and not yet added to the shared object. It is negative after writes that had been
            counted were not stored.
        writing: an event for each write that is counted and still in progress, set at its end.
        lock: held while the shared object is read or changed.
        compare_after: the earliest time of the next comparison with the store, by the clock's `monotonic`.
    """

    seen: SeenUsage | None = None
    seen_at: float = -inf
    added: Usage = field(default_factory=Usage)
    writing: set[asyncio.Event] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    compare_after: float = -inf

    def runs_ahead(self, quota: Quota, more: Usage) -> bool:
        """Return whether ``more`` may be written before it is in the shared object."""
        if self.seen is None:
            return False
        for what in _COUNTED:
            limit, known, wanted, added = (
                getattr(one, what) for one in (quota, self.seen.usage, more, self.added)
            )
            if limit and wanted and added + wanted > (limit - known) // _AHEAD_SHARE:
                return False
        return True


class Quotas:
    """Holds accounts to their quotas.

    Args:
        own: the quotas of single accounts, instead of ``usual``.
        limits_of: returns the limits that the operator has set for an account in the store, see `quota_of`.
    """

    def __init__(
        self,
        ports: LogPorts,
        usual: Quota,
        own: Mapping[str, Quota] | None = None,
        limits_of: Callable[[str], AccountLimits | None] = lambda _: None,
    ) -> None:
        self._ports = ports
        self._usual = usual
        self._own = dict(own or {})
        self._limits_of = limits_of
        self._tallies: LRUCache[str, _Tally] = LRUCache(_MAX_TALLIES)
        # Accounts by those tallies that have writes to add to the shared object. They are kept even if the tally is evicted.
        self._to_add: dict[_Tally, str] = {}
        # When each account is to be compared with the store, by the clock's `monotonic`.
        self._to_compare: dict[str, float] = {}
        self._wake = Wake()

    @property
    def task(self) -> Periodic:
        """The periodic task that adds writes to the shared objects and compares these with the store."""
        return Periodic("quotas", self._round, _ADD_SECONDS, wake=self._wake)

    def quota_of(self, account: str) -> Quota:
        """Return the quota of an account.

        A limit that is set in the store counts instead of the usual one. If ``own`` has a quota of the account too, the smaller
        limit counts.
        """
        own = self._own.get(account)
        limits, quota = self._limits_of(account), own or self._usual
        if limits is None:
            return quota

        def limit(stored: int | None, of_process: int) -> int:
            if stored is None:
                return of_process
            if own is None or not of_process:
                return stored
            return min(stored, of_process) if stored else of_process

        return Quota(**{name: limit(getattr(limits, name), getattr(quota, name)) for name in _COUNTED})

    def add_ids(self, id_of: Callable[[str], str]) -> None:
        """Apply the quotas of single accounts also to the ids that ``id_of`` derives from the accounts' own."""
        self._own |= {id_of(account): quota for account, quota in self._own.items()}

    def begin(self, account: str) -> None:
        """Record that an account was created just now, so its usage need not be read or counted."""
        now = self._ports.clock.now_ms()
        self._see(account, self._tally(account), SeenUsage(Usage(), now, None, now))

    async def used(self, account: str) -> Usage:
        """Return the usage of an account, with the writes of this process; those of others may lack the last half minute.

        Raises:
            CorruptNamespace: the account was never counted before, and a pointer cannot be decrypted.
            StoreError: the store did not respond.
        """
        tally = self._tally(account)
        async with tally.lock:
            seen = tally.seen
            if seen is None or self._ports.clock.monotonic() - tally.seen_at > _FRESH_SECONDS:
                seen = await self._read(account, tally)
        if not seen.counted_at:
            seen = await self._compare(account, tally)
        return (seen.usage + tally.added).not_negative()

    async def take_namespace(self, account: str) -> Callable[[], None]:
        """Count a namespace that is about to be created.

        Returns:
            A function to call after the attempt to create it.

        Raises:
            Refused: ``quota_exceeded``.
            StoreError: the store did not respond.
        """
        return await self._count(account, Usage(namespaces=1), refuses=True)

    async def take(
        self, account: str, operations: Sequence[Operation]
    ) -> Callable[[Sequence[Outcome]], None]:
        """Count operations that are about to be appended.

        Returns:
            A function to call with their outcomes, or with an empty sequence if appending failed.

        Raises:
            Refused: ``quota_exceeded``; nothing may be appended.
            StoreError: the store did not respond.
        """
        if any(isinstance(operation, Erase | Close) for operation in operations):
            self._compare_in(_ERASED_SECONDS, account)
        amounts = [_usage(operation) for operation in operations]
        more = sum(amounts, Usage())
        if not more.bytes:
            return lambda _: None
        tally = self._tally(account)
        end = await self._count(account, more, refuses=any(map(_is_asked, operations)))

        def settle(outcomes: Sequence[Outcome]) -> None:
            results = [outcome.result for outcome in outcomes] or [OperationResult.REFUSED] * len(amounts)
            for amount, result in zip(amounts, results, strict=True):
                if result in _NOT_KEPT:
                    tally.added -= amount
                    self._to_add[tally] = account
            end()

        return settle

    async def close(self) -> None:
        """Add the remaining writes to the shared objects; give up after five seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._add_all(lambda _: None)

    def _tally(self, account: str) -> _Tally:
        return self._tallies.setdefault(account, _Tally())

    async def _count(self, account: str, more: Usage, *, refuses: bool) -> Callable[[], None]:
        """Count a write before it is made, and return a function to call at its end; raises as `take`."""
        tally, quota = self._tally(account), self.quota_of(account)
        if tally.runs_ahead(quota, more):
            self._run_ahead(account, tally, more)
        else:
            async with tally.lock:
                if tally.seen is None:
                    await self._read(account, tally)
                if tally.runs_ahead(quota, more):
                    self._run_ahead(account, tally, more)
                else:
                    await self._add(account, tally, more, refuses=refuses)
        ended = asyncio.Event()
        tally.writing.add(ended)

        def end() -> None:
            tally.writing.discard(ended)
            ended.set()

        return end

    async def _read(self, account: str, tally: _Tally) -> SeenUsage:
        """Read the shared object; the caller holds the lock."""
        seen = await read_usage(self._ports, account)
        self._see(account, tally, seen)
        return seen

    def _see(self, account: str, tally: _Tally, seen: SeenUsage) -> None:
        """Cache the shared object, and schedule a comparison if the last one was too long ago."""
        tally.seen, tally.seen_at = seen, self._ports.clock.monotonic()
        if seen.store_time - seen.counted_at > _COMPARED_MS:
            self._compare_in(0.0, account)

    async def _add(self, account: str, tally: _Tally, more: Usage, *, refuses: bool) -> None:
        """Add the writes of this process, and ``more``, to the shared object; the caller holds the lock. Raises as `take`."""
        # The cached object is read again if another process replaced it, and before a write is refused because of it.
        seen, is_current = tally.seen, False
        for _ in range(_ATTEMPTS):
            if seen is None:
                seen, is_current = await self._read(account, tally), True
            added = tally.added
            refused = _beyond(self.quota_of(account), seen.usage + added, more) if refuses else None
            if refused is not None and is_current:
                self._compare_in(0.0, account)
                raise refused
            if refused is None:
                total = (seen.usage + added + more).not_negative()
                # Writes that are counted while the object is being written run ahead of the new sum.
                tally.seen, tally.added = replace(seen, usage=total), Usage()
                written = None
                try:
                    written = await write_usage(self._ports, account, total, seen.counted_at, seen.etag)
                finally:
                    if written is None:
                        tally.seen, tally.added = None, tally.added + added
                if written is not None:
                    self._see(account, tally, written)
                    return
            seen, is_current = None, False
        # Other processes replaced the object each time. The next round of the periodic task adds this write.
        self._run_ahead(account, tally, more)

    def _run_ahead(self, account: str, tally: _Tally, more: Usage) -> None:
        tally.added += more
        self._to_add[tally] = account

    def _compare_in(self, seconds: float, account: str) -> None:
        at = self._ports.clock.monotonic() + seconds
        if at < self._to_compare.get(account, inf):
            self._to_compare[account] = at
            self._wake.set()

    async def _round(self, on_error: OnError) -> float | None:
        await self._add_all(on_error)
        for account in list(self._to_compare):
            tally = self._tally(account)
            if max(self._to_compare[account], tally.compare_after) <= self._ports.clock.monotonic():
                try:
                    await self._compare(account, tally)
                except RelayerError as error:
                    on_error(error)
        due = (max(at, self._tally(account).compare_after) for account, at in self._to_compare.items())
        return max(1.0, min([_ADD_SECONDS, *(at - self._ports.clock.monotonic() for at in due)]))

    async def _add_all(self, on_error: OnError) -> None:
        async def add(item: tuple[_Tally, str]) -> None:
            tally, account = item
            try:
                async with tally.lock:
                    if tally.added != Usage():
                        await self._add(account, tally, Usage(), refuses=False)
                    if tally.added == Usage():
                        self._to_add.pop(tally, None)
            except RelayerError as error:
                on_error(error)

        await in_windows(add, self._to_add.items())

    async def _compare(self, account: str, tally: _Tally) -> SeenUsage:
        """Count the account's usage in the store, and correct the shared object by the difference.

        Writes that are made meanwhile may be counted twice. The sum is then too high, never too low, until the next
        comparison.
        """
        began = self._ports.clock.monotonic()
        try:
            async with tally.lock:
                if tally.added != Usage():
                    await self._add(account, tally, Usage(), refuses=False)
                before = await self._read(account, tally)
            # Writes in progress are in the sum already, and may not be in the store yet.
            under_way = list(tally.writing)
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITING_SECONDS):
                    for ended in under_way:
                        await ended.wait()
            counted = await count_usage(self._ports, account)
            async with tally.lock:
                seen = before
                for _ in range(_ATTEMPTS):
                    seen = await self._read(account, tally)
                    if seen.counted_at != before.counted_at:
                        break  # another process compared it meanwhile
                    total = (seen.usage + counted.corrects(before.usage)).not_negative()
                    if seen.etag is None and total == Usage():
                        written: SeenUsage | None = replace(seen, counted_at=before.store_time)
                    else:
                        written = await write_usage(self._ports, account, total, before.store_time, seen.etag)
                    if written is not None:
                        seen = written
                        self._see(account, tally, seen)
                        break
            if self._to_compare.get(account, inf) <= self._ports.clock.monotonic():
                del self._to_compare[account]
            return seen
        finally:
            took = self._ports.clock.monotonic() - began
            tally.compare_after = began + took + max(_PAUSE_SECONDS, _PAUSE_SHARE * took)


def _usage(operation: Operation) -> Usage:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return Usage(0, 1, stored.size)
        case JobAccepted(sealed=sealed):
            return Usage(0, 0, len(sealed))
        case JobFinished(stored=results, vectors=vectors):
            size = sum(one.size for one in results) + sum(
                len(one.vector) + len(one.context_vector) for one in vectors
            )
            return Usage(0, len(results), size)
        case _:
            return Usage()


def _is_asked(operation: Operation) -> bool:
    """Return whether a request asks for this to be stored; jobs that the relayer accepted by itself have no author."""
    return isinstance(operation, Put | Supersede | JobAccepted) and bool(operation.origin.author)


def _beyond(quota: Quota, used: Usage, more: Usage) -> Refused | None:
    for what in _COUNTED:
        most, known, add = (getattr(one, what) for one in (quota, used, more))
        if most and add and known + add > most:
            return Refused(
                "quota_exceeded",
                f"this account may keep {most:,} {what}, keeps {known:,} and asks for {add:,} more: erase what is not needed any "
                f"more, or have the relayer's operator raise --quota-{what} or the account's own quota (memrelay account limits, "
                "--quotas)",
            )
    return None
