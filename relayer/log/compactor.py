"""Compaction: turns the tail of a log into segments, and merges small segments into larger ones.

Any replica may compact, at any time, without a namespace's key, because bodies are moved as they are sealed. A compactor
reads the manifest, uploads a segment under a new key, and swaps the manifest if it is still the one that it read **before**
the upload. If two compactors do the same work, only one of the two segments is named. A compactor never deletes anything:
objects without a reference are deleted by the collector (I9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import msgspec

from relayer.domain.bodies import reduce
from relayer.domain.namespace import LogPosition, Manifest, SegmentRow
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace
from relayer.log.objects import LinkedEntry, LogPorts, SeenManifest
from relayer.log.replica import Replica
from relayer.log.segments import PackBuilder


def plan_merge(sizes: Sequence[int], *, most_small: int, full: int) -> tuple[int, int] | None:
    """Choose adjacent segments to merge into one.

    Args:
        sizes: the sizes of the segments in bytes, in order.
        most_small: the maximum number of adjacent pairs that would fit into one segment and are left unmerged.
        full: the maximum size of a merged segment in bytes.

    Returns:
        The run ``[start, end)`` to merge, at least two segments; None if there is no need.
    """
    fitting = sum(left + right <= full for left, right in pairwise(sizes))
    if fitting <= most_small:
        return None
    return min(_runs(sizes, full))[1:]


def _runs(sizes: Sequence[int], full: int) -> list[tuple[float, int, int]]:
    """Return every run that fits, with its cost: the bytes to write divided by the square of the number of rows saved."""
    runs = []
    for start in range(len(sizes)):
        total = sizes[start]
        for end in range(start + 2, len(sizes) + 1):
            total += sizes[end - 1]
            if total > full:
                break
            runs.append((total / (end - start - 1) ** 2, start, end))
    return runs


# A small number, because requests use the store at the same time.
_SLOTS_AT_ONCE = 4
_TURN_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The thresholds above which a log is compacted, and the maximum size of a segment.

    Attributes:
        entries: the tail becomes a segment when it has this many entries,
        bytes: or this many stored bytes.
        full_bytes: the maximum size of a segment in bytes; one with a single entry may be larger.
        most_small: see `plan_merge`.
    """

    entries: int = 64
    bytes: int = 4 * 1024 * 1024
    full_bytes: int = 16 * 1024 * 1024
    most_small: int = 16


class Work(Enum):
    """The kind of a compaction: of the tail, or a merge of segments."""

    TAIL = "tail"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction.

    Attributes:
        written: the number of bytes uploaded.
        won: whether the manifest names the new segment; if not, another compactor was first, or the upload is not certain.
    """

    work: Work
    written: int
    won: bool


class Compactor:
    """The compactor of the log that ``replica`` follows. Only one run at a time is allowed."""

    def __init__(self, ports: LogPorts, replica: Replica, limits: CompactionLimits | None = None) -> None:
        self._ports = ports
        self._replica = replica
        self._limits = limits or CompactionLimits()

    @property
    def due(self) -> bool:
        """Return whether the tail is long enough to be compacted, as far as this process knows, without any I/O."""
        return not self._replica.broken and self._tail_is_long(self._replica.manifest.snap_seq)

    def _tail_is_long(self, snap_seq: int) -> bool:
        replica = self._replica
        return (
            replica.state.position.seq - snap_seq >= self._limits.entries
            or replica.bytes_after(snap_seq) >= self._limits.bytes
        )

    async def run(self) -> Compaction | None:
        """Write one segment from the tail or from other segments, if needed.

        Returns:
            The result; None if there is nothing to compact, or if this replica cannot do it now.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: nothing was changed, or it is not known
                whether; running again is safe.
        """
        self._replica.refuse_if_broken()
        # All further steps use this state and this manifest. A reload creates another state object, so this one stays
        # consistent; the swap checks that the manifest has not changed.
        state = self._replica.state
        seen = await self._replica.manifest.see()
        manifest = seen.manifest
        if state.position.seq < manifest.snap_seq:
            return None  # others have compacted more than this replica has applied; it catches up at the next request
        if self._replica.digest_at(manifest.snap_seq) not in {manifest.chain_digest, None}:
            raise CorruptNamespace("the manifest belongs to another log than its entries")
        if self._tail_is_long(manifest.snap_seq):
            return await self._compact_tail(state, seen)
        rows = seen.manifest.segments
        limits = self._limits
        plan = plan_merge([row.size for row in rows], most_small=limits.most_small, full=limits.full_bytes)
        return None if plan is None else await self.rewrite(state, seen, *plan)

    async def _compact_tail(self, state: NamespaceState, seen: SeenManifest) -> Compaction | None:
        manifest = seen.manifest
        builder = PackBuilder()
        start, known = LogPosition(manifest.snap_seq, manifest.chain_digest), state.position.seq
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
        self, state: NamespaceState, start: LogPosition, builder: PackBuilder
    ) -> LinkedEntry | None:
        """Add the slots after ``start`` to a segment; return the last of them, or None if they were collected meanwhile.

        Entries that this process wrote recently are in memory, and only the others are read. Reading costs the store as much
        as a write: the directory store syncs a new file name before it returns the file to a reader.
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
                position, last = LogPosition(linked.entry.seq, linked.digest), linked
                await asyncio.sleep(0)
        return last

    async def _read_some(self, after: LogPosition, end: int) -> list[LinkedEntry] | None:
        """Read a few slots after a position, up to ``end``; None if they were collected meanwhile."""
        count = min(_SLOTS_AT_ONCE, end - after.seq)
        tail = await self._replica.slots.read(after.seq + 1, count)
        # After a long pause the slots may have been collected, and written again by a writer that had paused too (I4).
        if len(tail.slots) < count or not await self._replica.vouched(after.seq + 1, tail.times):
            return None
        found = []
        for slot in tail.slots:
            found.append(await self._replica.slots.link(slot, after))
            after = LogPosition(found[-1].entry.seq, found[-1].digest)
        return found

    async def rewrite(
        self, state: NamespaceState, seen: SeenManifest, start: int, end: int
    ) -> Compaction | None:
        """Replace the manifest's segments ``[start, end)`` with one that has only the bodies that ``state`` still needs.

        Returns:
            The result; None if one of the segments is absent, because another relayer has replaced it.
        """
        manifest, known = seen.manifest, state.position.seq
        old = manifest.segments[start:end]
        builder = PackBuilder()
        for replaced in old:
            segment = await self._replica.segments.read(replaced)
            if segment is None:
                return None
            budget = _TURN_BYTES
            for linked in segment.entries():
                before = builder.size
                _add(builder, linked, state)
                budget -= builder.size - before
                if budget <= 0:
                    await asyncio.sleep(0)
                    budget = _TURN_BYTES
        row = await self._replica.segments.upload(builder, old[0].first_seq, seen.store_time, known)
        if row is None:
            return Compaction(Work.MERGE, builder.size, won=False)
        rows = (*manifest.segments[:start], row, *manifest.segments[end:])
        return Compaction(Work.MERGE, row.size, won=await self._name(seen, _with_rows(manifest, rows), row))

    async def _name(self, seen: SeenManifest, new: Manifest, row: SegmentRow) -> bool:
        # If another relayer has already merged the named segment again, this reports it as lost. That is harmless, because
        # nothing is deleted here.
        return await self._replica.manifest.settle(
            seen, new, lambda now: any(item.key == row.key for item in now.segments)
        )


def _add(builder: PackBuilder, linked: LinkedEntry, state: NamespaceState) -> None:
    entry = linked.entry
    builder.add(linked, [reduce(raw, entry.seq, state) for raw in entry.operations])


def _with_rows(manifest: Manifest, rows: Sequence[SegmentRow]) -> Manifest:
    return msgspec.structs.replace(
        manifest,
        segments=tuple(rows),
        live_count=sum(row.live for row in rows),
        live_bytes=sum(row.size for row in rows),
    )
