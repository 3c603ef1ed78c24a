"""The repair command: replace damaged parts of a log by what can be recovered, and keep copies of the damaged objects.

`repair_namespace` walks a log, rebuilds damaged segments and missing entries from slots and from what is left of segments, and
writes a manifest that names the result. A lost entry is replaced by an empty one. A lost manifest is rebuilt from the segments
(`_anew`). Damaged objects are copied to quarantine before anything is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from relayer.domain.bodies import take_out
from relayer.domain.namespace import MANIFEST_FORMAT, Manifest, SegmentRow, genesis
from relayer.domain.operations import ENTRY_VERSION, Entry
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ObjectSealer, SeenManifest, Slots
from relayer.log.segments import PackBuilder, Segments, open_pack, pack_place, salvage_pack
from relayer.operator.catalogue import Defect, Flaw, Listed, sound, walk_log
from relayer.ports import Created, Exists, Found, Swapped
from relayer.wire import codec as ulid
from relayer.wire.codec import lp

PREFIX = "quarantine/"
_FULL_BYTES = 16 * 1024 * 1024


async def quarantine(ports: LogPorts, keys: Sequence[str], now_ms: int) -> list[str]:
    """Copy objects below `PREFIX`, and return the keys of those that existed. The originals are not changed."""
    name = ulid.render(ulid.make(now_ms, ports.randomness.bytes(10)))
    copied = []
    for key in keys:
        found = await ports.get(key)
        if found is None:
            continue
        outcome = await ports.store.create(f"{PREFIX}{name}/{key}", found.data)
        if not isinstance(outcome, Created | Exists):
            raise StoreUnavailable("a damaged object could not be copied to quarantine; nothing was changed")
        copied.append(key)
    return copied


async def _anew(ports: LogPorts, account: str, incarnation: bytes) -> SeenManifest:
    """Return a manifest to replace a lost one, which names segments that cover the log from its first entry on.

    The watermark is set to the end of the segments, and the count of its moves (``gc_epoch``) to a number above any that counting
    can have reached, because replicas reject a manifest in which either has decreased.
    """
    found = await ports.store.get(Layout.manifest(incarnation))
    rows, last = await _cover(ports, account, incarnation)
    snap_seq = rows[-1].last_seq if rows else 0
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        segments=tuple(rows),
        snap_seq=snap_seq,
        chain_digest=last,
        gc_watermark=snap_seq,
        gc_epoch=found.store_time // 1000 if snap_seq else 0,
        live_count=sum(row.live for row in rows),
        live_bytes=sum(row.size for row in rows),
    )
    return SeenManifest(manifest, found.etag if isinstance(found, Found) else "", found.store_time)


async def _cover(ports: LogPorts, account: str, incarnation: bytes) -> tuple[list[SegmentRow], bytes]:
    """Return segments that hold each entry once, preferring longer ones, and the digest of the last entry.

    A lost segment leaves a gap between them. The repair of entries closes it, so that later segments are not lost.
    """
    known: dict[int, tuple[SegmentRow, bytes]] = {}
    for key in await ports.keys_below(Layout.segments(incarnation)):
        read = await _read(ports, account, incarnation, key)
        if read is not None:
            other = known.get(read[0].first_seq, read)
            known[read[0].first_seq] = max(other, read, key=lambda item: item[0].last_seq)
    rows: list[SegmentRow] = []
    digest = genesis(incarnation)
    for first in sorted(known):
        if not rows or first > rows[-1].last_seq:
            row, digest = known[first]
            rows.append(row)
    return rows, digest


async def _read(
    ports: LogPorts, account: str, incarnation: bytes, key: str
) -> tuple[SegmentRow, bytes] | None:
    """Return a manifest's row for a segment, and the digest of its last entry; None if it cannot be read from end to end."""
    found = await ports.get(key)
    try:
        place = pack_place(ObjectSealer(ports), account, incarnation, key)
        entries = list(open_pack(found.data, place)) if found else []
    except CorruptNamespace:
        return None
    if not found or not entries:
        return None
    live = sum(any(body for _, body in take_out(raw)[1]) for item in entries for raw in item.entry.operations)
    first, last = entries[0].entry.seq, entries[-1].entry.seq
    digest = hashlib.sha256(found.data).digest()
    return SegmentRow(first, last, key, digest, len(found.data), live), entries[-1].digest


@dataclass(frozen=True, slots=True)
class Replacement:
    """A range of entries that is written to new segments.

    Attributes:
        from_slots: number of entries that were read from their slots.
        salvaged: number of entries that were recovered from what is left of a segment; their texts may be damaged.
        lost: sequence numbers of the entries that could not be found.
    """

    first_seq: int
    last_seq: int
    from_slots: int
    salvaged: int
    lost: tuple[int, ...]


@dataclass(slots=True)
class Repair:
    """The planned or completed repair of one namespace.

    Attributes:
        manifest_rebuilt: whether the manifest had to be rebuilt.
        mendings: the ranges of entries that are written again, in order.
        quarantined: keys of damaged objects that were copied to quarantine.
    """

    ALSO = ("lost_entries",)

    listed: Listed
    findings: list[Defect] = field(default_factory=list)
    manifest_rebuilt: bool = False
    mendings: list[Replacement] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    done: bool = False

    @property
    def needed(self) -> bool:
        """Return whether anything would be changed."""
        return self.manifest_rebuilt or bool(self.mendings)

    @property
    def hopeless(self) -> bool:
        """Return whether an object was written by a newer version of memrelay, so that this one cannot repair the namespace."""
        return any(finding.flaw is Flaw.NEWER for finding in self.findings)

    @property
    def lost_entries(self) -> list[int]:
        """Sequence numbers of the entries that could not be found."""
        return [seq for mending in self.mendings for seq in mending.lost]


async def repair_namespace(ports: LogPorts, listed: Listed, *, apply: bool) -> Repair:
    """Plan the repair of a namespace, and carry it out if ``apply`` is set. No relayer may write to it meanwhile."""
    repair = Repair(listed)
    await _Repairer(ports, listed, repair, apply=apply).run()
    return repair


class _Repairer:
    def __init__(self, ports: LogPorts, listed: Listed, repair: Repair, *, apply: bool) -> None:
        self._ports = ports
        self._log = ports, listed.account, listed.incarnation
        self._repair = repair
        self._apply = apply
        self._slots = Slots(*self._log)
        self._segments = Segments(*self._log)
        # For each entry that was read or replaced: its digest, the digest that it links to, and its time in ms.
        self._digests: dict[int, bytes] = {0: genesis(listed.incarnation)}
        self._previous: dict[int, bytes] = {}
        self._times: dict[int, int] = {}

    async def run(self) -> None:
        """Write new segments in place of damaged ones, and then the manifest, in one write."""
        walk = await walk_log(*self._log, lambda: self._note)
        seen, found = walk.seen, walk.findings
        self._repair.findings += found
        if seen is None and not sound(found) and not self._repair.hopeless:
            self._repair.manifest_rebuilt = True
            seen = await _anew(*self._log)
            found = (await walk_log(*self._log, lambda: self._note, seen.manifest)).findings
            self._repair.findings += found
        if seen is None or self._repair.hopeless:
            return
        damaged = {item.key for item in found if not item.flaw.harmless}
        rows = await self._mend(seen, found, damaged)
        if self._repair.needed and self._apply:
            await self._name(seen, rows, damaged)
        self._repair.done = self._apply

    def _note(self, linked: LinkedEntry) -> None:
        seq = linked.entry.seq
        self._digests[seq], self._previous[seq] = linked.digest, linked.entry.previous
        self._times[seq] = linked.entry.time

    async def _mend(
        self, seen: SeenManifest, findings: Sequence[Defect], damaged: set[str]
    ) -> list[SegmentRow]:
        """Return the rows of a manifest without damage. The new segments are uploaded if the repair is to be applied."""
        manifest, now_ms = seen.manifest, seen.store_time
        rows: list[SegmentRow] = []
        covered = 0
        for row, following in zip_longest(manifest.segments, manifest.segments[1:]):
            if row.first_seq > covered + 1:
                begins = self._previous.get(row.first_seq)
                rows += await self._rebuild(covered + 1, row.first_seq - 1, None, begins, now_ms)
            covered = row.last_seq
            if row.key not in damaged:
                rows.append(row)
                continue
            # The entry after a segment links to the last entry of the segment.
            link = self._previous.get(following.first_seq) if following else manifest.chain_digest
            rows += await self._rebuild(row.first_seq, row.last_seq, row, link, now_ms)
        first = manifest.snap_seq + 1
        last = max((item.last_seq for item in findings if item.first_seq >= first), default=0)
        if last:
            rows += await self._rebuild(first, last, None, self._previous.get(last + 1), now_ms)
        return rows

    async def _salvage(self, row: SegmentRow) -> dict[int, LinkedEntry]:
        """Return what is left of a damaged segment, by sequence number."""
        found = await self._ports.get(row.key)
        place = pack_place(ObjectSealer(self._ports), *self._log[1:], row.key)
        left = salvage_pack(found.data, row.size, place) if found else ()
        return {linked.entry.seq: linked for linked in left}

    async def _rebuild(
        self, first: int, last: int, old: SegmentRow | None, ends_with: bytes | None, now_ms: int
    ) -> list[SegmentRow]:
        salvaged = await self._salvage(old) if old is not None else {}
        lost: list[int] = []
        from_slots = 0
        rows: list[SegmentRow] = []
        builder, begins = PackBuilder(), first
        for seq in range(first, last + 1):
            try:
                stored = await self._slots.read_alone(seq)
            except CorruptNamespace:
                stored = None
            from_slots += stored is not None
            linked = stored[1] if stored is not None else salvaged.get(seq)
            lost += [] if linked else [seq]
            digest = ends_with if seq == last else None
            previous = self._digests[seq - 1]
            time = max(self._times.get(seq - 1, 0), 0 if linked is None else linked.entry.time)
            if linked is None:
                entry = Entry(ENTRY_VERSION, seq, previous, b"", b"", time, ())
                # If no entry links to a lost one, repeated repairs give it the same digest.
                lost_digest = hashlib.sha256(lp("memrelay/v1/lost", self._log[2], seq)).digest()
                own = digest or self._previous.get(seq + 1) or lost_digest
            else:
                entry = msgspec.structs.replace(linked.entry, previous=previous, time=time)
                own = digest or linked.digest
            self._digests[seq], self._times[seq] = own, time
            linked = LinkedEntry(entry, own)
            builder.add(linked, linked.entry.operations)
            if builder.size >= _FULL_BYTES or seq == last:
                if self._apply:
                    row = await self._segments.upload(builder, begins, now_ms)
                    if row is None:
                        raise StoreUnavailable(
                            "a rebuilt segment could not be stored; running repair again is safe"
                        )
                    rows.append(row)
                builder, begins = PackBuilder(), seq + 1
        from_segment = last - first + 1 - from_slots - len(lost)
        self._repair.mendings.append(Replacement(first, last, from_slots, from_segment, tuple(lost)))
        return rows

    async def _name(self, seen: SeenManifest, rows: list[SegmentRow], damaged: set[str]) -> None:
        """Copy damaged objects to quarantine, write the manifest, and delete the damaged segments that it no longer names."""
        old, key = seen.manifest, Layout.manifest(self._log[2])
        doomed = damaged | ({key} if self._repair.manifest_rebuilt else set())
        self._repair.quarantined = await quarantine(self._ports, sorted(doomed), seen.store_time)
        snap_seq = rows[-1].last_seq if rows else 0
        new = msgspec.structs.replace(
            old,
            segments=tuple(rows),
            snap_seq=snap_seq,
            chain_digest=self._digests[snap_seq],
            live_count=sum(row.live for row in rows),
            live_bytes=sum(row.size for row in rows),
            last_time=max(old.last_time, self._times.get(snap_seq, 0)),
            index_key="",
            index_seq=0,
            index_model="",
        )
        store = self._ports.store
        sealed = ObjectSealer(self._ports).seal_manifest(*self._log[1:], key, new)
        write = store.swap(key, sealed, seen.etag) if seen.etag else store.create(key, sealed)
        if not isinstance(await write, Swapped | Created):
            raise StoreUnavailable(
                "the manifest changed meanwhile, or the store did not say; stop the relayers and run repair again"
            )
        for row in old.segments:
            if row.key in damaged:
                await store.delete(row.key)
