"""How much an account may keep, and how much it keeps: bytes, namespaces, memories.

What is kept is read once from pointers, manifests and the entries after them, counted on with every append of this replica, and
read again when a write would go beyond the quota, so that what was erased, or written through other replicas, counts. Only what
a request asks to be kept is refused: what was promised before is kept, and forgetting and erasing are never refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cachetools import LRUCache

from relayer.domain.namespace import Pointer, PointerState
from relayer.domain.operations import JobAccepted, JobFinished, Operation, Outcome, Put, Result, Supersede
from relayer.errors import CorruptNamespace, NamespaceClosed, Refused, UpgradeRequired
from relayer.lib.work import in_windows
from relayer.log.creation import list_pointers
from relayer.log.objects import LogPorts, ManifestView

# How long what was read is believed when a write does not fit, or somebody asks; and how long at all.
_FRESH_SECONDS = 15.0
_OLD_SECONDS = 600.0
_MOST_KNOWN = 10_000
_GONE = (Result.REFUSED, Result.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that one account may keep; 0 is no limit."""

    bytes: int = 0
    namespaces: int = 0
    memories: int = 0


@dataclass(slots=True)
class Amount:
    """Memories, every version and what is forgotten included, and the bytes that they take in the store."""

    memories: int = 0
    bytes: int = 0

    def add(self, other: Amount, times: int = 1) -> None:
        """Add another amount so many times."""
        self.memories += times * other.memories
        self.bytes += times * other.bytes


@dataclass(slots=True)
class Used:
    """What an account keeps: its namespaces by name, and all of them together."""

    namespaces: set[str] = field(default_factory=set)
    amount: Amount = field(default_factory=Amount)


@dataclass(slots=True)
class _KnownUsage:
    used: Used = field(default_factory=Used)
    read_at: float = float("-inf")
    reading: asyncio.Task[None] | None = None


class Quotas:
    """Holds accounts to their quotas on this replica.

    Args:
        ports: the store.
        usual: what every account may keep.
        own: what single accounts may keep instead.
    """

    def __init__(self, ports: LogPorts, usual: Quota, own: Mapping[str, Quota] | None = None) -> None:
        self._ports = ports
        self._usual = usual
        self._own = own or {}
        self._known: LRUCache[str, _KnownUsage] = LRUCache(_MOST_KNOWN)

    def of(self, account: str) -> Quota:
        """Return what an account may keep."""
        return self._own.get(account, self._usual)

    async def used(self, account: str) -> Used:
        """Return what an account keeps, as of a moment ago.

        Raises:
            StoreError: the store did not answer.
        """
        known = self._entry(account)
        await self._read(account, known, older_than=_FRESH_SECONDS)
        return known.used

    async def check_name(self, account: str, name: str) -> None:
        """Refuse a namespace that would be one too many.

        Raises:
            Refused: ``quota_exceeded``.
            StoreError: the store did not answer.
        """
        most = self.of(account).namespaces
        if not most:
            return
        known = self._entry(account)
        await self._read(account, known, older_than=_OLD_SECONDS)
        if name not in known.used.namespaces and len(known.used.namespaces) >= most:
            await self._read(account, known, older_than=_FRESH_SECONDS)
        # No await between looking and counting: requests that come at once must not all find the same room.
        if name not in known.used.namespaces and len(known.used.namespaces) >= most:
            raise _refused("namespaces", most, len(known.used.namespaces), 1)
        known.used.namespaces.add(name)

    async def take(
        self, account: str, operations: Sequence[Operation]
    ) -> Callable[[Sequence[Outcome]], None]:
        """Count operations that are about to be appended; returns what is to be told their outcomes, none if that failed.

        Raises:
            Refused: ``quota_exceeded``; nothing may be appended.
            StoreError: the store did not answer.
        """
        amounts = [_amount(operation) for operation in operations]
        more = Amount()
        for amount in amounts:
            more.add(amount)
        quota = self.of(account)
        if not (more.bytes and (quota.bytes or quota.memories)):
            return lambda _: None
        known = self._entry(account)
        await self._read(account, known, older_than=_OLD_SECONDS)
        if any(map(_is_asked, operations)):
            if _beyond(quota, known.used.amount, more) is not None:
                await self._read(account, known, older_than=_FRESH_SECONDS)
            refused = _beyond(quota, known.used.amount, more)
            if refused is not None:
                raise refused
        used = known.used
        used.amount.add(more)

        def settle(outcomes: Sequence[Outcome]) -> None:
            results = [outcome.result for outcome in outcomes] or [Result.REFUSED] * len(amounts)
            for amount, result in zip(amounts, results, strict=True):
                if result in _GONE:
                    used.amount.add(amount, -1)

        return settle

    def _entry(self, account: str) -> _KnownUsage:
        return self._known.setdefault(account, _KnownUsage())

    async def _read(self, account: str, known: _KnownUsage, *, older_than: float) -> None:
        """Read what an account keeps, if what is known of it is older than so many seconds; once for all who ask."""
        if self._ports.clock.monotonic() - known.read_at < older_than:
            return
        if known.reading is None:
            known.reading = asyncio.create_task(self._read_anew(account, known))
            known.reading.add_done_callback(lambda _: setattr(known, "reading", None))
        await asyncio.shield(known.reading)

    async def _read_anew(self, account: str, known: _KnownUsage) -> None:
        asked_at = self._ports.clock.monotonic()
        pointers = [
            pointer
            for pointer in await list_pointers(self._ports, account)
            if pointer.state is not PointerState.ERASED
        ]
        used = Used({pointer.name for pointer in pointers})
        for amount in await in_windows(partial(self._amount_of, account), pointers):
            used.amount.add(amount)
        known.used, known.read_at = used, asked_at

    async def _amount_of(self, account: str, pointer: Pointer) -> Amount:
        try:
            return await log_amount(self._ports, account, pointer.incarnation)
        except (CorruptNamespace, UpgradeRequired, NamespaceClosed):
            return Amount()  # nothing is written to it either, until an operator looked at it


async def log_amount(ports: LogPorts, account: str, incarnation: bytes) -> Amount:
    """Return what a log keeps by its manifest and the entries after it, of which each counts as one memory.

    Raises:
        CorruptNamespace, UpgradeRequired, NamespaceClosed: the manifest cannot be read.
        StoreError: the store did not answer.
    """
    manifest = await ManifestView(ports, account, incarnation).read()
    amount = Amount(manifest.live_count, manifest.live_bytes)
    async for row in ports.store.list(ports.layout.at(ports.layout.entries(incarnation))):
        if int(row.key.rpartition("/")[2]) > manifest.snap_seq:
            amount.add(Amount(1, row.size))
    return amount


def _amount(operation: Operation) -> Amount:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return Amount(1, stored.size)
        case JobAccepted(sealed=sealed):
            return Amount(0, len(sealed))
        case JobFinished(stored=results, vectors=vectors):
            size = sum(one.size for one in results) + sum(
                len(one.vector) + len(one.context_vector) for one in vectors
            )
            return Amount(len(results), size)
        case _:
            return Amount()


def _is_asked(operation: Operation) -> bool:
    """Whether a request asks for this to be kept: what the relayer promised itself has no author."""
    return isinstance(operation, Put | Supersede | JobAccepted) and bool(operation.origin.author)


def _beyond(quota: Quota, used: Amount, more: Amount) -> Refused | None:
    if quota.bytes and used.bytes + more.bytes > quota.bytes:
        return _refused("bytes", quota.bytes, used.bytes, more.bytes)
    if quota.memories and used.memories + more.memories > quota.memories:
        return _refused("memories", quota.memories, used.memories, more.memories)
    return None


def _refused(what: str, most: int, used: int, more: int) -> Refused:
    return Refused(
        "quota_exceeded",
        f"this account may keep {most:,} {what}, keeps {used:,} and asks for {more:,} more: erase what is not needed any "
        f"more, or have the relayer's operator raise --quota-{what} or the account's own quota (--quotas)",
    )
