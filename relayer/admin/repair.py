"""Repair: replace what is damaged by what can be proved, and keep a copy of what was there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from relayer.admin.catalogue import Finding, Flaw, Listed, keys_below
from relayer.admin.walk import SlotReader, Walk, walk_log
from relayer.domain.bodies import take_out
from relayer.domain.entry import ENTRY_VERSION, Entry
from relayer.domain.namespace import MANIFEST_FORMAT, Manifest, SegmentRow, genesis
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.manifest import ManifestView, SeenManifest
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.segments import PackBuilder, PackPlace, Segments, open_pack, salvage_pack
from relayer.log.slots import LinkedEntry
from relayer.ports import Created, Exists, Found, Swapped
from relayer.wire import codec as ulid
from relayer.wire.codec import lp

PREFIX = "quarantine/"
_ULID_RANDOM = 10


async def quarantine(ports: LogPorts, keys: Sequence[str], now_ms: int) -> list[str]:
    """Copy objects below `PREFIX`; returns the keys of those that were there.

    Raises:
        StoreError: one could not be copied; the originals are untouched.
    """
    name = ulid.render(ulid.make(now_ms, ports.randomness.bytes(_ULID_RANDOM)))
    copied = []
    for key in keys:
        found = await ports.store.get(ports.layout.at(key))
        if not isinstance(found, Found):
            continue
        outcome = await ports.store.create(ports.layout.at(f"{PREFIX}{name}/{key}"), found.data)
        if not isinstance(outcome, Created | Exists):
            raise StoreUnavailable("a damaged object could not be copied to quarantine; nothing was changed")
        copied.append(key)
    return copied


async def rebuild_manifest(ports: LogPorts, account: str, incarnation: bytes, *, apply: bool) -> str:
    """Write a manifest that names the segments which cover the log from its first entry on; returns its key if it was there.

    The watermark goes to the end of the segments, and the count of its moves above any that was ever reached by counting,
    because replicas refuse to see either go back.

    Raises:
        StoreError: the store did not take it; running again is safe.
    """
    key = Layout.manifest(incarnation)
    found = await ports.store.get(ports.layout.at(key))
    there = key if isinstance(found, Found) else ""
    if not apply:
        return there
    rows, last = await _cover(ports, account, incarnation)
    epochs = await keys_below(ports, f"ns/{incarnation.hex()}/keyring/")
    snap_seq = rows[-1].last_seq if rows else 0
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        segments=tuple(rows),
        snap_seq=snap_seq,
        chain_digest=last,
        gc_watermark=snap_seq,
        gc_epoch=found.store_time // 1000 if snap_seq else 0,
        key_epoch=max((int(name.rpartition("/")[2]) for name in epochs), default=1),
        live_count=sum(row.live for row in rows),
        live_bytes=sum(row.size for row in rows),
    )
    sealed = ObjectSealer(ports).seal_manifest(account, incarnation, key, manifest)
    at = ports.layout.at(key)
    if isinstance(found, Found):
        await quarantine(ports, [key], found.store_time)
        written = isinstance(await ports.store.swap(at, sealed, found.etag), Swapped)
    else:
        written = isinstance(await ports.store.create(at, sealed), Created)
    if not written:
        raise StoreUnavailable("the manifest could not be written; running repair again is safe")
    return there


async def _cover(ports: LogPorts, account: str, incarnation: bytes) -> tuple[list[SegmentRow], bytes]:
    """Choose segments that hold each entry once, the longest first, and the digest of the last entry.

    Where one is lost they leave a gap, which is for the repair of entries to close: what is behind it is not lost.
    """
    known: dict[int, tuple[SegmentRow, bytes]] = {}
    for key in await keys_below(ports, Layout.segments(incarnation)):
        read = await _read(ports, account, incarnation, key)
        if read is not None and read[0].last_seq > _last(known.get(read[0].first_seq)):
            known[read[0].first_seq] = read
    rows: list[SegmentRow] = []
    digest = genesis(incarnation)
    for first in sorted(known):
        if not rows or first > rows[-1].last_seq:
            row, digest = known[first]
            rows.append(row)
    return rows, digest


def _last(known: tuple[SegmentRow, bytes] | None) -> int:
    return 0 if known is None else known[0].last_seq


async def _read(
    ports: LogPorts, account: str, incarnation: bytes, key: str
) -> tuple[SegmentRow, bytes] | None:
    """Return the row that would name a segment, and its last entry's digest; None if it does not open from end to end."""
    found = await ports.store.get(ports.layout.at(key))
    if not isinstance(found, Found):
        return None
    try:
        entries = list(open_pack(found.data, PackPlace(ObjectSealer(ports), account, incarnation, key)))
    except CorruptNamespace:
        return None
    if not entries:
        return None
    live = sum(any(body for _, body in take_out(raw)[1]) for item in entries for raw in item.entry.operations)
    digest = hashlib.sha256(found.data).digest()
    first, last = entries[0].entry.seq, entries[-1].entry.seq
    return SegmentRow(first, last, key, digest, len(found.data), live), entries[-1].digest


_FULL_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Replacement:
    """A run of entries that a new segment holds, and where it has them from.

    Attributes:
        lost: numbers of the entries that are nowhere.
        from_slots: how many were read from their slots,
        salvaged: and how many from what is left of a segment; their texts may be damaged.
    """

    first_seq: int
    last_seq: int
    lost: tuple[int, ...]
    from_slots: int
    salvaged: int


@dataclass(slots=True)
class Repair:
    """What is to be done in one namespace, or was.

    Attributes:
        findings: what is wrong.
        hopeless: what of it only a backup can mend.
        manifest_rebuilt: whether the manifest had to be made anew.
        mendings: runs of entries, in order.
        quarantined: keys of damaged objects.
        done: whether it was carried out.
    """

    listed: Listed
    findings: list[Finding] = field(default_factory=list)
    hopeless: list[Finding] = field(default_factory=list)
    manifest_rebuilt: bool = False
    mendings: list[Replacement] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    done: bool = False

    @property
    def needed(self) -> bool:
        """Whether anything would be changed."""
        return self.manifest_rebuilt or bool(self.mendings)

    @property
    def lost(self) -> list[int]:
        """Numbers of the entries that are nowhere."""
        return [seq for mending in self.mendings for seq in mending.lost]


async def repair_namespace(ports: LogPorts, listed: Listed, *, apply: bool) -> Repair:
    """Plan the repair of a namespace, and carry it out if ``apply`` is set. No relayer may write to it meanwhile.

    Raises:
        StoreError: the store did not answer; running again is safe.
    """
    repair = Repair(listed)
    worker = _Repairer(ports, listed, repair, apply=apply)
    if await worker.mend_manifest():
        await worker.mend_entries()
        repair.done = apply
    return repair


class _Repairer:
    def __init__(self, ports: LogPorts, listed: Listed, repair: Repair, *, apply: bool) -> None:
        self._ports = ports
        self._account, self._incarnation = listed.account, listed.incarnation
        self._repair = repair
        self._apply = apply
        self._slots = SlotReader(ports, self._account, self._incarnation)
        self._segments = Segments(ports, self._account, self._incarnation)
        self._sealer = ObjectSealer(ports)
        self._digests: dict[int, bytes] = {0: genesis(self._incarnation)}
        self._previous: dict[int, bytes] = {}
        self._times: dict[int, int] = {}

    async def mend_manifest(self) -> bool:
        """See to the manifest; False if nothing behind it can be mended now."""
        walk = await self._walk()
        if walk.seen is None and walk.findings and not walk.findings[0].flaw.harmless:
            if walk.findings[0].flaw is Flaw.NEWER:
                return False
            self._repair.manifest_rebuilt = True
            manifest = await rebuild_manifest(
                self._ports, self._account, self._incarnation, apply=self._apply
            )
            self._repair.quarantined += [manifest] if manifest else []
            return self._apply
        return walk.seen is not None

    async def _walk(self) -> Walk:
        walk = await walk_log(self._ports, self._account, self._incarnation, lambda: self._note)
        self._repair.findings += [item for item in walk.findings if item not in self._repair.findings]
        self._repair.hopeless = [item for item in walk.findings if item.flaw is Flaw.NEWER]
        return walk

    def _note(self, linked: LinkedEntry) -> None:
        seq = linked.entry.seq
        self._digests[seq], self._previous[seq] = linked.digest, linked.entry.previous
        self._times[seq] = linked.entry.time

    async def mend_entries(self) -> None:
        """Replace what is damaged by new segments, in one swap of the manifest."""
        walk = await self._walk()
        seen = walk.seen
        if seen is None or self._repair.hopeless:
            return
        manifest = seen.manifest
        damaged = {item.key for item in walk.findings if not item.flaw.harmless}
        rows: list[SegmentRow] = []
        covered = 0
        for row, following in zip_longest(manifest.segments, manifest.segments[1:]):
            if row.first_seq > covered + 1:
                begins = self._previous.get(row.first_seq)
                rows += await self._rebuild(covered + 1, row.first_seq - 1, None, begins, seen.store_time)
            covered = row.last_seq
            if row.key not in damaged:
                rows.append(row)
                continue
            ends_with = self._link_of(following, manifest)
            rows += await self._rebuild(row.first_seq, row.last_seq, row, ends_with, seen.store_time)
        last = max((item.last_seq for item in walk.findings if item.first_seq > manifest.snap_seq), default=0)
        if last:
            first = manifest.snap_seq + 1
            rows += await self._rebuild(first, last, None, self._previous.get(last + 1), seen.store_time)
        if self._repair.mendings and self._apply:
            await self._name(seen, rows, damaged)

    def _link_of(self, following: SegmentRow | None, manifest: Manifest) -> bytes | None:
        """Return the digest that what follows a segment links to, if that is known."""
        if following is None:
            return manifest.chain_digest
        return self._previous.get(following.first_seq)

    async def _rebuild(
        self, first: int, last: int, old: SegmentRow | None, ends_with: bytes | None, now_ms: int
    ) -> list[SegmentRow]:
        salvaged = await self._salvage(old) if old is not None else {}
        lost: list[int] = []
        counts = {"slots": 0, "salvaged": 0}
        rows: list[SegmentRow] = []
        builder, begins = PackBuilder(), first
        for seq in range(first, last + 1):
            linked = await self._slot(seq)
            if linked is not None:
                counts["slots"] += 1
            elif seq in salvaged:
                linked = salvaged[seq]
                counts["salvaged"] += 1
            else:
                lost.append(seq)
            linked = self._placed(seq, linked, ends_with if seq == last else None)
            builder.add(linked, linked.entry.operations)
            if builder.size >= _FULL_BYTES or seq == last:
                rows += await self._upload(builder, begins, now_ms)
                builder, begins = PackBuilder(), seq + 1
        self._repair.mendings.append(
            Replacement(first, last, tuple(lost), counts["slots"], counts["salvaged"])
        )
        return rows

    def _placed(self, seq: int, found: LinkedEntry | None, digest: bytes | None) -> LinkedEntry:
        """Link an entry to the one before it, and give it the digest that the next one carries."""
        time = max(self._times.get(seq - 1, 0), 0 if found is None else found.entry.time)
        if found is None:
            entry = Entry(ENTRY_VERSION, seq, self._digests[seq - 1], b"", b"", time, ())
            own = digest or self._lost_digest(seq)
        else:
            entry = msgspec.structs.replace(found.entry, previous=self._digests[seq - 1], time=time)
            own = digest or found.digest
        self._digests[seq], self._times[seq] = own, time
        return LinkedEntry(entry, own)

    def _lost_digest(self, seq: int) -> bytes:
        """Return a digest for an entry that is lost and that nothing links to, the same whenever it is repaired."""
        known = self._previous.get(seq + 1)
        return known or hashlib.sha256(lp("memrelay/v1/lost", self._incarnation, seq)).digest()

    async def _slot(self, seq: int) -> LinkedEntry | None:
        try:
            return await self._slots.read(seq)
        except CorruptNamespace:
            return None

    async def _salvage(self, row: SegmentRow) -> dict[int, LinkedEntry]:
        found = await self._ports.store.get(self._ports.layout.at(row.key))
        if not isinstance(found, Found):
            return {}
        place = PackPlace(self._sealer, self._account, self._incarnation, row.key)
        return {linked.entry.seq: linked for linked in salvage_pack(found.data, row.size, place)}

    async def _upload(self, builder: PackBuilder, first: int, now_ms: int) -> Iterable[SegmentRow]:
        if not self._apply:
            return ()
        row = await self._segments.upload(builder, first, now_ms)
        if row is None:
            raise StoreUnavailable("a rebuilt segment could not be stored; running repair again is safe")
        return (row,)

    async def _name(self, seen: SeenManifest, rows: list[SegmentRow], damaged: set[str]) -> None:
        """Quarantine what is damaged, swap the manifest, and delete the segments that it named before."""
        self._repair.quarantined += await quarantine(self._ports, sorted(damaged), seen.store_time)
        old = seen.manifest
        snap_seq = rows[-1].last_seq
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
        outcome = await ManifestView(self._ports, self._account, self._incarnation).swap(seen, new)
        if not isinstance(outcome, Swapped):
            raise StoreUnavailable(
                "the manifest changed meanwhile, or the store did not say; stop the relayers and run repair again"
            )
        for row in old.segments:
            if row.key in damaged:
                await self._ports.store.delete(self._ports.layout.at(row.key))
