"""What survives a power failure, on a disk that keeps nothing but what was synced.

The disk is played strictly: the content of a file is kept as it was at its last fsync, the names in a directory as
they were at that directory's last fsync, and everything else is gone.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import Absent, Created, Found, Swapped


class Disk:
    """Remembers, by inode, what fsync has made durable."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.directories: dict[int, dict[str, tuple[int, bool]]] = {}
        self._fsync = os.fsync

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(descriptor) as entries:
                self.directories[status.st_ino] = {
                    entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries
                }
        else:
            # The descriptor may be open for writing only.
            self.files[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def restore(self, source: Path, target: Path) -> None:
        """Make ``target`` what ``source`` would be after a failure now."""
        target.mkdir()
        self._restore(source.stat().st_ino, target)

    def _restore(self, inode: int, target: Path) -> None:
        for name, (child, is_directory) in self.directories.get(inode, {}).items():
            if not is_directory:
                (target / name).write_bytes(self.files.get(child, b"never synced"))
            else:
                (target / name).mkdir()
                self._restore(child, target / name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    played = Disk()
    monkeypatch.setattr(os, "fsync", played.fsync)
    yield played
    monkeypatch.undo()


async def after_failure(disk: Disk, source: Path, target: Path) -> DirectoryStore:
    disk.restore(source, target)
    return await DirectoryStore.open(target, clock=SystemClock())


async def content(store: DirectoryStore, key: str) -> bytes | None:
    outcome = await store.get(key)
    if isinstance(outcome, Absent):
        return None
    assert isinstance(outcome, Found)
    return outcome.data


async def test_a_created_object_survives_with_every_directory_on_its_way(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    for number in range(3):
        for key in (f"ns/{number}/wal/1", f"ns/{number}/manifest"):
            assert isinstance(await store.create(key, key.encode()), Created)
            image = await after_failure(disk, tmp_path / "data", tmp_path / key.replace("/", "-"))
            assert await content(image, key) == key.encode()
            await image.close()
    await store.close()


async def test_the_data_directory_itself_survives(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "a" / "b", clock=SystemClock())
    await store.create("key", b"data")
    await store.close()
    disk.restore(tmp_path, tmp_path.with_suffix(".image"))
    assert (tmp_path.with_suffix(".image") / "a" / "b" / "key").read_bytes() == b"data"


async def test_a_swapped_object_survives_with_its_new_bytes(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    created = await store.create("ns/manifest", b"old")
    assert isinstance(created, Created)
    assert isinstance(await store.swap("ns/manifest", b"new", created.etag), Swapped)
    image = await after_failure(disk, tmp_path / "data", tmp_path / "image")
    assert await content(image, "ns/manifest") == b"new"
    await image.close()
    await store.close()


async def test_a_deleted_object_stays_deleted(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    await store.create("ns/manifest", b"secret")
    await store.delete("ns/manifest")
    image = await after_failure(disk, tmp_path / "data", tmp_path / "image")
    assert await content(image, "ns/manifest") is None
    await image.close()
    await store.close()


async def test_repeating_a_deletion_finishes_what_a_dead_process_began(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    await store.create("ns/manifest", b"secret")
    (tmp_path / "data" / "ns" / "manifest").unlink()
    await store.delete("ns/manifest")
    image = await after_failure(disk, tmp_path / "data", tmp_path / "image")
    assert await content(image, "ns/manifest") is None
    await image.close()
    await store.close()


async def test_what_was_read_survives_although_its_writer_died_before_the_sync(
    disk: Disk, tmp_path: Path
) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    wal = tmp_path / "data" / "ns" / "0f" / "wal"
    await asyncio.to_thread(wal.mkdir, parents=True)
    descriptor = os.open(tmp_path / "data" / ".staging" / "dead", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"entry")
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(tmp_path / "data" / ".staging" / "dead", wal / "1")
    assert await content(store, "ns/0f/wal/1") == b"entry"
    image = await after_failure(disk, tmp_path / "data", tmp_path / "image")
    assert await content(image, "ns/0f/wal/1") == b"entry"
    await image.close()
    await store.close()


async def test_a_directory_that_another_process_made_is_synced_too(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    (tmp_path / "data" / "ns" / "0f").mkdir(parents=True)
    assert isinstance(await store.create("ns/0f/manifest", b"data"), Created)
    image = await after_failure(disk, tmp_path / "data", tmp_path / "image")
    assert await content(image, "ns/0f/manifest") == b"data"
    await image.close()
    await store.close()
