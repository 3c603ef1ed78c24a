"""What survives a power failure, on a disk that keeps nothing but what was synced.

The last part runs a whole log over that disk, lets the power fail after every single change, and takes away each fsync
of the adapter in turn: one that could be missed unnoticed would either be useless or not be tested.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import os
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles.seeded_randomness import SeededRandomness
from recorded_disk import FOREIGN, Disk, Image, Sync, left_by_a_failure, recording, restore, without

from relayer.adapters import directory_store
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.directory_store.tree import LOCKS, STAGING, Tree, UncertainWrite
from relayer.adapters.system import SystemClock
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody, Manifest, Pointer
from relayer.domain.operations import Operation, OperationResult, Origin, Outcome, Put, Stored
from relayer.errors import RelayerError
from relayer.log import creation
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.ports import Absent, Created, Found, ObjectStore, Swapped
from relayer.wire.fields import Consistency


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with recording(tmp_path, monkeypatch) as recorded:
        yield recorded


@pytest.fixture
async def store(disk: Disk, tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = await DirectoryStore.open(tmp_path / "data", clock=SystemClock())
    yield opened
    await opened.close()


async def content(store: DirectoryStore, key: str) -> bytes | None:
    outcome = await store.get(key)
    if isinstance(outcome, Absent):
        return None
    assert isinstance(outcome, Found)
    return outcome.data


async def left_of(key: str, disk: Disk) -> bytes | None:
    """Return what is left of an object when nothing survives that was not synced."""
    copy = disk.root / f"copy-{key.replace('/', '-')}"
    restore(left_by_a_failure(disk.events, disk.directories), copy)
    # It is the file system of the store, which was tried; trying it again took most of the time of a failure.
    image = await DirectoryStore.open(copy / "data", clock=SystemClock(), tried=True)
    found = await content(image, key)
    await image.close()
    return found


async def test_a_created_object_survives_with_every_directory_on_its_way(
    store: DirectoryStore, disk: Disk
) -> None:
    for number in range(3):
        for key in (f"ns/{number}/wal/1", f"ns/{number}/manifest"):
            assert isinstance(await store.create(key, key.encode()), Created)
            assert await left_of(key, disk) == key.encode()


async def test_the_data_directory_itself_survives(disk: Disk, tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "data" / "a" / "b", clock=SystemClock())
    await store.create("key", b"data")
    await store.close()
    assert left_by_a_failure(disk.events, disk.directories)["data/a/b/key"] == b"data"


async def test_a_swapped_object_survives_with_its_new_bytes(store: DirectoryStore, disk: Disk) -> None:
    created = await store.create("ns/manifest", b"old")
    assert isinstance(created, Created)
    assert isinstance(await store.swap("ns/manifest", b"new", created.etag), Swapped)
    assert await left_of("ns/manifest", disk) == b"new"


async def test_a_deleted_object_stays_deleted(store: DirectoryStore, disk: Disk) -> None:
    await store.create("ns/manifest", b"secret")
    await store.delete("ns/manifest")
    assert await left_of("ns/manifest", disk) is None


async def test_repeating_a_deletion_finishes_what_a_dead_process_began(
    store: DirectoryStore, disk: Disk
) -> None:
    await store.create("ns/manifest", b"secret")
    (disk.root / "data" / "ns" / "manifest").unlink()
    await store.delete("ns/manifest")
    assert await left_of("ns/manifest", disk) is None


def die_before_the_sync(data: Path, key: str, content: bytes) -> None:
    """What a process does that dies between making names, those of directories too, and syncing them."""
    (data / key).parent.mkdir(parents=True)
    staged = data / STAGING / "dead"
    descriptor = os.open(staged, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(staged, data / key)


async def test_what_was_read_survives_although_its_writer_died_before_the_sync(
    store: DirectoryStore, disk: Disk
) -> None:
    await asyncio.to_thread(die_before_the_sync, disk.root / "data", "ns/0f/wal/1", b"entry")
    assert await content(store, "ns/0f/wal/1") == b"entry"
    assert await left_of("ns/0f/wal/1", disk) == b"entry"


async def test_a_directory_that_another_process_made_is_synced_too(store: DirectoryStore, disk: Disk) -> None:
    (disk.root / "data" / "ns" / "0f").mkdir(parents=True)
    assert isinstance(await store.create("ns/0f/manifest", b"data"), Created)
    assert await left_of("ns/0f/manifest", disk) == b"data"


ACCOUNT = "0x" + "ab" * 32
SECRET = bytes(range(32))
KEYS = RelayerKeys.derive(b"\x07" * 32)
NEW = creation.NewNamespace(ACCOUNT, "research", Custody.AGENT)
# What a failure keeps of the rest: nothing, and some of it, differently each time; a fast run tries the first two.
LUCK = (None, 1, 2, 3)
# Nothing rests on the files by which the file system is tried at the start.
TRIAL = "_probe: _probe"


@dataclass(frozen=True)
class Made:
    """A namespace was answered for."""

    pointer: Pointer


@dataclass(frozen=True)
class Kept:
    """An operation was acknowledged."""

    operation: Operation
    outcome: Outcome


@dataclass(frozen=True)
class Held:
    """An object has this content; None: it is gone."""

    key: str
    data: bytes | None


@dataclass(frozen=True)
class InDoubt:
    """An object is being changed: it is as it was or as it will be."""

    key: str


class DyingTree(Tree):
    """Its process is gone, or its disk fails, between the new name and the sync of it."""

    def _settle_name(self, key: str) -> None:
        raise UncertainWrite("the new name could not be synced")


def ports_over(store: ObjectStore, seed: int) -> LogPorts:
    return LogPorts(store, SystemClock(), SeededRandomness(seed), KEYS)


def a_put(number: int) -> Put:
    name = number.to_bytes(16, "big")
    return Put(Origin(b"author" * 5, name), Stored(record=name, content=b"c" + name, sealed=b"x" * 900))


async def write(log: NamespaceLog, disk: Disk, number: int) -> None:
    operation = a_put(number)
    [outcome] = await log.append([operation])
    assert outcome.result is OperationResult.STORED
    disk.mark(Kept(operation, outcome))


async def swap_manifest(ports: LogPorts, pointer: Pointer, disk: Disk, **changes: Any) -> None:
    key, sealer = Layout.manifest(pointer.incarnation), ObjectSealer(ports)
    found = await ports.store.get(key)
    assert isinstance(found, Found)
    manifest: Manifest = sealer.unseal_manifest(ACCOUNT, pointer.incarnation, key, found.data)
    changed = msgspec.structs.replace(manifest, **changes)
    data = sealer.seal_manifest(ACCOUNT, pointer.incarnation, key, changed)
    disk.mark(InDoubt(key))
    assert isinstance(await ports.store.swap(key, data, found.etag), Swapped)
    disk.mark(Held(key, data))


async def live(disk: Disk, data: Path) -> None:
    """What a relayer does to its disk: a namespace, entries alone and together, a new manifest, a deletion."""
    store = await DirectoryStore.open(data, clock=SystemClock())
    ports = ports_over(store, 1)
    opened = await creation.open_or_create(ports, NEW, SECRET)
    disk.mark(Made(opened.pointer))
    log = NamespaceLog(ports, ACCOUNT, opened.pointer)
    await log.start()
    await write(log, disk, 1)
    await write(log, disk, 2)
    await asyncio.gather(*(write(log, disk, number) for number in range(3, 8)))
    await swap_manifest(ports, opened.pointer, disk, live_count=7)
    await write(log, disk, 8)
    assert isinstance(await store.create("ns/old/wal/1", b"old"), Created)
    disk.mark(Held("ns/old/wal/1", b"old"))
    disk.mark(InDoubt("ns/old/wal/1"))
    await store.delete("ns/old/wal/1")
    disk.mark(Held("ns/old/wal/1", None))
    await log.close()

    await asyncio.to_thread(die_before_the_sync, data, "ns/dead/wal/1", b"entry")
    assert await content(store, "ns/dead/wal/1") == b"entry"
    disk.mark(Held("ns/dead/wal/1", b"entry"))

    dying = DirectoryStore(DyingTree(str(data)), SystemClock())
    other = NamespaceLog(ports_over(dying, 2), ACCOUNT, opened.pointer)
    await other.start()
    await write(other, disk, 9)
    await other.close()
    await dying.close()
    await store.close()


class HeldBackTree(Tree):
    """Its process is slow: what it named is not synced before it is let go on, and others see the name meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.named, self.may_sync = threading.Event(), threading.Event()

    def _settle_name(self, key: str) -> None:
        self.named.set()
        assert self.may_sync.wait(30), "nobody let it go on"
        super()._settle_name(key)


async def live_as_two(disk: Disk, data: Path) -> None:
    """What two processes of one relayer do to one namespace at the same time, each with what it remembers of the disk."""
    first = await DirectoryStore.open(data, clock=SystemClock())
    second = DirectoryStore(Tree(str(data)), SystemClock())
    opened = await creation.open_or_create(ports_over(first, 1), NEW, SECRET)
    disk.mark(Made(opened.pointer))
    logs = [
        NamespaceLog(ports_over(store, seed), ACCOUNT, opened.pointer)
        for seed, store in ((1, first), (2, second))
    ]
    for log in logs:
        await log.start()
    # Both at once, so that they meet at slots, and then in turn, so that each goes on from what the other wrote.
    await asyncio.gather(*(write(logs[number % 2], disk, number) for number in range(1, 9)))
    for number in range(9, 13):
        await write(logs[number % 2], disk, number)
    await swap_manifest(ports_over(first, 3), opened.pointer, disk, live_count=12)
    await swap_manifest(ports_over(second, 4), opened.pointer, disk, live_count=13)

    # One has named its entry, and not synced it; the other reads that, and its own acknowledged entry rests on it.
    tree = HeldBackTree(str(data))
    slow = DirectoryStore(tree, SystemClock())
    third = NamespaceLog(ports_over(slow, 5), ACCOUNT, opened.pointer)
    await third.start()
    under_way = asyncio.create_task(write(third, disk, 13))
    assert await asyncio.to_thread(tree.named.wait, 30)
    await logs[1].replica.read(Consistency.STRONG)
    seen = logs[1].state.outcome_of(a_put(13))
    assert seen is not None
    # Whoever asks the second process is shown it from now on.
    disk.mark(Kept(a_put(13), seen))
    await write(logs[1], disk, 14)
    assert not under_way.done()
    tree.may_sync.set()
    await under_way
    for log in (*logs, third):
        await log.close()
    for store in (slow, second, first):
        await store.close()


def promises(events: Sequence[Any]) -> list[Any]:
    """What was promised and not taken back since."""
    last = {event.key: event for event in events if isinstance(event, Held | InDoubt)}
    held = [event for event in last.values() if isinstance(event, Held)]
    return [event for event in events if isinstance(event, Made | Kept)] + held


async def broken(image: Image, expected: Sequence[Any], folder: Path) -> str:
    """Open what a failure left, go on with it, and say which promise is broken; empty when all are kept."""
    restore(image, folder)
    for name in (STAGING, LOCKS):
        (folder / "data" / name).mkdir(parents=True, exist_ok=True)
    store = DirectoryStore(Tree(str(folder / "data")), SystemClock())
    ports = ports_over(store, 3)
    try:
        for promise in expected:
            if isinstance(promise, Held) and await content(store, promise.key) != promise.data:
                return f"{promise.key} is not what it was"
        opened = await creation.open_or_create(ports, NEW, SECRET)
        log = NamespaceLog(ports, ACCOUNT, opened.pointer)
        try:
            return await lacking(log, opened.pointer, expected)
        finally:
            await log.close()
    except RelayerError as error:
        return f"the log cannot be used: {error}"
    finally:
        await store.close()


async def lacking(log: NamespaceLog, pointer: Pointer, expected: Sequence[Any]) -> str:
    await log.start()
    for promise in expected:
        if isinstance(promise, Made) and promise.pointer != pointer:
            return "the namespace is another one"
        if isinstance(promise, Kept) and log.state.outcome_of(promise.operation) != promise.outcome:
            return "an acknowledged memory is lost"
    [outcome] = await log.append([a_put(99)])
    return "" if outcome.result is OperationResult.STORED else "the log takes nothing more"


async def first_broken(
    events: Sequence[Any], directories: set[int], folder: Path, luck: Sequence[int | None]
) -> str:
    """Let the power fail after every change and every promise; return the first promise that was broken."""
    tried: set[tuple[Any, ...]] = set()
    with pytest.MonkeyPatch.context() as patched:
        # What is left of a failure is looked at, and no second one comes.
        patched.setattr(os, "fsync", lambda _: None)
        for upto, seed in itertools.product(range(1, len(events) + 1), luck):
            before = events[:upto]
            expected = promises(before)
            dice = None if seed is None else random.Random(f"{seed}/{upto}")
            image = left_by_a_failure(before, directories, dice)
            fingerprint = (*sorted(image.items()), *map(id, expected))
            if fingerprint in tried:
                continue
            tried.add(fingerprint)
            if what := await broken(image, expected, folder / f"image-{len(tried)}"):
                return f"{what}, after event {upto} with luck {seed}"
    return ""


async def recorded(lived: Callable[[Disk, Path], Awaitable[None]], root: Path) -> Disk:
    """Record a whole life; what is done with its images is not recorded."""
    await asyncio.to_thread(root.mkdir)
    with pytest.MonkeyPatch.context() as patched, recording(root, patched) as disk:
        await lived(disk, root / "data")
    return disk


@pytest.fixture
async def a_life(tmp_path: Path) -> Disk:
    return await recorded(live, tmp_path / "disk")


@pytest.fixture
async def a_life_of_two(tmp_path: Path) -> Disk:
    return await recorded(live_as_two, tmp_path / "disk")


async def test_a_whole_log_keeps_its_promises_wherever_the_power_fails(
    a_life: Disk, tmp_path: Path, *, thorough: bool
) -> None:
    kinds = [type(event) for event in a_life.events]
    assert (kinds.count(Kept), kinds.count(Made), kinds.count(Held)) == (9, 1, 4)
    assert not await first_broken(a_life.events, a_life.directories, tmp_path, LUCK if thorough else LUCK[:2])


async def test_two_writers_of_one_log_keep_their_promises_wherever_the_power_fails(
    a_life_of_two: Disk, tmp_path: Path, *, thorough: bool
) -> None:
    kinds = [type(event) for event in a_life_of_two.events]
    assert (kinds.count(Kept), kinds.count(Made), kinds.count(Held)) == (15, 1, 2)
    assert not await first_broken(
        a_life_of_two.events, a_life_of_two.directories, tmp_path, LUCK if thorough else LUCK[:2]
    )


async def test_two_writers_need_what_each_reads_of_the_other_synced(
    a_life_of_two: Disk, tmp_path: Path
) -> None:
    for number, site in enumerate(("read: read", "create: _settle_name")):
        assert site in sites_of(a_life_of_two)
        folder = tmp_path / f"without-{number}"
        await asyncio.to_thread(folder.mkdir)
        events = without(a_life_of_two.events, site)
        found = await first_broken(events, a_life_of_two.directories, folder, luck=(None,))
        assert found, f"nobody misses the sync of {site}"


def sites_of(disk: Disk) -> set[str]:
    return {event.site for event in disk.events if isinstance(event, Sync)} - {FOREIGN}


async def test_every_fsync_of_the_adapter_is_needed(a_life: Disk, tmp_path: Path) -> None:
    for number, site in enumerate(sorted(sites_of(a_life) - {TRIAL})):
        folder = tmp_path / f"without-{number}"
        await asyncio.to_thread(folder.mkdir)
        events = without(a_life.events, site)
        # A disk that loses all it may is enough to miss any of them.
        found = await first_broken(events, a_life.directories, folder, luck=(None,))
        assert found, f"nobody misses the sync of {site}"


def test_every_fsync_of_the_adapter_was_taken_away_once(a_life: Disk) -> None:
    calls: set[str] = set()
    for path in Path(directory_store.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name not in {"sync", "sync_directory"}:
                names = {node.func.id for node in ast.walk(function) if _is_named_call(node)}
                calls |= {function.name} if names & {"sync", "sync_directory"} else set()
    assert calls == {site.rpartition(" ")[2] for site in sites_of(a_life)}


def _is_named_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
