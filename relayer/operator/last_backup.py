"""The time of a store's last complete backup, recorded in the store itself.

`note_backup` writes it at the end of a backup, and `last_backup` reads it. Every relayer of the store can therefore report it,
on whichever machine the backup was made.
"""

from __future__ import annotations

import msgspec

from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.objects import Layout, LogPorts, ObjectLocation, ObjectSealer
from relayer.ports import Absent, Created, Found, Swapped
from relayer.wire.sealing import ObjectType

_FORMAT = 1
_PLACE = ObjectLocation(ObjectType.CONSTANT, "", b"", Layout.backed_up())


class _Note(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The stored record: its format, and when the backup ended, in ms of the store's time."""

    format: int
    ended_at: int


async def note_backup(ports: LogPorts) -> None:
    """Record that a backup of everything in the store has just ended.

    Raises:
        StoreError: the record could not be written.
    """
    at = ports.layout.store_key(Layout.backed_up())
    found = await ports.store.get(at)
    note = msgspec.msgpack.encode(_Note(_FORMAT, found.store_time))
    data = ObjectSealer(ports).seal(_PLACE, note)
    outcome = (
        await ports.store.swap(at, data, found.etag)
        if isinstance(found, Found)
        else await ports.store.create(at, data)
    )
    if isinstance(outcome, Created | Swapped):
        return
    # Another backup may have ended at the same time, and its record is as good.
    if await last_backup(ports) < found.store_time:
        raise StoreUnavailable("the time of this backup could not be stored")


async def last_backup(ports: LogPorts) -> int:
    """Return when the last complete backup ended, in ms of the store's time; 0 if none is recorded.

    Raises:
        StoreError: the store does not respond.
    """
    found = await ports.store.get(ports.layout.store_key(Layout.backed_up()))
    if isinstance(found, Absent):
        return 0
    if not isinstance(found, Found):
        raise StoreUnavailable("the store has no time of the last backup")
    try:
        note = msgspec.msgpack.decode(ObjectSealer(ports).unseal(_PLACE, found.data), type=_Note)
    except (CorruptNamespace, msgspec.MsgspecError):
        return 0  # An unreadable record counts as none, so the alert about missing backups fires.
    return note.ended_at if note.format == _FORMAT else 0
