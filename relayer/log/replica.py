"""A process's copy of one namespace: follows the log and answers how fresh it is.

The state changes in two ways only, and both take the next entry of the chain: catching up applies what is read, the
committer applies what it wrote. What is read comes from segments as far as the manifest names any beyond the state, and
from slots after that; either way it goes through the same `apply`. `reload` starts over from nothing, or from a state that
somebody stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TypeVar

from relayer.domain.namespace import Manifest, Position, genesis
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, RelayerError, UpgradeRequired
from relayer.lib.work import AT_ONCE, SingleFlight
from relayer.log.objects import (
    FoundSlot,
    LinkedEntry,
    LogPorts,
    ManifestView,
    PositionUnknown,
    ReadAhead,
    RollbackDetected,
    SeenManifest,
    Slots,
    Tail,
)
from relayer.log.segments import Segment, Segments, windows

OnApplied = Callable[[list[Applied]], None]
OnReset = Callable[[NamespaceState], None]
T = TypeVar("T")

DIGESTS_KEPT = 4096
_RELOADS = 5
# After so many stored bytes other tasks get a turn: about ten milliseconds of opening and applying.
_SLICE_BYTES = 256 * 1024
_POSITION_BYTES = 180
# Entries written here that a compaction need not read again: so many bytes of them, for so long. Whoever writes one after
# the other has 64 of them, and a compaction, within seconds; the tail of a quiet namespace is not worth its memory.
_WRITTEN_BYTES = 1024 * 1024
_WRITTEN_SECONDS = 60.0
_ENTRY_BYTES = 600


@dataclass(frozen=True, slots=True)
class Start:
    """A state to begin with, and the positions that led to it, oldest first, its own last."""

    state: NamespaceState
    positions: Sequence[Position]


# Finds what to begin with under a manifest; None means from nothing.
Begin = Callable[[Manifest], Awaitable[Start | None]]


class Consistency(Enum):
    """How fresh a read must be."""

    STRONG = "strong"
    MINE = "mine"
    ANY = "any"


class Replica:
    """One incarnation in one process.

    Attributes:
        incarnation: which.
        state: the state so far; replaced by `reload`, changed in place otherwise.
        slots: the slots of the log.
        segments: what the log was compacted to.
        manifest: what is known of the manifest.
        seen_at: when the head of the log was last seen, by the clock's `monotonic`; None before the first time.
        store_time: the store's time of its last answer about a slot or manifest, in ms.
        incarnation: whose log this is.

    The manifest that the caller has ``seen`` stands in for the first reading of it, as an answer of that time: it vouches for
    slots no longer than any other (I11), and the first `reload` may begin with it, because what it names that is gone since
    is looked for in a newer one. Slots and segments are read through ``ahead``, which may have begun to.
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
        # Everything that was in the log at this time is applied; by the clock's `monotonic`.
        self._followed_from: float | None = None
        self._begin = begin
        self._seen = seen
        if seen is not None:
            self.manifest.adopt(seen)
        self._start_from(self._nothing())

    def _nothing(self) -> Start:
        first = Position(0, genesis(self.incarnation))
        return Start(NamespaceState(first), (first,))

    def _start_from(self, start: Start) -> None:
        self.state = start.state
        self._written: dict[int, tuple[LinkedEntry, float]] = {}
        self._written_bytes = 0
        self._digests = deque(start.positions, DIGESTS_KEPT)
        self._sizes: deque[int] = deque(maxlen=DIGESTS_KEPT)

    def subscribe(self, on_applied: OnApplied, on_reset: OnReset) -> None:
        """Register a projection of the log; before the first `reload`, because nothing is told twice.

        Args:
            on_applied: called with what an entry did, once for each entry, in order, before anything in it is
                acknowledged. It must not raise: a projection that could not follow makes the replica refuse to
                serve until it is reloaded.
            on_reset: called with the new state when the log is read again, from its start or from a stored state; the
                entries after it follow.
        """
        self._subscribers.append((on_applied, on_reset))

    def unsubscribe(self) -> None:
        """Forget all projections and how to begin: nothing is read any more."""
        self._subscribers.clear()
        self._begin = None

    @property
    def nbytes(self) -> int:
        """About the bytes of what this holds in memory."""
        written = self._written_bytes + len(self._written) * _ENTRY_BYTES
        return self.state.nbytes + len(self._digests) * _POSITION_BYTES + written

    async def reload(self) -> Position:
        """Start over from the manifest, and catch up. What made the replica refuse to serve is forgotten.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `catch_up`.
        """
        self._restart_wanted = True
        await self._flight.run()
        return self.state.position

    async def _restart(self, manifest: Manifest) -> None:
        """Begin again. Whatever state this starts from, `_load` and `_follow` add the rest of the log to it."""
        start = None if self._begin is None else await self._begin(manifest)
        self._start_from(start or self._nothing())
        self._refusal = None
        self._restart_wanted = False
        self._load_wanted = True
        self.seen_at = self._followed_from = None
        for _, on_reset in self._subscribers:
            on_reset(self.state)

    async def _load(self) -> None:
        """Apply what the manifest's segments hold beyond the state, if anything.

        A segment that is absent was merged with others and deleted: the manifest that is there now names its successor.
        """
        for _ in range(_RELOADS):
            seen, self._seen = self._seen, None
            manifest = await self.manifest.read() if seen is None else seen.manifest
            self.store_time = self.manifest.validated_at or 0
            if self._restart_wanted:
                await self._restart(manifest)
            if await self._guarded(self._replay(manifest)):
                self._load_wanted = False
                return
        raise self._refuse(CorruptNamespace("the manifest names a segment that does not exist"))

    async def _replay(self, manifest: Manifest) -> bool:
        """Apply a manifest's segments in order; False if one is absent."""
        _check_rows(manifest)
        missing = [row for row in manifest.segments if row.last_seq > self.state.position.seq]
        for window in windows(missing):
            for segment in await self.segments.read_all(window):
                if segment is None:
                    return False
                await self._apply_segment(segment)
        if self.digest_at(manifest.snap_seq) not in {manifest.chain_digest, None}:
            raise CorruptNamespace("the manifest belongs to another log than its entries")
        return True

    async def _apply_segment(self, segment: Segment) -> None:
        budget = _SLICE_BYTES
        for linked in segment.entries():
            if budget <= 0:
                await asyncio.sleep(0)
                budget = _SLICE_BYTES
            budget -= sum(map(len, linked.entry.operations))
            if linked.entry.seq < self.state.next_seq:
                continue  # the state has it already
            if linked.entry.previous != self.state.position.digest:
                raise CorruptNamespace(
                    f"entry {linked.entry.seq} of a segment does not follow the one before it"
                )
            self.apply(linked)

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Remember what makes this replica unable to serve."""
        try:
            return await work
        except (CorruptNamespace, UpgradeRequired) as error:
            raise self._refuse(error) from error

    def _refuse(self, error: RelayerError) -> RelayerError:
        self._refusal = error
        return error

    async def catch_up(self) -> Position:
        """Apply everything that was in the log when this was called, and return where that leads.

        Concurrent callers share the reads.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed: the namespace cannot be served.
            StoreError: the store did not answer; what was applied stays.
        """
        self.refuse_if_broken()
        await self._flight.run()
        return self.state.position

    async def _follow(self) -> None:
        asked = self._ahead.began if self._ahead.waiting else self._clock.monotonic()
        if self._restart_wanted or self._load_wanted:
            await self._load()
        # The first read asks for one slot: a replica that is warm finds it absent and is done.
        count = 1
        for _ in range(_RELOADS):
            while True:
                start = self.state.next_seq
                tail = await self.slots.read(start, count)
                self.store_time = tail.times[-1]
                if not await self.vouched(start, tail.times):
                    break
                await self._apply_tail(tail)
                if tail.ended:
                    self.seen_at = self._clock.monotonic()
                    self._followed_from = asked
                    return
                count = AT_ONCE
            await self._load()
        raise CorruptNamespace("the watermark stays above what the manifest leads to")

    async def vouched(self, start: int, times: Sequence[int]) -> bool:
        """Whether no slot from ``start`` on can have been collected before the answers given at ``times``.

        A reader asks about the position where its tail started (I4), a writer about the slot it made, after making it
        (I3): up to the watermark, a name that is free or taken says nothing.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `ManifestView.read`.
        """
        if not all(self.manifest.recently_validated(time) for time in (min(times), max(times))):
            await self.manifest.read()
        return self.manifest.watermark < start

    async def _apply_tail(self, tail: Tail) -> None:
        budget = _SLICE_BYTES
        for slot in tail.slots:
            if budget <= 0:
                await asyncio.sleep(0)
                budget = _SLICE_BYTES
            budget -= len(slot.data)
            if slot.seq < self.state.next_seq:
                continue  # the committer wrote it meanwhile and has applied it
            linked = await self._linked(slot)
            if linked is not None:
                self.apply(linked)

    async def _linked(self, slot: FoundSlot) -> LinkedEntry | None:
        position = self.state.position
        linked = await self._guarded(self.slots.link(slot, position))
        return linked if self.state.position == position else None

    def apply(self, linked: LinkedEntry) -> list[Applied]:
        """Take the next entry of the chain and tell the projections, in one step of the event loop.

        Returns what became of its operations, in their order.

        Raises:
            UpgradeRequired: it holds an operation of a newer version; the state is unchanged (I12).
            CorruptNamespace: a projection could not follow.
        """
        try:
            applied = self.state.apply(linked.entry, linked.digest)
        except UpgradeRequired as error:
            self._refuse(error)
            raise
        self._digests.append(self.state.position)
        self._sizes.append(linked.size)
        self._tell(applied)
        return applied

    def keep_written(self, linked: LinkedEntry) -> None:
        """Keep an applied entry that this process wrote, until it is in a segment or a minute is over."""
        self._written[linked.entry.seq] = linked, self._clock.monotonic()
        self._written_bytes += linked.size
        self.tidy_written()

    def written(self, after: Position) -> LinkedEntry | None:
        """Return the entry that follows a position, if this process wrote it just now."""
        linked, _ = self._written.get(after.seq + 1, (None, 0.0))
        return linked if linked is not None and linked.entry.previous == after.digest else None

    def tidy_written(self) -> None:
        """Let go of entries that are in a segment, too old or too many."""
        oldest, end = self._clock.monotonic() - _WRITTEN_SECONDS, self.manifest.snap_seq
        while self._written:
            seq, (linked, at) = next(iter(self._written.items()))
            if seq > end and at >= oldest and self._written_bytes <= _WRITTEN_BYTES:
                return
            del self._written[seq]
            self._written_bytes -= linked.size

    def _tell(self, applied: list[Applied]) -> None:
        try:
            for on_applied, _ in self._subscribers:
                on_applied(applied)
        except Exception as error:  # whatever it is, what was acknowledged could not be recalled
            self._refusal = CorruptNamespace(
                "a projection of the log could not follow it; it must be reloaded"
            )
            raise self._refusal from error

    @property
    def broken(self) -> bool:
        """Whether this replica refuses to serve until a `reload`."""
        return self._refusal is not None

    def refuse_if_broken(self) -> None:
        """Raise what made this replica unable to serve or append, if anything did."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def digest_at(self, seq: int) -> bytes | None:
        """Return the digest of a slot, if it is among the last 4,096."""
        back = self.state.position.seq - seq
        return self._digests[-1 - back].digest if 0 <= back < len(self._digests) else None

    def positions(self) -> list[Position]:
        """Return the last positions that are known, oldest first, at most 4,096."""
        return list(self._digests)

    def bytes_after(self, seq: int) -> int:
        """Return the stored size of the applied entries above ``seq``, as far as they are among the last 4,096."""
        count = self.state.position.seq - seq
        return sum(islice(reversed(self._sizes), max(0, count)))

    def _has_followed(self, since: float | None) -> bool:
        return since is not None and self._followed_from is not None and self._followed_from > since

    async def read(
        self,
        consistency: Consistency,
        min_position: Position | None = None,
        since: float | None = None,
    ) -> Position:
        """Make the state as fresh as asked and return where it stands.

        Args:
            consistency: ``STRONG`` sees everything acknowledged anywhere before this call; ``MINE`` everything up to
                ``min_position``; ``ANY`` what is there.
            min_position: what the caller remembers.
            since: when the caller was asked, by the clock's `monotonic`: ``STRONG`` then sees everything acknowledged
                before that, and reads nothing if the log was followed in the meantime, as it was to open it.

        Raises:
            RollbackDetected: ``min_position`` is above the log's head, or another entry is in its place.
            PositionUnknown: ``min_position`` is older than what is kept.
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `catch_up`.
        """
        self.refuse_if_broken()
        behind = min_position is not None and min_position.seq > self.state.position.seq
        if consistency is Consistency.STRONG or (consistency is Consistency.MINE and behind):
            if not self._has_followed(since):
                await self.catch_up()
        elif behind:
            return self.state.position
        if min_position is not None:
            self._check(min_position)
        return self.state.position

    def _check(self, remembered: Position) -> None:
        if remembered.seq > self.state.position.seq:
            raise RollbackDetected("the log ends before a position that was seen in it")
        digest = self.digest_at(remembered.seq)
        if digest is None:
            raise PositionUnknown(self.state.position)
        if digest != remembered.digest:
            raise RollbackDetected("the log holds another entry at a position that was seen in it")


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
