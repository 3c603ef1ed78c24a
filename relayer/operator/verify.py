"""The verify command: read everything that a store holds, and report what is damaged or missing.

`verify_store` walks the log of every namespace (`relayer.operator.catalogue`), checks the keys of the relayers, and finds objects that
belong to no namespace. If a namespace's key is available, `BodyCheck` also unseals every body in its log, to check that this
works; no content is stored or shown. The result is a `StoreReport` of `Defect`s.
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
    MalformedBody,
    Operation,
    Stored,
    VectorSet,
    decode_operation,
    decode_record,
    stored_in,
)
from relayer.errors import UpgradeRequired, WrongNamespaceKey, WrongRelayerKey
from relayer.log.erasure import ErasureKind
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ObjectSealer
from relayer.operator.catalogue import (
    UNREADABLE,
    Defect,
    Flaw,
    Listed,
    ObjectKind,
    Progress,
    kind_of,
    read_catalogue,
    read_reports,
    sound,
    unseen,
    walk_log,
)
from relayer.wire import codec as ulid
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import AgentKeys

_LOST_ALONE = "it is not recalled; only a backup may contain it"
_FROM_BACKUP = "without it the namespace cannot be opened: restore it from a backup"


class BodyCheck:
    """A visitor of log entries that checks whether bodies exist and can be unsealed.

    Attributes:
        there: ids of records of which some operation still has the text.
        opened: number of operations whose bodies could be unsealed.
        failed: sequence numbers of entries with a body that could not, each once, in order.
    """

    def __init__(self, keys: NamespaceKeys | None) -> None:
        self._keys = keys
        self.there: set[bytes] = set()
        self.opened = 0
        self.failed: list[int] = []

    def __call__(self, linked: LinkedEntry) -> None:
        """Check the operations of one entry."""
        for raw in linked.entry.operations:
            try:
                operation = decode_operation(raw)
            except UpgradeRequired:
                continue
            self.there.update(item.record for item in stored_in(operation) if item.sealed)
            if self._keys is None:
                continue
            if whole(self._keys, operation):
                self.opened += 1
            elif linked.entry.seq not in self.failed[-1:]:
                self.failed.append(linked.entry.seq)


def whole(keys: NamespaceKeys, operation: Operation | MalformedBody) -> bool:
    """Return whether all bodies of an operation that still exist can be unsealed with these keys."""
    stored = stored_in(operation)
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


@dataclass(slots=True)
class NamespaceReport:
    """The result of verifying one namespace.

    Attributes:
        entries: the sequence number of the last entry that could be read.
        memories: number of memories in its state, including forgotten and superseded ones.
        inner_seals: number of operations whose bodies could be unsealed; None without the namespace's key.
    """

    ALSO = ("sound",)

    listed: Listed
    entries: int = 0
    memories: int = 0
    bytes: int = 0
    inner_seals: int | None = None
    findings: list[Defect] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Return whether nothing is lost."""
        return sound(self.findings)


@dataclass(slots=True)
class StoreReport:
    """The result of verifying a store."""

    ALSO = ("sound",)

    namespaces: list[NamespaceReport] = field(default_factory=list)
    findings: list[Defect] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Return whether nothing is lost."""
        return sound(self.findings) and all(report.sound for report in self.namespaces)


async def verify_store(
    ports: LogPorts, *, known: Sequence[str] = (), secrets: Sequence[bytes] = (), progress: Progress = unseen
) -> StoreReport:
    """Verify every namespace of a store. Relayers may use the store meanwhile.

    ``known`` are account ids for `read_catalogue`. The bodies of the namespaces that the agents' ``secrets`` open are verified
    too.
    """
    catalogue = await read_catalogue(ports, known)
    spaces = [await verify_namespace(ports, listed, secrets) for listed in progress(catalogue.namespaces)]
    beyond = await _nameless(ports, known) + await _fleet(ports)
    return StoreReport(spaces, [*catalogue.findings, *beyond])


async def _fleet(ports: LogPorts) -> list[Defect]:
    """Return findings about the relayers' shared key pairs, one for each day, which a relayer needs when it starts."""
    found: list[Defect] = []
    for key in await ports.keys_below(Layout.fleet("")):
        stored = await ports.get(key)
        try:
            if stored is not None and kind_of(key) is ObjectKind.FLEET:
                FleetPair.open(key.rpartition("/")[2], ports.keys.metadata, stored.data)
        except WrongRelayerKey:
            sentence = "a key pair of the relayers cannot be opened and may prevent them from starting"
            found.append(
                Defect(Flaw.DAMAGED, key, sentence, "remove it: a new one is created at the next start")
            )
    return found


async def _nameless(ports: LogPorts, known: Sequence[str]) -> list[Defect]:
    """Return findings about objects of namespaces that no pointer names."""
    keys = await ports.keys_below("ns/")
    namespaces = (await read_catalogue(ports, known)).namespaces
    # While its keys are rotated, a namespace has two incarnations.
    named = {one.hex() for item in namespaces for one in (item.incarnation, item.pointer.next) if one}
    reports, found = await read_reports(ports)
    # The name of a report is the id of its erasure. For a namespace that is its incarnation; for a memory it is no incarnation.
    over = [key for key, _, _ in reports] + [finding.key for finding in found]
    over = [key for key in over if key.startswith(Layout.erased()) and kind_of(key) is ObjectKind.ERASURE]
    erasing = {ulid.parse(key.rpartition("/")[2]).hex() for key in over}
    # If only a memory is erased, its namespace and the pointer still exist.
    erasing |= {report.incarnation.hex() for _, _, report in reports if report.what is not ErasureKind.MEMORY}
    found += _left_over([key for key in keys if key.split("/")[1] in erasing - named])
    sentence = "objects of a namespace without a pointer: its pointer is missing"
    lost = sorted({key.split("/")[1] for key in keys} - named - erasing)
    fix = "restore the pointer from a backup"
    return found + [Defect(Flaw.NO_NAME, f"ns/{one}", sentence, fix) for one in lost]


def _left_over(keys: Sequence[str]) -> list[Defect]:
    sentence = f"{len(keys)} objects of an erased namespace are not deleted yet, starting with this one"
    return [Defect(Flaw.LEFT_OVER, key, sentence) for key in keys[:1]]


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
    found = [*([problem] if problem else []), *walk.findings]
    for seq in check.failed:
        sentence = f"entry {seq} has a body that cannot be opened with its key"
        key = Layout.entry(listed.incarnation, seq)
        found.append(Defect(Flaw.WRONG_SEAL, key, sentence, _LOST_ALONE, seq, seq))
    lost = walk.state.records.keys() - check.there
    if lost and not walk.findings:
        sentence = f"{len(lost)} memories have lost their text, although they were not erased"
        found.append(Defect(Flaw.NO_BODY, Layout.manifest(listed.incarnation), sentence, _LOST_ALONE))
    if walk.seen is not None:
        manifest = walk.seen.manifest
        if manifest.index_key and await ports.get(manifest.index_key) is None:
            sentence = (
                "the manifest names an index that is missing; it is built again when the namespace is opened"
            )
            found.append(Defect(Flaw.LEFT_OVER, manifest.index_key, sentence))
        loose = await unreferenced_keys(ports, listed.incarnation, manifest)
        sentence = (
            f"{len(loose)} objects without a reference wait for garbage collection, starting with this one"
        )
        found += [Defect(Flaw.LEFT_OVER, key, sentence) for key in loose[:1]]
    bodies = None if keys is None else check.opened
    return NamespaceReport(
        listed, walk.state.position.seq, len(walk.state.records), walk.bytes, bodies, found
    )


async def keys_of(
    ports: LogPorts, listed: Listed, secrets: Sequence[bytes] = ()
) -> tuple[NamespaceKeys | None, Defect | None]:
    """Return the keys of a namespace, or None, and a finding about its keyring, or None.

    Under custody ``relayer`` no secret is needed. Otherwise there are no keys if none of the secrets fits.
    """
    key = Layout.keyring(listed.incarnation)
    found = await ports.get(key)
    if found is None:
        begun = await ports.get(Layout.manifest(listed.incarnation)) is not None
        flaw, fix = (Flaw.ABSENT, _FROM_BACKUP) if begun else (Flaw.UNFINISHED, "")
        return None, Defect(flaw, key, "a namespace has no keyring", fix)
    account, incarnation, pointer = listed.account, listed.incarnation, listed.pointer
    try:
        keyring = ObjectSealer(ports).unseal_keyring(account, incarnation, key, found.data)
    except UNREADABLE as error:
        return None, Defect.from_error(error, key, _FROM_BACKUP)
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


async def unreferenced_keys(ports: LogPorts, incarnation: bytes, manifest: Manifest) -> list[str]:
    """Return the keys of the segments and indexes that a manifest does not refer to."""
    below = (Layout.segments(incarnation), Layout.indexes(incarnation))
    named = manifest.named
    return [key for start in below for key in await ports.keys_below(start) if key not in named]
