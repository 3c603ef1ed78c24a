"""The backup command: copy a consistent state of every log, with its manifest, stored index, segments and later entries.

`back_up` makes one run of a backup while relayers use the store. `LogCopy` copies one log and does not read again what the backup
holds already; it starts again if the log is compacted or collected meanwhile. A run also updates the ledger, the list of
everything that was erased, from the logs and from the reports of erasures. Objects that cannot be read now are carried over from
the run before, with a finding. `prune` deletes old runs. `relayer.operator.backup_store` describes the layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from relayer.domain.namespace import Manifest
from relayer.domain.operations import Erase, decode_operation
from relayer.errors import (
    ConfigurationError,
    CorruptNamespace,
    NamespaceClosed,
    UpgradeRequired,
    WrongRelayerKey,
)
from relayer.lib.work import together
from relayer.log.collector import seq_of
from relayer.log.erasure import ErasureKind
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ObjectSealer, Slots
from relayer.log.segments import Segments
from relayer.operator.backup_store import FORMAT, BackupHead, BackupStore, LedgerRow, Row
from relayer.operator.catalogue import (
    RESTORE,
    UNREADABLE,
    Defect,
    Flaw,
    Listed,
    ObjectKind,
    Progress,
    incarnation_of,
    kind_of,
    read_catalogue,
    read_reports,
    unseen,
    walk_log,
)

_ROUNDS = 5
_SLOTS_AT_ONCE = 8
_KEPT = "the backup keeps its state of the run before"


class LogCopy:
    """Copies one log into a backup.

    Objects that the backup holds already are not read again, up to the entry until which ``known`` covers the erasures. That
    entry itself is read, so that the hash chain confirms all entries before it.

    Attributes:
        rows: the objects of the copy, by key, after `run`.
    """

    def __init__(self, source: LogPorts, target: BackupStore, listed: Listed, known: LedgerRow) -> None:
        self.rows: dict[str, Row] = {}
        self._source = source
        self._target = target
        self._listed = listed
        self._known = known
        self._trusts = True
        self._erases = False
        self._sealer = ObjectSealer(source)
        self._slots = Slots(source, listed.account, listed.incarnation)
        self._segments = Segments(source, listed.account, listed.incarnation)

    async def run(self) -> LedgerRow:
        """Copy the log and return everything that was erased from it so far.

        Raises:
            CorruptNamespace, UpgradeRequired: the log cannot be read from end to end.
            NamespaceClosed: it has no manifest.
        """
        for _ in range(_ROUNDS):
            self.rows.clear()
            head = await self._copy()
            if head is None:
                continue
            if head < self._known.seq:
                raise CorruptNamespace(
                    f"the log ends at entry {head}, but reached {self._known.seq} before; if an older run was restored on purpose, use a new place for backups"
                )
            known = self._known
            records = known.records
            if self._erases:
                walk = await walk_log(self._source, self._listed.account, self._listed.incarnation)
                records = tuple(sorted(walk.state.erased | set(records)))
            # ``gone`` stays set: a report may already say that the namespace is erased while its pointer does not yet.
            return LedgerRow(self._listed.incarnation, self._listed.key, head, known.gone, records)
        raise CorruptNamespace("the manifest names objects that do not exist")

    async def _copy(self) -> int | None:
        """Make one attempt to copy the log.

        Returns:
            The sequence number of the last entry; None if the log was compacted or collected meanwhile.
        """
        account, incarnation = self._listed.account, self._listed.incarnation
        data, manifest = await self._manifest()
        key = Layout.keyring(incarnation)
        if (held := self._target.held(key)) is not None:
            self.rows[key] = held
        elif (found := await self._source.get(key)) is not None:
            self._sealer.unseal_keyring(account, incarnation, key, found.data)
            await self._keep(key, found.data)
        else:
            raise CorruptNamespace("a namespace has a manifest and no keyring")
        for row in manifest.segments:
            if self._target.holds(row.key, row.digest) and row.last_seq <= self._known.seq:
                self.rows[row.key] = Row(row.key, row.digest, row.size)
                continue
            segment = await self._segments.read(row)
            if segment is None:
                return None
            self._note(segment.entries())
            await self._keep(row.key, segment.data)
        head = await self._tail(manifest)
        if head is None or await self._was_collected(manifest):
            return None
        # Without the stored index, a restored namespace builds its index from the log.
        if index_key := manifest.index_key:
            if (held := self._target.held(index_key)) is not None:
                self.rows[index_key] = held  # an index is never changed after it was written
            elif (found := await self._source.get(index_key)) is not None:
                await self._keep(index_key, found.data)
        await self._keep(Layout.manifest(incarnation), data)
        return head

    async def _was_collected(self, manifest: Manifest) -> bool:
        """Return whether entries after the segments of a manifest may have been deleted by now."""
        return (await self._manifest())[1].gc_watermark > manifest.snap_seq

    async def _manifest(self) -> tuple[bytes, Manifest]:
        account, incarnation = self._listed.account, self._listed.incarnation
        key = Layout.manifest(incarnation)
        found = await self._source.get(key)
        if found is None:
            raise NamespaceClosed("the namespace has no manifest")
        return found.data, self._sealer.unseal_manifest(account, incarnation, key, found.data)

    async def _tail(self, manifest: Manifest) -> int | None:
        incarnation = self._listed.incarnation
        link, seq = manifest.chain_digest, manifest.snap_seq + 1
        trusted = self._known.seq if self._trusts else 0
        while seq < trusted and (row := self._target.held(Layout.entry(incarnation, seq))) is not None:
            self.rows[row.key] = row
            link, seq = row.digest, seq + 1
        unproved = seq - 1 > manifest.snap_seq
        while True:
            window = range(seq, seq + _SLOTS_AT_ONCE)
            found = await together([self._slots.read_alone(number) for number in window])
            for later, stored in enumerate(found, 1):
                if unproved and (stored is None or stored[1].entry.previous != link):
                    # The entries in the backup belong to another history of this log, so all of it is copied again.
                    self._trusts = False
                    return None
                if stored is None and any(found[later:]):
                    # Entries were appended, or collected, while this window was read.
                    if await self._slots.read_alone(seq) is None and not await self._was_collected(manifest):
                        raise CorruptNamespace(f"entry {seq} is missing, although later entries exist")
                    return None
                if stored is None:
                    return seq - 1
                data, linked = stored
                if linked.entry.previous != link:
                    raise CorruptNamespace(f"entry {seq} does not continue the entry before it")
                self._note([linked])
                await self._keep(Layout.entry(incarnation, seq), data)
                link, seq, unproved = linked.digest, seq + 1, False

    async def _keep(self, key: str, data: bytes) -> None:
        self.rows[key] = await self._target.keep(key, data)

    def _note(self, entries: Iterable[LinkedEntry]) -> None:
        """Record whether any entry has an erasure. Which records it erased is taken from the state of the log."""
        for linked in entries:
            operations = map(decode_operation, linked.entry.operations)
            self._erases = self._erases or any(isinstance(operation, Erase) for operation in operations)


@dataclass(slots=True)
class Backup:
    """The result of a backup.

    Attributes:
        copied_objects: number of objects that were copied by this run.
        copied_bytes: their size.
        erased_memories: number of memories in the ledger.
        findings: objects that could not be backed up; the run was made without them.
    """

    run: int
    namespaces: int = 0
    objects: int = 0
    bytes: int = 0
    copied_objects: int = 0
    copied_bytes: int = 0
    erased_memories: int = 0
    findings: list[Defect] = field(default_factory=list)


async def back_up(source: LogPorts, target: BackupStore, *, progress: Progress = unseen) -> Backup:
    """Back up a store, which relayers may use meanwhile. The target may hold earlier backups of it.

    Raises:
        ConfigurationError: another backup is being written to the target, or the target is a relayer's store.
        CorruptNamespace: the target's newest ledger cannot be read.
        WrongRelayerKey: the store has lost its store key.
    """
    if await target.ports.get(Layout.relayer()) is not None:
        raise ConfigurationError("--to: this is a relayer's store; give another directory, bucket or prefix")
    await target.load()
    number = max(await target.newest("runs"), await target.newest("ledger")) + 1
    erased = await _known_erasures(target)
    # The relayer key may have been replaced since the last run; all runs of a store are sealed with the same store key.
    key = await source.get(Layout.relayer())
    if key is None:
        raise WrongRelayerKey("the store has lost its object relayer, which contains the store key")
    await target.keep_key(key.data)
    return await _Worker(source, target, Backup(number), erased).run(progress)


async def _known_erasures(target: BackupStore) -> dict[bytes, LedgerRow]:
    newest = await target.newest("ledger")
    if not newest:
        return {}
    try:
        _, rows = await target.read("ledger", newest, LedgerRow)
    except CorruptNamespace as error:
        fix = "bring ledger/ and pages/ back from a copy of the backup, or begin a new one in another place"
        raise CorruptNamespace(
            f"--to: the list of what was erased cannot be read ({error}); {fix}"
        ) from error
    return {row.incarnation: row for row in rows}


async def prune(target: BackupStore, keep: int) -> int:
    """Delete all runs but the newest ``keep``, and the objects that only they needed; return the number of deleted objects.

    Erased data is gone from a backup once the last run from before the erasure is deleted.
    """
    runs = await target.names("runs")
    ledgers = await target.names("ledger")
    old = runs[:-keep]
    await target.drop([*old, *ledgers[:-keep]])
    wanted: set[str] = set()
    for name in runs[-keep:]:
        run, rows = await target.read("runs", seq_of(name), Row)
        wanted.update(f"pages/{digest.hex()}" for digest in run.pages)
        wanted.update(f"data/{row.key}-{row.digest.hex()}" for row in rows)
    for name in ledgers[-keep:]:
        ledger, _ = await target.read("ledger", seq_of(name), LedgerRow)
        wanted.update(f"pages/{digest.hex()}" for digest in ledger.pages)
    # Objects that are younger than this backup may belong to the next one, whose run is not written yet.
    there = [name for stream in ("pages", "data") for name in await target.names(stream)]
    unneeded = [name for name in there if name not in wanted and target.was_there(name)]
    await target.drop(unneeded)
    return len(old) + len(unneeded)


class _Worker:
    def __init__(
        self, source: LogPorts, target: BackupStore, backup: Backup, erased: dict[bytes, LedgerRow]
    ) -> None:
        self._source = source
        self._target = target
        self._backup = backup
        self._erased = erased
        self._rows: dict[str, Row] = {}
        self._before: list[Row] | None = None

    async def run(self, progress: Progress) -> Backup:
        backup = self._backup
        began = await self._now()
        catalogue = await read_catalogue(self._source)
        backup.findings += catalogue.findings
        for account in catalogue.accounts:
            tag = self._source.keys.tag("account", account)
            await self._small(Layout.account(tag))
            await self._small(Layout.revoked(tag))
        await self._reported()
        for listed in progress(catalogue.namespaces):
            await self._namespace(listed)
            successor = await self._successor(listed)
            if successor is not None:
                await self._namespace(successor)
        await self._lost_names()
        backup.namespaces = len(catalogue.namespaces)
        rows = list(self._rows.values())
        backup.objects, backup.bytes = len(rows), sum(row.size for row in rows)
        backup.copied_objects, backup.copied_bytes = self._target.copied, self._target.copied_bytes
        backup.erased_memories = sum(len(row.records) for row in self._erased.values())
        erased = sorted(self._erased.values(), key=lambda item: item.incarnation)
        ledger = BackupHead(FORMAT, backup.run, began, await self._now(), len(erased), 0, 0, ())
        run = msgspec.structs.replace(
            ledger, rows=len(rows), size=backup.bytes, namespaces=backup.namespaces, whole=not backup.findings
        )
        # The ledger is written first, because restoring a run without its ledger could bring back erased data.
        if not (
            await self._target.write("ledger", ledger, erased) and await self._target.write("runs", run, rows)
        ):
            raise ConfigurationError("--to: another backup is running there; try again later")
        gone = {row.incarnation for row in self._erased.values() if row.gone}
        keyrings = await self._target.names("keyrings")
        await self._target.drop(
            [name for name in keyrings if incarnation_of(name.removeprefix("keyrings/")) in gone]
        )
        return backup

    async def _now(self) -> int:
        return (await self._source.store.get(Layout.relayer())).store_time

    async def _small(self, key: str) -> None:
        found = await self._source.get(key)
        if found is not None:
            self._rows[key] = await self._target.keep(key, found.data)

    async def _reported(self) -> None:
        """Copy the reports of erasures and add their records to the ledger, even if the logs themselves cannot be read."""
        records: dict[bytes, set[bytes]] = defaultdict(set)
        reports, unread = await read_reports(self._source, say="; it is not in the backup")
        self._backup.findings += unread
        for key, data, report in reports:
            self._rows[key] = await self._target.keep(key, data)
            name = self._source.pointer_key(report.account, report.namespace)
            known = self._erased.get(report.incarnation, LedgerRow(report.incarnation, name))
            self._note(known, gone=known.gone or report.what is not ErasureKind.MEMORY)
            records[report.incarnation].update(report.records, report.derived)
        for incarnation, reported in records.items():
            known = self._erased[incarnation]
            self._note(known, records=tuple(sorted(reported.union(known.records))))

    def _note(self, known: LedgerRow, **changed: object) -> None:
        self._erased[known.incarnation] = msgspec.structs.replace(known, **changed)

    async def _namespace(self, listed: Listed) -> None:
        await self._small(listed.key)
        known = self._erased.get(listed.incarnation, LedgerRow(listed.incarnation, listed.key))
        for other in [row for row in self._erased.values() if row.key == listed.key]:
            if other.incarnation != listed.incarnation:
                # Since the last backup, the namespace was erased and another one was created under its name.
                self._note(other, gone=True)
        if not listed.live:
            self._note(known, gone=True)
            return
        copy = LogCopy(self._source, self._target, listed, known)
        try:
            self._erased[listed.incarnation] = await copy.run()
            self._rows.update(copy.rows)
        except NamespaceClosed as error:
            # Without a manifest, it is lost only if it once had a log.
            below = (Layout.entries(listed.incarnation), Layout.segments(listed.incarnation))
            begun = known.seq > 0 or any([await self._source.keys_below(start) for start in below])
            if begun and await self._lives(listed):
                await self._carry_over(listed, CorruptNamespace(f"{error}, and was not erased"))
        except UNREADABLE as error:
            if await self._lives(listed):
                await self._carry_over(listed, error)

    async def _successor(self, listed: Listed) -> Listed | None:
        """Return a namespace with the live incarnation that it got while it was copied; None if it has the same one.

        If its keys were rotated meanwhile, what was copied is being erased.
        """
        found = await self._source.get(listed.key)
        if found is None or not listed.live:
            return None
        try:
            pointer = ObjectSealer(self._source).unseal_pointer(listed.account, listed.key, found.data)
        except UNREADABLE:
            return None  # `_lost_names` reports it
        now = replace(listed, pointer=pointer)
        return now if now.live and now.incarnation != listed.incarnation else None

    async def _lives(self, listed: Listed) -> bool:
        """Return whether a namespace has not been erased meanwhile."""
        return listed in (await read_catalogue(self._source)).namespaces

    async def _carry_over(self, listed: Listed, error: CorruptNamespace | UpgradeRequired) -> None:
        """Carry over from the run before what it has of a namespace that cannot be read now, and report that."""
        kept = _KEPT if await self._keep_below(listed.incarnation) else "the backup does not contain it"
        fix = "find the damage with memrelay verify and repair it with memrelay repair"
        key = Layout.manifest(listed.incarnation)
        self._backup.findings.append(Defect.from_error(error, key, fix, say=f"; {kept}"))

    async def _keep_below(self, incarnation: bytes) -> bool:
        """Carry over from the run before what it has of an incarnation; return False if it has nothing."""
        below = Layout.incarnation(incarnation)
        rows = {row.key: row for row in await self._previous() if row.key.startswith(below)}
        self._rows.update(rows)
        return bool(rows)

    async def _lost_names(self) -> None:
        """Carry over the accounts and pointers of the run before that cannot be read now, and their logs.

        A relayer never deletes such an object. Without it, a whole namespace would be missing from the backup.
        """
        for row in await self._previous():
            if row.key in self._rows or kind_of(row.key) not in {ObjectKind.ACCOUNT, ObjectKind.POINTER}:
                continue
            lives = [life for life in self._erased.values() if life.key == row.key]
            left = [life for life in lives if not life.gone]
            if lives and not left:
                continue
            self._rows[row.key] = row
            for life in left:
                await self._keep_below(life.incarnation)
            lost = Defect(Flaw.ABSENT, row.key, "an account or a name is lost", RESTORE)
            findings = self._backup.findings
            said = next((finding for finding in findings if finding.key == row.key), lost)
            said = replace(said, sentence=f"{said.sentence}; {_KEPT}")
            self._backup.findings = [*(item for item in findings if item.key != row.key), said]

    async def _previous(self) -> list[Row]:
        """Return the objects of the run before; none if there is no such run or it cannot be read."""
        if self._before is None:
            self._before = []
            newest = await self._target.newest("runs")
            try:
                if newest:
                    self._before = (await self._target.read("runs", newest, Row))[1]
            except UNREADABLE as error:
                key, fix = f"runs/{newest:020d}", "the current run replaces it"
                say = "; objects that the store cannot deliver now are not copied from it"
                self._backup.findings.append(Defect.from_error(error, key, fix, say=say))
        return self._before
