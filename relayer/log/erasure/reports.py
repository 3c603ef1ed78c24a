"""What becomes of an erasure, written down where every relayer finds it.

A report lies under ``erasing/`` until a sweep has confirmed that nothing is left, and under ``erased/`` from then on: what
is under way is found by listing the one, by whichever relayer runs. Reports are of the account, not of the namespace,
because they outlive it. They are sealed under the metadata key and show ids and keys of objects, no content.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from relayer.errors import CorruptNamespace, StoreUnavailable, UpgradeRequired
from relayer.log.erasure.destruction import destroy
from relayer.log.objects import LogPorts
from relayer.ports import Found, Swapped
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal

REPORT_FORMAT = 1
_ATTEMPTS = 5
_PAUSE = 0.2


class What(StrEnum):
    """What was erased."""

    MEMORY = "memory"
    NAMESPACE = "namespace"


class Stage(StrEnum):
    """How far it is.

    ``ERASED``: gone from every answer. ``DESTROYED``: also from what the store would show to a relayer that opens the
    namespace now. ``CONFIRMED``: a sweep, later than anybody can have held on to anything, found nothing left.
    """

    ERASED = "erased"
    DESTROYED = "destroyed"
    CONFIRMED = "confirmed"


class ErasureReport(msgspec.Struct, frozen=True, array_like=True):
    """An erasure's report. Times are in ms: ``asked_at`` the log's or the store's, the others the store's, 0 for not yet.

    ``erasure`` is the id, that of the first memory or the incarnation. ``seq`` is the entry that decided it. ``slots`` and
    ``objects`` (keys without prefix) are what had to be destroyed with its versions; ``epoch`` is the collection that
    covers ``seq``, 0 until one was begun; ``destroyed`` counts objects.
    """

    format: int
    erasure: bytes
    account: str
    namespace: str
    incarnation: bytes
    what: What
    asked_at: int
    seq: int = 0
    records: tuple[bytes, ...] = ()
    derived: tuple[bytes, ...] = ()
    slots: tuple[int, ...] = ()
    objects: tuple[str, ...] = ()
    stage: Stage = Stage.ERASED
    epoch: int = 0
    destroyed: int = 0
    destroyed_at: int = 0
    confirmed_at: int = 0

    @property
    def is_claim(self) -> bool:
        """Whether nothing was erased under this id: the report stands for a request (`ErasureReports.claim`)."""
        return self.stage is Stage.CONFIRMED and not self.confirmed_at


class _ReportFormat(msgspec.Struct, frozen=True, array_like=True):
    format: int


@dataclass(frozen=True, slots=True)
class SeenReport:
    """A report as the store showed it: what a swap is made from. ``store_time`` is in ms."""

    report: ErasureReport
    etag: str
    store_time: int

    def destroyed_later(self, slack_ms: int) -> bool:
        """Whether the store's clock was ahead when it was destroyed, by more than that: whoever waits would wait for long."""
        waits = self.report.stage is Stage.DESTROYED
        return waits and self.report.destroyed_at - self.store_time > slack_ms


class ErasureReports:
    """The reports of a deployment."""

    def __init__(self, ports: LogPorts) -> None:
        self._ports = ports

    async def begin(self, report: ErasureReport) -> SeenReport:
        """Write a report down unless there is one of the same erasure, and return the one that is there.

        The one that is there may be of a log that was lost since: who erases again what a restored log had brought back is
        not answered with what was confirmed of the lost one.

        Raises:
            StoreUnavailable: it is not sure whether it is written; doing it again is safe.
            StoreError: whatever else the store raises.
        """
        for _ in range(_ATTEMPTS):
            found = await self.find(report.account, report.erasure)
            if found is not None and _same(found.report, report):
                return found
            if found is None or found.report.stage is Stage.CONFIRMED:
                await self._create(self._key(report, confirmed=False), report)
            else:
                # What was to be destroyed with its versions before still is.
                await self.advance(found, msgspec.structs.replace(report, objects=found.report.objects))
            found = await self.find(report.account, report.erasure)
            if found is not None and _same(found.report, report):
                return found
            await self._ports.clock.sleep(_PAUSE)
        raise StoreUnavailable("the erasure's report could not be written")

    async def find(self, account: str, erasure: bytes) -> SeenReport | None:
        """Return a report, or None when there is none; raises as `read`."""
        tag = self._ports.keys.tag("account", account)
        for confirmed in (False, True):
            key = self._ports.layout.report(tag, erasure, confirmed=confirmed)
            found = await self.read(key)
            if found is not None:
                return found
        return None

    async def claim(self, account: str, namespace: str, request: bytes) -> bool:
        """Return whether a request to erase a namespace, known by 16 bytes, is seen for the first time.

        The claim is a confirmed report of an incarnation that never was: whichever relayer the request is repeated at finds it.
        The walk over the store deletes it a day later, when no signature of that time is accepted any more.

        Raises:
            StoreUnavailable: it is not sure whether it is written.
            StoreError: as the store.
        """
        report = ErasureReport(
            format=REPORT_FORMAT,
            erasure=request,
            account=account,
            namespace=namespace,
            incarnation=request,
            what=What.NAMESPACE,
            asked_at=self._ports.clock.now_ms(),
            stage=Stage.CONFIRMED,
        )
        key = self._key(report, confirmed=True)
        place, data = self._ports.layout.at(key), self._seal(key, report)
        for _ in range(_ATTEMPTS):
            await self._ports.store.create(place, data)
            found = await self._ports.store.get(place)
            if isinstance(found, Found):
                return found.data == data
            await self._ports.clock.sleep(_PAUSE)
        raise StoreUnavailable("the erasure's report could not be written")

    async def pending(self) -> list[str]:
        """List the keys, without prefix, of the erasures that are under way."""
        return await self._ports.keys_below(self._ports.layout.erasing())

    async def read(self, key: str) -> SeenReport | None:
        """Read a report by its key without prefix; None when it is absent.

        Raises:
            CorruptNamespace: it does not open in its place.
            UpgradeRequired: its format is unknown.
            StoreError: the store did not answer.
        """
        found = await self._ports.store.get(self._ports.layout.at(key))
        if not isinstance(found, Found):
            return None
        return SeenReport(self.open(key, found.data), found.etag, found.store_time)

    def key_of(self, report: ErasureReport) -> str:
        """Return the key, without prefix, of a report that is under way."""
        return self._key(report, confirmed=False)

    async def close_with_namespace(self, seen: SeenReport) -> ErasureReport:
        """Conclude a memory's erasure because its namespace was erased, and that was confirmed."""
        return await self.conclude(
            msgspec.structs.replace(seen.report, stage=Stage.CONFIRMED, confirmed_at=seen.store_time)
        )

    async def advance(self, seen: SeenReport, new: ErasureReport) -> SeenReport | None:
        """Replace a report that is under way; None if somebody else did, or nobody knows: read it again."""
        key = self._key(new, confirmed=False)
        outcome = await self._ports.store.swap(self._ports.layout.at(key), self._seal(key, new), seen.etag)
        if not isinstance(outcome, Swapped):
            return None
        return SeenReport(new, outcome.etag, outcome.store_time)

    async def conclude(self, report: ErasureReport) -> ErasureReport:
        """Put a confirmed report where it stays, and end the one that was under way."""
        key = self._key(report, confirmed=True)
        await self._create(key, report)
        kept = await self.read(key)
        if kept is not None and not _same(kept.report, report):
            await destroy(self._ports.store, [self._ports.layout.at(key)])
            await self._create(key, report)
            kept = await self.read(key)
        if kept is None:
            raise StoreUnavailable("the erasure's report could not be written")
        await destroy(self._ports.store, [self._ports.layout.at(self._key(report, confirmed=False))])
        return kept.report

    async def _create(self, key: str, report: ErasureReport) -> None:
        """Try once; the next read says what came of it."""
        await self._ports.store.create(self._ports.layout.at(key), self._seal(key, report))

    def _key(self, report: ErasureReport, *, confirmed: bool) -> str:
        tag = self._ports.keys.tag("account", report.account)
        return self._ports.layout.report(tag, report.erasure, confirmed=confirmed)

    def _seal(self, key: str, report: ErasureReport) -> bytes:
        salt = self._ports.randomness.bytes(SALT_SIZE)
        plain = msgspec.msgpack.encode(report)
        return seal(self._ports.keys.metadata, ObjectType.ERASURE, _place(key), plain, salt=salt)

    def open(self, key: str, data: bytes) -> ErasureReport:
        """Open a report's stored bytes; raises `CorruptNamespace` and `UpgradeRequired` as `read`."""
        try:
            plain = unseal(self._ports.keys.metadata, ObjectType.ERASURE, _place(key), data)
            known = msgspec.msgpack.decode(plain, type=_ReportFormat).format
            if known == REPORT_FORMAT:
                return msgspec.msgpack.decode(plain, type=ErasureReport)
        except (UnsealError, msgspec.MsgspecError) as error:
            raise CorruptNamespace("an erasure's report does not open in its place") from error
        raise UpgradeRequired(f"an erasure's report has format {known}; this relayer knows {REPORT_FORMAT}")


def _same(one: ErasureReport, other: ErasureReport) -> bool:
    """Whether two reports of one id are of the same erasure: an incarnation goes once, a memory once in each log."""
    return one.what is What.NAMESPACE or one.asked_at == other.asked_at


def _place(key: str) -> bytes:
    # Without the account's id: whoever looks for what is under way has only the key.
    return context(ObjectType.ERASURE, "", b"", key)
