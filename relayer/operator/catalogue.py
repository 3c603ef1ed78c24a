"""The contents of a store, past anything that is damaged: accounts, namespaces, erasure reports, logs, and findings.

`read_catalogue` lists accounts and their pointers, and `read_reports` the reports of erasures. `kind_of` and `incarnation_of`
classify an object by its key. A `Defect` describes one defect, with its `Flaw` and what to do about it; all commands of an
operator use it.

`walk_log` reads one log from its first entry to its last. A replica stops at the first defect, because it must not serve a state
that it cannot verify. An operator needs to know all defects of a log, and what can still be read after them. The walk reads the
manifest, the segments that it names and the entries after them, applies each entry to a state, and starts again if the log was
compacted meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from relayer.access.accounts import record_at, revoked_at
from relayer.domain.namespace import LogPosition, Manifest, Pointer, PointerState, SegmentRow, genesis
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, UpgradeRequired
from relayer.lib.work import AT_ONCE, in_windows, together
from relayer.log.collector import seq_of
from relayer.log.erasure import ErasureReport, ErasureReports
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ManifestView, ObjectSealer, SeenManifest, Slots
from relayer.log.segments import Segments

T = TypeVar("T")

UNREADABLE = (CorruptNamespace, UpgradeRequired)
REPAIR = "memrelay repair shows what can be rebuilt"
UPDATE = "update memrelay on this machine"
RESTORE = "restore it from a backup"
_UNREADABLE_REPORT = "request the erasure again, then remove this object"
_MEND = "memrelay repair --apply creates it again from the remaining objects; a backup contains the original"


class Progress(Protocol):
    """A function that yields items one after the other and shows the progress."""

    def __call__(self, items: Sequence[T], /) -> Iterable[T]:
        """Yield the items."""
        ...


def unseen(items: Sequence[T]) -> Iterable[T]:
    """Return the items without showing any progress."""
    return items


class Flaw(Enum):
    """The kinds of defects of a store; the values are stable words of the JSON output."""

    DAMAGED = "damaged"
    ABSENT = "absent"
    NEWER = "newer_version"
    NO_ACCOUNT = "unknown_account"
    NO_BODY = "body_lost"
    WRONG_SEAL = "inner_seal"
    NO_NAME = "without_a_name"
    LEFT_OVER = "left_over"
    UNFINISHED = "unfinished"

    @property
    def harmless(self) -> bool:
        """Return whether nothing is lost and no request is rejected because of it."""
        return self in {Flaw.LEFT_OVER, Flaw.UNFINISHED}


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of a store.

    Attributes:
        fix: what to do about it; may be empty.
        first_seq: the first log entry that is affected; 0 if it affects none.
        last_seq: the last one.
    """

    flaw: Flaw
    key: str
    sentence: str
    fix: str = ""
    first_seq: int = 0
    last_seq: int = 0

    @staticmethod
    def from_error(
        error: RelayerError, key: str, fix: str = "", *, say: str = "", first: int = 0, last: int = 0
    ) -> Defect:
        """Return the finding about an object that could not be read.

        Args:
            error: raised by reading it.
            key: of the object.
            fix: what to do; empty for the usual advice, to repair the store or to update memrelay.
            say: appended to the error's message.
            first: the first log entry that is affected; 0 for none.
            last: the last one.
        """
        newer = isinstance(error, UpgradeRequired)
        flaw = Flaw.NEWER if newer else Flaw.DAMAGED
        return Defect(flaw, key, f"{error}{say}", fix or (UPDATE if newer else REPAIR), first, last)

    def row(self) -> dict[str, object]:
        """Return the finding for JSON."""
        entries = {"first_seq": self.first_seq, "last_seq": self.last_seq} if self.last_seq else {}
        said = {"key": self.key, "what": self.sentence, "fix": self.fix}
        return {"flaw": self.flaw.value, "harmless": self.flaw.harmless, **said, **entries}


def sound(findings: Iterable[Defect]) -> bool:
    """Return whether nothing is lost, because all findings are harmless."""
    return all(finding.flaw.harmless for finding in findings)


class ObjectKind(Enum):
    """The kinds of objects in a store; the values are stable words of the JSON output."""

    ENTRY = "entry"
    SEGMENT = "segment"
    INDEX = "index"
    MANIFEST = "manifest"
    KEYRING = "keyring"
    POINTER = "pointer"
    ACCOUNT = "account"
    FLEET = "fleet"
    RELAYER = "relayer"
    PROBE = "probe"
    BACKED_UP = "backed_up"
    USAGE = "usage"
    ERASURE = "erasure"
    QUARANTINE = "quarantine"
    OTHER = "other"


_NAMESPACE = r"ns/([0-9a-f]{32})/"
_PATTERNS = {
    ObjectKind.ENTRY: _NAMESPACE + r"wal/\d{20}",
    ObjectKind.SEGMENT: _NAMESPACE + r"seg/[^/]+(?:/\d{4})?",
    ObjectKind.INDEX: _NAMESPACE + r"index/[^/]+(?:/\d{4})?",
    ObjectKind.MANIFEST: _NAMESPACE + r"manifest",
    ObjectKind.KEYRING: _NAMESPACE + r"keyring",
    ObjectKind.POINTER: r"acct/[0-9a-f]{40}/ns/[0-9a-f]{40}",
    ObjectKind.ACCOUNT: r"acct/[0-9a-f]{40}/(?:account|revoked)",
    ObjectKind.ERASURE: r"(?:erasing|erased)/[0-9a-f]{40}/[0-9a-z]{26}",
    ObjectKind.FLEET: r"fleet/\d{8}",
    ObjectKind.RELAYER: r"relayer",
    ObjectKind.PROBE: r"probed?/.+",
    ObjectKind.BACKED_UP: r"backed_up",
    ObjectKind.USAGE: r"usage/[0-9a-f]{40}",
    ObjectKind.QUARANTINE: r"quarantine/.+",
}


def kind_of(key: str) -> ObjectKind:
    """Return the kind of the object at a key."""
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, key)), ObjectKind.OTHER)


def incarnation_of(key: str) -> bytes | None:
    """Return the incarnation of a namespace that the object at a key belongs to; None if it belongs to none."""
    found = re.match(_NAMESPACE, key)
    return None if found is None else bytes.fromhex(found[1])


@dataclass(frozen=True, slots=True)
class Listed:
    """A namespace of an account, as its pointer describes it; ``key`` is the key of the pointer."""

    account: str
    key: str
    pointer: Pointer

    @property
    def incarnation(self) -> bytes:
        """The id in the keys of its objects, below ``ns/``."""
        return self.pointer.incarnation

    @property
    def live(self) -> bool:
        """Return whether the namespace may be served."""
        return self.pointer.state is PointerState.LIVE


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The accounts and namespaces of a store.

    Attributes:
        namespaces: by account and name, in order.
        findings: accounts and pointers that cannot be read.
        mendable: ids of accounts whose object is lost, or older than its copy; repair can rebuild it.
    """

    accounts: tuple[str, ...]
    namespaces: tuple[Listed, ...]
    findings: tuple[Defect, ...]
    mendable: tuple[str, ...] = ()

    def named(self, name: str) -> list[Listed]:
        """Return the namespaces of this name, of all accounts."""
        return [listed for listed in self.namespaces if listed.pointer.name == name]


async def read_catalogue(ports: LogPorts, known: Iterable[str] = ()) -> Catalogue:
    """List accounts and their pointers; ``known`` are ids of accounts that are included even if their own object is lost."""
    keys = await ports.keys_below("acct/")
    there = set(keys)
    reader = _Reader(ports)
    await in_windows(reader.account, [key for key in keys if key.endswith(("/account", "/revoked"))])
    for account in known:
        reader.accounts.setdefault(ports.keys.tag("account", account), account)
    tags = {key.split("/")[1] for key in keys} & reader.accounts.keys()
    mendable = [reader.accounts[tag] for tag in sorted(tags) if reader.is_lost(tag, there)]
    await in_windows(reader.pointer, [key for key in keys if "/ns/" in key])
    return Catalogue(
        tuple(sorted(reader.accounts[tag] for tag in tags)),
        tuple(sorted(reader.listed, key=lambda item: (item.account, item.pointer.name))),
        tuple(reader.findings),
        tuple(mendable),
    )


class _Reader:
    def __init__(self, ports: LogPorts) -> None:
        self._ports = ports
        self.accounts: dict[str, str] = {}
        self.listed: list[Listed] = []
        self.findings: list[Defect] = []
        # The counters of the revocations and of the operator's rules in each account object, by its key.
        self._counters: dict[str, tuple[int, int]] = {}

    async def account(self, key: str) -> None:
        found = await self._ports.get(key)
        if found is None:
            return
        try:
            record = record_at(self._ports.keys, key, found.data)
            self.accounts[key.split("/")[1]] = record.account
            self._counters[key] = revoked_at(self._ports.keys, key, found.data), record.rules.counter
        except UNREADABLE as error:
            fix = f"{RESTORE}, or give the account with --account to inspect its objects"
            self.findings.append(Defect.from_error(error, key, fix))

    def is_lost(self, tag: str, keys: set[str]) -> bool:
        """Return whether an account's object is missing, or older than its copy; if so, add a finding."""
        key, revoked = Layout.account(tag), Layout.revoked(tag)
        own, copied = self._counters.get(key), self._counters.get(revoked)
        if key not in keys:
            flaw, sentence = (
                Flaw.ABSENT,
                "the object of an account is missing: relayers reject all of its agents",
            )
        elif own is not None and copied is not None and (own[0] < copied[0] or own[1] < copied[1]):
            flaw = Flaw.DAMAGED
            sentence = (
                "the object of an account is older than its list of revocations, or than its operator's rules"
            )
        else:
            return False
        fix = _MEND if copied is not None else f"{_MEND}; the owner then has to send the list again"
        self.findings.append(Defect(flaw, key, sentence, fix))
        return True

    async def pointer(self, key: str) -> None:
        account = self.accounts.get(key.split("/")[1])
        if account is None:
            sentence = "the account of a name is unknown: its object is missing or cannot be opened"
            self.findings.append(Defect(Flaw.NO_ACCOUNT, key, sentence, "give its id with --account"))
            return
        found = await self._ports.get(key)
        if found is None:
            return
        try:
            pointer = pointer_at(self._ports, account, key, found.data)
        except UNREADABLE as error:
            self.findings.append(Defect.from_error(error, key, RESTORE))
        else:
            self.listed.append(Listed(account, key, pointer))


def pointer_at(ports: LogPorts, account: str, key: str, data: bytes) -> Pointer:
    """Return the pointer of an account in an object; raises `CorruptNamespace` if it is not the one of this key."""
    pointer = ObjectSealer(ports).unseal_pointer(account, key, data)
    if key != ports.pointer_key(account, pointer.name):
        raise CorruptNamespace("a pointer belongs to another namespace than its key")
    return pointer


async def read_reports(
    ports: LogPorts, say: str = ""
) -> tuple[list[tuple[str, bytes, ErasureReport]], list[Defect]]:
    """Read the reports of erasures.

    The sentence ``say`` is appended to the description of each finding.

    Returns:
        The reports, each with its key and its stored bytes, and findings about those that cannot be read.
    """
    # A report moves from the first prefix to the second. In this order, one that moves meanwhile is found at least once.
    keys = [*await ports.keys_below(Layout.erasing()), *await ports.keys_below(Layout.erased())]
    reports, read, findings = ErasureReports(ports), list[tuple[str, bytes, ErasureReport]](), list[Defect]()

    async def look(key: str) -> None:
        found = await ports.get(key)
        try:
            if found is not None:
                read.append((key, found.data, reports.open(key, found.data)))
        except UNREADABLE as error:
            findings.append(Defect.from_error(error, key, _UNREADABLE_REPORT, say=say))

    await in_windows(look, keys)
    return read, sorted(findings, key=lambda finding: finding.key)


async def at_each(
    namespaces: Sequence[Listed], work: Callable[[Listed], Awaitable[None]], progress: Progress
) -> list[Defect]:
    """Run ``work`` at every live namespace, and return findings about those that could not be read.

    A namespace whose creation was never finished, or that is erased meanwhile, is skipped.
    """
    found = []
    for listed in progress([listed for listed in namespaces if listed.live]):
        try:
            await work(listed)
        except NamespaceClosed:
            continue
        except UNREADABLE as error:
            key, say = Layout.manifest(listed.incarnation), f" (namespace {listed.pointer.name})"
            found.append(Defect.from_error(error, key, say=say))
    return found


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
            first = max(row.first_seq, self.walk.state.position.seq + 1)
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
