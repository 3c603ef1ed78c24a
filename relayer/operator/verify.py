"""Verify: read everything that a store holds, and say what is not as it should be.

What is sealed under a namespace's key is opened where the key is given, to see that it opens; nothing is kept or shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.crypto import FleetPair, NamespaceKeys
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
    decode_record,
)
from relayer.errors import UpgradeRequired, WrongNamespaceKey, WrongRelayerKey
from relayer.log.erasure.reports import What
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ObjectSealer
from relayer.operator.catalogue import (
    UNREADABLE,
    Finding,
    Flaw,
    Kind,
    Listed,
    Progress,
    kind_of,
    read_catalogue,
    read_reports,
    sound,
    unseen,
)
from relayer.operator.walk import Walk, walk_log
from relayer.wire import codec as ulid
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import AgentKeys

_LOST_ALONE = "recall leaves it out; only a backup has it, if any does"
_FROM_BACKUP = "without it nothing of the namespace opens: restore it from a backup"


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
    stored = [item for item in _stored(operation) if item.key_epoch == keys.epoch]
    vectors = operation.vectors if isinstance(operation, JobFinished) else ()
    having_vectors: list[Stored | VectorSet] = [*stored, *vectors]
    try:
        for item in stored:
            if item.sealed:
                decode_record(keys.unseal_record(item.record, item.sealed))
        for having in having_vectors:
            for which, sealed in (("own", having.vector), ("context", having.context_vector)):
                if sealed:
                    keys.unseal_vector(having.record, which, sealed)
        if isinstance(operation, JobAccepted) and operation.sealed:
            keys.unseal_record(operation.job, operation.sealed)
    except (UnsealError, msgspec.MsgspecError):
        return False
    return True


def _stored(operation: Operation | Malformed) -> Sequence[Stored]:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return (stored,)
        case JobFinished(stored=results):
            return results
        case _:
            return ()


@dataclass(slots=True)
class NamespaceReport:
    """What was found in one namespace.

    Attributes:
        entries: of the log, from the first to the last that could be read.
        memories: that its state holds, forgotten and superseded ones included.
        inner_seals: operations whose inner seals opened; None without the namespace's key.
        findings: flaws, in the order of the log.
    """

    ALSO = ("sound",)

    listed: Listed
    entries: int = 0
    memories: int = 0
    bytes: int = 0
    inner_seals: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return sound(self.findings)


@dataclass(slots=True)
class StoreReport:
    """What was found in a store."""

    ALSO = ("sound",)

    namespaces: list[NamespaceReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return sound(self.findings) and all(report.sound for report in self.namespaces)


async def verify_store(
    ports: LogPorts, *, known: Sequence[str] = (), secrets: Sequence[bytes] = (), progress: Progress = unseen
) -> StoreReport:
    """Verify every namespace of a store; a relayer may serve it meanwhile.

    ``known`` is for `read_catalogue`; what agents' ``secrets`` open is verified inside as well.
    """
    catalogue = await read_catalogue(ports, known)
    spaces = [await verify_namespace(ports, listed, secrets) for listed in progress(catalogue.namespaces)]
    beyond = await _nameless(ports, known) + await _fleet(ports)
    return StoreReport(spaces, [*catalogue.findings, *beyond])


async def _fleet(ports: LogPorts) -> list[Finding]:
    """Look whether the relayers' keys of these days open: none that starts can do without."""
    found: list[Finding] = []
    for key in await ports.keys_below(Layout.fleet("")):
        stored = await ports.get(key)
        try:
            if stored is not None and kind_of(key) is Kind.FLEET:
                FleetPair.open(key.rpartition("/")[2], ports.keys.metadata, stored.data)
        except WrongRelayerKey:
            sentence = (
                "a key pair of the relayers does not open, and one of these days keeps them from starting"
            )
            found.append(Finding(Flaw.DAMAGED, key, sentence, "remove it: the next start makes a new one"))
    return found


async def _nameless(ports: LogPorts, known: Sequence[str]) -> list[Finding]:
    """Look for objects of namespaces that no name stands for."""
    keys = await ports.keys_below("ns/")
    named = {item.incarnation.hex() for item in (await read_catalogue(ports, known)).namespaces}
    reports, found = await read_reports(ports)
    # The name of a report is the id of its erasure: a namespace's is its incarnation, and a memory's is none.
    over = [key for key, _, _ in reports] + [finding.key for finding in found]
    over = [key for key in over if key.startswith(Layout.erased()) and kind_of(key) is Kind.ERASURE]
    erasing = {ulid.parse(key.rpartition("/")[2]).hex() for key in over}
    # A namespace of which a memory is erased is there, and its name with it.
    erasing |= {report.incarnation.hex() for _, _, report in reports if report.what is What.NAMESPACE}
    found += _left_over([key for key in keys if key.split("/")[1] in erasing - named])
    sentence = "objects of a namespace that no pointer names: its pointer is lost"
    lost = sorted({key.split("/")[1] for key in keys} - named - erasing)
    fix = "restore the pointer from a backup"
    return found + [Finding(Flaw.NO_NAME, f"ns/{one}", sentence, fix) for one in lost]


def _left_over(keys: Sequence[str]) -> list[Finding]:
    sentence = f"{len(keys)} objects of an erased namespace are still to be destroyed, this one first"
    return [Finding(Flaw.LEFT_OVER, key, sentence) for key in keys[:1]]


async def verify_namespace(ports: LogPorts, listed: Listed, secrets: Sequence[bytes] = ()) -> NamespaceReport:
    """Verify one namespace."""
    if not listed.live:
        rest = await ports.keys_below(Layout.incarnation(listed.incarnation))
        return NamespaceReport(listed, findings=_left_over(rest))
    keys, problem = await keys_of(ports, listed, secrets)
    checks: list[BodyCheck] = []

    def new_check() -> BodyCheck:
        checks.append(BodyCheck(keys))
        return checks[-1]

    walk = await walk_log(ports, listed.account, listed.incarnation, new_check)
    check = checks[-1]
    found = [*([problem] if problem else []), *walk.findings, *_bodies(walk, check, listed)]
    if walk.seen is not None:
        found += await _beside(ports, listed, walk.seen.manifest)
    bodies = None if keys is None else check.opened
    return NamespaceReport(
        listed, walk.state.position.seq, len(walk.state.records), walk.bytes, bodies, found
    )


async def keys_of(
    ports: LogPorts, listed: Listed, secrets: Sequence[bytes] = ()
) -> tuple[NamespaceKeys | None, Finding | None]:
    """Return the keys of a namespace's newest epoch, if they can be had, and what is wrong with its keyring, if anything.

    Custody ``relayer`` needs no secret.
    """
    key = max(await ports.keys_below(Layout.keyrings(listed.incarnation)), default="")
    if not key:
        key = Layout.keyring(listed.incarnation, 1)
        begun = await ports.get(Layout.manifest(listed.incarnation)) is not None
        flaw, fix = (Flaw.ABSENT, _FROM_BACKUP) if begun else (Flaw.UNFINISHED, "")
        return None, Finding(flaw, key, "a namespace has no keyring", fix)
    found = await ports.get(key)
    if found is None:
        return None, Finding(Flaw.ABSENT, key, "the keyring vanished while it was read", _FROM_BACKUP)
    account, incarnation, pointer = listed.account, listed.incarnation, listed.pointer
    try:
        keyring = ObjectSealer(ports).unseal_keyring(account, incarnation, key, found.data)
    except UNREADABLE as error:
        return None, Finding.of(error, key, _FROM_BACKUP)
    name, generation = pointer.name, pointer.generation
    candidates = [AgentKeys("", secret).namespace_secret(name, generation) for secret in secrets]
    if pointer.custody is Custody.RELAYER:
        candidates = [ports.keys.namespace_secret(account, name, generation)]
    for secret in candidates:
        try:
            return NamespaceKeys.open(secret, keyring, account=account, incarnation=incarnation), None
        except WrongNamespaceKey:
            continue
    return None, None


def _bodies(walk: Walk, check: BodyCheck, listed: Listed) -> list[Finding]:
    found = []
    for seq in check.failed:
        sentence = f"entry {seq} holds a body that its key does not open"
        key = Layout.entry(listed.incarnation, seq)
        found.append(Finding(Flaw.WRONG_SEAL, key, sentence, _LOST_ALONE, seq, seq))
    lost = walk.state.records.keys() - check.there
    if lost and not walk.findings:
        sentence = f"{len(lost)} memories have no text any more, although nobody erased them"
        found.append(Finding(Flaw.NO_BODY, Layout.manifest(listed.incarnation), sentence, _LOST_ALONE))
    return found


async def _beside(ports: LogPorts, listed: Listed, manifest: Manifest) -> list[Finding]:
    """Look at what is there beside the log: an index that is named, and what nobody names."""
    found: list[Finding] = []
    if manifest.index_key and await ports.get(manifest.index_key) is None:
        sentence = "the manifest names an index that is absent; it is built anew when the namespace is opened"
        found.append(Finding(Flaw.LEFT_OVER, manifest.index_key, sentence))
    loose = await unnamed(ports, listed.incarnation, manifest)
    sentence = f"{len(loose)} objects that no manifest names wait for collection, this one first"
    return found + [Finding(Flaw.LEFT_OVER, key, sentence) for key in loose[:1]]


async def unnamed(ports: LogPorts, incarnation: bytes, manifest: Manifest) -> list[str]:
    """List the segments and indexes that a manifest does not name."""
    below = (Layout.segments(incarnation), Layout.indexes(incarnation))
    named = manifest.named
    return [key for start in below for key in await ports.keys_below(start) if key not in named]
