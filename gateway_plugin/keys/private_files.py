"""Files that only this user may read: their directories, reading, atomic writing, and locks.

Files are written atomically: the content goes to a temporary file in the same directory, is synced to disk, and is then
renamed or linked to the final name. If two processes create the same file at the same time, one of them wins and both
read its content. `locked` protects a change that reads a file and writes it back.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway_plugin.errors import IdentityError

MAX_BYTES = 64 * 1024
_LOCK_SECONDS = 5.0
_LOCK_PAUSE = 0.02


def config_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the plugin's configuration, which may not exist yet.

    It is ``$XDG_CONFIG_HOME/memrelay`` if that variable is an absolute path, else ``~/.config/memrelay``.

    Raises:
        IdentityError: the user has no home directory.

    Example:
        >>> str(config_directory({"XDG_CONFIG_HOME": "/home/ana/.config"}))
        '/home/ana/.config/memrelay'
    """
    return _xdg(environ, "XDG_CONFIG_HOME", ".config", "set MEMRELAY_SECRET or XDG_CONFIG_HOME")


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the plugin's state: ``$XDG_STATE_HOME/memrelay``, else ``~/.local/state/memrelay``.

    Raises:
        IdentityError: the user has no home directory.

    Example:
        >>> str(state_directory({"XDG_STATE_HOME": "/home/ana/.local/state"}))
        '/home/ana/.local/state/memrelay'
    """
    return _xdg(environ, "XDG_STATE_HOME", ".local/state", "set XDG_STATE_HOME")


def _xdg(environ: Mapping[str, str], variable: str, usual: str, fix: str) -> Path:
    base = Path(environ.get(variable, ""))
    if base.is_absolute():  # the XDG specification says to ignore relative paths
        return base / "memrelay"
    home = Path(environ.get("HOME", ""))
    try:
        return (home if home.is_absolute() else Path.home()) / usual / "memrelay"
    except RuntimeError as error:
        raise IdentityError(f"this user has no home directory; {fix}") from error


def read_private(path: Path) -> bytes:
    """Return the content of a file, after checking that only this user may read it.

    Raises:
        FileNotFoundError: the file does not exist.
        IdentityError: other users may read or change the file, it is longer than 64 KiB, or it cannot be read. For wrong
            permissions, the message contains the command that corrects them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        named = "is a directory: give the file in it" if stat.S_ISDIR(mode) else "is not a file"
        raise IdentityError(f"{path} {named}")
    with os.fdopen(descriptor, "rb") as file:
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise IdentityError(
                f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}"
            )
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise IdentityError(f"{path} is longer than {MAX_BYTES} bytes")
    return data


def create_private(path: Path, data: bytes) -> bool:
    """Create a file unless it exists. Return whether this call created it. Raises `IdentityError` if it cannot."""
    try:
        with _written_temporarily(path, data) as temporary:
            os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise IdentityError(f"{path} cannot be created: {error.strerror}") from error
    _sync_directory(path.parent)
    return True


def replace_private(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file atomically, replacing an existing one. If the path is a symbolic link, the link is replaced.

    Raises:
        IdentityError: the file cannot be written.
    """
    try:
        with _written_temporarily(path, data, mode) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise IdentityError(f"{path} cannot be written: {error.strerror}") from error
    _sync_directory(path.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, so that two processes do not overwrite each other's change.

    Raises:
        IdentityError: the lock file cannot be created, or another process does not release the lock within five seconds.
    """
    try:
        descriptor = open_lock(path)
    except OSError as error:
        raise IdentityError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        # A blocking wait would have no timeout: a process that was stopped while it held the lock would block this one.
        end = time.monotonic() + _LOCK_SECONDS
        while not try_lock(descriptor):
            if time.monotonic() >= end:
                raise IdentityError(f"{path} cannot be locked: another process holds {path.name}.lock")
            time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)  # also releases the lock


def open_lock(path: Path) -> int:
    """Open the lock file of a file, ``<name>.lock`` in the same directory, and create it if necessary.

    Returns:
        A file descriptor for `try_lock`. Closing it releases the lock.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file without waiting. Return False if another process holds it."""
    try:
        import fcntl  # noqa: PLC0415 - exists on POSIX only
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _written_temporarily(path: Path, data: bytes, mode: int = 0o600) -> Iterator[Path]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    # Some file systems cannot sync a directory. The content of the file is durable already.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
