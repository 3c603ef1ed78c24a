"""An object store in a dict, with the exact semantics of the port, for tests and for trying memrelay out."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from relayer.ports import (
    Absent,
    Changed,
    Clock,
    Created,
    CreateOutcome,
    Exists,
    Found,
    GetOutcome,
    ObjectInfo,
    SwapOutcome,
    Swapped,
    Unchanged,
    check_key,
    check_prefix,
    check_range,
)


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    etag: str
    modified: int


class MemoryStore:
    """An `ObjectStore` in this process's memory; every operation is one atomic step of the event loop.

    Etags are SHA-256 in hex, as in the directory store. ``store_time`` is the time of the given clock, because only one process
    uses the store.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, _Stored] = {}

    @property
    def description(self) -> str:
        """The constant ``memory``."""
        return "memory"

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Return an object, or its bytes ``[start, end)`` as far as they exist; `Unchanged` if its etag is ``if_none_match``."""
        check_range(byte_range)
        stored = self._objects.get(check_key(key))
        if stored is None:
            return Absent(self._clock.now_ms())
        if stored.etag == if_none_match:
            return Unchanged(self._clock.now_ms())
        data = stored.data if byte_range is None else stored.data[slice(*byte_range)]
        return Found(data, stored.etag, self._clock.now_ms())

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, no object has this key."""
        if check_key(key) in self._objects:
            return Exists(self._clock.now_ms())
        stored = self._put(key, data)
        return Created(stored.etag, stored.modified)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``."""
        stored = self._objects.get(check_key(key))
        if stored is None or stored.etag != etag:
            return Changed(self._clock.now_ms())
        stored = self._put(key, data)
        return Swapped(stored.etag, stored.modified)

    async def delete(self, key: str) -> None:
        """Remove the object if it exists."""
        self._objects.pop(check_key(key), None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects that were there when the listing began and whose key starts with ``prefix``."""
        check_prefix(prefix)
        rows = [
            ObjectInfo(key, len(stored.data), stored.modified)
            for key, stored in self._objects.items()
            if key.startswith(prefix)
        ]
        for row in rows:
            yield row

    async def versions(self, key: str) -> int:
        """Return 1 if the object exists, otherwise 0, because no older versions are stored."""
        return int(check_key(key) in self._objects)

    async def purge(self, key: str) -> int:
        """Remove the object, and return the number of removed versions, 0 or 1."""
        return int(self._objects.pop(check_key(key), None) is not None)

    async def close(self) -> None:
        """Do nothing; the objects can still be read."""

    def _put(self, key: str, data: bytes) -> _Stored:
        stored = _Stored(bytes(data), hashlib.sha256(data).hexdigest(), self._clock.now_ms())
        self._objects[key] = stored
        return stored
