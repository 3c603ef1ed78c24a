"""Finding and reading files below a folder whose content is not trusted, without ever leaving the folder.

`files_below` lists the regular files below a folder, and `read_below` and `opened_below` read one of them. Each component of
a path is opened relative to the descriptor of its parent and never through a symbolic link, so no component can be exchanged
between a check and the opening. Only regular files of a bounded size are read, so a pipe or a device never blocks. A file
that is left out is reported as a `NotRead`. A hard link cannot be distinguished from the file that it shares.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, Never

from gateway_plugin.errors import GatewayError

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""The size limit of a file; a longer one is not read."""
MAX_FILES: Final = 10_000
"""The maximum number of files of one folder; further ones are not read."""
# Bounds for one folder's entries, which are sorted in memory, and for its depth: each level holds a descriptor open.
_MAX_ENTRIES: Final = 500_000
_MAX_DEPTH: Final = 64

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# With O_PATH, which not every system has, a folder on the way to a file need not be readable.
_ON_THE_WAY: Final = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
# O_NONBLOCK, because opening a pipe would otherwise wait for a writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK: Final = "it is a symbolic link, and links are not followed; give its target instead"


class NotRead(Exception):
    """Raised, or listed, for a file that is not read.

    Attributes:
        cause: the reason, as the continuation of a sentence after the path.
        missing: whether no file of that name exists.
    """

    def __init__(self, path: Path, cause: str, *, missing: bool = False) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause
        self.missing = missing


class WorkspaceProblem(GatewayError):
    """Raised when a file of a workspace cannot be read or written. The message names the file and the cause."""


@dataclass(slots=True)
class FilesBelow:
    """The files of a folder.

    Attributes:
        files: the files to read, in order, each with its `mark_of`, which tells whether it changed.
        left_out: the files that will not be read, with the reasons.
    """

    files: list[tuple[Path, tuple[int, int]]] = field(default_factory=list)
    left_out: list[NotRead] = field(default_factory=list)


def named(path: Path) -> Path:
    """Return the real path of a path that a person typed: links to a folder are followed, and a file's own link is not."""
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def mark_of(status: os.stat_result) -> tuple[int, int]:
    """Return a file's modification time in nanoseconds and its size in bytes, which differ if it changed."""
    return status.st_mtime_ns, status.st_size


def files_below(
    folder: Path,
    wanted: Callable[[PurePosixPath], bool],
    *,
    enter: Callable[[PurePosixPath], bool] = lambda _: True,
) -> FilesBelow:
    """Return the files below a folder; a folder that does not exist has none.

    ``folder`` is a real path; ``wanted`` and ``enter`` get paths below it.
    """
    walk = _Walk(folder, wanted, enter)
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
    """Return the content of a file.

    ``folder`` is a real path, and ``name`` a path below it. With ``tail``, the last ``most`` bytes of a longer file are
    returned.

    Raises:
        NotRead: the file does not exist, is outside of the folder, is too long, or is not a regular file.
    """
    with opened_below(folder, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        size = os.fstat(descriptor).st_size
        try:
            if tail:
                file.seek(max(0, size - most))
                return file.read(most)
            # Reading one more byte detects a file that grew since its size was read.
            data = file.read(most + 1) if size <= most else b""
        except OSError as error:
            _tell(folder / name, error)
    if max(size, len(data)) > most:
        raise NotRead(folder / name, f"it has {max(size, len(data)):,} bytes, and {most:,} are read at most")
    return data


def text_below(folder: Path, name: str) -> str:
    """Return the text of a file below a real path; "" if there is none. Raises `WorkspaceProblem`."""
    try:
        return read_below(folder, name).decode()
    except NotRead as error:
        if error.missing:
            return ""
        raise WorkspaceProblem(str(error)) from error
    except UnicodeDecodeError as error:
        raise WorkspaceProblem(f"{name}: not UTF-8") from error


@contextmanager
def opened_below(folder: Path, name: str | PurePath) -> Iterator[int]:
    """Open a regular file for reading during a block, and yield its descriptor. Raises as `read_below`."""
    path = folder / name
    *folders, last = PurePosixPath(name).parts or ("",)
    if not last or ".." in (*folders, last) or PurePosixPath(name).is_absolute():
        raise NotRead(path, f"it lies outside of {folder}", missing=True)
    with _folder(folder, folders) as above:
        try:
            # Checked before opening, because opening some devices has side effects, and again afterwards, because the
            # file may be exchanged in between.
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
    """Open a folder during a block, following no symbolic link on the way, and yield its descriptor."""
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
    """Raise the `NotRead` for an error of opening or reading."""
    if isinstance(error, ValueError):  # the name has a zero byte
        raise NotRead(path, "it is not a file name", missing=True) from error
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ELOOP or (number == errno.ENOTDIR and path.is_symlink()):
        raise NotRead(path, _LINK) from error
    raise NotRead(path, os.strerror(number or errno.EIO), missing=number == errno.ENOENT) from error


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise NotRead(path, _LINK)
    if not stat.S_ISREG(status.st_mode):
        raise NotRead(path, "it is not a regular file")


class _Full(Exception):
    """Raised when a folder has too many entries or files; the message says which."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """One recursive scan of a folder; `found` collects its result."""

    root: Path
    wanted: Callable[[PurePosixPath], bool]
    enter: Callable[[PurePosixPath], bool]
    found: FilesBelow = field(default_factory=FilesBelow)

    def enter_folder(self, name: str, above: int, below: PurePosixPath) -> None:
        """Scan a folder and its subfolders."""
        try:
            descriptor = os.open(name, _FOLDER | os.O_RDONLY, dir_fd=above)
        except OSError as error:
            _tell(self.root / below, error)
        try:
            with os.scandir(descriptor) as scan:
                entries = sorted(islice(scan, _MAX_ENTRIES + 1), key=lambda entry: entry.name)
            if len(entries) > _MAX_ENTRIES:
                raise _Full(f"{below} holds more than {_MAX_ENTRIES:,} entries; give folders below it")
            for entry in entries:
                try:
                    self._look(entry, descriptor, below / entry.name)
                except NotRead as error:
                    if not error.missing:  # a missing one was deleted since it was listed
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
                    raise NotRead(path, f"it is nested deeper than {_MAX_DEPTH} folders; give its path")
                self.enter_folder(entry.name, above, below)
        elif stat.S_ISLNK(status.st_mode):
            asked = self.enter if path.is_dir() else self.wanted
            if asked(below):
                target = Path(os.path.realpath(path))
                is_below = target.is_relative_to(self.root)
                # A target below the root is found at its own path.
                if not is_below or not asked(PurePosixPath(target.relative_to(self.root))):
                    raise NotRead(path, _LINK)
        elif self.wanted(below):
            _require_regular(path, status)
            if len(self.found.files) == MAX_FILES:
                raise _Full(f"it holds more than {MAX_FILES:,} files; give folders below it")
            self.found.files.append((path, mark_of(status)))


def parse_json(text: str | bytes) -> Any:
    """Parse one JSON document.

    Raises:
        ValueError: it is none, `json.JSONDecodeError` where the line is known; or it is nested too deeply, or a number in
            it has too many digits.

    Example:
        >>> parse_json('{"items": [1, 2]}')
        {'items': [1, 2]}
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise ValueError("a number in its JSON has too many digits") from None
