"""The blocking operations of the directory store: the system calls of each operation, in an order that survives a crash.

`Tree` reads and writes objects, and `Directories` makes sure that directories and their names are on stable storage. A write goes
to a staging file, is synced, and gets its name by link(2) or rename(2). Every path is relative to an open descriptor of the data
directory, so if that directory is unmounted or replaced under a running relayer, writes fail instead of starting an empty store.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from relayer.errors import StoreError, StoreFull, StoreMisconfigured, StoreUnavailable
from relayer.ports import ObjectInfo

# On macOS fsync(2) stops at the drive's cache; only this command goes through it (Apple's fsync(2) manual page).
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_REMEMBERED = 65_536


def sync(descriptor: int) -> None:
    """Wait until the content of a file or directory is on stable storage; raises `OSError`."""
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def sync_directory(path: str, root: int) -> None:
    """Wait until the names in directory ``path``, relative to descriptor ``root``, are on stable storage."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


class Directories:
    """The directories below ``root`` that are known to be on stable storage, including their names in their parents.

    That a directory exists is not enough: another process may have created it and not synced its parent yet. So each process
    syncs all parents of a directory once, before its first write there.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._settled: set[str] = set()

    def settle(self, path: str) -> None:
        """Create ``path`` and its parents, and sync the name of each; raises `OSError`."""
        if not path or path in self._settled:
            return
        parent = os.path.dirname(path)  # noqa: PTH120 - relative to a descriptor, where pathlib has no say
        self.settle(parent)
        try:
            os.mkdir(path, 0o700, dir_fd=self._root)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self.forget(parent)  # The parent was removed. The next attempt creates it again.
            raise
        sync_directory(parent, self._root)
        if len(self._settled) >= _REMEMBERED:
            self._settled.clear()
        self._settled.add(path)

    def forget(self, path: str) -> None:
        """Forget ``path`` and its parents, because a write below it found no directory."""
        while path:
            self._settled.discard(path)
            path = path.rpartition("/")[0]


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_BLOCKED = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
_INCAPABLE = frozenset(
    {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EXDEV, errno.EINVAL}
)


class UncertainWrite(Exception):
    """Raised inside this adapter if it is not known whether a write happened; callers of the adapter get `Unknown`."""


def nothing_written(error: OSError, path: str) -> StoreError:
    """Return the error to raise for ``error``, which came before anything could have changed at ``path``."""
    name = errno.errorcode.get(error.errno or 0, "an unknown error")
    if error.errno in _FULL:
        return StoreFull(
            f"no room to write {path} ({name}): free space, or raise the quota or file size limit"
        )
    if error.errno in _FORBIDDEN:
        return StoreMisconfigured(
            f"user id {os.geteuid()} is not allowed to use {path} ({name}): "
            "it needs read, write and search permission there, on a file system that is mounted writable",
            fix="give the relayer write permission in its data directory, on a file system that is mounted writable",
        )
    if error.errno in _BLOCKED:
        return StoreMisconfigured(
            f"a file is where {path} needs a directory, or the other way round ({name}): move it away"
        )
    if error.errno in _INCAPABLE:
        return StoreMisconfigured(
            f"the file system of {path} cannot do what the store needs ({name}): use a local one, not a network share"
        )
    return StoreUnavailable(f"the file system answered {name} for {path}")


def perhaps_written(error: OSError, path: str) -> StoreError | UncertainWrite:
    """Return the error to raise for a failed link(2) or rename(2) on ``path``.

    If the kernel rejected the call, nothing was written. After other errors, above all EIO, that is not certain.
    """
    if error.errno in _FULL | _FORBIDDEN | _BLOCKED | _INCAPABLE or isinstance(error, FileNotFoundError):
        return nothing_written(error, path)
    return UncertainWrite(
        f"the file system answered {errno.errorcode.get(error.errno or 0, 'an unknown error')}"
    )


STAGING = ".staging"
LOCKS = ".locks"
# Lock files are shared by keys, so that their number stays small and an erased namespace leaves none behind.
_STRIPES = 256
# Longer than Linux's dirty_expire (30 s) and the commit interval of every journal, so an older name is on disk without a sync.
_UNSETTLED_NS = 60_000_000_000
_SEGMENT = re.compile(r"[a-z0-9_-]+")


def unsettled(status: os.stat_result) -> bool:
    """Return whether a file's name may not be on disk yet."""
    return time.time_ns() - status.st_ctime_ns < _UNSETTLED_NS


class LockHeld(Exception):
    """Raised inside this adapter if another task or process holds the key's lock, so that the caller can retry soon."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a file or the requested part of it, and the etag of the whole file; empty if it was not requested."""

    data: bytes
    etag: str


class Tree:
    """Files below ``path``, read and written by any number of threads and processes at once.

    Methods block and raise the port's errors. A write raises `UncertainWrite` if it is not known whether it happened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._directories = Directories(self.root)

    def close(self) -> None:
        """Close the descriptor of the data directory."""
        os.close(self.root)

    def read(self, key: str, byte_range: tuple[int, int] | None, *, etag: bool = True) -> Blob | None:
        """Return the object or the requested part of it, or None if there is none.

        Without ``etag``, only the requested part is read. A name that is younger than a minute is synced first: its writer may
        have died between link(2) and fsync(2), and an object that was read must not be lost by the next power failure.
        """
        try:
            with self._opened(key) as descriptor:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    return None
                if unsettled(status):
                    self._directories.settle(_parent(key))
                    sync_directory(_parent(key), self.root)
                if byte_range is not None and not etag:
                    begin, end = byte_range
                    return Blob(os.pread(descriptor, end - begin, begin), "")
                with open(descriptor, "rb", buffering=0, closefd=False) as file:
                    data = file.readall()
                return Blob(data if byte_range is None else data[slice(*byte_range)], etag_of(data))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise nothing_written(error, self._full(key)) from error

    def create(self, key: str, data: bytes) -> str | None:
        """Write the object and return its etag, or return None if the name is taken.

        Also if the name is taken, the data is written to a staging file first. So readiness, which creates an existing object,
        sees that a file system is read-only or full.
        """
        with self._staged(key, data) as staged:
            try:
                os.link(staged, key, src_dir_fd=self.root, dst_dir_fd=self.root)
            except FileExistsError as error:
                if self.exists(key):
                    return None
                raise StoreMisconfigured(f"{self._full(key)} is not a file: move it away") from error
            except OSError as error:
                self._directories.forget(_parent(key))
                raise perhaps_written(error, self._full(key)) from error
        self._settle_name(key)
        return etag_of(data)

    def swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object and return the new etag, or None if it does not have ``etag``; may raise `LockHeld`."""
        with self._locked(key):
            current = self.read(key, None)
            if current is None or current.etag != etag:
                return None
            with self._staged(key, data) as staged:
                try:
                    os.rename(staged, key, src_dir_fd=self.root, dst_dir_fd=self.root)
                except OSError as error:
                    raise perhaps_written(error, self._full(key)) from error
            self._settle_name(key)
            return etag_of(data)

    def delete(self, key: str) -> bool:
        """Remove the object, and return whether it existed; may raise `LockHeld`.

        The directory is synced even when the object is absent: an earlier attempt may have died before that.
        """
        with self._locked(key):
            try:
                existed = self.exists(key)
                if existed:
                    os.unlink(key, dir_fd=self.root)
                sync_directory(_parent(key), self.root)
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError as error:
                raise nothing_written(error, self._full(key)) from error
            return existed

    def exists(self, key: str) -> bool:
        """Return whether the object exists."""
        try:
            return stat.S_ISREG(os.stat(key, dir_fd=self.root, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise nothing_written(error, self._full(key)) from error

    def scan(self, directory: str, start: str) -> tuple[list[ObjectInfo], list[str]]:
        """Return the objects and the directories in ``directory`` whose names begin with ``start``.

        Names that are not allowed in a key are ignored, and objects that vanish meanwhile are left out. The time of an object is
        that of its inode's last change, which link(2) and rename(2) set; its modification time is that of the staging file.
        """
        objects: list[ObjectInfo] = []
        directories: list[str] = []
        try:
            with self._opened(directory or ".") as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if not entry.name.startswith(start) or not _SEGMENT.fullmatch(entry.name):
                        continue
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            directories.append(path)
                        elif stat.S_ISREG(status.st_mode):
                            objects.append(ObjectInfo(path, status.st_size, status.st_ctime_ns // 1_000_000))
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        except OSError as error:
            raise nothing_written(error, self._full(directory)) from error
        return objects, directories

    @contextmanager
    def _staged(self, key: str, data: bytes) -> Iterator[str]:
        """Return a context with a synced staging file of ``data``; the directory of the key is on stable storage too."""
        staged = f"{STAGING}/{os.getpid()}-{secrets.token_hex(8)}"
        try:
            try:
                self._directories.settle(_parent(key))
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(staged, flags, 0o600, dir_fd=self.root)
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
                    sync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise nothing_written(error, self._full(key)) from error
            yield staged
        finally:
            # It is gone after a rename. If it cannot be removed, a later start removes it.
            with suppress(OSError):
                os.unlink(staged, dir_fd=self.root)

    def _settle_name(self, key: str) -> None:
        try:
            sync_directory(_parent(key), self.root)
        except OSError as error:
            raise UncertainWrite("the new name could not be synced") from error

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        name = f"{LOCKS}/{zlib.crc32(key.encode('ascii')) % _STRIPES:02x}"
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.root)
        except FileNotFoundError as error:
            raise StoreUnavailable(
                f"{self._full(LOCKS)} is gone: restart the relayer to make it again"
            ) from error
        except OSError as error:
            raise nothing_written(error, self._full(name)) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockHeld from error
            except OSError as error:
                raise nothing_written(error, self._full(name)) from error
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer, possibly forever.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, dir_fd=self.root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _full(self, path: str) -> str:
        return f"{self.path}/{path}"


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def etag_of(data: bytes) -> str:
    """Return the etag of an object with these bytes."""
    return hashlib.sha256(data).hexdigest()
