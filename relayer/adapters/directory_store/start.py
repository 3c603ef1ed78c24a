"""Opening a data directory: make it, try what correctness rests on, sweep what crashed writers left.

Network and shared file systems exist on which link(2) is missing, flock(2) holds for one machine only or fsync(2) does
nothing useful on a directory. Two real processes find that out in some 40 ms; a lost memory does not.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from relayer.adapters.directory_store.durability import sync, sync_directory
from relayer.adapters.directory_store.failures import nothing_written
from relayer.adapters.directory_store.tree import LOCKS, STAGING, Tree
from relayer.errors import StoreMisconfigured

__all__ = ["open_tree"]

_LEFTOVER_MS = 3_600_000
_ROUNDS = 32
_RIVALS = 2
_RIVAL_PATIENCE = 20.0  # seconds; a Python process starts in some 20 ms, but the machine may be busy
# What a rival process does: find the lock held by its parent, then race the other rival to each name.
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


def open_tree(where: str | Path, now_ms: int) -> Tree:
    """Return the tree at ``where``, ready for use; blocks. ``now_ms`` decides which leftovers are old.

    Raises `StoreMisconfigured` naming the fix, `StoreFull`, or `StoreUnavailable`.
    """
    path = str(Path(where).absolute())
    try:
        _make(path)
        tree = Tree(path)
    except FileExistsError as error:
        raise StoreMisconfigured(
            f"{error.filename} is a file: choose another data directory, or move it away"
        ) from error
    except OSError as error:
        raise nothing_written(error, path) from error
    try:
        _probe(tree)
        _sweep(tree, now_ms)
    except OSError as error:
        tree.close()
        raise nothing_written(error, path) from error
    except BaseException:
        tree.close()
        raise
    return tree


def _make(path: str) -> None:
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
            _link(folder)
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


def _link(folder: Path) -> None:
    try:
        os.link(folder / "lock", folder / "linked")
    except PermissionError as error:  # what Linux answers on FAT and exFAT
        raise StoreMisconfigured(
            f"the file system of {folder} cannot make hard links: use another one for the data directory"
        ) from error


def _race(folder: Path) -> list[int]:
    """Return the names that the rivals won, all together; raises `StoreMisconfigured` if they cannot compete."""
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
    """Remove what is in the staging directory for an hour: a live writer needs it for milliseconds."""
    with os.scandir(Path(tree.path, STAGING)) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if now_ms - entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000 < _LEFTOVER_MS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)  # noqa: PTH108 - the entry's path is a string already
