"""What is special to objects in a directory: modes, leftovers, processes, failures, honest times."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import ANY

import pytest

import relayer
from relayer.adapters.directory_store import DirectoryStore, tree
from relayer.adapters.directory_store import store as store_module
from relayer.adapters.directory_store.store import Glance, at_hand
from relayer.adapters.system import SystemClock
from relayer.errors import StoreMisconfigured, StoreThrottled, StoreUnavailable
from relayer.ports import Absent, Created, Exists, Found, Swapped, Throttled, Unchanged, Unknown
from relayer.testing.fake_clock import FakeClock

KEY = "ns/0f/wal/1"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def staged(folder: Path) -> list[str]:
    return [path.name for path in (folder / ".staging").iterdir()]


def modes(folder: Path) -> dict[str, set[int]]:
    """The permissions below ``folder``: of directories under ``d``, of files under ``-``."""
    found: dict[str, set[int]] = {}
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        found.setdefault(stat.filemode(mode)[0], set()).add(stat.S_IMODE(mode))
    return found


def child(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process that can import this very relayer."""
    root = str(Path(relayer.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


async def test_files_and_directories_are_the_owners_alone(store: DirectoryStore, folder: Path) -> None:
    created = await store.create(KEY, b"data")
    assert isinstance(created, Created)
    await store.swap(KEY, b"more", created.etag)
    assert modes(folder) == {"d": {0o700}, "-": {0o600}}


async def test_an_object_is_the_file_of_its_name(store: DirectoryStore, folder: Path) -> None:
    await store.create(KEY, b"data")
    assert (folder / KEY).read_bytes() == b"data"


async def test_nothing_stays_in_staging_whatever_the_outcome(store: DirectoryStore, folder: Path) -> None:
    created = await store.create(KEY, b"data")
    assert isinstance(created, Created)
    await asyncio.gather(*(store.create(KEY + "-race", b"%d" % number) for number in range(8)))
    await store.swap(KEY, b"more", created.etag)
    await store.swap(KEY, b"refused", created.etag)
    assert staged(folder) == []


async def test_leftovers_go_when_they_are_an_hour_old(folder: Path) -> None:
    (folder / ".staging" / "probe-old").mkdir(parents=True)
    (folder / ".staging" / "probe-old" / "lock").touch()
    now = time.time()
    for name, age in (("old", 3_700), ("young", 3_500)):
        (folder / ".staging" / name).write_bytes(b"half")
        os.utime(folder / ".staging" / name, (now - age, now - age))
    os.utime(folder / ".staging" / "probe-old", (now - 3_700, now - 3_700))
    opened = await DirectoryStore.open(folder, clock=SystemClock())
    await opened.close()
    assert staged(folder) == ["young"]


async def test_a_store_opened_again_has_its_objects(store: DirectoryStore, folder: Path) -> None:
    await store.create(KEY, b"data")
    await store.close()
    again = await DirectoryStore.open(folder, clock=SystemClock())
    found = await again.get(KEY)
    await again.close()
    assert isinstance(found, Found)
    assert found.data == b"data"


async def test_a_closed_store_is_unavailable(store: DirectoryStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get(KEY)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.create(KEY, b"")


RACE = """
import asyncio, sys
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import Created, Found, Swapped

async def main():
    store = await DirectoryStore.open(sys.argv[1], clock=SystemClock())
    while not isinstance(await store.get("start"), Found):
        pass
    won = 0
    for number in range(60):
        won += isinstance(await store.create(f"race/{number}", sys.argv[2].encode()), Created)
    added = 0
    while added < 40:
        found = await store.get("counter")
        outcome = await store.swap("counter", b"%d" % (int(found.data) + 1), found.etag)
        added += isinstance(outcome, Swapped)
    await store.close()
    print(won)

asyncio.run(main())
"""


async def test_two_processes_share_a_directory(store: DirectoryStore, folder: Path) -> None:
    await store.create("counter", b"0")
    racers = [child(RACE, str(folder), name) for name in ("a", "b")]
    await asyncio.sleep(0)
    await store.create("start", b"")
    wins = [int(await asyncio.to_thread(answer, racer)) for racer in racers]
    assert sum(wins) == 60
    bodies = [(folder / "race" / str(number)).read_bytes() for number in range(60)]
    assert [bodies.count(b"a"), bodies.count(b"b")] == wins
    assert (folder / "counter").read_bytes() == b"80"


ENDLESS = """
import asyncio, itertools, sys
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import Created

async def main():
    store = await DirectoryStore.open(sys.argv[1], clock=SystemClock())
    for number in itertools.count():
        if isinstance(await store.create(f"wal/{number}", b"%d" % number * 10_000), Created):
            print(number, flush=True)

asyncio.run(main())
"""


def test_a_killed_process_loses_nothing_acknowledged_and_leaves_nothing_half(folder: Path) -> None:
    for _ in range(3):
        writer = child(ENDLESS, str(folder))
        assert writer.stdout
        acknowledged = [int(writer.stdout.readline()) for _ in range(30)]
        writer.kill()
        acknowledged += [int(line) for line in writer.communicate()[0].splitlines()]
        for number in acknowledged:
            assert (folder / "wal" / str(number)).exists()
        for path in (folder / "wal").iterdir():
            assert path.read_bytes() == path.name.encode() * 10_000


# Runs with a file size limit of 1 MiB: Python ignores SIGXFSZ, so a write past it fails with EFBIG.
FULL = """
import asyncio, os, resource, sys
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreFull

async def main():
    store = await DirectoryStore.open(sys.argv[1], clock=SystemClock())
    created = await store.create("small", b"kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    big = bytes(2 << 20)
    for write in (store.create("big", big), store.swap("small", big, created.etag)):
        try:
            print(type(await write).__name__, end=" ")
        except StoreFull as error:
            print("full", sys.argv[1] in str(error), end=" ")
    print((await store.get("small")).data.decode(), type(await store.get("big")).__name__, end=" ")
    print(os.listdir(sys.argv[1] + "/.staging"), type(await store.create("next", b"fits")).__name__)
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_is_store_full_and_leaves_no_trace(folder: Path) -> None:
    assert answer(child(FULL, str(folder))) == "full True full True kept Absent [] Created"


def make_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this disk takes no writes; what exists can be read."""
    opened, made = os.open, os.mkdir

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    def open_(path: str, flags: int, *rest: int, **options: int) -> int:
        return opened(path, flags, *rest, **options) if not flags & os.O_ACCMODE else refuse()

    def mkdir(path: str, *rest: int, dir_fd: int | None = None) -> None:
        try:
            os.stat(path, dir_fd=dir_fd)
        except FileNotFoundError:
            refuse()
        made(path, *rest, dir_fd=dir_fd)

    for name, replacement in {"open": open_, "mkdir": mkdir, "link": refuse, "unlink": refuse}.items():
        monkeypatch.setattr(os, name, replacement)


async def test_a_store_on_a_read_only_disk_can_be_read_and_says_that_it_takes_no_writes(
    store: DirectoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(KEY, b"data")
    make_read_only(monkeypatch)
    with pytest.raises(StoreMisconfigured, match="EROFS"):
        await store.create(KEY, b"data")
    with pytest.raises(StoreMisconfigured, match="EROFS"):
        await DirectoryStore.open(folder, clock=SystemClock())
    reading = await DirectoryStore.open(folder, clock=SystemClock(), read_only=True)
    found = await reading.get(KEY)
    await reading.close()
    assert isinstance(found, Found)
    assert found.data == b"data"


async def test_a_data_directory_that_is_a_file_names_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreMisconfigured, match=r"file is a file: choose another data directory"):
            await DirectoryStore.open(path, clock=SystemClock())


# A superuser is never refused, so the process becomes another user before it opens the directory.
STRANGER = """
import asyncio, os, sys
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreMisconfigured

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(DirectoryStore.open(sys.argv[1], clock=SystemClock()))
except StoreMisconfigured as error:
    print(error)
"""


@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_data_directory_without_permission_names_path_user_and_need(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    message = answer(child(STRANGER, str(folder)))
    folder.chmod(0o700)
    assert str(folder) in message
    assert "user id" in message
    assert "read, write and search permission" in message


async def test_a_file_in_the_place_of_a_directory_is_misconfigured(store: DirectoryStore) -> None:
    await store.create("ns/0f", b"not a directory")
    with pytest.raises(StoreMisconfigured, match="move it away"):
        await store.create("ns/0f/wal/1", b"data")


async def test_a_directory_in_the_place_of_an_object_is_misconfigured(store: DirectoryStore) -> None:
    await store.create("ns/0f/wal/1", b"data")
    with pytest.raises(StoreMisconfigured, match="move it away"):
        await store.create("ns/0f", b"data")


async def test_a_removed_directory_is_made_again(store: DirectoryStore, folder: Path) -> None:
    await store.create("ns/0f/wal/1", b"data")
    (folder / "ns/0f/wal/1").unlink()
    (folder / "ns/0f/wal").rmdir()
    (folder / "ns/0f").rmdir()
    with pytest.raises(StoreUnavailable):
        await store.create("ns/0f/wal/1", b"data")
    assert isinstance(await store.create("ns/0f/wal/1", b"data"), Created)


def break_directory_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on names cannot be synced on this disk."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


async def test_a_name_that_cannot_be_synced_is_unknown(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await store.create("ns/a", b"old")
    assert isinstance(created, Created)
    break_directory_syncs(monkeypatch)
    assert isinstance(await store.create("ns/b", b"new"), Unknown)


async def test_a_directory_that_cannot_be_synced_is_unavailable_and_nothing_is_written(
    store: DirectoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_directory_syncs(monkeypatch)
    with pytest.raises(StoreUnavailable, match="EIO"):
        await store.create(KEY, b"data")
    assert not (folder / KEY).exists()
    assert staged(folder) == []


@pytest.mark.parametrize("call", ["link", "rename"])
async def test_an_input_output_error_while_naming_is_unknown(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    created = await store.create(KEY, b"old")
    assert isinstance(created, Created)
    monkeypatch.setattr(os, call, fail)
    if call == "link":
        assert isinstance(await store.create("ns/0f/wal/2", b"new"), Unknown)
    else:
        assert isinstance(await store.swap(KEY, b"new", created.etag), Unknown)


async def test_a_cancelled_write_is_whole_or_absent(store: DirectoryStore, folder: Path) -> None:
    body = b"x" * 300_000
    await store.create("cancelled/not", body)
    cancelled = 0
    for number in range(24):
        task = asyncio.ensure_future(store.create(f"cancelled/{number}", body))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        cancelled += isinstance(outcome, asyncio.CancelledError)
    assert cancelled >= 2  # the first turns of the loop are too few for a write
    await store.close()
    sizes = {path.stat().st_size for path in (folder / "cancelled").iterdir()}
    assert sizes == {len(body)}
    assert staged(folder) == []


class HurriedClock(FakeClock):
    """Time passes as soon as somebody waits for it."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


async def test_a_lock_that_stays_held_throttles_swaps_and_deletions(tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path, clock=HurriedClock())
    created = await store.create(KEY, b"old")
    assert isinstance(created, Created)
    await store.delete("ns/0f/other")
    locks = []
    for number in range(256):
        lock = os.open(tmp_path / ".locks" / f"{number:02x}", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        locks.append(lock)
    assert isinstance(await store.swap(KEY, b"new", created.etag), Throttled)
    with pytest.raises(StoreThrottled):
        await store.delete(KEY)
    assert isinstance(await store.get(KEY), Found)
    for lock in locks:
        os.close(lock)
    assert isinstance(await store.swap(KEY, b"new", created.etag), Swapped)
    await store.close()


class StalledClock(FakeClock):
    """The process is stopped for ``stalls[n]`` seconds before it looks at this clock for the n-th time."""

    def __init__(self, stalls: list[float]) -> None:
        super().__init__()
        self.stalls = stalls

    def now_ms(self) -> int:
        if self.stalls:
            self.jump(self.stalls.pop(0))
        return super().now_ms()


async def stalled(tmp_path: Path, *stalls: float) -> DirectoryStore:
    clock = StalledClock([])
    store = await DirectoryStore.open(tmp_path, clock=clock)
    await store.create("there", b"old")
    clock.stalls = list(stalls)
    return store


async def test_i11_a_write_across_a_stall_is_unknown(tmp_path: Path) -> None:
    store = await stalled(tmp_path, 0, 31)
    assert isinstance(await store.create(KEY, b"data"), Unknown)
    assert isinstance(await store.create(KEY, b"data"), Exists)
    await store.close()


async def test_i11_a_swap_across_a_stall_is_unknown(tmp_path: Path) -> None:
    store = await stalled(tmp_path)
    found = await store.get("there")
    assert isinstance(found, Found)
    store._clock.stalls = [0, 31]  # type: ignore[attr-defined]
    assert isinstance(await store.swap("there", b"new", found.etag), Unknown)
    await store.close()


async def test_i11_a_read_across_a_stall_is_repeated(tmp_path: Path) -> None:
    store = await stalled(tmp_path, 0, 31, 0, -5, 0, 29)
    start = FakeClock().now_ms()
    outcome = await store.get(KEY)
    assert isinstance(outcome, Absent)
    assert outcome.store_time == start + (31 - 5 + 29) * 1000
    await store.close()


async def test_i11_reads_that_never_get_an_honest_time_are_unavailable(tmp_path: Path) -> None:
    store = await stalled(tmp_path, *[0, 31] * 3)
    with pytest.raises(StoreUnavailable, match="clock"):
        await store.get(KEY)
    await store.close()


async def test_the_etag_of_a_range_follows_a_swap(store: DirectoryStore) -> None:
    created = await store.create(KEY, b"0123456789")
    assert isinstance(created, Created)
    assert isinstance(await store.get(KEY, byte_range=(2, 4), if_none_match=created.etag), Unchanged)
    swapped = await store.swap(KEY, b"abcdefghij", created.etag)
    assert isinstance(swapped, Swapped)
    found = await store.get(KEY, byte_range=(2, 4), if_none_match=created.etag)
    assert isinstance(found, Found)
    assert (found.data, found.etag) == (b"cd", swapped.etag)
    assert isinstance(await store.get(KEY, byte_range=(2, 4), if_none_match=swapped.etag), Unchanged)


async def test_of_a_part_no_more_is_read_than_the_part(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(KEY, b"0123456789")
    read: list[int] = []
    whole = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        read.append(count)
        return whole(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(hashlib, "sha256", lambda _: pytest.fail("nobody asked for an etag"))
    found = await store.get(KEY, byte_range=(2, 4))
    assert isinstance(found, Found)
    assert (found.data, read) == (b"23", [2])


linux = pytest.mark.skipif(
    sys.platform != "linux", reason="openat2 is Linux's; elsewhere every read takes a thread"
)


@pytest.fixture
def threads(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a thread is asked for, where names are on disk at once."""
    monkeypatch.setattr(tree, "_UNSETTLED_NS", 0)
    asked: list[str] = []
    run = store._run

    async def noted(function: Callable[..., Any], *arguments: Any) -> Any:
        asked.extend(arguments[:1])
        return await run(function, *arguments)

    monkeypatch.setattr(store, "_run", noted)
    return asked


@linux
async def test_a_small_object_in_memory_is_read_without_a_thread(
    store: DirectoryStore, threads: list[str]
) -> None:
    created = await store.create(KEY, b"0123456789")
    assert isinstance(created, Created)
    threads.clear()
    assert await store.get(KEY) == Found(b"0123456789", created.etag, ANY)
    assert await store.get(KEY, byte_range=(8, 99)) == Found(b"89", "", ANY)
    assert isinstance(await store.get(KEY, if_none_match=created.etag), Unchanged)
    await store.create("empty", b"")
    threads.clear()
    assert await store.get("empty") == Found(b"", hashlib.sha256(b"").hexdigest(), ANY)
    assert threads == []
    swapped = await store.swap(KEY, b"new", created.etag)
    assert isinstance(swapped, Swapped)
    assert await store.get(KEY) == Found(b"new", swapped.etag, ANY)
    await store.delete(KEY)
    assert isinstance(await store.get(KEY), Absent)


@linux
@pytest.mark.parametrize("why", ["large", "young", "not in memory", "no such call", "a folder"])
async def test_what_could_take_a_disk_is_read_by_a_thread(
    why: str, store: DirectoryStore, folder: Path, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"x" * (100_000 if why == "large" else 10)
    await store.create(KEY, data)
    expected: object = Found(data, hashlib.sha256(data).hexdigest(), ANY)
    key = KEY
    if why == "young":
        monkeypatch.setattr(tree, "_UNSETTLED_NS", 60_000_000_000)
    if why == "no such call":
        monkeypatch.setattr(store_module, "_SYSCALL", None)
    if why == "a folder":
        key, expected = KEY.rpartition("/")[0], Absent(ANY)
    if why == "not in memory":

        def preadv(*_: Any) -> int:
            raise BlockingIOError

        monkeypatch.setattr(os, "preadv", preadv)
    threads.clear()
    assert await store.get(key) == expected
    assert threads == [key]


async def test_a_listing_tells_when_an_object_got_its_name_not_when_its_bytes_were_staged(
    store: DirectoryStore, folder: Path
) -> None:
    created = await store.create(KEY, b"data")
    assert isinstance(created, Created)
    os.utime(folder / KEY, (1_000, 1_000))
    [info] = [info async for info in store.list("")]
    assert abs(info.modified - created.store_time) < 5_000


async def test_foreign_files_are_not_listed(store: DirectoryStore, folder: Path) -> None:
    await store.create(KEY, b"data")
    (folder / "lost+found").mkdir()
    (folder / "ns" / "notes.txt").touch()
    (folder / ".staging" / "1-x").touch()
    assert [info.key async for info in store.list("")] == [KEY]


async def test_many_absent_reads_then_a_foreign_create_is_seen_at_once(
    store: DirectoryStore, folder: Path
) -> None:
    await store.create("ns/0f/wal/0", b"data")
    for number in range(1, 100):
        key = f"ns/0f/wal/{number}"
        assert isinstance(await store.get(key), Absent)
        (folder / key).write_bytes(b"foreign")
        assert isinstance(await store.get(key), Found)


@linux
async def test_a_known_absence_needs_no_disk(tmp_path: Path) -> None:
    root = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "there").touch()
    assert not (tmp_path / "absent").exists()
    assert at_hand("absent", root) is Glance.ABSENT
    assert at_hand("there", root) is Glance.UNKNOWN
    (tmp_path / "absent").touch()
    assert at_hand("absent", root) is Glance.UNKNOWN
    os.close(root)
