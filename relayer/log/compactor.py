"""Turns the tail of a log into segments, and small segments into larger ones.

Any replica may do it, at any time, without a namespace's key: bodies are moved as they are sealed. It reads the manifest,
uploads under a fresh name, and swaps the manifest if that is still the one that it read **before** the upload; two that
do the same work end with one of them named. It never deletes anything: what no manifest names is the collector's (I9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import msgspec

from relayer.domain.bodies import reduce
from relayer.domain.namespace import Manifest, Position, SegmentRow
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace
from relayer.log.objects import LinkedEntry, LogPorts, SeenManifest
from relayer.log.replica import Replica
from relayer.log.segments import PackBuilder, Segment


def plan_merge(sizes: Sequence[int], *, most_small: int, full: int) -> tuple[int, int] | None:
    """Choose adjacent segments to merge into one.

    Args:
        sizes: bytes of the segments, in order.
        most_small: pairs of neighbours that would fit one segment and may stay apart.
        full: bytes that a merged segment has at most.

    Returns:
        The run ``[start, end)`` to merge, at least two segments; None while there is no need.
    """
    fitting = sum(left + right <= full for left, right in pairwise(sizes))
    if fitting <= most_small:
        return None
    return min(_runs(sizes, full))[1:]


def _runs(sizes: Sequence[int], full: int) -> list[tuple[float, int, int]]:
    """Return every run that fits with its cost: bytes to write over the square of the rows saved."""
    runs = []
    for start in range(len(sizes)):
        total = sizes[start]
        for end in range(start + 2, len(sizes) + 1):
            total += sizes[end - 1]
            if total > full:
                break
            runs.append((total / (end - start - 1) ** 2, start, end))
    return runs


# Few, because requests want the store as well.
_SLOTS_AT_ONCE = 4
_TURN_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When there is work, and how much is done at once.

    Attributes:
        entries: the tail becomes a segment when it has so many entries,
        bytes: or so many stored bytes.
        full_bytes: size that no merge exceeds; a single entry may.
        most_small: see `plan_merge`.
    """

    entries: int = 64
    bytes: int = 4 * 1024 * 1024
    full_bytes: int = 16 * 1024 * 1024
    most_small: int = 16


class Work(Enum):
    """What a compaction did."""

    TAIL = "tail"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was uploaded, and whether the manifest names it: if not, somebody else was first."""

    work: Work
    written: int
    won: bool


class Compactor:
    """Compacts the log that ``replica`` follows; one run at a time."""

    def __init__(self, ports: LogPorts, replica: Replica, limits: CompactionLimits | None = None) -> None:
        self._ports = ports
        self._replica = replica
        self._limits = limits or CompactionLimits()

    @property
    def due(self) -> bool:
        """Whether the tail is long enough, as far as this process knows; costs nothing."""
        return not self._replica.broken and self._tail_is_long(self._replica.manifest.snap_seq)

    def _tail_is_long(self, snap_seq: int) -> bool:
        replica = self._replica
        return (
            replica.state.position.seq - snap_seq >= self._limits.entries
            or replica.bytes_after(snap_seq) >= self._limits.bytes
        )

    async def run(self) -> Compaction | None:
        """Make one segment, of the tail or of others, if there is need; None if there is none, or not from here.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: nothing was changed, or it is not known
                whether; running again is safe.
        """
        self._replica.refuse_if_broken()
        # All that follows is decided by this state and this manifest: a reload replaces the one, the swap checks the other.
        state = self._replica.state
        seen = await self._replica.manifest.see()
        manifest = seen.manifest
        if state.position.seq < manifest.snap_seq:
            return None  # others have compacted more than this replica knows; it catches up when it is asked
        if self._replica.digest_at(manifest.snap_seq) not in {manifest.chain_digest, None}:
            raise CorruptNamespace("the manifest belongs to another log than its entries")
        if self._tail_is_long(manifest.snap_seq):
            return await self._compact_tail(state, seen)
        return await self._merge(state, seen)

    async def _compact_tail(self, state: NamespaceState, seen: SeenManifest) -> Compaction | None:
        manifest = seen.manifest
        builder = PackBuilder()
        start, known = Position(manifest.snap_seq, manifest.chain_digest), state.position.seq
        last = await self._read_tail(state, start, builder)
        if last is None:
            return None
        row = await self._replica.segments.upload(builder, start.seq + 1, seen.store_time, known)
        if row is None:
            return Compaction(Work.TAIL, builder.size, won=False)
        new = msgspec.structs.replace(
            _with_rows(manifest, (*manifest.segments, row)),
            snap_seq=row.last_seq,
            chain_digest=last.digest,
            last_time=last.entry.time,
        )
        return Compaction(Work.TAIL, row.size, won=await self._name(seen, new, row))

    async def _read_tail(
        self, state: NamespaceState, start: Position, builder: PackBuilder
    ) -> LinkedEntry | None:
        """Build a segment of the slots after ``start``; None if they were collected meanwhile.

        What this process wrote just now is known; what is not is read again. Reading costs the store as much as a write does:
        a directory syncs a young name for whoever reads it.
        """
        end, position, last = state.position.seq, start, None
        while position.seq < end and builder.size < self._limits.full_bytes:
            written = self._replica.written(position)
            linked_ones = [written] if written is not None else await self._read_some(position, end)
            if linked_ones is None:
                return None
            for linked in linked_ones:
                if builder.count and builder.size + linked.size > self._limits.full_bytes:
                    return last
                _add(builder, linked, state)
                position, last = Position(linked.entry.seq, linked.digest), linked
                await asyncio.sleep(0)
        return last

    async def _read_some(self, after: Position, end: int) -> list[LinkedEntry] | None:
        """Read some slots after a position, up to ``end``; None if they were collected meanwhile."""
        count = min(_SLOTS_AT_ONCE, end - after.seq)
        tail = await self._replica.slots.read(after.seq + 1, count)
        # After a long pause the slots may be collected, and taken anew by a writer that paused, too (I4).
        if len(tail.slots) < count or not await self._replica.vouched(after.seq + 1, tail.times):
            return None
        found = []
        for slot in tail.slots:
            found.append(await self._replica.slots.link(slot, after))
            after = Position(found[-1].entry.seq, found[-1].digest)
        return found

    async def _merge(self, state: NamespaceState, seen: SeenManifest) -> Compaction | None:
        """Merge what the plan says, if anything."""
        rows = seen.manifest.segments
        limits = self._limits
        plan = plan_merge([row.size for row in rows], most_small=limits.most_small, full=limits.full_bytes)
        return None if plan is None else await self.rewrite(state, seen, *plan)

    async def rewrite(
        self, state: NamespaceState, seen: SeenManifest, start: int, end: int
    ) -> Compaction | None:
        """Replace the manifest's segments ``[start, end)`` by one that holds what ``state`` still needs of them.

        None if one is absent, because somebody else has replaced it.
        """
        manifest, known = seen.manifest, state.position.seq
        old = manifest.segments[start:end]
        builder = PackBuilder()
        for replaced in old:
            segment = await self._replica.segments.read(replaced)
            if segment is None:
                return None
            await _add_all(builder, segment, state)
        row = await self._replica.segments.upload(builder, old[0].first_seq, seen.store_time, known)
        if row is None:
            return Compaction(Work.MERGE, builder.size, won=False)
        rows = (*manifest.segments[:start], row, *manifest.segments[end:])
        return Compaction(Work.MERGE, row.size, won=await self._name(seen, _with_rows(manifest, rows), row))

    async def _name(self, seen: SeenManifest, new: Manifest, row: SegmentRow) -> bool:
        # Named and merged again by somebody else counts as lost, which is harmless: nothing is deleted here.
        return await self._replica.manifest.settle(
            seen, new, lambda now: any(item.key == row.key for item in now.segments)
        )


def _add(builder: PackBuilder, linked: LinkedEntry, state: NamespaceState) -> None:
    entry = linked.entry
    builder.add(linked, [reduce(raw, entry.seq, state) for raw in entry.operations])


async def _add_all(builder: PackBuilder, segment: Segment, state: NamespaceState) -> None:
    budget = _TURN_BYTES
    for linked in segment.entries():
        before = builder.size
        _add(builder, linked, state)
        budget -= builder.size - before
        if budget <= 0:
            await asyncio.sleep(0)
            budget = _TURN_BYTES


def _with_rows(manifest: Manifest, rows: Sequence[SegmentRow]) -> Manifest:
    return msgspec.structs.replace(
        manifest,
        segments=tuple(rows),
        live_count=sum(row.live for row in rows),
        live_bytes=sum(row.size for row in rows),
    )
