"""The replica: a process's copy of one namespace, which follows the log and makes reads as fresh as requested.

The state changes in two ways only, and both apply the next entry of the chain: catching up applies entries that were read,
and the committer applies entries that it wrote. Entries are read from segments as far as the manifest names any beyond the
state, and from slots after that; all go through the same `apply`. `reload` starts over from an empty state, or from a stored
one. Projections of the log, such as indexes, subscribe to the entries that are applied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from relayer.domain.namespace import LogPosition, Manifest, genesis
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, RelayerError, UpgradeRequired
from relayer.lib.work import AT_ONCE, SingleFlight, together
from relayer.log.objects import (
    LinkedEntry,
    LogPorts,
    ManifestView,
    PositionUnknown,
    ReadAhead,
    RollbackDetected,
    SeenManifest,
    Slots,
)
from relayer.log.segments import Segments, windows
from relayer.wire.fields import Consistency

OnApplied = Callable[[list[Applied]], None]
OnReset = Callable[[NamespaceState], None]
T = TypeVar("T")

DIGESTS_KEPT = 4096
_RELOADS = 5
# After this many stored bytes other tasks can run: unsealing and applying them takes about ten milliseconds.
_SLICE_BYTES = 256 * 1024
_POSITION_BYTES = 180
# Limits of the entries that this process wrote and keeps, so that a compaction need not read them again. A busy writer gets to
# 64 of them, and to a compaction, within seconds; keeping the tail of a quiet namespace would be a waste of memory.
_WRITTEN_BYTES = 1024 * 1024
_WRITTEN_SECONDS = 60.0
_ENTRY_BYTES = 600


@dataclass(frozen=True, slots=True)
class StartingState:
    """A state to start from, and the positions that led to it, oldest first and its own last."""

    state: NamespaceState
    positions: Sequence[LogPosition]


# Returns the stored state to start from, given a manifest; None means an empty state.
Begin = Callable[[Manifest], Awaitable[StartingState | None]]


class Replica:
    """The copy of one incarnation in one process.

    Attributes:
        state: the state so far; replaced by `reload`, changed in place otherwise.
        seen_at: when the head of the log was last read or written, by the clock's `monotonic`; None before the first time.
        store_time: the store's time of its last response about a slot or manifest, in ms.

    A manifest that the caller has ``seen`` replaces the first read of it, as a response of that time: it confirms slots for
    no longer than any other response (I11). The first `reload` may start from it, because if an object that it names has
    been deleted since, a newer manifest is read. Slots and segments are read through ``ahead``, which may have begun some
    reads already.
    """

    def __init__(
        self,
        ports: LogPorts,
        account: str,
        incarnation: bytes,
        begin: Begin | None = None,
        seen: SeenManifest | None = None,
        *,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._ahead = ahead or ReadAhead(ports)
        self.slots = Slots(ports, account, incarnation, self._ahead)
        self.segments = Segments(ports, account, incarnation, self._ahead)
        self.manifest = ManifestView(ports, account, incarnation)
        self.seen_at: float | None = None
        self.store_time = 0
        self._clock = ports.clock
        self.incarnation = incarnation
        self._subscribers: list[tuple[OnApplied, OnReset]] = []
        self._flight = SingleFlight(self._follow)
        self._refusal: RelayerError | None = None
        self._restart_wanted = True
        self._load_wanted = True
        # All entries that were in the log at this time have been applied; by the clock's `monotonic`.
        self._followed_from: float | None = None
        self._begin = begin
        self._seen = seen
        if seen is not None:
            self.manifest.adopt(seen)
        self._start_from(self._nothing())

    def _nothing(self) -> StartingState:
        first = LogPosition(0, genesis(self.incarnation))
        return StartingState(NamespaceState(first), (first,))

    def _start_from(self, start: StartingState) -> None:
        self.state = start.state
        self._written: dict[int, tuple[LinkedEntry, float]] = {}
        self._written_bytes = 0
        self._digests = deque(start.positions, DIGESTS_KEPT)
        self._sizes: deque[int] = deque(maxlen=DIGESTS_KEPT)

    def subscribe(self, on_applied: OnApplied, on_reset: OnReset) -> None:
        """Register a projection of the log. To be called before the first `reload`, because no entry is reported twice.

        Args:
            on_applied: called with the applied operations of each entry, once for each entry, in order, before any of them
                is acknowledged. It must not raise: after an exception the replica refuses to serve until it is reloaded.
            on_reset: called with the new state when the log is read again, from its start or from a stored state;
                ``on_applied`` is then called for the entries after it.
        """
        self._subscribers.append((on_applied, on_reset))

    def unsubscribe(self) -> None:
        """Remove all projections, and the function that returns a stored state; the replica is not to be read any more."""
        self._subscribers.clear()
        self._begin = None

    @property
    def nbytes(self) -> int:
        """Return about how many bytes the replica takes in memory."""
        written = self._written_bytes + len(self._written) * _ENTRY_BYTES
        return self.state.nbytes + len(self._digests) * _POSITION_BYTES + written

    async def reload(self) -> LogPosition:
        """Start over from the manifest, and catch up. An error that made the replica refuse to serve is cleared.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `catch_up`.
        """
        self._restart_wanted = True
        await self._flight.run()
        return self.state.position

    async def _load(self) -> None:
        """Apply the entries in the manifest's segments that are not in the state yet, if any.

        If `reload` was called, start over from a stored or an empty state first.
        A segment that is absent was merged with others and deleted, and then the current manifest names its successor.
        """
        for _ in range(_RELOADS):
            seen, self._seen = self._seen, None
            manifest = await self.manifest.read() if seen is None else seen.manifest
            self.store_time = self.manifest.validated_at or 0
            if self._restart_wanted:
                start = None if self._begin is None else await self._begin(manifest)
                self._start_from(start or self._nothing())
                self._refusal = None
                self._restart_wanted = False
                self._load_wanted = True
                self.seen_at = self._followed_from = None
                for _, on_reset in self._subscribers:
                    on_reset(self.state)
            if await self._guarded(self._replay(manifest)):
                self._load_wanted = False
                return
        raise self._refuse(CorruptNamespace("the manifest names a segment that does not exist"))

    async def _replay(self, manifest: Manifest) -> bool:
        """Apply a manifest's segments in order; False if one is absent."""
        _check_rows(manifest)
        missing = [row for row in manifest.segments if row.last_seq > self.state.position.seq]
        for window in windows(missing):
            for segment in await together([self.segments.read(row) for row in window]):
                if segment is None:
                    return False
                budget = _SLICE_BYTES
                for linked in segment.entries():
                    if budget <= 0:
                        await asyncio.sleep(0)
                        budget = _SLICE_BYTES
                    budget -= sum(map(len, linked.entry.operations))
                    if linked.entry.seq <= self.state.position.seq:
                        continue  # the state has it already
                    if linked.entry.previous != self.state.position.digest:
                        raise CorruptNamespace(
                            f"entry {linked.entry.seq} of a segment does not follow the one before it"
                        )
                    self.apply(linked)
        if self.digest_at(manifest.snap_seq) not in {manifest.chain_digest, None}:
            raise CorruptNamespace("the manifest belongs to another log than its entries")
        return True

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Await ``work``, and record an error that makes this replica unable to serve."""
        try:
            return await work
        except (CorruptNamespace, UpgradeRequired) as error:
            raise self._refuse(error) from error

    def _refuse(self, error: RelayerError) -> RelayerError:
        self._refusal = error
        return error

    async def catch_up(self) -> LogPosition:
        """Apply all entries that were in the log when this was called, and return the new position.

        Concurrent callers share the reads.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed: the namespace cannot be served.
            StoreError: the store did not respond; entries applied so far stay applied.
        """
        self.refuse_if_broken()
        await self._flight.run()
        return self.state.position

    async def _follow(self) -> None:
        asked = self._ahead.began if self._ahead.waiting else self._clock.monotonic()
        if self._restart_wanted or self._load_wanted:
            await self._load()
        # The first read requests one slot only, because a replica that is up to date finds it absent and is done.
        count = 1
        for _ in range(_RELOADS):
            while True:
                start = self.state.position.seq + 1
                tail = await self.slots.read(start, count)
                self.store_time = tail.times[-1]
                if not await self.vouched(start, tail.times):
                    break
                budget = _SLICE_BYTES
                for slot in tail.slots:
                    if budget <= 0:
                        await asyncio.sleep(0)
                        budget = _SLICE_BYTES
                    budget -= len(slot.data)
                    if slot.seq <= self.state.position.seq:
                        continue  # the committer has written and applied it in the meantime
                    position = self.state.position
                    linked = await self._guarded(self.slots.link(slot, position))
                    if self.state.position == position:
                        self.apply(linked)
                if tail.ended:
                    self.seen_at = self._clock.monotonic()
                    self._followed_from = asked
                    return
                count = AT_ONCE
            await self._load()
        raise CorruptNamespace("the watermark stays above what the manifest leads to")

    async def vouched(self, start: int, times: Sequence[int]) -> bool:
        """Return whether no slot from ``start`` on can have been collected before the responses given at ``times``.

        A reader checks the position where its tail started (I4), and a writer checks the slot that it created, after creating
        it (I3): up to the watermark, it means nothing whether a key exists.

        The store's ``times`` of the responses are in ms. Raises `CorruptNamespace`, `UpgradeRequired`, `NamespaceClosed` or
        `StoreError`: as `ManifestView.read`.
        """
        if not all(self.manifest.recently_validated(time) for time in (min(times), max(times))):
            await self.manifest.read()
        return self.manifest.watermark < start

    def apply(self, linked: LinkedEntry) -> list[Applied]:
        """Apply the next entry of the chain and notify the projections, in one step of the event loop.

        Returns:
            The operations of the entry with their outcomes, in their order.

        Raises:
            UpgradeRequired: the entry has an operation of a newer version; the state is unchanged (I12).
            CorruptNamespace: a projection raised an exception.
        """
        try:
            applied = self.state.apply(linked.entry, linked.digest)
        except UpgradeRequired as error:
            self._refuse(error)
            raise
        self._digests.append(self.state.position)
        self._sizes.append(linked.size)
        try:
            for on_applied, _ in self._subscribers:
                on_applied(applied)
        except Exception as error:  # after any error, acknowledged memories might be missing in recall
            self._refusal = CorruptNamespace(
                "a projection of the log could not follow it; it must be reloaded"
            )
            raise self._refusal from error
        return applied

    def keep_written(self, linked: LinkedEntry) -> None:
        """Keep an applied entry that this process wrote, until it is in a segment, or for at most about a minute."""
        self._written[linked.entry.seq] = linked, self._clock.monotonic()
        self._written_bytes += linked.size
        self.tidy_written()

    def written(self, after: LogPosition) -> LinkedEntry | None:
        """Return the entry that follows a position if this process wrote it and still keeps it, else None."""
        linked, _ = self._written.get(after.seq + 1, (None, 0.0))
        return linked if linked is not None and linked.entry.previous == after.digest else None

    def tidy_written(self) -> None:
        """Evict the kept entries that are in a segment or too old, and the oldest ones if they take too many bytes."""
        oldest, end = self._clock.monotonic() - _WRITTEN_SECONDS, self.manifest.snap_seq
        while self._written:
            seq, (linked, at) = next(iter(self._written.items()))
            if seq > end and at >= oldest and self._written_bytes <= _WRITTEN_BYTES:
                return
            del self._written[seq]
            self._written_bytes -= linked.size

    @property
    def broken(self) -> bool:
        """Return whether this replica refuses to serve until a `reload`."""
        return self._refusal is not None

    def refuse_if_broken(self) -> None:
        """Raise the error that made this replica unable to serve or append, if there was one."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def digest_at(self, seq: int) -> bytes | None:
        """Return the digest of the entry in a slot; None if it is not among the last 4,096."""
        back = self.state.position.seq - seq
        return self._digests[-1 - back].digest if 0 <= back < len(self._digests) else None

    def positions(self) -> list[LogPosition]:
        """Return the sequence numbers and digests of the last entries, oldest first, at most 4,096."""
        return list(self._digests)

    def bytes_after(self, seq: int) -> int:
        """Return the stored size in bytes of the applied entries after ``seq``, as far as they are among the last 4,096."""
        count = self.state.position.seq - seq
        return sum(islice(reversed(self._sizes), max(0, count)))

    async def read(
        self, consistency: Consistency, min_position: LogPosition | None = None, since: float | None = None
    ) -> LogPosition:
        """Make the state as fresh as requested and return its position.

        Args:
            consistency: ``STRONG`` sees everything acknowledged anywhere before this call; ``MINE`` sees everything up to
                ``min_position``; ``ANY`` sees the current state.
            min_position: the position that the caller remembers.
            since: when the caller's request arrived, by the clock's `monotonic`: ``STRONG`` then sees everything acknowledged
                before that, and reads nothing if the replica has caught up since then, as it does when it is opened.

        Raises:
            RollbackDetected: ``min_position`` is above the log's head, or another entry is at that position.
            PositionUnknown: ``min_position`` is older than every position that is kept.
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `catch_up`.
        """
        self.refuse_if_broken()
        behind = min_position is not None and min_position.seq > self.state.position.seq
        if consistency is Consistency.STRONG or (consistency is Consistency.MINE and behind):
            if not (since is not None and self._followed_from is not None and self._followed_from > since):
                await self.catch_up()
        elif behind:
            return self.state.position
        if min_position is not None:
            if min_position.seq > self.state.position.seq:
                raise RollbackDetected("the log ends before a position that was seen in it")
            digest = self.digest_at(min_position.seq)
            if digest is None:
                raise PositionUnknown(self.state.position)
            if digest != min_position.digest:
                raise RollbackDetected("the log holds another entry at a position that was seen in it")
        return self.state.position


def _check_rows(manifest: Manifest) -> None:
    expected = 1
    for row in manifest.segments:
        if row.first_seq != expected or row.last_seq < row.first_seq:
            raise CorruptNamespace(f"the manifest's segments leave a gap at entry {expected}")
        expected = row.last_seq + 1
    if manifest.snap_seq != expected - 1:
        raise CorruptNamespace("the manifest's segments do not end where it says")
    if manifest.gc_watermark > manifest.snap_seq:
        raise CorruptNamespace("the manifest's watermark is above its segments")
