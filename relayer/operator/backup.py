"""Copies a store that is in use to a backup, so that what belongs together is from one moment of each log.

Only what the backup does not hold yet is read: new entries, new segments, and the few small objects that change. A backup
that ends anywhere leaves objects that the next one finds and goes on from; it counts as made when its run is written,
which is done last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from relayer.errors import ConfigurationError, CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.log.erasure_reports import ErasureReport, ErasureReports, What
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.operator.backup_log import LogCopy
from relayer.operator.backup_store import FORMAT, BackupStore, Erased, Head, Row
from relayer.operator.catalogue import RESTORE, Listed, keys_below, read_catalogue
from relayer.operator.findings import UNREADABLE_REPORT, Finding, Flaw
from relayer.operator.kinds import Kind, incarnation_of, kind_of
from relayer.ports import Found

__all__ = ["Backup", "back_up", "prune"]

Progress = Callable[[int, int], None]
_KEPT = "the backup keeps its state of the run before"


@dataclass(slots=True)
class Backup:
    """What a backup did.

    Attributes:
        number: of its run.
        objects: that belong to it, and how many of them were copied now.
        findings: what could not be backed up; the run is made without it.
    """

    number: int
    namespaces: int = 0
    objects: int = 0
    bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0
    erased: int = 0
    findings: list[Finding] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "run": self.number,
            "namespaces": self.namespaces,
            "objects": self.objects,
            "bytes": self.bytes,
            "copied_objects": self.copied,
            "copied_bytes": self.copied_bytes,
            "erased_memories": self.erased,
            "findings": [finding.row() for finding in self.findings],
        }


async def back_up(
    source: LogPorts, target: BackupStore, *, progress: Progress = lambda _done, _total: None
) -> Backup:
    """Make a backup.

    Args:
        source: the store; relayers may go on using it.
        target: where to; may hold earlier backups of it.
        progress: called after each namespace with how many are done, and how many there are.

    Raises:
        ConfigurationError: another backup is being written there, or it is a relayer's store.
        CorruptNamespace: the target's newest ledger cannot be read.
        StoreError: a store did not answer; running again goes on.
    """
    if isinstance(await target.ports.store.get(target.ports.layout.at(Layout.relayer())), Found):
        raise ConfigurationError(
            "--to: relayers use that place as their store; give another directory, bucket or prefix"
        )
    await target.load()
    number = max(await target.newest("runs"), await target.newest("ledger")) + 1
    worker = _Worker(source, target, Backup(number), await _known_erasures(target))
    return await worker.run(progress)


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
    old, kept = runs[:-keep], runs[-keep:]
    await target.drop([*old, *ledgers[:-keep]])
    wanted: set[str] = set()
    for name in kept:
        run, rows = await target.read("runs", _number(name), Row)
        wanted.update(f"pages/{digest.hex()}" for digest in run.pages)
        wanted.update(f"data/{row.key}-{row.digest.hex()}" for row in rows)
    for name in ledgers[-keep:]:
        ledger, _ = await target.read("ledger", _number(name), Erased)
        wanted.update(f"pages/{digest.hex()}" for digest in ledger.pages)
    # What is younger than this backup may be of the next one, whose run is not written yet.
    unneeded = [
        name
        for stream in ("pages", "data")
        for name in await target.names(stream)
        if name not in wanted and target.was_there(name)
    ]
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
        self._reports = ErasureReports(source)
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
        for done, listed in enumerate(catalogue.namespaces, 1):
            await self._namespace(listed)
            progress(done, len(catalogue.namespaces))
        await self._lost_names()
        backup.namespaces = len(catalogue.namespaces)
        backup.objects = len(self._rows)
        backup.bytes = sum(row.size for row in self._rows.values())
        backup.copied, backup.copied_bytes = self._target.copied, self._target.copied_bytes
        backup.erased = sum(len(row.records) for row in self._erased.values())
        await self._write(began)
        await self._destroy_keyrings()
        return backup

    async def _now(self) -> int:
        return (await self._source.store.get(self._source.layout.at(Layout.relayer()))).store_time

    async def _write(self, began: int) -> None:
        backup, now = self._backup, await self._now()
        erased = sorted(self._erased.values(), key=lambda item: item.incarnation)
        ledger = Head(FORMAT, backup.number, began, now, len(erased), 0, 0, ())
        rows = list(self._rows.values())
        run = Head(
            FORMAT,
            backup.number,
            began,
            now,
            len(rows),
            backup.bytes,
            backup.namespaces,
            (),
            whole=not backup.findings,
        )
        # The ledger first: a run whose ledger is missing could bring back what it would have kept away.
        if not (
            await self._target.write("ledger", ledger, erased) and await self._target.write("runs", run, rows)
        ):
            raise ConfigurationError("--to: another backup is being written there; run this one again")

    async def _destroy_keyrings(self) -> None:
        names = await self._target.names("keyrings")
        await self._target.drop(
            [name for name in names if (row := self._erased.get(_incarnation(name))) is not None and row.gone]
        )

    async def _small(self, key: str) -> None:
        """Copy an object that may change, if it is there."""
        found = await self._source.store.get(self._source.layout.at(key))
        if isinstance(found, Found):
            self._rows[key] = await self._target.keep(key, found.data)

    async def _reported(self) -> None:
        """Copy the reports of erasures, and have the ledger know what they say, whether or not their logs can be read."""
        records: dict[bytes, set[bytes]] = defaultdict(set)
        # In the order in which a report moves: one that does so meanwhile is found in one place at least.
        for start in (Layout.erasing(), Layout.erased()):
            for key in await keys_below(self._source, start):
                report = await self._report(key)
                if report is None:
                    continue
                known = self._erased.get(
                    report.incarnation, Erased(report.incarnation, self._name_of(report))
                )
                gone = known.gone or report.what is What.NAMESPACE
                self._erased[report.incarnation] = msgspec.structs.replace(known, gone=gone)
                records[report.incarnation].update(report.records, report.derived)
        for incarnation, reported in records.items():
            known = self._erased[incarnation]
            both = tuple(sorted(reported.union(known.records)))
            self._erased[incarnation] = msgspec.structs.replace(known, records=both)

    async def _report(self, key: str) -> ErasureReport | None:
        found = await self._source.store.get(self._source.layout.at(key))
        if not isinstance(found, Found):
            return None
        try:
            report = self._reports.open(key, found.data)
        except (CorruptNamespace, UpgradeRequired) as error:
            sentence = f"{error}; it is not in the backup"
            self._backup.findings.append(Finding(Flaw.of(error), key, sentence, UNREADABLE_REPORT))
            return None
        self._rows[key] = await self._target.keep(key, found.data)
        return report

    def _name_of(self, report: ErasureReport) -> str:
        tag = self._source.keys.tag
        return Layout.pointer(
            tag("account", report.account), tag("namespace", report.account, report.namespace)
        )

    async def _namespace(self, listed: Listed) -> None:
        await self._small(listed.key)
        known = self._erased.get(listed.incarnation, Erased(listed.incarnation, listed.key))
        for other in [row for row in self._erased.values() if row.key == listed.key]:
            if other.incarnation != listed.incarnation:
                # The name was erased and used again since the last backup.
                self._erased[other.incarnation] = msgspec.structs.replace(other, gone=True)
        if not listed.live:
            self._erased[listed.incarnation] = msgspec.structs.replace(known, gone=True)
            return
        copy = LogCopy(self._source, self._target, listed, known)
        try:
            copied = await copy.run()
            self._erased[listed.incarnation] = copied
            self._rows.update(copy.rows)
        except NamespaceClosed as error:
            if await self._begun(listed, known) and await self._lives(listed):
                await self._carry_over(listed, CorruptNamespace(f"{error}, and was not erased"))
        except (CorruptNamespace, UpgradeRequired) as error:
            if await self._lives(listed):
                await self._carry_over(listed, error)

    async def _begun(self, listed: Listed, known: Erased) -> bool:
        """Whether a namespace without a manifest had a log."""
        below = (Layout.entries(listed.incarnation), Layout.segments(listed.incarnation))
        return known.seq > 0 or any([await keys_below(self._source, start) for start in below])

    async def _lives(self, listed: Listed) -> bool:
        """Whether nobody has erased a namespace meanwhile."""
        return listed in (await read_catalogue(self._source)).namespaces

    async def _carry_over(self, listed: Listed, error: CorruptNamespace | UpgradeRequired) -> None:
        """Give this run what the one before has of a namespace that cannot be read now."""
        kept = _KEPT if await self._keep_below(listed.incarnation) else "the backup has nothing of it"
        fix = "memrelay verify names what is wrong, memrelay repair mends it"
        key = Layout.manifest(listed.incarnation)
        self._backup.findings.append(Finding(Flaw.of(error), key, f"{error}; {kept}", fix))

    async def _keep_below(self, incarnation: bytes) -> bool:
        """Give this run what the one before has of an incarnation; False if it has nothing."""
        below = f"ns/{incarnation.hex()}/"
        rows = [row for row in await self._previous() if row.key.startswith(below)]
        self._rows.update({row.key: row for row in rows})
        return bool(rows)

    async def _lost_names(self) -> None:
        """Give this run the accounts and names of the one before that cannot be read now, and their logs.

        Nothing ever deletes such an object: without it a whole namespace would fall out of the backup.
        """
        for row in await self._previous():
            if row.key in self._rows or kind_of(row.key) not in {Kind.ACCOUNT, Kind.POINTER}:
                continue
            lives = [life for life in self._erased.values() if life.key == row.key]
            if lives and all(life.gone for life in lives):
                continue
            self._rows[row.key] = row
            for life in lives:
                if not life.gone:
                    await self._keep_below(life.incarnation)
            said = [finding for finding in self._backup.findings if finding.key == row.key]
            finding = (
                said[0] if said else Finding(Flaw.ABSENT, row.key, "an account or a name is lost", RESTORE)
            )
            self._backup.findings = [other for other in self._backup.findings if other not in said]
            self._backup.findings.append(replace(finding, sentence=f"{finding.sentence}; {_KEPT}"))

    async def _previous(self) -> list[Row]:
        """Return what the run before consists of, nothing if there is none or it cannot be read."""
        if self._before is None:
            self._before = []
            newest = await self._target.newest("runs")
            try:
                if newest:
                    self._before = (await self._target.read("runs", newest, Row))[1]
            except (CorruptNamespace, UpgradeRequired) as error:
                sentence = f"{error}; what cannot be read of the store now is not taken from it"
                key, fix = f"runs/{newest:020d}", "the run that was made now replaces it"
                self._backup.findings.append(Finding(Flaw.of(error), key, sentence, fix))
        return self._before


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])


def _incarnation(name: str) -> bytes:
    return incarnation_of(name.removeprefix("keyrings/")) or b""
