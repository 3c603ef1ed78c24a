"""Files below a folder, found and read without leaving it: whoever writes into the folder may have put anything there.

Each component below the folder is opened through the descriptor of the one above it and never through a link, so that
nothing can change between a check and an opening. Only regular files of a bounded size are read: a pipe or a device is
never waited for. A hard link cannot be told from the file that it shares.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, Never

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""A longer file is not read."""
MAX_FILES: Final = 10_000
"""Of one folder; what lies beyond is not read."""
# A folder's entries are looked at, and its folders held open, only so far.
_MAX_ENTRIES: Final = 500_000
_MAX_DEPTH: Final = 64

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A folder on the way need not be readable where the system can open it for its path alone.
_ON_THE_WAY: Final = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
# Opening a pipe must not wait for somebody to write into it.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK: Final = "it is a link, and links are not followed; name what it leads to"


class NotRead(Exception):
    """Raised when a file is left out.

    Attributes:
        path: of the file.
        cause: why, as a sentence goes on after the path.
        missing: whether there is nothing of that name.
    """

    def __init__(self, path: Path, cause: str, *, missing: bool = False) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause
        self.missing = missing


@dataclass(slots=True)
class FilesBelow:
    """What a folder holds.

    Attributes:
        files: what is to be read, in order, with what tells whether a file changed.
        left_out: what will not be.
    """

    files: list[tuple[Path, tuple[int, int]]] = field(default_factory=list)
    left_out: list[NotRead] = field(default_factory=list)


def named(path: Path) -> Path:
    """Return the real path of what a person named: a folder by whatever links, a file by those to its folder."""
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def mark_of(status: os.stat_result) -> tuple[int, int]:
    """Return what tells whether a file changed."""
    return status.st_mtime_ns, status.st_size


def files_below(
    folder: Path,
    wanted: Callable[[PurePosixPath], bool],
    *,
    enter: Callable[[PurePosixPath], bool] = lambda _: True,
    most: int = MAX_FILES,
) -> FilesBelow:
    """Find files; a folder that is not there holds none.

    Args:
        folder: its real path.
        wanted: which files, by their paths below the folder.
        enter: which folders, by theirs.
        most: how many files at most.
    """
    walk = _Walk(folder, wanted, enter, most)
    try:
        with _folder(folder) as above:
            walk.enter_folder(".", above, PurePosixPath())
    except NotRead as error:
        if not error.missing:
            walk.found.left_out.append(error)
    except _Full as error:
        walk.found.left_out.append(NotRead(folder, str(error)))
    return walk.found


def read_below(
    folder: Path, name: str | PurePath, *, most: int = MAX_FILE_BYTES, tail: bool = False
) -> bytes:
    """Read a file.

    Args:
        folder: its real path.
        name: of the file, below the folder.
        most: how many bytes.
        tail: read the end of a longer file; otherwise it is left out.

    Raises:
        NotRead: it is not there, lies elsewhere, or is nothing that is read.
    """
    with opened_below(folder, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        size = os.fstat(descriptor).st_size
        try:
            if tail:
                file.seek(max(0, size - most))
                return file.read(most)
            # What grows while it is read is no shorter than it was.
            data = file.read(most + 1) if size <= most else b""
        except OSError as error:
            _tell(folder / name, error)
    if max(size, len(data)) > most:
        raise NotRead(folder / name, f"it has {max(size, len(data)):,} bytes, and {most:,} are read at most")
    return data


@contextmanager
def opened_below(folder: Path, name: str | PurePath) -> Iterator[int]:
    """Hold a regular file open for reading; yields its descriptor. Raises as `read_below`."""
    path = folder / name
    *folders, last = PurePosixPath(name).parts or ("",)
    if not last or ".." in (*folders, last) or PurePosixPath(name).is_absolute():
        raise NotRead(path, f"it lies outside of {folder}", missing=True)
    with _folder(folder, folders) as above:
        try:
            # Looked at before it is opened, because opening some devices does something; and after, because only that holds.
            _require_regular(path, os.stat(last, dir_fd=above, follow_symlinks=False))
            descriptor = os.open(last, _FILE, dir_fd=above)
        except (OSError, ValueError) as error:
            _tell(path, error)
    try:
        _require_regular(path, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _folder(real: Path, below: list[str] | None = None) -> Iterator[int]:
    """Hold a folder open, come to without any link."""
    path = Path(real.anchor)
    descriptor = os.open(path, _ON_THE_WAY)
    try:
        for part in (*real.parts[1:], *(below or ())):
            path /= part
            try:
                inner = os.open(part, _ON_THE_WAY, dir_fd=descriptor)
            except (OSError, ValueError) as error:
                _tell(path, error)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _tell(path: Path, error: Exception) -> Never:
    """Say why something could not be opened."""
    if isinstance(error, ValueError):  # a name with a zero byte
        raise NotRead(path, "it is no name of a file", missing=True) from error
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ELOOP or (number == errno.ENOTDIR and path.is_symlink()):
        raise NotRead(path, _LINK) from error
    raise NotRead(path, os.strerror(number or errno.EIO), missing=number == errno.ENOENT) from error


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise NotRead(path, _LINK)
    if not stat.S_ISREG(status.st_mode):
        raise NotRead(path, "it is no regular file")


class _Full(Exception):
    """Raised with the sentence that says of what there is too much."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """One look at a folder."""

    root: Path
    wanted: Callable[[PurePosixPath], bool]
    enter: Callable[[PurePosixPath], bool]
    most: int
    found: FilesBelow = field(default_factory=FilesBelow)

    def enter_folder(self, name: str, above: int, below: PurePosixPath) -> None:
        """Look at a folder and those in it."""
        try:
            descriptor = os.open(name, _FOLDER | os.O_RDONLY, dir_fd=above)
        except OSError as error:
            _tell(self.root / below, error)
        try:
            with os.scandir(descriptor) as scan:
                entries = sorted(islice(scan, _MAX_ENTRIES + 1), key=lambda entry: entry.name)
            if len(entries) > _MAX_ENTRIES:
                raise _Full(f"{below} holds more than {_MAX_ENTRIES:,} entries; name folders below it")
            for entry in entries:
                try:
                    self._look(entry, descriptor, below / entry.name)
                except NotRead as error:
                    if not error.missing:  # else gone since it was listed
                        self.found.left_out.append(error)
        finally:
            os.close(descriptor)

    def _look(self, entry: os.DirEntry[str], above: int, below: PurePosixPath) -> None:
        path = self.root / below
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            _tell(path, error)
        if stat.S_ISDIR(status.st_mode):
            if self.enter(below):
                if len(below.parts) > _MAX_DEPTH:
                    raise NotRead(path, f"it lies deeper than {_MAX_DEPTH} folders; name it")
                self.enter_folder(entry.name, above, below)
        elif stat.S_ISLNK(status.st_mode):
            self._pass_over(path, below)
        elif self.wanted(below):
            _require_regular(path, status)
            if len(self.found.files) == self.most:
                raise _Full(f"it holds more than {self.most:,} files; name folders below it")
            self.found.files.append((path, mark_of(status)))

    def _pass_over(self, path: Path, below: PurePosixPath) -> None:
        """Say what a link would have led to, unless that is found where it lies."""
        asked = self.enter if path.is_dir() else self.wanted
        if not asked(below):
            return
        target = Path(os.path.realpath(path))
        if not (target.is_relative_to(self.root) and asked(PurePosixPath(target.relative_to(self.root)))):
            raise NotRead(path, _LINK)
