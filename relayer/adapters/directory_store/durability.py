"""Making bytes and names survive a power loss."""

from __future__ import annotations

import fcntl
import os

__all__ = ["Directories", "sync", "sync_directory"]

# On macOS fsync(2) stops at the drive's cache; only this command goes through it (Apple's fsync(2) manual page).
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_REMEMBERED = 65_536


def sync(descriptor: int) -> None:
    """Return when the file's or directory's content is on stable storage; raises `OSError`."""
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def sync_directory(path: str, root: int) -> None:
    """Return when the names in directory ``path``, relative to descriptor ``root``, are on stable storage."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


class Directories:
    """The directories below ``root`` that exist for good, their names in their parents included.

    A directory found existing proves nothing: another process may have made it and not synced its parent yet. So each
    process syncs the way to a directory once, before its first write there.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._settled: set[str] = set()

    def settle(self, path: str) -> None:
        """Make ``path`` and what leads to it, and sync every name on the way; raises `OSError`."""
        if not path or path in self._settled:
            return
        parent = os.path.dirname(path)  # noqa: PTH120 - relative to a descriptor, where pathlib has no say
        self.settle(parent)
        try:
            os.mkdir(path, 0o700, dir_fd=self._root)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self.forget(parent)  # somebody removed it: the next attempt makes it again
            raise
        sync_directory(parent, self._root)
        if len(self._settled) >= _REMEMBERED:
            self._settled.clear()
        self._settled.add(path)

    def forget(self, path: str) -> None:
        """Doubt ``path`` and everything above it from now on, because a write below it found no directory."""
        while path:
            self._settled.discard(path)
            path = path.rpartition("/")[0]
