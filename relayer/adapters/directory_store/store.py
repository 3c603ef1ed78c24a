"""The `ObjectStore` over a directory: worker threads, honest times and patience around the blocking half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from relayer.adapters.directory_store.cached_lookup import surely_absent
from relayer.adapters.directory_store.failures import UncertainWrite
from relayer.adapters.directory_store.start import open_tree
from relayer.adapters.directory_store.tree import Blob, LockHeld, Tree
from relayer.domain.object_keys import check_key, check_prefix, check_range
from relayer.errors import StoreThrottled, StoreUnavailable
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
    Throttled,
    Unchanged,
    Unknown,
)

__all__ = ["DirectoryStore"]

T = TypeVar("T")

# The log compares the store times of two answers (I11). A process that was stopped in the middle of an operation
# would put a late time on an early fact, so an operation that took longer than this does not count.
_LONGEST_MS = 30_000
_READ_ATTEMPTS = 3
_LOCK_PATIENCE = (
    5.0  # seconds; a holder needs two fsyncs, so one that takes longer is stopped or the disk is stuck
)
_THREADS = 8


class DirectoryStore:
    """An `ObjectStore` in a directory of a local file system.

    Etags are the SHA-256 of the bytes, in hex. ``store_time`` is the given clock's: only processes of one machine may
    share a directory, so the machine's clock is the store's clock. A cancelled call either has not begun, and then
    never happens, or runs to its end in its thread: no operation is left half done.
    """

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="directory-store")
        self._closed = False

    @classmethod
    async def open(cls, path: str | Path, *, clock: Clock) -> Self:
        """Open the store in ``path``, made if need be, after trying there what correctness rests on.

        Also removes what crashed writers left in ``.staging`` more than an hour ago. Raises `StoreMisconfigured`
        when the directory cannot be used or its file system lacks something, `StoreFull` when it has no room.
        """
        tree = await asyncio.to_thread(open_tree, path, clock.now_ms())
        return cls(tree, clock)

    @property
    def description(self) -> str:
        """The directory's path."""
        return self._tree.path

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read an object, or bytes ``[start, end)`` of it cut at its end; `Unchanged` if it has the given etag."""
        check_key(key)
        check_range(byte_range)
        for _ in range(_READ_ATTEMPTS):
            started = self._clock.now_ms()
            blob = await self._read(key, byte_range)
            now = self._clock.now_ms()
            if not 0 <= now - started <= _LONGEST_MS:
                continue
            if blob is None:
                return Absent(now)
            return Unchanged(now) if blob.etag == if_none_match else Found(blob.data, blob.etag, now)
        raise StoreUnavailable("reads take more than half a minute, or the machine's clock keeps jumping")

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, the name is free."""
        check_key(key)
        started = self._clock.now_ms()
        try:
            etag = await self._run(self._tree.create, key, data)
        except UncertainWrite as error:
            return Unknown(str(error))
        now = self._clock.now_ms()
        if etag is None:
            return Exists(now)
        return Created(etag, now) if 0 <= now - started <= _LONGEST_MS else _stalled()

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``.

        Swaps and deletions of a key take its lock; `Throttled` when that stays held for 5 seconds.
        """
        check_key(key)
        started = self._clock.now_ms()
        try:
            new_etag = await self._patiently(partial(self._tree.swap, key, data, etag))
        except UncertainWrite as error:
            return Unknown(str(error))
        except LockHeld:
            return Throttled(retry_after=1.0)
        now = self._clock.now_ms()
        if new_etag is None:
            return Changed(now)
        return Swapped(new_etag, now) if 0 <= now - started <= _LONGEST_MS else _stalled()

    async def delete(self, key: str) -> None:
        """Remove the object for good; absent is fine. Raises `StoreThrottled` as `swap` answers `Throttled`."""
        await self.purge(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``; one created or deleted meanwhile may be missing."""
        parent, _, start = check_prefix(prefix).rpartition("/")
        waiting = [(parent, start)]
        while waiting:
            objects, directories = await self._run(self._tree.scan, *waiting.pop())
            waiting.extend((directory, "") for directory in directories)
            for info in objects:
                yield info

    async def versions(self, key: str) -> int:
        """1 if the object exists, else 0: a directory keeps nothing older."""
        return int(await self._run(self._tree.exists, check_key(key)))

    async def purge(self, key: str) -> int:
        """Remove the object for good; returns how many there were, 0 or 1."""
        check_key(key)
        try:
            return int(await self._patiently(partial(self._tree.delete, key)))
        except LockHeld as error:
            raise StoreThrottled(f"another process holds the lock of {key} in {self.description}") from error

    async def close(self) -> None:
        """Wait for the operations that run, then release the threads and the directory; idempotent."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        self._tree.close()

    async def _read(self, key: str, byte_range: tuple[int, int] | None) -> Blob | None:
        if not self._closed and surely_absent(key, self._tree.root):
            return None
        return await self._run(self._tree.read, key, byte_range)

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while the key's lock is held, without keeping a thread waiting for it."""
        deadline = self._clock.monotonic() + _LOCK_PATIENCE
        pause = 0.001
        while True:
            try:
                return await self._run(attempt)
            except LockHeld:
                if self._clock.monotonic() >= deadline:
                    raise
            await self._clock.sleep(pause)
            pause = min(pause * 2, 0.01)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def _stalled() -> Unknown:
    return Unknown("the process was stopped, or the clock jumped, during the write: its time is not known")
