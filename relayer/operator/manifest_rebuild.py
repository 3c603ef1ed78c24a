"""Makes a lost manifest anew, from the segments and slots that the store lists."""

from __future__ import annotations

import hashlib

from relayer.domain.bodies import take_out
from relayer.domain.namespace import MANIFEST_FORMAT, Manifest, SegmentRow, genesis
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.segment_pack import PackPlace, open_pack
from relayer.operator.catalogue import keys_below
from relayer.operator.quarantine import quarantine
from relayer.ports import Created, Found, Swapped

__all__ = ["rebuild_manifest"]


async def rebuild_manifest(ports: LogPorts, account: str, incarnation: bytes, *, apply: bool) -> str:
    """Write a manifest that names the segments which cover the log from its first entry on; returns its key if it was there.

    The watermark goes to the end of the segments, and the count of its moves above any that was ever reached by counting,
    because replicas refuse to see either go back.

    Raises:
        StoreError: the store did not take it; running again is safe.
    """
    key = Layout.manifest(incarnation)
    found = await ports.store.get(ports.layout.at(key))
    there = key if isinstance(found, Found) else ""
    if not apply:
        return there
    rows, last = await _cover(ports, account, incarnation)
    epochs = await keys_below(ports, f"ns/{incarnation.hex()}/keyring/")
    snap_seq = rows[-1].last_seq if rows else 0
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        segments=tuple(rows),
        snap_seq=snap_seq,
        chain_digest=last,
        gc_watermark=snap_seq,
        gc_epoch=found.store_time // 1000 if snap_seq else 0,
        key_epoch=max((int(name.rpartition("/")[2]) for name in epochs), default=1),
        live_count=sum(row.live for row in rows),
        live_bytes=sum(row.size for row in rows),
    )
    sealed = ObjectSealer(ports).seal_manifest(account, incarnation, key, manifest)
    at = ports.layout.at(key)
    if isinstance(found, Found):
        await quarantine(ports, [key], found.store_time)
        written = isinstance(await ports.store.swap(at, sealed, found.etag), Swapped)
    else:
        written = isinstance(await ports.store.create(at, sealed), Created)
    if not written:
        raise StoreUnavailable("the manifest could not be written; running repair again is safe")
    return there


async def _cover(ports: LogPorts, account: str, incarnation: bytes) -> tuple[list[SegmentRow], bytes]:
    """Choose segments that hold each entry once, the longest first, and the digest of the last entry.

    Where one is lost they leave a gap, which is for the repair of entries to close: what is behind it is not lost.
    """
    known: dict[int, tuple[SegmentRow, bytes]] = {}
    for key in await keys_below(ports, Layout.segments(incarnation)):
        read = await _read(ports, account, incarnation, key)
        if read is not None and read[0].last_seq > _last(known.get(read[0].first_seq)):
            known[read[0].first_seq] = read
    rows: list[SegmentRow] = []
    digest = genesis(incarnation)
    for first in sorted(known):
        if not rows or first > rows[-1].last_seq:
            row, digest = known[first]
            rows.append(row)
    return rows, digest


def _last(known: tuple[SegmentRow, bytes] | None) -> int:
    return 0 if known is None else known[0].last_seq


async def _read(
    ports: LogPorts, account: str, incarnation: bytes, key: str
) -> tuple[SegmentRow, bytes] | None:
    """Return the row that would name a segment, and its last entry's digest; None if it does not open from end to end."""
    found = await ports.store.get(ports.layout.at(key))
    if not isinstance(found, Found):
        return None
    try:
        entries = list(open_pack(found.data, PackPlace(ObjectSealer(ports), account, incarnation, key)))
    except CorruptNamespace:
        return None
    if not entries:
        return None
    live = sum(any(body for _, body in take_out(raw)[1]) for item in entries for raw in item.entry.operations)
    digest = hashlib.sha256(found.data).digest()
    first, last = entries[0].entry.seq, entries[-1].entry.seq
    return SegmentRow(first, last, key, digest, len(found.data), live), entries[-1].digest
