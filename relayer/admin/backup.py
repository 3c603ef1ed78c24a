"""Back up: copy every log from one moment of its life, manifest, stored index, segments and every entry after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from relayer.admin.backup_store import FORMAT, BackupHead, BackupStore, Erased, Row
from relayer.admin.catalogue import (
    RESTORE,
    UNREADABLE,
    Finding,
    Flaw,
    Kind,
    Listed,
    Progress,
    incarnation_of,
    kind_of,
    pointer_key,
    read_catalogue,
    read_reports,
    seq_of,
    unseen,
)
from relayer.admin.walk import walk_log
from relayer.domain.namespace import Manifest
from relayer.domain.operations import Erase, decode_operation
from relayer.errors import ConfigurationError, CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.lib.work import together
from relayer.log.erasure.reports import What
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ObjectSealer, Slots
from relayer.log.segments import Segments

_ROUNDS = 5
_SLOTS_AT_ONCE = 8
_KEPT = "the backup keeps its state of the run before"


class LogCopy:
    """The copying of one log.

    What the backup holds already is not read again, as far as ``known`` says that its erasures were noted; the last such
    entry is, so that the chain vouches for all before it.

    Attributes:
        rows: what belongs to the copy, by key, after `run`.
    """

    def __init__(self, source: LogPorts, target: BackupStore, listed: Listed, known: Erased) -> None:
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

    async def run(self) -> Erased:
        """Copy the log and return what was erased of it so far.

        Raises:
            CorruptNamespace, UpgradeRequired: it cannot be read from end to end.
            NamespaceClosed: it has no manifest.
        """
        for _ in range(_ROUNDS):
            self.rows.clear()
            head = await self._copy()
            if head is None:
                continue
            if head < self._known.seq:
                raise CorruptNamespace(
                    f"the log ends at entry {head}, and went on to {self._known.seq} before; if an older run was restored "
                    "on purpose, give the backups a new place"
                )
            return await self._ledger_row(head)
        raise CorruptNamespace("the manifest names objects that do not exist")

    async def _copy(self) -> int | None:
        """Make one attempt; returns the last entry's number, None if the log was compacted or collected meanwhile."""
        data, manifest = await self._manifest()
        for epoch in range(1, manifest.key_epoch + 1):
            there = await self._keyring(Layout.keyring(self._listed.incarnation, epoch))
            if not there and epoch == manifest.key_epoch:
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
        if manifest.index_key:
            await self._index(manifest.index_key)
        await self._keep(Layout.manifest(self._listed.incarnation), data)
        return head

    async def _index(self, key: str) -> None:
        """Copy the stored index, unless it is gone: without it a restored namespace is opened from its log."""
        held = self._target.held(key)
        if held is not None:
            self.rows[key] = held  # an index is never changed
        elif (found := await self._source.get(key)) is not None:
            await self._keep(key, found.data)

    async def _was_collected(self, manifest: Manifest) -> bool:
        """Whether entries behind a manifest's segments may be deleted by now."""
        return (await self._manifest())[1].gc_watermark > manifest.snap_seq

    async def _manifest(self) -> tuple[bytes, Manifest]:
        account, incarnation = self._listed.account, self._listed.incarnation
        key = Layout.manifest(incarnation)
        found = await self._source.get(key)
        if found is None:
            raise NamespaceClosed("the namespace has no manifest")
        return found.data, self._sealer.unseal_manifest(account, incarnation, key, found.data)

    async def _keyring(self, key: str) -> bool:
        """Copy the keyring of an epoch; False if there is none: it was destroyed."""
        held = self._target.held(key)
        if held is not None:
            self.rows[key] = held
            return True
        found = await self._source.get(key)
        if found is None:
            return False
        self._sealer.unseal_keyring(self._listed.account, self._listed.incarnation, key, found.data)
        await self._keep(key, found.data)
        return True

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
                    self._trusts = False  # what the backup holds is of another history: copy all of it
                    return None
                if stored is None and any(found[later:]):
                    # Entries were written, or collected, while they were asked for.
                    await self._check_hole(seq, manifest)
                    return None
                if stored is None:
                    return seq - 1
                data, linked = stored
                if linked.entry.previous != link:
                    raise CorruptNamespace(f"entry {seq} does not follow the one before it")
                self._note([linked])
                await self._keep(Layout.entry(incarnation, seq), data)
                link, seq, unproved = linked.digest, seq + 1, False

    async def _check_hole(self, seq: int, manifest: Manifest) -> None:
        """See that an entry that was absent before later ones is there by now, or not to be read any more."""
        if await self._slots.read_alone(seq) is None and not await self._was_collected(manifest):
            raise CorruptNamespace(f"entry {seq} is absent, and later ones are there")

    async def _keep(self, key: str, data: bytes) -> None:
        self.rows[key] = await self._target.keep(key, data)

    def _note(self, entries: Iterable[LinkedEntry]) -> None:
        """See whether anything was erased; whether it took effect is for the state to say."""
        for linked in entries:
            operations = map(decode_operation, linked.entry.operations)
            self._erases = self._erases or any(isinstance(operation, Erase) for operation in operations)

    async def _ledger_row(self, head: int) -> Erased:
        known = self._known
        records = known.records
        if self._erases:
            walk = await walk_log(self._source, self._listed.account, self._listed.incarnation)
            records = tuple(sorted(walk.state.erased | set(records)))
        # An erasure that was asked for stays so while its name does not show it yet.
        return Erased(self._listed.incarnation, self._listed.key, head, known.gone, records)


@dataclass(slots=True)
class Backup:
    """What a backup did.

    Attributes:
        run: its number.
        objects: that belong to it, and how many of them were copied now.
        findings: what could not be backed up; the run is made without it.
    """

    run: int
    namespaces: int = 0
    objects: int = 0
    bytes: int = 0
    copied_objects: int = 0
    copied_bytes: int = 0
    erased_memories: int = 0
    findings: list[Finding] = field(default_factory=list)


async def back_up(source: LogPorts, target: BackupStore, *, progress: Progress = unseen) -> Backup:
    """Make a backup of a store that relayers may go on using; the target may hold earlier ones of it.

    Raises:
        ConfigurationError: another backup is being written there, or it is a relayer's store.
        CorruptNamespace: the target's newest ledger cannot be read.
    """
    if await target.ports.get(Layout.relayer()) is not None:
        raise ConfigurationError(
            "--to: relayers use that place as their store; give another directory, bucket or prefix"
        )
    await target.load()
    number = max(await target.newest("runs"), await target.newest("ledger")) + 1
    return await _Worker(source, target, Backup(number), await _known_erasures(target)).run(progress)


async def _known_erasures(target: BackupStore) -> dict[bytes, Erased]:
    newest = await target.newest("ledger")
    if not newest:
        return {}
    try:
        _, rows = await target.read("ledger", newest, Erased)
    except CorruptNamespace as error:
        fix = "bring ledger/ and pages/ back from a copy of the backup, or begin a new one in another place"
        raise CorruptNamespace(
            f"--to: the list of what was erased cannot be read ({error}); {fix}"
        ) from error
    return {row.incarnation: row for row in rows}


async def prune(target: BackupStore, keep: int) -> int:
    """Destroy all runs but the newest ``keep``, and what only they needed; returns how many objects that were.

    What was erased is gone from a backup when the last run from before its erasure is.
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
        ledger, _ = await target.read("ledger", seq_of(name), Erased)
        wanted.update(f"pages/{digest.hex()}" for digest in ledger.pages)
    # What is younger than this backup may be of the next one, whose run is not written yet.
    there = [name for stream in ("pages", "data") for name in await target.names(stream)]
    unneeded = [name for name in there if name not in wanted and target.was_there(name)]
    await target.drop(unneeded)
    return len(old) + len(unneeded)


class _Worker:
    def __init__(
        self, source: LogPorts, target: BackupStore, backup: Backup, erased: dict[bytes, Erased]
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
        await self._lost_names()
        backup.namespaces = len(catalogue.namespaces)
        backup.objects = len(self._rows)
        backup.bytes = sum(row.size for row in self._rows.values())
        backup.copied_objects, backup.copied_bytes = self._target.copied, self._target.copied_bytes
        backup.erased_memories = sum(len(row.records) for row in self._erased.values())
        await self._write(began)
        gone = {row.incarnation for row in self._erased.values() if row.gone}
        keyrings = await self._target.names("keyrings")
        await self._target.drop(
            [name for name in keyrings if incarnation_of(name.removeprefix("keyrings/")) in gone]
        )
        return backup

    async def _now(self) -> int:
        return (await self._source.store.get(self._source.layout.at(Layout.relayer()))).store_time

    async def _write(self, began: int) -> None:
        backup, now = self._backup, await self._now()
        erased = sorted(self._erased.values(), key=lambda item: item.incarnation)
        rows = list(self._rows.values())
        ledger = BackupHead(FORMAT, backup.run, began, now, len(erased), 0, 0, ())
        run = msgspec.structs.replace(
            ledger, rows=len(rows), size=backup.bytes, namespaces=backup.namespaces, whole=not backup.findings
        )
        # The ledger first: a run whose ledger is missing could bring back what it would have kept away.
        if not (
            await self._target.write("ledger", ledger, erased) and await self._target.write("runs", run, rows)
        ):
            raise ConfigurationError("--to: another backup is being written there; run this one again")

    async def _small(self, key: str) -> None:
        """Copy an object that may change, if it is there."""
        found = await self._source.get(key)
        if found is not None:
            self._rows[key] = await self._target.keep(key, found.data)

    async def _reported(self) -> None:
        """Copy the reports of erasures, and have the ledger know what they say, whether or not their logs can be read."""
        records: dict[bytes, set[bytes]] = defaultdict(set)
        reports, unread = await read_reports(self._source, say="; it is not in the backup")
        self._backup.findings += unread
        for key, data, report in reports:
            self._rows[key] = await self._target.keep(key, data)
            name = pointer_key(self._source, report.account, report.namespace)
            known = self._erased.get(report.incarnation, Erased(report.incarnation, name))
            self._note(known, gone=known.gone or report.what is What.NAMESPACE)
            records[report.incarnation].update(report.records, report.derived)
        for incarnation, reported in records.items():
            known = self._erased[incarnation]
            self._note(known, records=tuple(sorted(reported.union(known.records))))

    def _note(self, known: Erased, **changed: object) -> None:
        self._erased[known.incarnation] = msgspec.structs.replace(known, **changed)

    async def _namespace(self, listed: Listed) -> None:
        await self._small(listed.key)
        known = self._erased.get(listed.incarnation, Erased(listed.incarnation, listed.key))
        for other in [row for row in self._erased.values() if row.key == listed.key]:
            if other.incarnation != listed.incarnation:
                # The name was erased and used again since the last backup.
                self._note(other, gone=True)
        if not listed.live:
            self._note(known, gone=True)
            return
        copy = LogCopy(self._source, self._target, listed, known)
        try:
            self._erased[listed.incarnation] = await copy.run()
            self._rows.update(copy.rows)
        except NamespaceClosed as error:
            if await self._begun(listed, known) and await self._lives(listed):
                await self._carry_over(listed, CorruptNamespace(f"{error}, and was not erased"))
        except UNREADABLE as error:
            if await self._lives(listed):
                await self._carry_over(listed, error)

    async def _begun(self, listed: Listed, known: Erased) -> bool:
        """Whether a namespace without a manifest had a log."""
        below = (Layout.entries(listed.incarnation), Layout.segments(listed.incarnation))
        return known.seq > 0 or any([await self._source.keys_below(start) for start in below])

    async def _lives(self, listed: Listed) -> bool:
        """Whether nobody has erased a namespace meanwhile."""
        return listed in (await read_catalogue(self._source)).namespaces

    async def _carry_over(self, listed: Listed, error: CorruptNamespace | UpgradeRequired) -> None:
        """Give this run what the one before has of a namespace that cannot be read now."""
        kept = _KEPT if await self._keep_below(listed.incarnation) else "the backup has nothing of it"
        fix = "memrelay verify names what is wrong, memrelay repair mends it"
        key = Layout.manifest(listed.incarnation)
        self._backup.findings.append(Finding.of(error, key, fix, say=f"; {kept}"))

    async def _keep_below(self, incarnation: bytes) -> bool:
        """Give this run what the one before has of an incarnation; False if it has nothing."""
        below = Layout.incarnation(incarnation)
        rows = {row.key: row for row in await self._previous() if row.key.startswith(below)}
        self._rows.update(rows)
        return bool(rows)

    async def _lost_names(self) -> None:
        """Give this run the accounts and names of the one before that cannot be read now, and their logs.

        Nothing ever deletes such an object: without it a whole namespace would fall out of the backup.
        """
        for row in await self._previous():
            if row.key in self._rows or kind_of(row.key) not in {Kind.ACCOUNT, Kind.POINTER}:
                continue
            lives = [life for life in self._erased.values() if life.key == row.key]
            left = [life for life in lives if not life.gone]
            if lives and not left:
                continue
            self._rows[row.key] = row
            for life in left:
                await self._keep_below(life.incarnation)
            lost = Finding(Flaw.ABSENT, row.key, "an account or a name is lost", RESTORE)
            findings = self._backup.findings
            said = next((finding for finding in findings if finding.key == row.key), lost)
            said = replace(said, sentence=f"{said.sentence}; {_KEPT}")
            self._backup.findings = [*(item for item in findings if item.key != row.key), said]

    async def _previous(self) -> list[Row]:
        """Return what the run before consists of, nothing if there is none or it cannot be read."""
        if self._before is None:
            self._before = []
            newest = await self._target.newest("runs")
            try:
                if newest:
                    self._before = (await self._target.read("runs", newest, Row))[1]
            except UNREADABLE as error:
                key, fix = f"runs/{newest:020d}", "the run that was made now replaces it"
                say = "; what cannot be read of the store now is not taken from it"
                self._backup.findings.append(Finding.of(error, key, fix, say=say))
        return self._before
