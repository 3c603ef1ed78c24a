"""A disk that writes down every change, and can show what a power failure at any moment would have left of it.

What was synced is kept: a file's content as it was at its last fsync, a directory's names as they were at its last
fsync. Of everything later, a failure keeps what it likes: names in any order, data in part.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relayer.adapters import directory_store

__all__ = [
    "FOREIGN",
    "Change",
    "Disk",
    "Image",
    "Sync",
    "left_by_a_failure",
    "recording",
    "restore",
    "without",
]

_PACKAGE = str(Path(directory_store.__file__).parent)
# Content by path; None is a directory.
Image = dict[str, bytes | None]
# The site of a sync that was not the adapter's.
FOREIGN = "not the adapter"
# They sync for others; the site of a sync is who asked them to.
_MIDDLEMEN = frozenset({"sync", "sync_directory"})
_OPERATIONS = frozenset({"create", "swap", "read", "delete", "_make", "_probe"})


@dataclass(frozen=True, slots=True)
class Change:
    """A name given or taken (``child`` None) in a directory, or bytes appended to a file."""

    place: int
    name: str = ""
    child: int | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sync:
    """A file or directory made durable; ``site`` is the operation and the function that asked for it."""

    place: int
    site: str


@dataclass
class Disk:
    """Everything that happened below ``root``, in order; what is no change and no sync was put there by a test."""

    root: Path
    events: list[Any] = field(default_factory=list)
    directories: set[int] = field(default_factory=lambda: {0})
    _names: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    _descriptors: dict[int, int] = field(default_factory=dict)
    _made: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def mark(self, what: Any) -> None:
        """Write down that something was promised at this moment."""
        with self.lock:
            self.events.append(what)

    def find(self, path: str, directory: int | None) -> tuple[int | None, str]:
        """Return the directory that holds a path and the last name of it; None when it is not on this disk."""
        base = Path(f"/proc/self/fd/{directory}").readlink() if directory is not None else Path.cwd()
        full = Path(os.path.normpath(base / path))
        if not full.is_relative_to(self.root) or full == self.root:
            return None, ""
        place: int | None = 0
        *way, last = full.relative_to(self.root).parts
        for name in way:
            place = None if place is None else self._names.get(place, {}).get(name)
        return place, last

    def opened(self, descriptor: int, path: str, directory: int | None, *, new: bool) -> None:
        place, name = self.find(path, directory)
        if name == "":
            full = os.path.realpath(f"/proc/self/fd/{descriptor}")
            if full == str(self.root):
                self._descriptors[descriptor] = 0
            return
        if place is None:
            return
        if new:
            self.made(place, name)
        if (known := self._names[place].get(name)) is not None:
            self._descriptors[descriptor] = known
        elif name == ".":
            self._descriptors[descriptor] = place

    def made(self, place: int, name: str, *, is_directory: bool = False) -> None:
        self._made += 1
        if is_directory:
            self.directories.add(self._made)
            self._names[self._made] = {}
        self.named(place, name, self._made)

    def named(self, place: int, name: str, child: int | None) -> None:
        self.events.append(Change(place, name, child))
        if child is None:
            self._names[place].pop(name, None)
        else:
            self._names[place][name] = child

    def child(self, place: int | None, name: str) -> int | None:
        return None if place is None else self._names.get(place, {}).get(name)

    def closed(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)

    def written(self, descriptor: int, data: bytes) -> None:
        if (place := self._descriptors.get(descriptor)) is not None:
            self.events.append(Change(place, data=data))

    def synced(self, descriptor: int) -> None:
        if (place := self._descriptors.get(descriptor)) is not None:
            self.events.append(Sync(place, _site()))


def restore(image: Image, target: Path) -> None:
    """Make ``target`` a directory that holds an image."""
    target.mkdir()
    for path, content in sorted(image.items()):
        if content is None:
            (target / path).mkdir()
        else:
            (target / path).write_bytes(content)


def without(events: Sequence[Any], site: str) -> list[Any]:
    """Return what an adapter would have done that leaves the syncs of one site out."""
    return [event for event in events if not (isinstance(event, Sync) and event.site == site)]


def left_by_a_failure(
    events: Sequence[Any], directories: AbstractSet[int], luck: random.Random | None = None
) -> Image:
    """Return what is left when the power fails after ``events``; without ``luck``, nothing that was not synced."""
    durable: dict[int, list[Change]] = {}
    pending: dict[int, list[Change]] = {}
    for event in events:
        if isinstance(event, Change):
            pending.setdefault(event.place, []).append(event)
        elif isinstance(event, Sync):
            durable.setdefault(event.place, []).extend(pending.pop(event.place, ()))
    for place, changes in pending.items():
        durable.setdefault(place, []).extend(_survivors(changes, luck))
    image: Image = {}
    names = [(0, "")]
    while names:
        place, path = names.pop()
        held: dict[str, int] = {}
        for change in durable.get(place, ()):
            if change.child is None:
                held.pop(change.name, None)
            else:
                held[change.name] = change.child
        for name, child in held.items():
            below = f"{path}/{name}" if path else name
            if child in directories:
                image[below] = None
                names.append((child, below))
            else:
                image[below] = b"".join(change.data or b"" for change in durable.get(child, ()))
    return image


def _survivors(changes: Sequence[Change], luck: random.Random | None) -> Iterator[Change]:
    for change in changes:
        if luck is None or luck.random() < 0.5:
            continue
        if change.data is None:
            yield change
        else:
            # A page that was written in part, or whose place was taken and never filled.
            kept = luck.randrange(len(change.data) + 1)
            filler = bytes(len(change.data) - kept) if luck.random() < 0.5 else b""
            yield Change(change.place, data=change.data[:kept] + filler)


def _site() -> str:
    frame = sys._getframe(1)
    chain: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            chain.append(frame.f_code.co_name)
        frame = frame.f_back
    asked = [name for name in chain if name not in _MIDDLEMEN]
    if not asked:
        return FOREIGN
    operation = next((name for name in asked if name in _OPERATIONS), asked[-1])
    return f"{operation}: {asked[0]}"


@contextmanager
def recording(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Write down what this process does below ``root``, which is empty and survives."""
    disk = Disk(root)
    real = {name: getattr(os, name) for name in _WRAPPERS}
    for name, wrapper in _WRAPPERS.items():
        monkeypatch.setattr(os, name, wrapper(disk, real[name]))
    yield disk
    for name, function in real.items():
        monkeypatch.setattr(os, name, function)


def _open(disk: Disk, real: Callable[..., int]) -> Callable[..., int]:
    def wrapped(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with disk.lock:
            place, name = disk.find(os.fspath(path), dir_fd)
            new = bool(flags & os.O_CREAT) and place is not None and disk.child(place, name) is None
            descriptor = real(path, flags, mode, dir_fd=dir_fd)
            disk.opened(descriptor, os.fspath(path), dir_fd, new=new)
            return descriptor

    return wrapped


def _write(disk: Disk, real: Callable[..., int]) -> Callable[..., int]:
    def wrapped(descriptor: int, data: Any) -> int:
        with disk.lock:
            count = real(descriptor, data)
            disk.written(descriptor, bytes(data[:count]))
            return count

    return wrapped


def _fsync(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(descriptor: int) -> None:
        with disk.lock:
            real(descriptor)
            disk.synced(descriptor)

    return wrapped


def _close(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(descriptor: int) -> None:
        with disk.lock:
            disk.closed(descriptor)
            real(descriptor)

    return wrapped


def _mkdir(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with disk.lock:
            real(path, mode, dir_fd=dir_fd)
            place, name = disk.find(os.fspath(path), dir_fd)
            if place is not None:
                disk.made(place, name, is_directory=True)

    return wrapped


def _link(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(
        source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        with disk.lock:
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            child = disk.child(*disk.find(os.fspath(source), src_dir_fd))
            place, name = disk.find(os.fspath(target), dst_dir_fd)
            if place is not None and child is not None:
                disk.named(place, name, child)

    return wrapped


def _rename(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(
        source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        with disk.lock:
            from_place, from_name = disk.find(os.fspath(source), src_dir_fd)
            child = disk.child(from_place, from_name)
            place, name = disk.find(os.fspath(target), dst_dir_fd)
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            if place is not None and from_place is not None and child is not None:
                disk.named(place, name, child)
                disk.named(from_place, from_name, None)

    return wrapped


def _remove(disk: Disk, real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(path: Any, *, dir_fd: int | None = None) -> None:
        with disk.lock:
            place, name = disk.find(os.fspath(path), dir_fd)
            real(path, dir_fd=dir_fd)
            if place is not None and disk.child(place, name) is not None:
                disk.named(place, name, None)

    return wrapped


_WRAPPERS: dict[str, Callable[[Disk, Any], Any]] = {
    "open": _open,
    "write": _write,
    "fsync": _fsync,
    "close": _close,
    "mkdir": _mkdir,
    "link": _link,
    "rename": _rename,
    "unlink": _remove,
    "rmdir": _remove,
}
