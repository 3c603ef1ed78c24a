"""Reading one log from its first entry to its last, past anything that is damaged, with findings about the damage.

A replica stops at the first defect, because it must not serve a state that it cannot verify. An operator needs to know all
defects of a log, and what can still be read after them. `walk_log` reads the manifest, the segments that it names and the entries
after them, applies each entry to a state, and starts again if the log was compacted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relayer.domain.namespace import LogPosition, Manifest, SegmentRow, genesis
from relayer.domain.state import NamespaceState
from relayer.errors import NamespaceClosed, UpgradeRequired
from relayer.lib.work import AT_ONCE, together
from relayer.log.collector import seq_of
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ManifestView, SeenManifest, Slots
from relayer.log.segments import Segments
from relayer.operator.catalogue import REPAIR, UNREADABLE, Defect, Flaw

Visit = Callable[[LinkedEntry], None]
_ROUNDS = 3


@dataclass(slots=True)
class Walk:
    """The result of reading a log.

    Attributes:
        state: the state after all entries that could be read. If `findings` is empty, it is the state that a replica would have.
        seen: the manifest; None if it is missing or cannot be unsealed.
        in_segments: number of entries that were read from segments.
    """

    state: NamespaceState
    seen: SeenManifest | None = None
    findings: list[Defect] = field(default_factory=list)
    in_segments: int = 0
    bytes: int = 0


async def walk_log(
    ports: LogPorts,
    account: str,
    incarnation: bytes,
    new_visit: Callable[[], Visit] = lambda: lambda _: None,
    manifest: Manifest | None = None,
) -> Walk:
    """Read all of a log. If its manifest has changed, it is read again: a log may look damaged while a relayer compacts it.

    ``new_visit`` is called once for each attempt; it returns a function that is called with every readable entry, in order. A
    ``manifest`` replaces the one in the store.
    """
    rounds = 0
    while True:
        reader = _Walker(ports, account, incarnation, new_visit())
        await reader.run(manifest)
        rounds += 1
        if not reader.walk.findings or rounds == _ROUNDS or not await reader.moved():
            return reader.walk


class _Walker:
    def __init__(self, ports: LogPorts, account: str, incarnation: bytes, visit: Visit) -> None:
        self._ports = ports
        self._incarnation = incarnation
        self._segments = Segments(ports, account, incarnation)
        self._manifest = ManifestView(ports, account, incarnation)
        self._slots = Slots(ports, account, incarnation)
        self._visit = visit
        start = LogPosition(0, genesis(incarnation))
        self.walk = Walk(NamespaceState(start))
        # The digest that the next entry must link to; None after an entry that could not be read.
        self._link: bytes | None = start.digest

    async def run(self, given: Manifest | None) -> None:
        slots = await self._ports.keys_below(Layout.entries(self._incarnation))
        key = Layout.manifest(self._incarnation)
        manifest = given or await self._read_manifest(key, begun=bool(slots))
        if manifest is None:
            return
        expected = 1
        for row in manifest.segments:
            if row.first_seq != expected or row.last_seq < row.first_seq:
                gap = f"the manifest's segments leave a gap at entry {expected}"
                self._lost(Flaw.ABSENT, key, gap, expected, max(expected, row.first_seq - 1))
            await self._read_segment(row)
            expected = row.last_seq + 1
        if self._link is None:
            self._link = manifest.chain_digest
        elif self._link != manifest.chain_digest and manifest.snap_seq:
            other = "the manifest belongs to another log than its entries"
            self.walk.findings.append(Defect(Flaw.DAMAGED, key, other, REPAIR))
        head = max(map(seq_of, slots), default=0)
        for start in range(manifest.snap_seq + 1, head + 1, AT_ONCE):
            window = range(start, min(start + AT_ONCE, head + 1))
            for seq, slot in zip(window, await together([self._slot(seq) for seq in window]), strict=True):
                if isinstance(slot, Defect):
                    self._broken(slot)
                else:
                    self.walk.bytes += slot.size
                    self._take(slot, Layout.entry(self._incarnation, seq))

    async def moved(self) -> bool:
        """Return whether the manifest has changed since the log was read."""
        before = self.walk.seen
        try:
            return before is not None and (await self._manifest.see()).etag != before.etag
        except (*UNREADABLE, NamespaceClosed):
            return True

    async def _read_manifest(self, key: str, *, begun: bool) -> Manifest | None:
        try:
            self.walk.seen = await self._manifest.see()
        except NamespaceClosed:
            if begun or await self._ports.keys_below(Layout.segments(self._incarnation)):
                found = Defect(Flaw.ABSENT, key, "a log has entries but no manifest", REPAIR)
            else:
                sentence = "a namespace whose creation was never finished; its next write finishes it"
                found = Defect(Flaw.UNFINISHED, key, sentence)
        except UNREADABLE as error:
            found = Defect.from_error(error, key)
        else:
            return self.walk.seen.manifest
        self.walk.findings.append(found)
        return None

    async def _read_segment(self, row: SegmentRow) -> None:
        try:
            segment = await self._segments.read(row)
            if segment is None:
                self._lost(Flaw.ABSENT, row.key, "a segment is missing", row.first_seq, row.last_seq)
                return
            self.walk.bytes += row.size
            for linked in segment.entries():
                self._take(linked, row.key)
                self.walk.in_segments += 1
        except UNREADABLE as error:
            first = max(row.first_seq, self.walk.state.next_seq)
            self._broken(Defect.from_error(error, row.key, first=first, last=row.last_seq))

    async def _slot(self, seq: int) -> LinkedEntry | Defect:
        key = Layout.entry(self._incarnation, seq)
        try:
            stored = await self._slots.read_alone(seq)
        except UNREADABLE as error:
            return Defect.from_error(error, key, first=seq, last=seq)
        if stored is None:
            return Defect(
                Flaw.ABSENT, key, "an entry is missing, although later entries exist", REPAIR, seq, seq
            )
        return stored[1]

    def _take(self, linked: LinkedEntry, key: str) -> None:
        """Apply an entry; ``key`` is the object that it was read from, for findings."""
        seq = linked.entry.seq
        if self._link not in {None, linked.entry.previous}:
            self._lost(Flaw.DAMAGED, key, f"entry {seq} does not continue the entry before it", seq, seq)
        try:
            self.walk.state.apply(linked.entry, linked.digest)
        except UpgradeRequired as error:
            self._broken(Defect.from_error(error, Layout.entry(self._incarnation, seq), first=seq, last=seq))
        self._link = linked.digest
        self._visit(linked)

    def _lost(self, flaw: Flaw, key: str, sentence: str, first: int, last: int) -> None:
        self._broken(Defect(flaw, key, sentence, REPAIR, first, last))

    def _broken(self, finding: Defect) -> None:
        self.walk.findings.append(finding)
        self._link = None
