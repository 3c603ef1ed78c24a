"""Restore: bring a backup back, and erase again what was erased since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.access.accounts import account_at
from relayer.access.relayer_check import begin_restore, begun_restore, end_restore
from relayer.admin.backup_store import BackupStore, Erased, Head, Row
from relayer.admin.catalogue import Finding, Flaw, Kind, Listed, incarnation_of, keys_below, kind_of
from relayer.admin.repair import repair_namespace
from relayer.admin.walk import seq_of
from relayer.domain.namespace import Pointer
from relayer.domain.operations import Erase, Origin
from relayer.errors import (
    ConfigurationError,
    CorruptNamespace,
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRequired,
)
from relayer.log.collector import Collector
from relayer.log.erasure.destruction import destroy
from relayer.log.erasure.memories import MemoryEraser, report_of
from relayer.log.erasure.reports import ErasureReports, SeenReport, Stage
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.namespace_log import NamespaceLog
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Created, Exists, Found, Swapped, Throttled

_NONCE_SIZE = 16
# A collection is begun, and over: each takes a round, and one more where a report is taken up in the middle.
_ROUNDS = 8


async def erase_records(ports: LogPorts, listed: Listed, records: Sequence[bytes]) -> int:
    """Erase those of ``records`` that a log holds, until that is confirmed; returns how many there were.

    Nobody else may use the namespace meanwhile. Running it again completes it.

    Raises:
        CorruptNamespace, UpgradeRequired: the log cannot be read.
        StoreError: the store did not answer.
    """
    log = NamespaceLog(ports, listed.account, listed.pointer)
    await log.start()
    try:
        there = [record for record in records if record in log.state.records]
        if there:
            origin = Origin(author=b"", nonce=ports.randomness.bytes(_NONCE_SIZE))
            outcome = (await log.append([Erase(origin, tuple(there))]))[0]
            if outcome.refusal is not None:
                raise StoreUnavailable("the log does not take an erasure; running the restore again is safe")
        await _destroy_again(ports, listed, log)
        await _destroy(ports, listed, log)
    finally:
        await log.close()
    return len(there)


async def _destroy_again(ports: LogPorts, listed: Listed, log: NamespaceLog) -> None:
    """Destroy what nobody names: a restore that was stopped, and is run again, puts back what it had destroyed."""
    manifest = await log.replica.manifest.read()
    named = {row.key for row in manifest.segments} | {manifest.index_key}
    loose = [
        key
        for start in (Layout.segments(listed.incarnation), Layout.indexes(listed.incarnation))
        for key in await keys_below(ports, start)
        if key not in named
    ]
    slots = await keys_below(ports, Layout.entries(listed.incarnation))
    dead = [key for key in slots if seq_of(key) <= manifest.gc_watermark]
    await destroy(ports.store, map(ports.layout.at, [*loose, *dead]))


async def _destroy(ports: LogPorts, listed: Listed, log: NamespaceLog) -> None:
    """Destroy what the store holds of all that was ever erased in this log, as far as that is not confirmed."""
    collector = Collector(ports, listed.account, listed.incarnation, grace_ms=0)
    eraser = MemoryEraser(ports, log.replica, collector.run, grace_ms=0)
    reports = ErasureReports(ports)
    for erasure in log.state.erasures.known:
        report = report_of(listed.account, listed.pointer.name, log.replica, erasure)
        seen = await reports.begin(report)
        if not await _confirmed(eraser, seen):
            raise StoreUnavailable("what was erased is not destroyed yet; running the restore again is safe")
    for _ in range(_ROUNDS):
        if await eraser.tidy():
            return
    raise StoreUnavailable(
        "what came after its erasure is not destroyed yet; running the restore again is safe"
    )


async def _confirmed(eraser: MemoryEraser, seen: SeenReport) -> bool:
    for _ in range(_ROUNDS):
        if seen.report.stage is Stage.CONFIRMED:
            return True
        seen = await eraser.run(seen)
    return seen.report.stage is Stage.CONFIRMED


Progress = Callable[[int, int], None]
_ATTEMPTS = 5
_OLDER = "an older run may have it: --run"
# What a restore changes after it has put it back.
_CHANGED = frozenset({Kind.MANIFEST, Kind.ERASURE})


@dataclass(slots=True)
class Restoration:
    """What a restore did.

    Attributes:
        run: the head of the backup that was restored.
        ledger: of the list of what was erased that was applied.
        forgotten: memories and namespaces that are in the backup and were erased since.
        findings: namespaces that could not be restored, and are not there.
    """

    run: Head
    ledger: Head
    namespaces: int = 0
    objects: int = 0
    bytes: int = 0
    erased_memories: int = 0
    erased_namespaces: int = 0
    findings: list[Finding] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "run": self.run.number,
            "run_began": self.run.began,
            "ledger": self.ledger.number,
            "namespaces": self.namespaces,
            "objects": self.objects,
            "bytes": self.bytes,
            "erased_memories": self.erased_memories,
            "erased_namespaces": self.erased_namespaces,
            "findings": [finding.row() for finding in self.findings],
        }


async def restore(
    backup: BackupStore,
    target: LogPorts,
    *,
    number: int | None = None,
    ledgers: BackupStore | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Restoration:
    """Restore a run of a backup.

    Args:
        backup: where from.
        target: an empty store, or one in which the same restore stopped.
        number: of the run; None takes the one whose restore stopped in the target, else the newest.
        ledgers: a backup that holds a newer ledger than ``backup``, when that is an old copy itself.
        progress: called after each namespace with how many are done, and how many there are.

    Raises:
        ConfigurationError: there is no such run, or the newest ledger is missing.
        CorruptNamespace: run or ledger are damaged, or were made with another relayer key.
        StoreMisconfigured: the target is in use.
        StoreError: a store did not answer; running again goes on.
    """
    newest = await backup.newest("runs")
    if not newest:
        raise ConfigurationError(
            "--from: there is no backup; give the place that memrelay backup --to was given"
        )
    begun = await begun_restore(target)
    if number is None and begun:
        number = int(begun.partition("/")[0])
    if number is not None and f"runs/{number:020d}" not in await backup.names("runs"):
        fix = "; a restore of it was begun: give an empty place" if begun else ""
        raise ConfigurationError(f"--run: the backup has no run {number}; its newest is {newest}{fix}")
    head, rows = await backup.read("runs", number or newest, Row)
    ledger, erased = await _newest_ledger(ledgers or backup, newest)
    # Parts of two runs would make a store that never was, and in which what only the newer one has is missing.
    await begin_restore(target, f"{head.number}/{head.began}")
    done = Restoration(head, ledger)
    if head.number != newest:
        rows = await _with_newest_accounts(backup, newest, rows, done)
    await _Worker(backup, target, rows, {row.incarnation: row for row in erased}, done).run(progress)
    await end_restore(target)
    return done


async def _with_newest_accounts(
    backup: BackupStore, newest: int, rows: list[Row], done: Restoration
) -> list[Row]:
    """Return the rows of an older run with the newest one's accounts: what they took back since stays taken back."""
    wanted = {row.key: row for row in rows}
    try:
        for row in (await backup.read("runs", newest, Row))[1]:
            if kind_of(row.key) is Kind.ACCOUNT and await backup.fetch(row) is not None:
                wanted[row.key] = row
    except (CorruptNamespace, UpgradeRequired) as error:
        sentence = f"{error}; what accounts took back since the restored run may be good again"
        fix = "have their owners send it again: memrelay-gateway keys revoke"
        done.findings.append(Finding(Flaw.of(error), f"runs/{newest:020d}", sentence, fix))
    return list(wanted.values())


async def _newest_ledger(place: BackupStore, run: int) -> tuple[Head, list[Erased]]:
    newest = await place.newest("ledger")
    if newest < run:
        raise ConfigurationError(
            f"--ledger: the list of what was erased is missing: the newest is {newest or 'none'}, the newest backup is "
            f"{run}. Without it erased memories would come back; bring the backup's ledger/ back, or name the place of a "
            "newer backup with --ledger"
        )
    return await place.read("ledger", newest, Erased)


class _Worker:
    def __init__(
        self,
        backup: BackupStore,
        target: LogPorts,
        rows: list[Row],
        erased: dict[bytes, Erased],
        done: Restoration,
    ) -> None:
        self._backup = backup
        self._target = target
        self._rows = rows
        self._erased = erased
        self._done = done
        self._sealer = ObjectSealer(target)

    async def run(self, progress: Progress) -> None:
        accounts: dict[str, str] = {}
        for row in self._of(Kind.ACCOUNT):
            data = await self._fetch(row)
            if data is not None:
                accounts[row.key.split("/")[1]] = account_at(self._target.keys, row.key, data)
                await self._put(row.key, data)
        await self._erasures()
        pointers = self._of(Kind.POINTER)
        below: dict[bytes, list[Row]] = {}
        for row in self._rows:
            if (incarnation := incarnation_of(row.key)) is not None:
                below.setdefault(incarnation, []).append(row)
        for count, row in enumerate(pointers, 1):
            await self._name(row, accounts.get(row.key.split("/")[1]), below)
            progress(count, len(pointers))

    async def _erasures(self) -> None:
        """Bring reports back; what was under way begins anew, because the store that it had got on with is gone."""
        reports = ErasureReports(self._target)
        for row in self._of(Kind.ERASURE):
            data = await self._fetch(row)
            if data is None:
                continue
            await self._put(row.key, data)
            seen = await reports.read(row.key)
            if seen is not None and row.key.startswith(Layout.erasing()):
                anew = msgspec.structs.replace(seen.report, stage=Stage.ERASED, epoch=0, destroyed_at=0)
                if anew != seen.report and await reports.advance(seen, anew) is None:
                    raise StoreUnavailable("a report could not be written; running the restore again goes on")

    def _of(self, kind: Kind) -> list[Row]:
        return [row for row in self._rows if kind_of(row.key) is kind]

    async def _name(self, row: Row, account: str | None, below: dict[bytes, list[Row]]) -> None:
        data = await self._fetch(row)
        if data is None or account is None:
            if account is None:
                sentence = "the account of a name is not in the backup, or not whole"
                self._done.findings.append(Finding(Flaw.NO_ACCOUNT, row.key, sentence))
            return
        pointer = self._sealer.unseal_pointer(account, row.key, data)
        listed = Listed(account, row.key, pointer)
        if listed.live and self._gone(pointer):
            await self._destroy(listed)
            self._done.erased_namespaces += 1
            return
        if listed.live:
            objects = below.get(pointer.incarnation, [])
            if not objects:
                return  # the name had no log yet, or none that could be read: its next write begins one
            if not await self._is_there(row.key) and not await self._log(listed, objects):
                await self._destroy(listed)
                return
            # Also where an earlier attempt was done with it: the ledger may be a newer one by now.
            if not await self._erase(listed):
                return
        await self._put(row.key, data)
        self._done.namespaces += listed.live

    def _gone(self, pointer: Pointer) -> bool:
        known = self._erased.get(pointer.incarnation)
        return known is not None and known.gone

    async def _destroy(self, listed: Listed) -> None:
        """Destroy what an earlier attempt wrote of a namespace, when it did not know yet that it was erased."""
        layout = self._target.layout
        below = await keys_below(self._target, Layout.incarnation(listed.incarnation))
        await destroy(self._target.store, map(layout.at, [listed.key, *below]))

    async def _is_there(self, key: str) -> bool:
        return isinstance(await self._target.store.get(self._target.layout.at(key)), Found)

    async def _log(self, listed: Listed, rows: list[Row]) -> bool:
        """Write the objects of a log, the manifest last; False if it cannot be had even without what is missing."""
        order = {Kind.KEYRING: 0, Kind.SEGMENT: 1, Kind.ENTRY: 2, Kind.MANIFEST: 3}
        missing: set[Kind] = set()
        for row in sorted(rows, key=lambda item: order.get(kind_of(item.key), 0)):
            data = await self._fetch(row)
            if data is None:
                missing.add(kind_of(row.key))
            else:
                await self._put(row.key, data)
        if not missing:
            return True
        # Mended before anybody can write to it: a relayer would take the first gap for the end of the log.
        return Kind.KEYRING not in missing and await self._mend(listed)

    async def _mend(self, listed: Listed) -> bool:
        repair = await repair_namespace(self._target, listed, apply=True)
        if repair.lost:
            sentence = f"{len(repair.lost)} entries of a log are lost, the first of them is {repair.lost[0]}"
            key = Layout.manifest(listed.incarnation)
            self._done.findings.append(Finding(Flaw.ABSENT, key, sentence, _OLDER))
        return repair.done and not repair.hopeless

    async def _fetch(self, row: Row) -> bytes | None:
        try:
            data = await self._backup.fetch(row)
        except CorruptNamespace as error:
            self._miss(Flaw.DAMAGED, row, str(error))
            return None
        if data is None:
            self._miss(Flaw.ABSENT, row, f"the backup no longer has {row.key}")
        return data

    def _miss(self, flaw: Flaw, row: Row, sentence: str) -> None:
        mended = kind_of(row.key) in {Kind.SEGMENT, Kind.ENTRY, Kind.MANIFEST}
        left = "the rest of its log is restored" if mended else "what belongs with it is not restored"
        self._done.findings.append(Finding(flaw, row.key, sentence, f"{left}; {_OLDER}"))

    async def _put(self, key: str, data: bytes) -> None:
        at = self._target.layout.at(key)
        for _ in range(_ATTEMPTS):
            outcome = await self._target.store.create(at, data)
            if isinstance(outcome, Created):
                self._done.objects += 1
                self._done.bytes += len(data)
                return
            if isinstance(outcome, Exists):
                await self._same(key, data)
                return
            if isinstance(outcome, Throttled):
                await self._target.clock.sleep(outcome.retry_after)
        raise StoreUnavailable("the store does not take an object; running the restore again goes on")

    async def _same(self, key: str, data: bytes) -> None:
        """Accept what an earlier attempt wrote, and may have changed since."""
        found = await self._target.store.get(self._target.layout.at(key))
        if not isinstance(found, Found) or found.data == data or kind_of(key) in _CHANGED:
            return
        if kind_of(key) is Kind.ACCOUNT:
            # An account may have taken something back since; what the backup has now is the newest.
            outcome = await self._target.store.swap(self._target.layout.at(key), data, found.etag)
            if not isinstance(outcome, Swapped):
                raise StoreUnavailable("an account could not be written; running the restore again goes on")
        else:
            raise StoreMisconfigured(
                "the store holds objects of another restore; give an empty directory, bucket or prefix",
                code="not_empty",
                fix="give an empty directory, bucket or prefix",
            )

    async def _erase(self, listed: Listed) -> bool:
        """Erase again what was erased since the run; False if the log cannot be read."""
        known = self._erased.get(listed.incarnation)
        try:
            if known is not None and known.records:
                self._done.erased_memories += await erase_records(self._target, listed, known.records)
        except CorruptNamespace as error:
            key = Layout.manifest(listed.incarnation)
            self._done.findings.append(Finding(Flaw.DAMAGED, key, str(error), _OLDER))
            return False
        return True
