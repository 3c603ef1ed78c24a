"""Erasure reports: the progress of each erasure, stored where every relayer finds it.

A report is stored under ``erasing/`` until a sweep has confirmed that nothing is left, and under ``erased/`` from then on.
So any relayer finds the erasures in progress by listing ``erasing/``. Reports belong to the account, not to the namespace,
because they outlive it. They are sealed under the metadata key, and contain ids and keys of objects, but no content.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from relayer.domain.operations import decode_versioned
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.erasure.destruction import destroy
from relayer.log.objects import LogPorts
from relayer.ports import Found, Swapped
from relayer.wire.errors import UnsealError
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
            key = self._ports.layout.report(tag, erasure, confirmed=confirmed)
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
        place, data = self._ports.layout.store_key(key), self._seal(key, report)
        for _ in range(_ATTEMPTS):
            await self._ports.store.create(place, data)
            found = await self._ports.store.get(place)
            if isinstance(found, Found):
                return found.data == data
            await self._ports.clock.sleep(_PAUSE)
        raise StoreUnavailable("the erasure's report could not be written")

    async def pending(self) -> list[str]:
        """List the keys, without prefix, of the reports of erasures in progress."""
        return await self._ports.keys_below(self._ports.layout.erasing())

    async def read(self, key: str) -> SeenReport | None:
        """Read a report by its key without prefix; None if it is absent."""
        found = await self._ports.store.get(self._ports.layout.store_key(key))
        if not isinstance(found, Found):
            return None
        return SeenReport(self.open(key, found.data), found.etag, found.store_time)

    def key_of(self, report: ErasureReport) -> str:
        """Return the key, without prefix, of a report while its erasure is in progress."""
        return self._key(report, confirmed=False)

    async def advance(self, seen: SeenReport, new: ErasureReport) -> SeenReport | None:
        """Replace a report of an erasure in progress.

        Returns:
            The report as it was stored; None if another relayer has replaced it, or the outcome is unknown: read it again.
        """
        key = self._key(new, confirmed=False)
        outcome = await self._ports.store.swap(
            self._ports.layout.store_key(key), self._seal(key, new), seen.etag
        )
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

    async def conclude(self, report: ErasureReport) -> ErasureReport:
        """Store a confirmed report under ``erased/``, delete the one under ``erasing/``, and return the stored one."""
        key = self._key(report, confirmed=True)
        await self._create(key, report)
        kept = await self.read(key)
        if kept is not None and not _same(kept.report, report):
            await destroy(self._ports.store, [self._ports.layout.store_key(key)])
            await self._create(key, report)
            kept = await self.read(key)
        if kept is None:
            raise StoreUnavailable("the erasure's report could not be written")
        await destroy(self._ports.store, [self._ports.layout.store_key(self._key(report, confirmed=False))])
        return kept.report

    async def _create(self, key: str, report: ErasureReport) -> None:
        """Try once to create a report; the next read shows whether it succeeded."""
        await self._ports.store.create(self._ports.layout.store_key(key), self._seal(key, report))

    def _key(self, report: ErasureReport, *, confirmed: bool) -> str:
        tag = self._ports.keys.tag("account", report.account)
        return self._ports.layout.report(tag, report.erasure, confirmed=confirmed)

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
