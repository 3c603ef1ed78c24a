"""Erasure of a namespace: first its keys, then its other objects, and after a grace period its entries.

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

import msgspec

from relayer.domain.namespace import Pointer, PointerState
from relayer.domain.operations import Close, Origin
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable
from relayer.log.collector import GRACE_MS
from relayer.log.creation import find, mark, succeed
from relayer.log.erasure.destruction import destroy, discard, left_of
from relayer.log.erasure.reports import (
    REPORT_FORMAT,
    ErasureKind,
    ErasureReport,
    ErasureReports,
    ErasureStage,
    SeenReport,
)
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import LogPorts


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
        keys = await self._ports.keys_below(self._ports.layout.incarnation(report.incarnation))
        if not keys:
            return 0
        pointer = await find(self._ports, report.account, report.namespace)
        if pointer is not None and pointer.incarnation == report.incarnation:
            return 0  # a copy of the store from before the erasure was restored, and this method does not decide about that
        layout, name = self._ports.layout, self._ports.pointer_key(report.account, report.namespace)
        await discard(self._ports.store, map(layout.store_key, keys), layout.store_key(name))
        return len(keys)

    async def _destroy(self, seen: SeenReport) -> SeenReport:
        report, layout = seen.report, self._ports.layout
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
                begun = await self._ports.keys_below(layout.incarnation(ours.next))
            await mark(self._ports, report.account, ours, PointerState.ERASING)
            await self._close(report.account, ours)
        keyring = layout.keyring(report.incarnation)
        objects = tuple(
            dict.fromkeys((*report.objects, keyring, *begun, layout.manifest(report.incarnation)))
        )
        if objects != report.objects:
            # The keys are recorded first: the relayer that continues after a crash deletes these objects with their versions.
            seen = await self._reports.go_on(seen, msgspec.structs.replace(report, objects=objects))
        count = await destroy(self._ports.store, map(layout.store_key, objects))
        for prefix in (layout.indexes(report.incarnation), layout.segments(report.incarnation)):
            count += await destroy(
                self._ports.store, map(layout.store_key, await self._ports.keys_below(prefix))
            )
        if ours is not None:
            await mark(self._ports, report.account, ours, PointerState.ERASED)
        gone = await self._ports.store.get(layout.store_key(layout.manifest(report.incarnation)))
        done = msgspec.structs.replace(
            seen.report,
            stage=ErasureStage.DESTROYED,
            destroyed=seen.report.destroyed + count,
            destroyed_at=gone.store_time,
        )
        return await self._reports.go_on(seen, done)

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
        report, layout, store = seen.report, self._ports.layout, self._ports.store
        below = layout.incarnation(report.incarnation)
        keys = dict.fromkeys((*report.objects, *await self._ports.keys_below(below)))
        count = await destroy(store, map(layout.store_key, keys))
        if await self._ports.keys_below(below) or await left_of(store, map(layout.store_key, report.objects)):
            return seen
        done = msgspec.structs.replace(
            report,
            stage=ErasureStage.CONFIRMED,
            destroyed=report.destroyed + count,
            confirmed_at=seen.store_time,
        )
        return SeenReport(await self._reports.conclude(done), seen.etag, seen.store_time)
