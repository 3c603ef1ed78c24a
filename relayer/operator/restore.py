"""The restore command: write a run of a backup to an empty store, and erase again what was erased since that run.

`restore` reads the run and the newest ledger, and continues if an earlier attempt was stopped. Accounts and reports of erasures
are written first, then each namespace. A namespace with damaged or missing objects is repaired before its pointer makes it
available, and one that was erased since the run is not restored. `erase_records` erases single memories again and waits until
their objects are deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from relayer.access.accounts import account_at
from relayer.access.store_keys import begin_restore, begun_restore, end_restore
from relayer.domain.operations import Erase, Origin
from relayer.errors import ConfigurationError, CorruptNamespace, StoreMisconfigured, StoreUnavailable
from relayer.log.collector import Collector, destroy, seq_of
from relayer.log.erasure import ErasureReports, ErasureStage, MemoryEraser, report_of
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.operator.backup_store import BackupHead, BackupStore, LedgerRow, Row, create
from relayer.operator.catalogue import (
    UNREADABLE,
    Defect,
    Flaw,
    Listed,
    ObjectKind,
    Progress,
    incarnation_of,
    kind_of,
    pointer_at,
    unseen,
)
from relayer.operator.repair import repair_namespace
from relayer.operator.verify import unreferenced_keys
from relayer.ports import Swapped

T = TypeVar("T")

_OLDER = "an older run may contain it: --run"
# Objects that a restore changes after it has written them.
_CHANGED = frozenset({ObjectKind.MANIFEST, ObjectKind.ERASURE})
# Maximum attempts to finish an erasure. Starting and ending a collection takes one each, and a report that is continued in the
# middle takes one more.
_ROUNDS = 8


async def erase_records(ports: LogPorts, listed: Listed, records: Sequence[bytes]) -> int:
    """Erase the ``records`` that a log holds, wait until their deletion is confirmed, and return their number.

    No other process may use the namespace meanwhile. If this is stopped, running it again completes it.

    Raises:
        CorruptNamespace, UpgradeRequired: the log cannot be read.
        StoreUnavailable: the erasure could not be completed.
    """
    log = NamespaceLog(ports, listed.account, listed.pointer)
    await log.start()
    try:
        there = [record for record in records if record in log.state.records]
        if there:
            origin = Origin(author=b"", nonce=ports.randomness.bytes(16))
            outcome = (await log.append([Erase(origin, tuple(there))]))[0]
            if outcome.refusal is not None:
                raise StoreUnavailable("the log does not take an erasure; running the restore again is safe")
        manifest = await log.replica.manifest.read()
        slots = await ports.keys_below(Layout.entries(listed.incarnation))
        dead = [key for key in slots if seq_of(key) <= manifest.gc_watermark]
        loose = await unreferenced_keys(ports, listed.incarnation, manifest)
        await destroy(ports.store, [*loose, *dead])
        await _destroy(ports, listed, log)
    finally:
        await log.close()
    return len(there)


async def _destroy(ports: LogPorts, listed: Listed, log: NamespaceLog) -> None:
    """Delete the stored objects of all erasures in this log whose deletion is not confirmed yet."""
    collector = Collector(ports, listed.account, listed.incarnation, grace_ms=0)
    eraser = MemoryEraser(ports, log.replica, collector.run, grace_ms=0)
    for erasure in log.state.erasures.known:
        report = report_of(listed.account, listed.pointer.name, log.replica, erasure)
        seen = await ErasureReports(ports).begin(report)
        for _ in range(_ROUNDS):
            if seen.report.stage is not ErasureStage.CONFIRMED:
                seen = await eraser.run(seen)
        if seen.report.stage is not ErasureStage.CONFIRMED:
            raise StoreUnavailable("what was erased is not destroyed yet; running the restore again is safe")
    for _ in range(_ROUNDS):
        if await eraser.tidy():
            return
    raise StoreUnavailable(
        "what came after its erasure is not destroyed yet; running the restore again is safe"
    )


@dataclass(slots=True)
class Restoration:
    """The result of a restore.

    Attributes:
        run: the head of the run that was restored.
        ledger: the head of the ledger that was applied.
        namespaces: number of live namespaces that were restored.
        erased_memories: number of memories of the backup that were erased since the run and are not restored.
        erased_namespaces: number of such namespaces.
        findings: objects that could not be restored.
    """

    run: BackupHead
    ledger: BackupHead
    namespaces: int = 0
    objects: int = 0
    bytes: int = 0
    erased_memories: int = 0
    erased_namespaces: int = 0
    findings: list[Defect] = field(default_factory=list)


async def restore(
    backup: BackupStore,
    target: LogPorts,
    *,
    number: int | None = None,
    ledgers: BackupStore | None = None,
    progress: Progress = unseen,
) -> Restoration:
    """Restore a run of a backup.

    Args:
        backup: the backup to read.
        target: an empty store, or one in which the same restore was stopped; with the keys of the backup.
        number: of the run; None for the run whose restore was stopped in the target, otherwise the newest.
        ledgers: a backup with a newer ledger, if ``backup`` is an old copy itself.
        progress: called with the namespaces, to show the progress.

    Raises:
        ConfigurationError: there is no such run, or the newest ledger is missing.
        CorruptNamespace: the run or the ledger is damaged, or was made with another relayer key.
        StoreMisconfigured: the target is in use.
    """
    newest = await backup.newest("runs")
    key = await (ledgers or backup).stored_key()
    if not newest or key is None:
        raise ConfigurationError(
            "--from: no backup found; give the place that was used for memrelay backup --to"
        )
    begun = await begun_restore(target)
    if number is None and begun:
        number = int(begun.partition("/")[0])
    if number is not None and f"runs/{number:020d}" not in await backup.names("runs"):
        fix = "; it contains an unfinished restore: give an empty place" if begun else ""
        raise ConfigurationError(f"--run: the backup has no run {number}; the newest is {newest}{fix}")
    head, rows = await backup.read("runs", number or newest, Row)
    place = ledgers or backup
    newest_ledger = await place.newest("ledger")
    if newest_ledger < newest:
        raise ConfigurationError(
            f"--ledger: the list of what was erased is missing: the newest is {newest_ledger or 'none'}, the newest backup "
            f"is {newest}. Without it erased memories would come back; bring the backup's ledger/ back, or name the place of "
            "a newer backup with --ledger"
        )
    ledger, erased = await place.read("ledger", newest_ledger, LedgerRow)
    # Objects of two runs would make a store that never existed, without what only the newer run has.
    await begin_restore(target, key, f"{head.number}/{head.began}")
    done = Restoration(head, ledger)
    if head.number != newest:
        rows = await _with_newest_accounts(backup, newest, rows, done)
    await _Worker(backup, target, rows, erased, done).run(progress)
    await end_restore(target)
    return done


async def _with_newest_accounts(
    backup: BackupStore, newest: int, rows: list[Row], done: Restoration
) -> list[Row]:
    """Return the rows of an older run with the accounts of the newest run, so that revocations since then stay in force."""
    wanted = {row.key: row for row in rows}
    try:
        for row in (await backup.read("runs", newest, Row))[1]:
            if kind_of(row.key) is ObjectKind.ACCOUNT and await backup.fetch(row) is not None:
                wanted[row.key] = row
    except UNREADABLE as error:
        fix = "ask their owners to send it again: memrelay-gateway keys revoke"
        say = "; keys that accounts revoked since the restored run may be valid again"
        done.findings.append(Defect.from_error(error, f"runs/{newest:020d}", fix, say=say))
    return list(wanted.values())


class _Worker:
    def __init__(
        self,
        backup: BackupStore,
        target: LogPorts,
        rows: list[Row],
        erased: list[LedgerRow],
        done: Restoration,
    ) -> None:
        self._backup = backup
        self._target = target
        self._rows: dict[ObjectKind, list[Row]] = defaultdict(list)
        self._below: dict[bytes, list[Row]] = defaultdict(list)
        for row in rows:
            self._rows[kind_of(row.key)].append(row)
            self._below[incarnation_of(row.key) or b""].append(row)
        self._erased = {row.incarnation: row for row in erased}
        self._done = done
        self._sealer = ObjectSealer(target)

    async def run(self, progress: Progress) -> None:
        accounts: dict[str, str] = {}
        for row in self._rows[ObjectKind.ACCOUNT]:
            data = await self._fetch(row)
            account = data and self._opened(row, account_at, self._target.keys, row.key, data)
            if data and account:
                accounts[row.key.split("/")[1]] = account
                await self._put(row.key, data)
        await self._erasures()
        for row in progress(self._rows[ObjectKind.POINTER]):
            data, account = await self._fetch(row), accounts.get(row.key.split("/")[1])
            if account is None:
                sentence = "the account of a name is missing from the backup or incomplete"
                self._find(Flaw.NO_ACCOUNT, row.key, sentence, "")
            elif data is not None:
                pointer = self._opened(row, pointer_at, self._target, account, row.key, data)
                if pointer is not None:
                    await self._namespace(row, data, Listed(account, row.key, pointer))

    async def _erasures(self) -> None:
        """Restore the reports of erasures. Those in progress start from the beginning, because the target is another store."""
        reports = ErasureReports(self._target)
        for row in self._rows[ObjectKind.ERASURE]:
            data = await self._fetch(row)
            if data is None or self._opened(row, reports.open, row.key, data) is None:
                continue
            await self._put(row.key, data)
            seen = await reports.read(row.key)
            if seen is not None and row.key.startswith(Layout.erasing()):
                renewed = msgspec.structs.replace(
                    seen.report, stage=ErasureStage.ERASED, epoch=0, destroyed_at=0
                )
                if renewed != seen.report and await reports.advance(seen, renewed) is None:
                    raise StoreUnavailable("a report could not be written; running the restore again goes on")

    async def _namespace(self, row: Row, data: bytes, listed: Listed) -> None:
        known = self._erased.get(listed.incarnation)
        if listed.live and known is not None and known.gone:
            await self._destroy(listed)
            self._done.erased_namespaces += 1
            return
        if listed.live:
            objects = self._below[listed.incarnation]
            if not objects:
                return  # The name had no log yet, or none that could be read. Its next write starts one.
            if await self._target.get(row.key) is None and not await self._log(listed, objects):
                await self._destroy(listed)
                return
            # This is repeated even if an earlier attempt restored the namespace, because the ledger may be newer now.
            if known is not None and known.records:
                try:
                    self._done.erased_memories += await erase_records(self._target, listed, known.records)
                except CorruptNamespace as error:
                    self._find(Flaw.DAMAGED, Layout.manifest(listed.incarnation), str(error))
                    return
        await self._put(row.key, data)
        self._done.namespaces += listed.live

    async def _destroy(self, listed: Listed) -> None:
        """Delete what an earlier attempt wrote of a namespace that is known to be erased now, or cannot be restored."""
        below = await self._target.keys_below(Layout.incarnation(listed.incarnation))
        await destroy(self._target.store, [listed.key, *below])

    async def _log(self, listed: Listed, rows: list[Row]) -> bool:
        """Write the objects of a log, the manifest last; return False if the log cannot even be repaired."""
        order = {ObjectKind.SEGMENT: 1, ObjectKind.ENTRY: 2, ObjectKind.MANIFEST: 3}
        missing: set[ObjectKind] = set()
        for row in sorted(rows, key=lambda item: order.get(kind_of(item.key), 0)):
            if kind_of(row.key) is ObjectKind.INDEX:
                # A damaged copy is left out: nothing is lost without an index, because it is built from the log.
                with suppress(CorruptNamespace):
                    data = await self._backup.fetch(row)
                    if data is not None:
                        await self._put(row.key, data)
                continue
            data = await self._fetch(row)
            if data is None or not self._belongs(listed, row, data):
                missing.add(kind_of(row.key))
            else:
                await self._put(row.key, data)
        if not missing:
            return True
        if ObjectKind.KEYRING in missing:
            return False
        # The log is repaired before any relayer can append to it, because a relayer would take the first gap for its end.
        repair = await repair_namespace(self._target, listed, apply=True)
        if repair.lost_entries:
            sentence = f"{len(repair.lost_entries)} entries of a log are lost, the first of them is {repair.lost_entries[0]}"
            self._find(Flaw.ABSENT, Layout.manifest(listed.incarnation), sentence)
        return repair.done and not repair.hopeless

    def _belongs(self, listed: Listed, row: Row, data: bytes) -> bool:
        """Return whether an object belongs to this namespace; if not, add a finding.

        A keyring or manifest must be of this namespace, and a manifest must name only segments that the run has.
        """
        place = listed.account, listed.incarnation, row.key, data
        if kind_of(row.key) is ObjectKind.KEYRING:
            return self._opened(row, self._sealer.unseal_keyring, *place) is not None
        if kind_of(row.key) is not ObjectKind.MANIFEST:
            return True
        manifest = self._opened(row, self._sealer.unseal_manifest, *place)
        if manifest is None:
            return False
        there = {item.key for item in self._below[listed.incarnation]}
        beyond = [segment.key for segment in manifest.segments if segment.key not in there]
        if beyond:
            self._find(Flaw.DAMAGED, row.key, f"the manifest names {beyond[0]}, which the run does not have")
        return not beyond

    def _opened(self, row: Row, unseal: Callable[..., T], *arguments: object) -> T | None:
        """Return the result of ``unseal``; if the object does not belong to its key, add a finding and return None."""
        try:
            return unseal(*arguments)
        except CorruptNamespace as error:
            self._find(Flaw.DAMAGED, row.key, str(error))
            return None

    async def _fetch(self, row: Row) -> bytes | None:
        """Return the object of a row; if the backup's copy is missing or damaged, add a finding and return None."""
        mended = kind_of(row.key) in {ObjectKind.SEGMENT, ObjectKind.ENTRY, ObjectKind.MANIFEST}
        left = (
            "the rest of its log is restored" if mended else "the objects that belong to it are not restored"
        )
        fix = f"{left}; {_OLDER}"
        try:
            data = await self._backup.fetch(row)
        except CorruptNamespace as error:
            self._find(Flaw.DAMAGED, row.key, str(error), fix)
            return None
        if data is None:
            self._find(Flaw.ABSENT, row.key, f"the backup no longer has {row.key}", fix)
        return data

    def _find(self, flaw: Flaw, key: str, sentence: str, fix: str = _OLDER) -> None:
        self._done.findings.append(Defect(flaw, key, sentence, fix))

    async def _put(self, key: str, data: bytes) -> None:
        taken = await create(
            self._target, key, data, "the store does not take an object; running the restore"
        )
        if taken is None:
            self._done.objects += 1
            self._done.bytes += len(data)
        elif taken.data != data and kind_of(key) not in _CHANGED:
            if kind_of(key) is not ObjectKind.ACCOUNT:
                raise StoreMisconfigured(
                    "the store holds objects of another restore; give an empty directory, bucket or prefix",
                    code="not_empty",
                    fix="give an empty directory, bucket or prefix",
                )
            outcome = await self._target.store.swap(key, data, taken.etag)
            if not isinstance(outcome, Swapped):
                raise StoreUnavailable("an account could not be written; running the restore again goes on")
