"""Erasure of memories from a log: what must be deleted permanently, in which order, and how the report follows the log.

`MemoryEraser` works on one report at a time. It first rewrites the segments without the erased bodies and removes the stored
indexes, then deletes the old objects, and after a grace period checks that nothing is left and confirms the erasure.

A report outlives the log that it is about: a backup may restore the log as it was before the erasure, and a repair may find
that the entry with the erasure is lost. `still_has` and `retold` compare a report with the log. The log decides, and no
erasure is confirmed that is not in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from relayer.domain.bodies import reduce, take_out
from relayer.domain.namespace import Manifest, SegmentRow
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.collector import GRACE_MS, begun, seq_of
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.erasure.destruction import destroy, left_of
from relayer.log.erasure.reports import (
    REPORT_FORMAT,
    ErasureKind,
    ErasureReport,
    ErasureReports,
    ErasureStage,
    SeenReport,
)
from relayer.log.objects import LogPorts, SeenManifest
from relayer.log.replica import Replica


def report_of(account: str, namespace: str, replica: Replica, erasure: bytes) -> ErasureReport:
    """Return the first report of an erasure that a replica has applied."""
    known = replica.state.erasures.known[erasure]
    return ErasureReport(
        format=REPORT_FORMAT,
        erasure=erasure,
        account=account,
        namespace=namespace,
        incarnation=replica.incarnation,
        what=ErasureKind.MEMORY,
        asked_at=known.at,
        seq=known.seq,
        records=known.records,
        derived=known.derived,
        slots=known.slots,
    )


def still_has(state: NamespaceState, report: ErasureReport) -> bool:
    """Return whether a log has lost an erasure because it was restored or repaired, so that it must be repeated."""
    return any(record in state.records for record in (*report.records, *report.derived))


def retold(report: ErasureReport, state: NamespaceState) -> ErasureReport:
    """Return a report updated to the erasure in the log.

    The log may have lost the erasure and got a new one of the same records, or it may never have had these records. If the
    report changes, it goes back to the stage ``ERASED``.
    """
    known = state.erasures.known.get(report.erasure)
    if known is not None and known.at == report.asked_at:
        return report
    found = [state.erasures.erasure_of(record) for record in (*report.records, *report.derived)]
    known = max((one for one in found if one is not None), key=lambda one: one.seq, default=None)
    if known is None and report.seq <= state.position.seq:
        return report
    slots = {slot for one in found if one is not None for slot in one.slots}
    told = msgspec.structs.replace(
        report,
        asked_at=report.asked_at if known is None else known.at,
        seq=state.position.seq if known is None else known.seq,
        slots=tuple(sorted(slots)),
    )
    if told == report:
        return report
    return msgspec.structs.replace(told, stage=ErasureStage.ERASED, epoch=0, destroyed_at=0)


# Other relayers may be compacting at the same time, and each of their swaps makes one of these rounds fail.
_ROUNDS = 64
_ALL_AT_ONCE = CompactionLimits(entries=1)

Collect = Callable[[], Awaitable[object]]


class MemoryEraser:
    """The eraser of memories in one incarnation. Only one run at a time is allowed.

    The ``replica`` follows the incarnation's log and has applied the erasures of the reports that `run` gets. ``collect`` runs
    the collector as far as possible without waiting. An erasure may be confirmed ``grace_ms`` after the deletion, by the
    store's time.
    """

    def __init__(self, ports: LogPorts, replica: Replica, collect: Collect, grace_ms: int = GRACE_MS) -> None:
        self._ports = ports
        self._replica = replica
        self._collect = collect
        self._grace_ms = grace_ms
        self._reports = ErasureReports(ports)
        self._compactor = Compactor(ports, replica, _ALL_AT_ONCE)

    async def run(self, seen: SeenReport) -> SeenReport:
        """Advance a report as far as possible without waiting, and return it as it is then.

        Raises:
            CorruptNamespace: the log cannot be read, or it still has what was erased: see `still_has`.
            UpgradeRequired, NamespaceClosed: the log cannot be read.
        """
        if still_has(self._replica.state, seen.report):
            raise CorruptNamespace("the log does not know of an erasure that is under way")
        seen = await self._reports.go_on(seen, retold(seen.report, self._replica.state))
        if seen.report.stage is ErasureStage.ERASED or seen.destroyed_later(max(self._grace_ms, GRACE_MS)):
            seen = await self._destroy(seen)
        if seen.report.stage is ErasureStage.DESTROYED:
            seen = await self._confirm(seen)
        return seen

    async def tidy(self) -> bool:
        """Delete bodies that came into the log after their erasure; there is no report of this. Raises as `run`.

        Returns:
            Whether all such bodies that the replica knows of are deleted.
        """
        late = self._replica.state.erasures.late
        await self._compact(max(late, default=0))
        await self._collect()
        manifest = await self._replica.manifest.read()
        if manifest.gc_watermark < max(late, default=0) or manifest.gc_swept < manifest.gc_epoch:
            return False
        await destroy(self._ports.store, [self._replica.slots.key(seq) for seq in late])
        return True

    async def _destroy(self, seen: SeenReport) -> SeenReport:
        await self._compact(seen.report.seq)
        for _ in range(_ROUNDS):
            manifest = await self._replica.manifest.see()
            rows = _holding(manifest.manifest, seen.report)
            indexes = await self._indexes_before(seen.report.seq)
            doomed = [row.key for row in rows] + indexes
            named = _is_from_before(manifest.manifest, seen.report.seq)
            if not rows and not named and not set(indexes) - set(seen.report.objects):
                break
            # The keys are recorded first: the relayer that continues after a crash deletes these objects with their versions,
            # even if no manifest names them any more.
            seen = await self._note(seen, doomed)
            if named:  # if the swap fails, the next round does it
                new = msgspec.structs.replace(manifest.manifest, index_key="", index_seq=0, index_model="")
                await self._replica.manifest.swap(manifest, new)
            await self._rewrite(rows)
        else:
            raise StoreUnavailable("others keep changing the namespace; erasing goes on later")
        count = await destroy(self._ports.store, self._unnamed(manifest.manifest, seen.report.objects))
        report = msgspec.structs.replace(
            seen.report,
            stage=ErasureStage.DESTROYED,
            destroyed=seen.report.destroyed + count,
            destroyed_at=manifest.store_time,
        )
        return await self._reports.go_on(seen, report)

    async def _compact(self, seq: int) -> None:
        for _ in range(_ROUNDS):
            manifest = await self._replica.manifest.read()
            if manifest.snap_seq >= seq:
                return
            await self._compactor.run()
        raise StoreUnavailable("others keep changing the namespace; erasing goes on later")

    async def _rewrite(self, rows: Iterable[SegmentRow]) -> None:
        for row in rows:
            seen = await self._replica.manifest.see()
            place = next(
                (at for at, other in enumerate(seen.manifest.segments) if other.key == row.key), None
            )
            if place is not None:
                await self._compactor.rewrite(self._replica.state, seen, place, place + 1)

    async def _indexes_before(self, seq: int) -> list[str]:
        """List the stored indexes of a state before the entry ``seq``, by their keys without the store's prefix."""
        keys = await self._ports.keys_below(self._ports.layout.indexes(self._replica.incarnation))
        return [key for key in keys if _seq_of(key) < seq]

    def _unnamed(self, manifest: Manifest, keys: Sequence[str]) -> list[str]:
        named = manifest.named
        return [self._ports.layout.store_key(key) for key in keys if key not in named]

    async def _confirm(self, seen: SeenReport) -> SeenReport:
        await self._collect()
        manifest = await self._replica.manifest.see()
        report = seen.report
        if not report.epoch and manifest.manifest.gc_watermark >= report.seq:
            seen = await self._reports.go_on(
                seen, msgspec.structs.replace(report, epoch=manifest.manifest.gc_epoch)
            )
            report = seen.report
        if report.epoch > manifest.manifest.gc_epoch:
            # The expected collection was never begun: another one was in progress, or the swap was lost.
            await self._begin_collection(manifest)
            return seen
        if (
            not report.epoch
            or manifest.manifest.gc_swept < report.epoch
            or manifest.store_time - report.destroyed_at < self._grace_ms
        ):
            return seen
        if (
            _holding(manifest.manifest, report)
            or _is_from_before(manifest.manifest, report.seq)
            or await self._indexes_before(report.seq)
        ):
            # A relayer that had not read of the erasure yet has written them since.
            return await self._reports.go_on(seen, msgspec.structs.replace(report, stage=ErasureStage.ERASED))
        if await self._late_uploads(manifest.manifest, report):
            await self._begin_collection(manifest)
            return await self._reports.go_on(
                seen, msgspec.structs.replace(seen.report, epoch=manifest.manifest.gc_epoch + 1)
            )
        store = self._ports.store
        names = [self._replica.slots.key(seq) for seq in report.slots]
        names += await self._dead_slots(report.seq) + self._unnamed(manifest.manifest, report.objects)
        count = await destroy(store, dict.fromkeys(names))
        if await left_of(store, dict.fromkeys(names)):
            return seen
        done = msgspec.structs.replace(
            report,
            stage=ErasureStage.CONFIRMED,
            destroyed=report.destroyed + count,
            confirmed_at=manifest.store_time,
        )
        return SeenReport(await self._reports.conclude(done), seen.etag, manifest.store_time)

    async def _begin_collection(self, manifest: SeenManifest) -> None:
        """Begin the next collection, unless one is in progress; if the swap fails, the next run does it."""
        last = manifest.manifest
        if last.gc_swept == last.gc_epoch:
            await self._replica.manifest.swap(manifest, begun(last))

    async def _dead_slots(self, seq: int) -> list[str]:
        """List the keys of slots up to the entry ``seq``; none of them is valid, because they were collected before."""
        keys = await self._ports.keys_below(self._ports.layout.entries(self._replica.incarnation))
        return [self._ports.layout.store_key(key) for key in keys if seq_of(key) <= seq]

    async def _late_uploads(self, manifest: Manifest, report: ErasureReport) -> list[str]:
        """List the keys of segments that the manifest does not name and that may have a body of what was erased."""
        named = {row.key for row in manifest.segments}
        keys = await self._ports.keys_below(self._ports.layout.segments(self._replica.incarnation))
        loose = [key for key in keys if key not in named and _seq_of(key) <= max(report.slots, default=0)]
        return [key for key in loose if await self._holds_a_body(key, set(report.slots))]

    async def _holds_a_body(self, key: str, slots: set[int]) -> bool:
        try:
            entries = await self._replica.segments.read_loose(key)
        except CorruptNamespace:
            return True  # it cannot be read, perhaps because its upload is incomplete: it may have any body
        return any(
            reduce(raw, linked.entry.seq, self._replica.state) != raw
            and any(body for _, body in take_out(raw)[1])
            for linked in entries or ()
            if linked.entry.seq in slots
            for raw in linked.entry.operations
        )

    async def _note(self, seen: SeenReport, keys: Iterable[str]) -> SeenReport:
        new = tuple(dict.fromkeys((*seen.report.objects, *keys)))
        return await self._reports.go_on(seen, msgspec.structs.replace(seen.report, objects=new))


def _holding(manifest: Manifest, report: ErasureReport) -> list[SegmentRow]:
    """Return the segments that may have a body of the records of a report."""
    return [
        row
        for row in manifest.segments
        if row.reduced_at < report.seq and any(row.first_seq <= seq <= row.last_seq for seq in report.slots)
    ]


def _is_from_before(manifest: Manifest, seq: int) -> bool:
    """Return whether a manifest names an index of a state before the entry ``seq``."""
    return bool(manifest.index_key) and manifest.index_seq < seq


def _seq_of(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])
