"""Erases records from a log that nobody serves yet, as a relayer does, with nobody to wait for."""

from __future__ import annotations

from collections.abc import Sequence

from relayer.domain.operations import Erase, Origin
from relayer.errors import StoreUnavailable
from relayer.log.collector import Collector
from relayer.log.destruction import destroy
from relayer.log.erasure import MemoryEraser
from relayer.log.erasure_facts import report_of
from relayer.log.erasure_reports import ErasureReports, SeenReport, Stage
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.namespace_log import NamespaceLog
from relayer.operator.catalogue import Listed, keys_below
from relayer.operator.log_walk import seq_of

__all__ = ["erase_records"]

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
