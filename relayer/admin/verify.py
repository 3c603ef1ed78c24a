"""Verify: read everything that a store holds, and say what is not as it should be.

What is sealed under a namespace's key is opened where the key is given, to see that it opens; nothing is kept or shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.admin.catalogue import (
    UNREADABLE_REPORT,
    Finding,
    Flaw,
    Kind,
    Listed,
    keys_below,
    kind_of,
    read_catalogue,
)
from relayer.admin.walk import Walk, walk_log
from relayer.crypto.fleet import FleetPair
from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.namespace import Custody, Manifest
from relayer.domain.operations import (
    JobAccepted,
    JobFinished,
    Malformed,
    Operation,
    Put,
    Stored,
    Supersede,
    VectorSet,
    decode_operation,
)
from relayer.domain.record import decode_record
from relayer.errors import CorruptNamespace, UpgradeRequired, WrongNamespaceKey, WrongRelayerKey
from relayer.lib.single_flight import AT_ONCE, together
from relayer.log.erasure.reports import ErasureReports, What
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.slots import LinkedEntry
from relayer.ports import Found
from relayer.wire import codec as ulid
from relayer.wire.errors import UnsealError
from relayer.wire.keys import AgentKeys


class BodyCheck:
    """Looks at every body of a log: is it there, and does it open?

    Attributes:
        there: records of which some operation still has the text.
        opened: bodies that opened.
        failed: slots that hold one that does not, each once, in order.
    """

    def __init__(self, keys: NamespaceKeys | None) -> None:
        self._keys = keys
        self.there: set[bytes] = set()
        self.opened = 0
        self.failed: list[int] = []

    def __call__(self, linked: LinkedEntry) -> None:
        """Look at the operations of one entry."""
        for raw in linked.entry.operations:
            try:
                operation = decode_operation(raw)
            except UpgradeRequired:
                continue
            self.there.update(item.record for item in _stored(operation) if item.sealed)
            if self._keys is None:
                continue
            if whole(self._keys, operation):
                self.opened += 1
            elif linked.entry.seq not in self.failed[-1:]:
                self.failed.append(linked.entry.seq)


def whole(keys: NamespaceKeys, operation: Operation | Malformed) -> bool:
    """Whether every body of an operation that is there opens under these keys."""
    try:
        for item in _stored(operation):
            if item.key_epoch == keys.epoch:
                _open_stored(keys, item)
        if isinstance(operation, JobAccepted) and operation.sealed:
            keys.unseal_record(operation.job, operation.sealed)
        if isinstance(operation, JobFinished):
            for vectors in operation.vectors:
                _open_vectors(keys, vectors)
    except (UnsealError, msgspec.MsgspecError):
        return False
    return True


def _open_stored(keys: NamespaceKeys, item: Stored) -> None:
    if item.sealed:
        decode_record(keys.unseal_record(item.record, item.sealed))
    _open_vectors(keys, item)


def _open_vectors(keys: NamespaceKeys, item: Stored | VectorSet) -> None:
    for which, sealed in (("own", item.vector), ("context", item.context_vector)):
        if sealed:
            keys.unseal_vector(item.record, which, sealed)


def _stored(operation: Operation | Malformed) -> Sequence[Stored]:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return (stored,)
        case JobFinished(stored=results):
            return results
        case _:
            return ()


Progress = Callable[[int, int], None]
_LOST_ALONE = "recall leaves it out; only a backup has it, if any does"
_FROM_BACKUP = "without it nothing of the namespace opens: restore it from a backup"


@dataclass(slots=True)
class NamespaceReport:
    """What was found in one namespace.

    Attributes:
        entries: of the log, from the first to the last that could be read.
        memories: that its state holds, forgotten and superseded ones included.
        bodies: operations whose inner seals opened; None without the namespace's key.
        findings: flaws, in the order of the log.
    """

    listed: Listed
    entries: int = 0
    memories: int = 0
    bytes: int = 0
    bodies: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return all(finding.flaw.harmless for finding in self.findings)

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "account": self.listed.account,
            "namespace": self.listed.pointer.name,
            "incarnation": self.listed.incarnation.hex(),
            "state": self.listed.pointer.state.value,
            "entries": self.entries,
            "memories": self.memories,
            "bytes": self.bytes,
            "inner_seals": self.bodies,
            "sound": self.sound,
            "findings": [finding.row() for finding in self.findings],
        }


@dataclass(slots=True)
class StoreReport:
    """What was found in a store."""

    namespaces: list[NamespaceReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return all(finding.flaw.harmless for finding in self.findings) and all(
            report.sound for report in self.namespaces
        )

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "sound": self.sound,
            "namespaces": [report.row() for report in self.namespaces],
            "findings": [finding.row() for finding in self.findings],
        }


async def verify_store(
    ports: LogPorts,
    *,
    known: Sequence[str] = (),
    secrets: Sequence[bytes] = (),
    progress: Progress = lambda _done, _total: None,
) -> StoreReport:
    """Verify every namespace of a store; a relayer may serve it meanwhile.

    Args:
        ports: the store.
        known: ids of accounts, see `read_catalogue`.
        secrets: agent secrets; what they open is verified inside as well.
        progress: called after each namespace with how many are done, and how many there are.

    Raises:
        StoreError: the store did not answer.
    """
    catalogue = await read_catalogue(ports, known)
    report = StoreReport(findings=list(catalogue.findings))
    for done, listed in enumerate(catalogue.namespaces, 1):
        report.namespaces.append(await verify_namespace(ports, listed, secrets))
        progress(done, len(catalogue.namespaces))
    report.findings += await _nameless(ports, known)
    report.findings += await _fleet(ports)
    return report


async def _fleet(ports: LogPorts) -> list[Finding]:
    """Look whether the relayers' keys of these days open: none that starts can do without."""
    found: list[Finding] = []
    for key in await keys_below(ports, Layout.fleet("")):
        stored = await ports.store.get(ports.layout.at(key))
        try:
            if isinstance(stored, Found) and kind_of(key) is Kind.FLEET:
                FleetPair.open(key.rpartition("/")[2], ports.keys.metadata, stored.data)
        except WrongRelayerKey:
            sentence = (
                "a key pair of the relayers does not open, and one of these days keeps them from starting"
            )
            found.append(Finding(Flaw.DAMAGED, key, sentence, "remove it: the next start makes a new one"))
    return found


async def _nameless(ports: LogPorts, known: Sequence[str]) -> list[Finding]:
    """Look for objects of namespaces that no name stands for."""
    keys = await keys_below(ports, "ns/")
    named = {item.incarnation.hex() for item in (await read_catalogue(ports, known)).namespaces}
    erasing, found = await _erased_incarnations(ports)
    found += _left_over([key for key in keys if key.split("/")[1] in erasing - named])
    for key in sorted({key.split("/")[1] for key in keys} - named - erasing):
        sentence = "objects of a namespace that no pointer names: its pointer is lost"
        found.append(Finding(Flaw.NO_NAME, f"ns/{key}", sentence, "restore the pointer from a backup"))
    return found


async def _erased_incarnations(ports: LogPorts) -> tuple[set[str], list[Finding]]:
    """Return what is being erased, or was, and which reports do not open."""
    reports, found = ErasureReports(ports), list[Finding]()
    # In the order in which a report moves: one that does so meanwhile is found in one place at least.
    pending = await reports.pending()
    # The name of a report is the id of its erasure: a namespace's is its incarnation, and a memory's is none.
    over = [key for key in await keys_below(ports, Layout.erased()) if kind_of(key) is Kind.ERASURE]
    erasing = {ulid.parse(key.rpartition("/")[2]).hex() for key in over}

    async def look(key: str) -> None:
        try:
            seen = await reports.read(key)
        except (CorruptNamespace, UpgradeRequired) as error:
            found.append(Finding(Flaw.of(error), key, str(error), UNREADABLE_REPORT))
            return
        # A namespace of which a memory is erased is there, and its name with it.
        if seen is not None and seen.report.what is What.NAMESPACE:
            erasing.add(seen.report.incarnation.hex())

    keys = [*pending, *over]
    for start in range(0, len(keys), AT_ONCE):
        await together([look(key) for key in keys[start : start + AT_ONCE]])
    return erasing, sorted(found, key=lambda finding: finding.key)


def _left_over(keys: Sequence[str]) -> list[Finding]:
    if not keys:
        return []
    sentence = f"{len(keys)} objects of an erased namespace are still to be destroyed, this one first"
    return [Finding(Flaw.LEFT_OVER, keys[0], sentence)]


async def verify_namespace(ports: LogPorts, listed: Listed, secrets: Sequence[bytes] = ()) -> NamespaceReport:
    """Verify one namespace; raises `StoreError`."""
    report = NamespaceReport(listed)
    if not listed.live:
        rest = await keys_below(ports, Layout.incarnation(listed.incarnation))
        report.findings += _left_over(rest)
        return report
    keys, problem = await keys_of(ports, listed, secrets)
    if problem is not None:
        report.findings.append(problem)
    checks: list[BodyCheck] = []

    def new_check() -> BodyCheck:
        checks.append(BodyCheck(keys))
        return checks[-1]

    walk = await walk_log(ports, listed.account, listed.incarnation, new_check)
    report.findings += walk.findings
    report.entries, report.memories, report.bytes = (
        walk.state.position.seq,
        len(walk.state.records),
        walk.bytes,
    )
    check = checks[-1]
    report.bodies = None if keys is None else check.opened
    report.findings += _bodies(walk, check, listed)
    if walk.seen is not None:
        report.findings += await _beside(ports, listed, walk.seen.manifest)
    return report


async def keys_of(
    ports: LogPorts, listed: Listed, secrets: Sequence[bytes] = ()
) -> tuple[NamespaceKeys | None, Finding | None]:
    """Return the keys of a namespace's newest epoch, if they can be had, and what is wrong with its keyring, if anything.

    Custody ``relayer`` needs no secret.
    """
    key = max(await keys_below(ports, f"ns/{listed.incarnation.hex()}/keyring/"), default="")
    if not key:
        key = Layout.keyring(listed.incarnation, 1)
        flaw = Flaw.UNFINISHED if not await _has_log(ports, listed) else Flaw.ABSENT
        return None, Finding(flaw, key, "a namespace has no keyring", "" if flaw.harmless else _FROM_BACKUP)
    found = await ports.store.get(ports.layout.at(key))
    if not isinstance(found, Found):
        return None, Finding(Flaw.ABSENT, key, "the keyring vanished while it was read", _FROM_BACKUP)
    try:
        keyring = ObjectSealer(ports).unseal_keyring(listed.account, listed.incarnation, key, found.data)
    except (CorruptNamespace, UpgradeRequired) as error:
        return None, Finding(Flaw.of(error), key, str(error), _FROM_BACKUP)
    pointer = listed.pointer
    if pointer.custody is Custody.RELAYER:
        candidates = [ports.keys.namespace_secret(listed.account, pointer.name, pointer.generation)]
    else:
        candidates = [
            AgentKeys("", secret).namespace_secret(pointer.name, pointer.generation) for secret in secrets
        ]
    for secret in candidates:
        try:
            opened = NamespaceKeys.open(
                secret, keyring, account=listed.account, incarnation=listed.incarnation
            )
        except WrongNamespaceKey:
            continue
        return opened, None
    return None, None


async def _has_log(ports: LogPorts, listed: Listed) -> bool:
    return isinstance(await ports.store.get(ports.layout.at(Layout.manifest(listed.incarnation))), Found)


def _bodies(walk: Walk, check: BodyCheck, listed: Listed) -> list[Finding]:
    found = [
        Finding(
            Flaw.WRONG_SEAL,
            Layout.entry(listed.incarnation, seq),
            f"entry {seq} holds a body that its key does not open",
            _LOST_ALONE,
            seq,
            seq,
        )
        for seq in check.failed
    ]
    lost = walk.state.records.keys() - check.there
    if lost and not walk.findings:
        sentence = f"{len(lost)} memories have no text any more, although nobody erased them"
        found.append(Finding(Flaw.NO_BODY, Layout.manifest(listed.incarnation), sentence, _LOST_ALONE))
    return found


async def _beside(ports: LogPorts, listed: Listed, manifest: Manifest) -> list[Finding]:
    """Look at what is there beside the log: an index that is named, and what nobody names."""
    layout, incarnation = ports.layout, listed.incarnation
    found: list[Finding] = []
    if manifest.index_key and not isinstance(await ports.store.get(layout.at(manifest.index_key)), Found):
        sentence = "the manifest names an index that is absent; it is built anew when the namespace is opened"
        found.append(Finding(Flaw.LEFT_OVER, manifest.index_key, sentence))
    named = {row.key for row in manifest.segments} | {manifest.index_key}
    there = await keys_below(ports, layout.segments(incarnation)) + await keys_below(
        ports, layout.indexes(incarnation)
    )
    loose = [key for key in there if key not in named]
    if loose:
        sentence = f"{len(loose)} objects that no manifest names wait for collection, this one first"
        found.append(Finding(Flaw.LEFT_OVER, loose[0], sentence))
    return found
