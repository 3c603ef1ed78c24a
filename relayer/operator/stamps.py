"""Times that are recorded in the store itself: of the last complete backup, and of passed probes.

`stamp` records the present time under a key, and `read_stamp` reads it. Every relayer of the store can therefore report the
last backup, on whichever machine it was made.
"""

from __future__ import annotations

import msgspec

from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.objects import Layout, LogPorts, ObjectLocation, ObjectSealer
from relayer.ports import Created, Found, Swapped
from relayer.wire.sealing import ObjectType

_FORMAT = 1


class Stamp(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The stored record: its format, and the time, in ms of the store's time."""

    format: int
    at: int


async def stamp(ports: LogPorts, key: str) -> None:
    """Record the store's present time under a key; raises `StoreError`: the record could not be written."""
    place = ports.layout.store_key(key)
    found = await ports.store.get(place)
    data = ObjectSealer(ports).seal(_location(key), msgspec.msgpack.encode(Stamp(_FORMAT, found.store_time)))
    outcome = (
        await ports.store.swap(place, data, found.etag)
        if isinstance(found, Found)
        else await ports.store.create(place, data)
    )
    if isinstance(outcome, Created | Swapped):
        return
    # Another process may have recorded a time at the same moment, and its record is as good.
    if (await read_stamp(ports, key))[0] < found.store_time:
        raise StoreUnavailable(f"the time could not be recorded under {key}; try again")


async def read_stamp(ports: LogPorts, key: str) -> tuple[int, int]:
    """Return the time recorded under a key, 0 for none, and the store's time of its response; both in ms.

    An unreadable record counts as none. Raises `StoreError`: the store does not respond.
    """
    found = await ports.store.get(ports.layout.store_key(key))
    if not isinstance(found, Found):
        return 0, found.store_time
    try:
        known = msgspec.msgpack.decode(ObjectSealer(ports).unseal(_location(key), found.data), type=Stamp)
    except (CorruptNamespace, msgspec.MsgspecError):
        return 0, found.store_time
    return known.at if known.format == _FORMAT else 0, found.store_time


def _location(key: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.CONSTANT, "", b"", key)


async def last_backup(ports: LogPorts) -> int:
    """Return when the last complete backup ended, in ms of the store's time; 0 if none is recorded. Raises as `read_stamp`."""
    return (await read_stamp(ports, Layout.backed_up()))[0]
