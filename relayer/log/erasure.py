"""Erasure of memories and of namespaces: what must be deleted permanently, in which order, and the reports that confirm it.

A report is stored under ``erasing/`` until a sweep has confirmed that nothing is left, and under ``erased/`` from then on.
So any relayer finds the erasures in progress by listing ``erasing/``. Reports belong to the account, not to the namespace,
because they outlive it. They are sealed under the metadata key, and contain ids and keys of objects, but no content.

`MemoryEraser` works on one report at a time. It first rewrites the segments without the erased bodies and removes the stored
indexes, then deletes the old objects, and after a grace period checks that nothing is left and confirms the erasure.

A report outlives the log that it is about: a backup may restore the log as it was before the erasure, and a repair may find
that the entry with the erasure is lost. `still_has` and `retold` compare a report with the log. The log decides, and no
erasure is confirmed that is not in the log.

`NamespaceEraser` erases first the keys of a namespace, then its other objects, and after a grace period its entries:

    erasing    set this state in the pointer: from here on, the namespace is not opened any more, and missing objects of it
               are not created again
    close      append an operation after which `apply` refuses everything, so that a late writer learns from the log that
               the namespace is erased. This is the second step, because a log that is just being created may be opened
               until the pointer has changed, and it must be closed too
    destroy    delete the keyring with every version of it: from here on, no secret opens any content, not even in a copy
               of it. Then delete the manifest, segments and stored indexes
    erased     set this state in the pointer: the name can be used again, and gets another incarnation
    confirm    keep the entries for as long as any relayer may trust a manifest that was read before it was deleted: a slot
               whose entry is deleted can be written again, and would be taken for a commit (I3, I11). Then delete the
               entries too, and whatever a late writer has written since

Every step may be repeated by any relayer at any time; the report says how far the erasure is. An incarnation whose keys were
rotated is erased in the same way, once the name has the next one (`relayer.log.rotation`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from relayer.domain.bodies import reduce, take_out
from relayer.domain.namespace import Manifest, Pointer, PointerState, SegmentRow
from relayer.domain.operations import Close, Origin, decode_versioned
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable
from relayer.log.collector import GRACE_MS, begun, destroy, discard, left_of, seq_of
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.creation import find, mark, succeed
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import Layout, LogPorts, SeenManifest
from relayer.log.replica import Replica
from relayer.ports import Found, Swapped
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal

REPORT_FORMAT = 1
_ATTEMPTS = 5
_PAUSE = 0.2


class ErasureKind(StrEnum):
    """The kind of an erasure: of memories, of a namespace, or of what a namespace was before its keys were rotated."""

    MEMORY = "memory"
    NAMESPACE = "namespace"
    FORMER = "former"


class ErasureStage(StrEnum):
    """The progress of an erasure.

    ``ERASED``: the erased data is in no response any more. ``DESTROYED``: a relayer that opens the namespace now does not
    find it in the store either. ``CONFIRMED``: a sweep found nothing left, at a time when no relayer could still be using
    anything from before.
    """

    ERASED = "erased"
    DESTROYED = "destroyed"
    CONFIRMED = "confirmed"


class ErasureReport(msgspec.Struct, frozen=True, array_like=True):
    """The report of an erasure.

    Times are in ms: ``asked_at`` is the log's or the store's, the others are the store's, 0 while there is none.

    ``erasure`` is the id of the erasure, which is that of the first memory or the incarnation. ``seq`` is the slot of the
    entry that decided it. ``slots`` and ``objects`` (keys without prefix) are what must be deleted with all versions.
    ``epoch`` is the collection that covers ``seq``, 0 until one was begun. ``destroyed`` is the number of objects deleted.
    """

    format: int
    erasure: bytes
    account: str
    namespace: str
    incarnation: bytes
    what: ErasureKind
    asked_at: int
    seq: int = 0
    records: tuple[bytes, ...] = ()
    derived: tuple[bytes, ...] = ()
    slots: tuple[int, ...] = ()
    objects: tuple[str, ...] = ()
    stage: ErasureStage = ErasureStage.ERASED
    epoch: int = 0
    destroyed: int = 0
    destroyed_at: int = 0
    confirmed_at: int = 0

    @property
    def is_claim(self) -> bool:
        """Return whether nothing was erased under this id, because the report only records a request.

        See `ErasureReports.claim`.
        """
        return self.stage is ErasureStage.CONFIRMED and not self.confirmed_at


_DECODER = msgspec.msgpack.Decoder(ErasureReport)


@dataclass(frozen=True, slots=True)
class SeenReport:
    """A report as it was read from the store, with the etag that a swap needs. ``store_time`` is in ms."""

    report: ErasureReport
    etag: str
    store_time: int

    def destroyed_later(self, slack_ms: int) -> bool:
        """Return whether ``destroyed_at`` is more than ``slack_ms`` in the future.

        The store's clock was ahead then, and waiting for the grace period to end would take too long.
        """
        waits = self.report.stage is ErasureStage.DESTROYED
        return waits and self.report.destroyed_at - self.store_time > slack_ms


class ErasureReports:
    """The erasure reports of a deployment."""

    def __init__(self, ports: LogPorts) -> None:
        self._ports = ports

    async def begin(self, report: ErasureReport) -> SeenReport:
        """Store a report unless there is one of the same erasure, and return the stored one.

        A stored report with the same id may be about a log that was lost since, and the erasure may be of data that a restored
        log had brought back. Such a report is not returned, but replaced. Raises `StoreUnavailable`: it is not certain that
        the report was written; a retry is safe.
        """
        for _ in range(_ATTEMPTS):
            found = await self.find(report.account, report.erasure)
            if found is not None and _same(found.report, report):
                return found
            if found is None or found.report.stage is ErasureStage.CONFIRMED:
                await self._create(self._key(report, confirmed=False), report)
            else:
                # Objects that the old report lists must still be deleted with their versions.
                await self.advance(found, msgspec.structs.replace(report, objects=found.report.objects))
            found = await self.find(report.account, report.erasure)
            if found is not None and _same(found.report, report):
                return found
            await self._ports.clock.sleep(_PAUSE)
        raise StoreUnavailable("the erasure's report could not be written")

    async def find(self, account: str, erasure: bytes) -> SeenReport | None:
        """Return the report of an erasure, None if there is none; raises as `read`."""
        tag = self._ports.keys.tag("account", account)
        for confirmed in (False, True):
            key = Layout.report(tag, erasure, confirmed=confirmed)
            found = await self.read(key)
            if found is not None:
                return found
        return None

    async def claim(self, account: str, namespace: str, request: bytes) -> bool:
        """Return whether a request to erase a namespace, identified by 16 bytes, is received for the first time.

        The claim is a confirmed report about an incarnation that never existed, so that every relayer that gets the same
        request again finds it. The periodic walk over the store deletes it a day later, when no signature of that time is
        accepted any more. Raises `StoreUnavailable`: it is not certain that the claim was written.
        """
        report = ErasureReport(
            format=REPORT_FORMAT,
            erasure=request,
            account=account,
            namespace=namespace,
            incarnation=request,
            what=ErasureKind.NAMESPACE,
            asked_at=self._ports.clock.now_ms(),
            stage=ErasureStage.CONFIRMED,
        )
        key = self._key(report, confirmed=True)
        data = self._seal(key, report)
        for _ in range(_ATTEMPTS):
            await self._ports.store.create(key, data)
            found = await self._ports.store.get(key)
            if isinstance(found, Found):
                return found.data == data
            await self._ports.clock.sleep(_PAUSE)
        raise StoreUnavailable("the erasure's report could not be written")

    async def pending(self) -> list[str]:
        """List the keys, without prefix, of the reports of erasures in progress."""
        return await self._ports.keys_below(Layout.erasing())

    async def read(self, key: str) -> SeenReport | None:
        """Read a report by its key without prefix; None if it is absent."""
        found = await self._ports.get(key)
        return None if found is None else SeenReport(self.open(key, found.data), found.etag, found.store_time)

    def key_of(self, report: ErasureReport) -> str:
        """Return the key, without prefix, of a report while its erasure is in progress."""
        return self._key(report, confirmed=False)

    async def advance(self, seen: SeenReport, new: ErasureReport) -> SeenReport | None:
        """Replace a report of an erasure in progress.

        Returns:
            The report as it was stored; None if another relayer has replaced it, or the outcome is unknown: read it again.
        """
        key = self._key(new, confirmed=False)
        outcome = await self._ports.store.swap(key, self._seal(key, new), seen.etag)
        if not isinstance(outcome, Swapped):
            return None
        return SeenReport(new, outcome.etag, outcome.store_time)

    async def go_on(self, seen: SeenReport, new: ErasureReport) -> SeenReport:
        """Replace a report unless it stays the same; raises `StoreUnavailable` if another relayer has replaced it."""
        if new == seen.report:
            return seen
        advanced = await self.advance(seen, new)
        if advanced is None:
            raise StoreUnavailable("another relayer works on the same erasure")
        return advanced

    async def destroyed(self, seen: SeenReport, count: int, at: int) -> SeenReport:
        """Record that ``count`` more objects were deleted by the store's time ``at``; raises as `go_on`."""
        stage, total = ErasureStage.DESTROYED, seen.report.destroyed + count
        new = msgspec.structs.replace(seen.report, stage=stage, destroyed=total, destroyed_at=at)
        return await self.go_on(seen, new)

    async def confirmed(self, seen: SeenReport, count: int, at: int) -> SeenReport:
        """Record that ``count`` more objects were deleted and nothing is left at the store's time ``at``; see `conclude`."""
        stage, total = ErasureStage.CONFIRMED, seen.report.destroyed + count
        new = msgspec.structs.replace(seen.report, stage=stage, destroyed=total, confirmed_at=at)
        return SeenReport(await self.conclude(new), seen.etag, at)

    async def conclude(self, report: ErasureReport) -> ErasureReport:
        """Store a confirmed report under ``erased/``, delete the one under ``erasing/``, and return the stored one."""
        key = self._key(report, confirmed=True)
        await self._create(key, report)
        kept = await self.read(key)
        if kept is not None and not _same(kept.report, report):
            await destroy(self._ports.store, [key])
            await self._create(key, report)
            kept = await self.read(key)
        if kept is None:
            raise StoreUnavailable("the erasure's report could not be written")
        await destroy(self._ports.store, [self._key(report, confirmed=False)])
        return kept.report

    async def _create(self, key: str, report: ErasureReport) -> None:
        """Try once to create a report; the next read shows whether it succeeded."""
        await self._ports.store.create(key, self._seal(key, report))

    def _key(self, report: ErasureReport, *, confirmed: bool) -> str:
        tag = self._ports.keys.tag("account", report.account)
        return Layout.report(tag, report.erasure, confirmed=confirmed)

    def _seal(self, key: str, report: ErasureReport) -> bytes:
        salt = self._ports.randomness.bytes(SALT_SIZE)
        plain = msgspec.msgpack.encode(report)
        return seal(self._ports.keys.metadata, ObjectType.ERASURE, _place(key), plain, salt=salt)

    def open(self, key: str, data: bytes) -> ErasureReport:
        """Unseal and decode a report's stored bytes; raises `CorruptNamespace` and `UpgradeRequired` as `read`."""
        corrupt = "an erasure's report does not open in its place"
        try:
            plain = unseal(self._ports.keys.metadata, ObjectType.ERASURE, _place(key), data)
        except UnsealError as error:
            raise CorruptNamespace(corrupt) from error
        having = "an erasure's report has format"
        return decode_versioned(plain, _DECODER, REPORT_FORMAT, having=having, corrupt=corrupt)


def _same(one: ErasureReport, other: ErasureReport) -> bool:
    """Return whether two reports with the same id are about the same erasure.

    An incarnation is erased once. A memory is erased once in each log, and a log that was restored counts as another log.
    """
    return one.what is not ErasureKind.MEMORY or one.asked_at == other.asked_at


def _place(key: str) -> bytes:
    # The account's id is not part of the context, because a relayer that lists the erasures in progress has only the keys.
    return context(ObjectType.ERASURE, "", b"", key)


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
            named = _is_from_before(manifest.manifest, seen.report.seq)
            if not rows and not named and not set(indexes) - set(seen.report.objects):
                break
            # The keys are recorded first: the relayer that continues after a crash deletes these objects with their versions,
            # even if no manifest names them any more.
            doomed = tuple(dict.fromkeys((*seen.report.objects, *(row.key for row in rows), *indexes)))
            seen = await self._reports.go_on(seen, msgspec.structs.replace(seen.report, objects=doomed))
            if named:  # if the swap fails, the next round does it
                new = msgspec.structs.replace(manifest.manifest, index_key="", index_seq=0, index_model="")
                await self._replica.manifest.swap(manifest, new)
            await self._rewrite(rows)
        else:
            raise StoreUnavailable("others keep changing the namespace; erasing goes on later")
        count = await destroy(self._ports.store, self._unnamed(manifest.manifest, seen.report.objects))
        return await self._reports.destroyed(seen, count, manifest.store_time)

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
        """List the stored indexes of a state before the entry ``seq``."""
        keys = await self._ports.keys_below(Layout.indexes(self._replica.incarnation))
        return [key for key in keys if _seq_of(key) < seq]

    def _unnamed(self, manifest: Manifest, keys: Sequence[str]) -> list[str]:
        named = manifest.named
        return [key for key in keys if key not in named]

    async def _confirm(self, seen: SeenReport) -> SeenReport:
        await self._collect()
        manifest = await self._replica.manifest.see()
        report = seen.report
        if not report.epoch and manifest.manifest.gc_watermark >= report.seq:
            report = msgspec.structs.replace(report, epoch=manifest.manifest.gc_epoch)
            seen = await self._reports.go_on(seen, report)
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
            later = msgspec.structs.replace(report, epoch=manifest.manifest.gc_epoch + 1)
            return await self._reports.go_on(seen, later)
        store = self._ports.store
        names = [self._replica.slots.key(seq) for seq in report.slots]
        names += await self._dead_slots(report.seq) + self._unnamed(manifest.manifest, report.objects)
        count = await destroy(store, dict.fromkeys(names))
        if await left_of(store, dict.fromkeys(names)):
            return seen
        return await self._reports.confirmed(seen, count, manifest.store_time)

    async def _begin_collection(self, manifest: SeenManifest) -> None:
        """Begin the next collection, unless one is in progress; if the swap fails, the next run does it."""
        last = manifest.manifest
        if last.gc_swept == last.gc_epoch:
            await self._replica.manifest.swap(manifest, begun(last))

    async def _dead_slots(self, seq: int) -> list[str]:
        """List the keys of slots up to the entry ``seq``; none of them is valid, because they were collected before."""
        keys = await self._ports.keys_below(Layout.entries(self._replica.incarnation))
        return [key for key in keys if seq_of(key) <= seq]

    async def _late_uploads(self, manifest: Manifest, report: ErasureReport) -> list[str]:
        """List the keys of segments that the manifest does not name and that may have a body of what was erased."""
        named = {row.key for row in manifest.segments}
        keys = await self._ports.keys_below(Layout.segments(self._replica.incarnation))
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


def namespace_report(
    account: str, pointer: Pointer, asked_at: int, what: ErasureKind = ErasureKind.NAMESPACE
) -> ErasureReport:
    """Return the first report of the erasure of a namespace or of its incarnation, whose id it has."""
    return ErasureReport(
        format=REPORT_FORMAT,
        erasure=pointer.incarnation,
        account=account,
        namespace=pointer.name,
        incarnation=pointer.incarnation,
        what=what,
        asked_at=asked_at,
    )


class NamespaceEraser:
    """The eraser of namespaces. Entries stay for ``grace_ms`` after everything else was deleted, by the store's time."""

    def __init__(self, ports: LogPorts, grace_ms: int = GRACE_MS) -> None:
        self._ports = ports
        self._grace_ms = grace_ms
        self._reports = ErasureReports(ports)

    async def run(self, seen: SeenReport) -> SeenReport:
        """Advance a report as far as possible without waiting, and return it as it is then.

        Raises:
            UpgradeRequired: the log cannot be closed by this version.
        """
        if seen.report.stage is ErasureStage.ERASED or seen.destroyed_later(max(self._grace_ms, GRACE_MS)):
            seen = await self._destroy(seen)
        if (
            seen.report.stage is ErasureStage.DESTROYED
            and seen.store_time - seen.report.destroyed_at >= self._grace_ms
        ):
            seen = await self._confirm(seen)
        return seen

    async def tidy(self, report: ErasureReport) -> int:
        """Delete objects that were written in an incarnation after its erasure was confirmed; returns their number.

        A relayer that was stopped for longer than the grace period may write such an object before it reads the manifest and
        finds that there is none (I11); it acknowledges nothing. An incarnation is never used again, so all objects in it are of
        this kind.
        """
        keys = await self._ports.keys_below(Layout.incarnation(report.incarnation))
        if not keys:
            return 0
        pointer = await find(self._ports, report.account, report.namespace)
        if pointer is not None and pointer.incarnation == report.incarnation:
            return 0  # a copy of the store from before the erasure was restored, and this method does not decide about that
        name = self._ports.pointer_key(report.account, report.namespace)
        await discard(self._ports.store, keys, name)
        return len(keys)

    async def _destroy(self, seen: SeenReport) -> SeenReport:
        report = seen.report
        if report.what is ErasureKind.FORMER:
            # The relayer that rotated the keys may have been stopped before the name had the next incarnation.
            pointer = await succeed(self._ports, report.account, report.namespace, report.incarnation)
            if pointer is not None and pointer.incarnation == report.incarnation:
                raise StoreUnavailable("the keys of a namespace are still being rotated")
        pointer = await find(self._ports, report.account, report.namespace)
        ours = pointer if pointer is not None and pointer.incarnation == report.incarnation else None
        begun: list[str] = []
        if ours is not None:
            if ours.next:
                # A rotation of the keys was begun and not finished: what it copied goes too.
                begun = await self._ports.keys_below(Layout.incarnation(ours.next))
            await mark(self._ports, report.account, ours, PointerState.ERASING)
            await self._close(report.account, ours)
        keyring = Layout.keyring(report.incarnation)
        objects = tuple(
            dict.fromkeys((*report.objects, keyring, *begun, Layout.manifest(report.incarnation)))
        )
        if objects != report.objects:
            # The keys are recorded first: the relayer that continues after a crash deletes these objects with their versions.
            seen = await self._reports.go_on(seen, msgspec.structs.replace(report, objects=objects))
        count = await destroy(self._ports.store, objects)
        for prefix in (Layout.indexes(report.incarnation), Layout.segments(report.incarnation)):
            count += await destroy(self._ports.store, await self._ports.keys_below(prefix))
        if ours is not None:
            await mark(self._ports, report.account, ours, PointerState.ERASED)
        gone = await self._ports.store.get(Layout.manifest(report.incarnation))
        return await self._reports.destroyed(seen, count, gone.store_time)

    async def _close(self, account: str, pointer: Pointer) -> None:
        log = NamespaceLog(self._ports, account, pointer)
        try:
            await log.start()
            if not log.state.closed:
                await log.append([Close(Origin(author=b"", nonce=pointer.incarnation))])
        except (NamespaceClosed, CorruptNamespace):
            # A log without a manifest was never written to, and a log that cannot be read must be erasable too.
            return
        finally:
            await log.close(0)

    async def _confirm(self, seen: SeenReport) -> SeenReport:
        report, store = seen.report, self._ports.store
        below = Layout.incarnation(report.incarnation)
        keys = dict.fromkeys((*report.objects, *await self._ports.keys_below(below)))
        count = await destroy(store, keys)
        if await self._ports.keys_below(below) or await left_of(store, report.objects):
            return seen
        return await self._reports.confirmed(seen, count, seen.store_time)
