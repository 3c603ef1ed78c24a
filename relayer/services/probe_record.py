"""Probing a store at the start, but not at every start: a probe of a distant store takes seconds.

A passed probe is kept in the store itself, sealed, one object per server and version of memrelay, and counts for a week
by the store's time. What a store can do changes when its operator upgrades it or puts another in its place.
"""

from __future__ import annotations

import msgspec

from relayer.errors import StoreError
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.ports import Absent, Found
from relayer.services.store_probe import ProbeReport, probe
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal

__all__ = ["KEPT_MS", "probe_unless_known"]

KEPT_MS = 7 * 24 * 3_600_000
_FORMAT = 1


class _Record(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What is kept: the format, and the store's time of the probe in ms."""

    format: int
    probed_at: int


async def probe_unless_known(ports: LogPorts, version: str, *, always: bool = False) -> ProbeReport | None:
    """Probe the store, or return None if a probe of the last seven days is on record.

    Args:
        ports: the store and its place, and the key that seals the record.
        version: of memrelay: another version asks anew.
        always: whether to probe in any case.

    Raises:
        BrokenPromise: the store cannot hold the log.
        StoreError: nothing could be found out.
    """
    key = Layout.probed(ports.keys.tag("probe", ports.store.description, version))
    found = await ports.store.get(ports.layout.at(key))
    if not always and isinstance(found, Found) and _counts(ports, key, found):
        return None
    report = await probe(ports.store, ports.randomness, prefix=ports.layout.at("probe"))
    await _keep(ports, key)
    return report


async def _keep(ports: LogPorts, key: str) -> None:
    """Write the record, if nobody is in the way: whoever comes next may probe again."""
    place = ports.layout.at(key)
    try:
        found = await ports.store.get(place)
        record = msgspec.msgpack.encode(_Record(_FORMAT, found.store_time))
        salt = ports.randomness.bytes(SALT_SIZE)
        data = seal(ports.keys.metadata, ObjectType.CONSTANT, _place(key), record, salt=salt)
        if isinstance(found, Absent):
            await ports.store.create(place, data)
        elif isinstance(found, Found):
            await ports.store.swap(place, data, found.etag)
    except StoreError:
        return


def _counts(ports: LogPorts, key: str, found: Found) -> bool:
    try:
        opened = unseal(ports.keys.metadata, ObjectType.CONSTANT, _place(key), found.data)
        record = msgspec.msgpack.decode(opened, type=_Record)
    except (UnsealError, msgspec.MsgspecError):
        return False
    return record.format == _FORMAT and 0 <= found.store_time - record.probed_at < KEPT_MS


def _place(key: str) -> bytes:
    return context(ObjectType.CONSTANT, "", b"", key)
