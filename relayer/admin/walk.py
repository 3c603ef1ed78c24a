"""Reads one log from its first entry to its last, past whatever is damaged, and says what was.

A replica stops at the first thing that is wrong, because it must not serve what it cannot vouch for. An operator wants to
know everything that is wrong, and what there is behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from relayer.admin.catalogue import Finding, Flaw, keys_below
from relayer.domain.entry import decode_entry
from relayer.domain.namespace import Manifest, Position, SegmentRow, genesis
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.lib.single_flight import AT_ONCE, together
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.manifest import ManifestView, SeenManifest
from relayer.log.sealed_objects import ObjectSealer, Place
from relayer.log.segments import Segments
from relayer.log.slots import LinkedEntry, digest_of
from relayer.ports import Found
from relayer.wire.sealing import ObjectType

Visit = Callable[[LinkedEntry], None]
_ROUNDS = 3
REPAIR = "memrelay repair shows what can be rebuilt"
UPDATE = "update memrelay on this machine"


def seq_of(key: str) -> int:
    """Return the number of a slot from its key."""
    return int(key.rpartition("/")[2])


@dataclass(slots=True)
class Walk:
    """What a log holds.

    Attributes:
        state: what is left of it says; what a reader of an undamaged log would have when `findings` is empty.
        seen: its manifest, None if it is absent or does not open.
        findings: what is wrong, in the order of the log.
        slots: the slots that the store lists, in order, collected or not.
        in_segments: entries that came from segments.
        bytes: stored bytes that were read.
    """

    state: NamespaceState
    seen: SeenManifest | None = None
    findings: list[Finding] = field(default_factory=list)
    slots: tuple[int, ...] = ()
    in_segments: int = 0
    bytes: int = 0


async def walk_log(
    ports: LogPorts, account: str, incarnation: bytes, new_visit: Callable[[], Visit] | None = None
) -> Walk:
    """Read all of a log.

    What looks damaged while a relayer compacts and collects is looked at again with the manifest that it left.

    Args:
        ports: where.
        account: the owner.
        incarnation: which.
        new_visit: makes what is called with every entry that could be read, in order; once for each reading.

    Raises:
        StoreError: the store did not answer.
    """
    rounds = 0
    while True:
        reader = _Walker(ports, account, incarnation, new_visit() if new_visit else lambda _: None)
        await reader.run()
        rounds += 1
        if not reader.walk.findings or rounds == _ROUNDS or not await reader.moved():
            return reader.walk


class SlotReader:
    """Opens entries by their slot alone, without what comes before them."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation

    def key(self, seq: int) -> str:
        """Return the slot's key, without the store's prefix."""
        return Layout.entry(self._incarnation, seq)

    async def read(self, seq: int) -> LinkedEntry | None:
        """Return the entry of a slot; None when it is absent. Raises as `read_stored`."""
        stored = await self.read_stored(seq)
        return None if stored is None else stored[1]

    async def read_stored(self, seq: int) -> tuple[bytes, LinkedEntry] | None:
        """Return the stored bytes of a slot and the entry in them; None when it is absent.

        Raises:
            CorruptNamespace: what is there does not open in this slot; it was read twice.
            UpgradeRequired: its version is unknown.
            StoreError: the store did not answer.
        """
        for last in (False, True):
            found = await self._ports.store.get(self._ports.layout.at(self.key(seq)))
            if not isinstance(found, Found):
                return None
            try:
                return found.data, self._open(seq, found.data)
            except CorruptNamespace:
                if last:
                    raise
        return None

    def _open(self, seq: int, data: bytes) -> LinkedEntry:
        place = Place(ObjectType.ENTRY, self._account, self._incarnation, self.key(seq))
        entry = decode_entry(self._sealer.unseal(place, data))
        if entry.seq != seq:
            raise CorruptNamespace(f"slot {seq} holds an entry of another slot")
        return LinkedEntry(entry, digest_of(data), len(data))


class _Walker:
    def __init__(self, ports: LogPorts, account: str, incarnation: bytes, visit: Visit) -> None:
        self._ports = ports
        self._incarnation = incarnation
        self._segments = Segments(ports, account, incarnation)
        self._manifest = ManifestView(ports, account, incarnation)
        self._slots = SlotReader(ports, account, incarnation)
        self._visit = visit
        start = Position(0, genesis(incarnation))
        self.walk = Walk(NamespaceState(start))
        # The digest that the next entry must link to; None behind something that could not be read.
        self._link: bytes | None = start.digest

    async def run(self) -> None:
        slots = await keys_below(self._ports, Layout.entries(self._incarnation))
        self.walk.slots = tuple(seq_of(key) for key in slots)
        manifest = await self._read_manifest()
        if manifest is None:
            return
        for row in _rows(manifest, Layout.manifest(self._incarnation)):
            if isinstance(row, Finding):
                self._find(row)
                self._link = None
            else:
                await self._read_segment(row)
        if self._link is None:
            self._link = manifest.chain_digest
        elif self._link != manifest.chain_digest and manifest.snap_seq:
            key = Layout.manifest(self._incarnation)
            self._find(
                Finding(Flaw.DAMAGED, key, "the manifest belongs to another log than its entries", REPAIR)
            )
        await self._read_tail(manifest)

    async def moved(self) -> bool:
        """Whether the manifest is another one than the one that was walked by."""
        before = self.walk.seen
        try:
            return before is not None and (await self._manifest.see()).etag != before.etag
        except (CorruptNamespace, UpgradeRequired, NamespaceClosed):
            return True

    async def _read_manifest(self) -> Manifest | None:
        key = Layout.manifest(self._incarnation)
        try:
            self.walk.seen = await self._manifest.see()
        except NamespaceClosed:
            if self.walk.slots or await keys_below(self._ports, Layout.segments(self._incarnation)):
                self._find(Finding(Flaw.ABSENT, key, "a log has entries and no manifest", REPAIR))
            else:
                sentence = "a namespace whose creation was never finished; its next write finishes it"
                self._find(Finding(Flaw.UNFINISHED, key, sentence))
            return None
        except (CorruptNamespace, UpgradeRequired) as error:
            self._find(
                Finding(
                    Flaw.of(error), key, str(error), UPDATE if isinstance(error, UpgradeRequired) else REPAIR
                )
            )
            return None
        return self.walk.seen.manifest

    async def _read_segment(self, row: SegmentRow) -> None:
        try:
            segment = await self._segments.read(row)
            if segment is None:
                self._lost(Flaw.ABSENT, row.key, "a segment is absent", row.first_seq, row.last_seq)
                return
            self.walk.bytes += row.size
            for linked in segment.entries():
                self._check_link(linked, row.key)
                self._take(linked)
                self.walk.in_segments += 1
        except (CorruptNamespace, UpgradeRequired) as error:
            first = max(row.first_seq, self.walk.state.next_seq)
            self._lost(Flaw.of(error), row.key, str(error), first, row.last_seq)

    async def _read_tail(self, manifest: Manifest) -> None:
        head = max(self.walk.slots, default=0)
        for start in range(manifest.snap_seq + 1, head + 1, AT_ONCE):
            count = range(start, min(start + AT_ONCE, head + 1))
            found = await together([self._slot(seq) for seq in count])
            for seq, slot in zip(count, found, strict=True):
                if isinstance(slot, LinkedEntry):
                    self._check_link(slot, self._slots.key(seq))
                    self.walk.bytes += slot.size
                    self._take(slot)
                else:
                    self._find(slot)
                    self._link = None

    async def _slot(self, seq: int) -> LinkedEntry | Finding:
        key = self._slots.key(seq)
        try:
            linked = await self._slots.read(seq)
        except (CorruptNamespace, UpgradeRequired) as error:
            fix = UPDATE if isinstance(error, UpgradeRequired) else REPAIR
            return Finding(Flaw.of(error), key, str(error), fix, seq, seq)
        if linked is None:
            return Finding(Flaw.ABSENT, key, "an entry is absent, and later ones are there", REPAIR, seq, seq)
        return linked

    def _check_link(self, linked: LinkedEntry, key: str) -> None:
        entry = linked.entry
        if self._link is not None and entry.previous != self._link:
            sentence = f"entry {entry.seq} does not follow the one before it"
            self._find(Finding(Flaw.DAMAGED, key, sentence, REPAIR, entry.seq, entry.seq))

    def _take(self, linked: LinkedEntry) -> None:
        try:
            self.walk.state.apply(linked.entry, linked.digest)
        except UpgradeRequired as error:
            key, seq = self._slots.key(linked.entry.seq), linked.entry.seq
            self._find(Finding(Flaw.NEWER, key, str(error), UPDATE, seq, seq))
        self._link = linked.digest
        self._visit(linked)

    def _lost(self, flaw: Flaw, key: str, sentence: str, first: int, last: int) -> None:
        fix = UPDATE if flaw is Flaw.NEWER else REPAIR
        self._find(Finding(flaw, key, sentence, fix, first, last))
        self._link = None

    def _find(self, finding: Finding) -> None:
        self.walk.findings.append(finding)


def _rows(manifest: Manifest, key: str) -> Iterator[SegmentRow | Finding]:
    expected = 1
    for row in manifest.segments:
        if row.first_seq != expected or row.last_seq < row.first_seq:
            sentence = f"the manifest's segments leave a gap at entry {expected}"
            yield Finding(Flaw.ABSENT, key, sentence, REPAIR, expected, max(expected, row.first_seq - 1))
        yield row
        expected = row.last_seq + 1
