"""Rotation of a namespace's keys: all that its log holds is sealed again, under a secret of another generation.

    begin      record in the pointer which incarnation and generation follow
    close      append an operation after which `apply` refuses everything: what was acknowledged before is copied, and nothing
               is acknowledged after it that would not be
    copy       create the keyring of the next incarnation, and copy every segment with its bodies and MACs under the new keys.
               Operations, their ids, times, slots and digests stay the same, so that a position that a client remembers,
               or a request that it sends again, means the same as before
    complete   create the manifest of the next incarnation. From here on, any relayer can finish without a key
    report     store the report of the former incarnation's erasure
    succeed    exchange the incarnation in the pointer

Then the erasure destroys the former incarnation, its keyring first (`relayer.log.erasure`). Every step may be
repeated by any relayer at any time: a relayer that continues uses the incarnation that the pointer names and the keyring
that is there, and of several that copy at the same time, the manifest of the first one counts. Segments that no manifest
names are deleted by the collector. Nothing is copied before the log is closed, so that nothing that is erased later is in
a copy.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from relayer.crypto import NamespaceKeys
from relayer.domain.bodies import Resealing, reduce, reseal
from relayer.domain.namespace import MANIFEST_FORMAT, Manifest, Pointer, SegmentRow, genesis
from relayer.domain.operations import Close, Origin, decode_operation
from relayer.errors import StoreUnavailable
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.creation import begin_succession, complete_successor, settle_successor, succeed
from relayer.log.erasure import ErasureKind, ErasureReports, SeenReport, namespace_report
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import LinkedEntry, LogPorts
from relayer.log.replica import Replica
from relayer.log.segments import PackBuilder, Segment, Segments
from relayer.ports import Randomness
from relayer.wire.codec import UnsealError
from relayer.wire.sealed_keys import SealedKey
from relayer.wire.sealing import SALT_SIZE

_ROUNDS = 64
_ALL_AT_ONCE = CompactionLimits(entries=1)
# After this many bytes other tasks can run: sealing them again takes about two milliseconds.
_TURN_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Rotated:
    """A rotation whose new incarnation is in use.

    Attributes:
        entries: the number of entries that were copied.
        records: the number of memories and turns in them, with those of the history.
        report: the report of the erasure of the former incarnation.
    """

    pointer: Pointer
    entries: int
    records: int
    report: SeenReport


async def rotate(
    ports: LogPorts, account: str, pointer: Pointer, keys: NamespaceKeys, key: SealedKey
) -> Rotated:
    """Seal all of a namespace again under another secret, and use that from then on.

    The ``pointer`` is of custody ``agent``, and ``keys`` are those of its incarnation. ``key`` has the secret of the new
    generation; if a rotation was begun before, of the generation of that rotation.

    Raises:
        WrongNamespaceKey: a rotation was begun with another secret.
        NamespaceClosed: the namespace was erased, or another relayer has rotated its keys.
        CorruptNamespace, UpgradeRequired: the log cannot be read; nothing was closed.
    """
    log = NamespaceLog(ports, account, pointer)
    try:
        await log.start()
        pointer = await begin_succession(ports, account, pointer, key.generation)
        new = await settle_successor(ports, account, pointer, key.secret, keys.macs)
        if not log.state.closed:
            await log.append([Close(Origin(author=b"", nonce=pointer.next))])
        copy = _Copy(ports, account, log.replica, pointer, _resealing(keys, new, ports.randomness))
        await complete_successor(ports, account, pointer, await copy.run())
        state = log.state
    finally:
        await log.close(0)
    report = namespace_report(account, pointer, ports.clock.now_ms(), ErasureKind.FORMER)
    seen = await ErasureReports(ports).begin(report)
    now = await succeed(ports, account, pointer.name, pointer.incarnation)
    if now is None or now.incarnation != pointer.next:
        raise StoreUnavailable("the namespace was changed while its keys were rotated; trying again is safe")
    return Rotated(now, state.position.seq, len(state.records), seen)


def _resealing(old: NamespaceKeys, new: NamespaceKeys, randomness: Randomness) -> Resealing:
    """Return functions that seal again what was sealed; a damaged body that no key opens stays what it is."""

    def record(name: bytes, sealed: bytes) -> bytes:
        try:
            plain = old.unseal_record(name, sealed)
        except UnsealError:
            return sealed
        return new.seal_record(name, plain, salt=randomness.bytes(SALT_SIZE))

    def vector(name: bytes, which: str, sealed: bytes) -> bytes:
        try:
            plain = old.unseal_vector(name, which, sealed)
        except UnsealError:
            return sealed
        return new.seal_vector(name, which, plain, salt=randomness.bytes(SALT_SIZE))

    return Resealing(record, vector, new.renew_content_mac, new.renew_idempotency_mac)


class _Copy:
    def __init__(
        self, ports: LogPorts, account: str, replica: Replica, pointer: Pointer, resealing: Resealing
    ) -> None:
        self._replica = replica
        self._compactor = Compactor(ports, replica, _ALL_AT_ONCE)
        self._target = Segments(ports, account, pointer.next)
        self._first = genesis(pointer.next)
        self._resealing = resealing

    async def run(self) -> Manifest:
        """Upload all segments and return the manifest that names them; raises `StoreError`."""
        for _ in range(_ROUNDS):
            rows = await self._rows()
            if rows is not None:
                break
        else:
            raise StoreUnavailable("others keep changing the namespace; trying again is safe")
        last = self._replica.state.position
        return Manifest(
            format=MANIFEST_FORMAT,
            segments=tuple(rows),
            snap_seq=last.seq,
            chain_digest=last.digest,
            gc_watermark=last.seq,
            gc_epoch=1,
            live_count=sum(row.live for row in rows),
            live_bytes=sum(row.size for row in rows),
            last_time=self._replica.state.last_time,
        )

    async def _rows(self) -> list[SegmentRow] | None:
        """Copy every segment; None if the log has to be read again, because others compacted it meanwhile."""
        seen = await self._replica.manifest.see()
        if seen.manifest.snap_seq < self._replica.state.position.seq:
            await self._compactor.run()
            return None
        rows = []
        for row in seen.manifest.segments:
            segment = await self._replica.segments.read(row)
            if segment is None:
                return None
            rows.append(await self._copied(segment, seen.store_time))
        return rows

    async def _copied(self, segment: Segment, now_ms: int) -> SegmentRow:
        state, builder, budget = self._replica.state, PackBuilder(), _TURN_BYTES
        for found in segment.entries():
            entry, linked = found.entry, found
            if entry.seq == 1:
                linked = LinkedEntry(msgspec.structs.replace(entry, previous=self._first), found.digest)
            operations = []
            for raw in entry.operations:
                if isinstance(decode_operation(raw), Close):
                    continue
                operations.append(reseal(reduce(raw, entry.seq, state), self._resealing))
                budget -= len(raw)
                if budget <= 0:
                    await asyncio.sleep(0)
                    budget = _TURN_BYTES
            builder.add(linked, operations)
        row = await self._target.upload(builder, segment.row.first_seq, now_ms, state.position.seq)
        if row is None:
            raise StoreUnavailable("it is not certain that a segment was written; trying again is safe")
        return row
