"""The `ObjectStore` in a directory: worker threads, store times and waiting for locks around the blocking `Tree`.

`open_tree` creates the directory, tests the file system with a race of two processes (`_probe`), and removes old leftovers;
for commands that only read, it writes nothing.
`DirectoryStore` runs each operation of `Tree` in a thread, and does not trust the time of one that took too long. Small objects
that are in the page cache are read without a thread (`at_hand`).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from relayer.adapters.directory_store.tree import (
    LOCKS,
    STAGING,
    Blob,
    LockHeld,
    Tree,
    UncertainWrite,
    etag_of,
    nothing_written,
    sync,
    sync_directory,
    unsettled,
)
from relayer.errors import StoreMisconfigured, StoreThrottled, StoreUnavailable
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
    check_key,
    check_prefix,
    check_range,
)

_SYS_OPENAT2 = 437  # the same on every architecture that Python supports (include/uapi/asm-generic/unistd.h)
_RESOLVE_CACHED = 0x20  # include/uapi/linux/openat2.h


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of include/uapi/linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    call: Callable[..., int] = syscall
    return call


_SYSCALL = _openat2()
_HOW = _OpenHow(os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE_CACHED)
_HOW_REFERENCE = ctypes.byref(_HOW)
_HOW_SIZE = ctypes.sizeof(_OpenHow)


_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# Reading and hashing this many bytes takes less time than handing them to a thread.
_SMALL_BYTES = 64 * 1024


class Glance(Enum):
    """The result of `at_hand` for an object that it does not return: it is absent, or a thread has to read it."""

    ABSENT = auto()
    UNKNOWN = auto()


def at_hand(path: str, root: int) -> bytes | Glance:
    """Return the small object at ``path``, relative to descriptor ``root``, if that needs neither disk access nor a sync.

    The result is `Glance.UNKNOWN` if the kernel is too old or a sandbox denies the call, if the object is large or not in the
    page cache, or if its name may not be on disk yet.
    """
    if _SYSCALL is None:
        return Glance.UNKNOWN
    descriptor = _SYSCALL(_SYS_OPENAT2, root, path.encode("ascii"), _HOW_REFERENCE, _HOW_SIZE)
    if descriptor < 0:
        return Glance.ABSENT if ctypes.get_errno() == errno.ENOENT else Glance.UNKNOWN
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if _NO_WAIT is None or not stat.S_ISREG(status.st_mode) or size > _SMALL_BYTES or unsettled(status):
            return Glance.UNKNOWN
        data = bytearray(size)
        return bytes(data) if os.preadv(descriptor, [data], 0, _NO_WAIT) == size else Glance.UNKNOWN
    except OSError:
        # Part of the file is not in memory, or the file system does not support the flag.
        return Glance.UNKNOWN
    finally:
        os.close(descriptor)


_LEFTOVER_MS = 3_600_000
_ROUNDS = 32
_RIVALS = 2
_RIVAL_PATIENCE = 20.0  # seconds; a Python process starts in some 20 ms, but the machine may be busy
# The program of a rival process: check that its parent holds the lock, then race the other rival to create each name.
_RIVAL = """
import fcntl, os, sys
mine, rounds = sys.argv[1], int(sys.argv[2])
lock = os.open("lock", os.O_RDWR)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("unlocked", flush=True)
except BlockingIOError:
    print("locked", flush=True)
os.close(os.open(mine, os.O_WRONLY | os.O_CREAT, 0o600))
sys.stdin.readline()
won = []
for number in range(rounds):
    try:
        os.link(mine, "name%d" % number)
        won.append(number)
    except FileExistsError:
        pass
print(*won)
"""


def open_tree(where: str | Path, now_ms: int, *, tried: bool = False, read_only: bool = False) -> Tree:
    """Return the tree at ``where``, ready for use. This blocks.

    Args:
        where: the directory; created if it does not exist.
        now_ms: the time, which decides which leftovers are old.
        tried: whether another process of this machine has just tested the file system, so that it is not tested again.
        read_only: whether the caller only reads. Then nothing is created, tested or removed, so that a full or read-only
            file system can be read; the directory must exist.

    Raises:
        StoreMisconfigured: the directory or its file system cannot be used; the message says what to do.
        StoreFull: there is no space.
        StoreUnavailable: the file system failed otherwise.
    """
    path = str(Path(where).absolute())
    try:
        if read_only:
            return Tree(path)
        missing = [folder for folder in (Path(path), *Path(path).parents) if not folder.is_dir()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        for name in (STAGING, LOCKS):
            Path(path, name).mkdir(mode=0o700, exist_ok=True)
        for folder in [*missing, Path(path, STAGING)]:
            descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
        tree = Tree(path)
    except FileExistsError as error:
        raise StoreMisconfigured(
            f"{error.filename} is a file: choose another data directory, or move it away"
        ) from error
    except OSError as error:
        raise nothing_written(error, path) from error
    try:
        if not tried:
            _probe(tree)
        _sweep(tree, now_ms)
    except OSError as error:
        tree.close()
        raise nothing_written(error, path) from error
    except BaseException:
        tree.close()
        raise
    return tree


def _probe(tree: Tree) -> None:
    name = f"{STAGING}/probe-{os.getpid()}-{secrets.token_hex(8)}"
    folder = Path(tree.path, name)
    folder.mkdir(mode=0o700)
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(lock, b"x")
            sync(lock)
            sync_directory(name, tree.root)
            try:
                os.link(folder / "lock", folder / "linked")
            except PermissionError as error:  # what Linux answers on FAT and exFAT
                raise StoreMisconfigured(
                    f"the file system of {folder} cannot make hard links: use another one for the data directory"
                ) from error
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            wins = _race(folder)
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if sorted(wins) != list(range(_ROUNDS)):
        raise StoreMisconfigured(
            f"the file system of {tree.path} let two processes create one name, or none: use a local file system"
        )


def _race(folder: Path) -> list[int]:
    """Return the numbers of the names that all rivals created; raises `StoreMisconfigured` if they cannot compete."""
    with ExitStack() as stack:
        rivals = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603 - our own interpreter runs the constant above
                    [sys.executable, "-I", "-S", "-c", _RIVAL, f"rival{number}", str(_ROUNDS)],
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for number in range(_RIVALS)
        ]
        stack.callback(_kill, rivals)
        watchdog = threading.Timer(_RIVAL_PATIENCE, _kill, [rivals])
        stack.callback(watchdog.cancel)
        watchdog.start()
        locks = [rival.stdout.readline().strip() for rival in rivals if rival.stdout]
        if "unlocked" in locks:
            raise StoreMisconfigured(
                f"the file system of {folder} does not keep locks (flock) between processes: use a local file system"
            )
        if locks != ["locked"] * _RIVALS:
            raise StoreMisconfigured(f"a second process cannot use {folder}: it did not get as far as a lock")
        for rival in rivals:
            if rival.stdin:
                rival.stdin.write("\n")
                rival.stdin.flush()
        answers = [rival.communicate()[0] for rival in rivals]
        if any(rival.returncode for rival in rivals):
            raise StoreMisconfigured(
                f"a second process cannot make hard links in {folder}: use a local file system"
            )
        return [int(number) for answer in answers for number in answer.split()]


def _kill(rivals: list[subprocess.Popen[str]]) -> None:
    for rival in rivals:
        rival.kill()


def _sweep(tree: Tree, now_ms: int) -> None:
    """Remove files that have been in the staging directory for an hour. A running writer needs them only for milliseconds."""
    with os.scandir(Path(tree.path, STAGING)) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if now_ms - entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000 < _LEFTOVER_MS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)  # noqa: PTH108 - the entry's path is a string already


T = TypeVar("T")

# The log compares the store times of two responses (I11). If a process is stopped in the middle of an operation, its time is
# later than the state that it read, so the result of an operation that took longer than this is not used.
_LONGEST_MS = 30_000
_STALLED = Unknown("the process was stopped, or the clock jumped, during the write: its time is not known")
_READ_ATTEMPTS = 3
# In seconds. A holder needs two fsyncs, so one that takes longer is stopped or the disk is stuck.
_LOCK_PATIENCE = 5.0
_THREADS = 8


class DirectoryStore:
    """An `ObjectStore` in a directory of a local file system.

    Etags are the SHA-256 of the bytes, in hex. ``store_time`` is the time of the given clock: only processes of one machine may
    share a directory, so the machine's clock is the store's clock. A cancelled call that has not begun never happens; one that
    has begun runs to its end in its thread, so no operation is left incomplete.
    """

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="directory-store")
        self._closed = False

    @classmethod
    async def open(
        cls, path: str | Path, *, clock: Clock, tried: bool = False, read_only: bool = False
    ) -> Self:
        """Open the store in a directory, which is created if it does not exist.

        Files that crashed writers left in ``.staging`` more than an hour ago are removed.

        Args:
            path: the directory.
            clock: the source of the current time.
            tried: whether another process has just tested the file system, so that it is not tested again.
            read_only: whether the caller only reads; then the directory must exist, and nothing is written in it.

        Raises:
            StoreMisconfigured: the directory cannot be used, or its file system lacks a needed feature.
            StoreFull: there is no space.
        """
        tree = await asyncio.to_thread(
            partial(open_tree, tried=tried, read_only=read_only), path, clock.now_ms()
        )
        return cls(tree, clock)

    @property
    def description(self) -> str:
        """The directory's path."""
        return self._tree.path

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Return an object, or its bytes ``[start, end)`` as far as they exist; `Unchanged` if its etag is ``if_none_match``."""
        check_key(key)
        check_range(byte_range)
        for _ in range(_READ_ATTEMPTS):
            started = self._clock.now_ms()
            blob = await self._read(key, byte_range, etag=byte_range is None or if_none_match is not None)
            now = self._clock.now_ms()
            if not 0 <= now - started <= _LONGEST_MS:
                continue
            if blob is None:
                return Absent(now)
            return Unchanged(now) if blob.etag == if_none_match else Found(blob.data, blob.etag, now)
        raise StoreUnavailable("reads take more than half a minute, or the machine's clock keeps jumping")

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, no object has this key."""
        check_key(key)
        started = self._clock.now_ms()
        try:
            etag = await self._run(self._tree.create, key, data)
        except UncertainWrite as error:
            return Unknown(str(error))
        now = self._clock.now_ms()
        if etag is None:
            return Exists(now)
        return Created(etag, now) if 0 <= now - started <= _LONGEST_MS else _STALLED

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``.

        Swaps and deletions of a key take its lock. The outcome is `Throttled` if it stays locked for 5 seconds.
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
        return Swapped(new_etag, now) if 0 <= now - started <= _LONGEST_MS else _STALLED

    async def delete(self, key: str) -> None:
        """Remove the object if it exists, permanently. Raises `StoreThrottled` if its lock stays held for 5 seconds."""
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
        """Return 1 if the object exists, otherwise 0, because a directory stores no older versions."""
        return int(await self._run(self._tree.exists, check_key(key)))

    async def purge(self, key: str) -> int:
        """Remove the object permanently, and return the number of removed versions, 0 or 1."""
        check_key(key)
        try:
            return int(await self._patiently(partial(self._tree.delete, key)))
        except LockHeld as error:
            raise StoreThrottled(f"another process holds the lock of {key} in {self.description}") from error

    async def close(self) -> None:
        """Wait for running operations, then release the threads and the directory. This is idempotent."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        self._tree.close()

    async def _read(self, key: str, byte_range: tuple[int, int] | None, *, etag: bool) -> Blob | None:
        if not self._closed:
            found = at_hand(key, self._tree.root)
            if isinstance(found, bytes):
                part = found if byte_range is None else found[slice(*byte_range)]
                return Blob(part, etag_of(found) if etag else "")
            if found is Glance.ABSENT:
                return None
        return await self._run(partial(self._tree.read, etag=etag), key, byte_range)

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while the key's lock is held, for up to 5 seconds, without blocking a thread between attempts."""
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
