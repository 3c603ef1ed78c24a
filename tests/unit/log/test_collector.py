"""The collector: what it deletes, when, and that nothing that happens to it loses anything."""

import asyncio

import msgspec
import pytest
from doubles.stepping_store import Fate, SteppingStore
from erasing_world import ErasingWorld
from log_world import ACCOUNT, World, compact, manifest_in, plain, put, settle, write_manifest

from relayer.domain.namespace import MANIFEST_FORMAT, Manifest
from relayer.errors import StoreUnavailable
from relayer.log.collector import GRACE_MS, Collection, CollectionStage, Collector, stage_of
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import TRUST_MS, Layout
from relayer.log.replica import Replica
from relayer.ports import ObjectStore
from relayer.testing.local_relayer import RecordingStore

HOUR = GRACE_MS / 1000


def collector(world: World, store: ObjectStore | None = None, grace_ms: int = GRACE_MS) -> Collector:
    return Collector(world.ports(store), ACCOUNT, world.incarnation, grace_ms)


async def objects(world: World, kind: str) -> list[str]:
    start = f"ns/{world.incarnation.hex()}/{kind}/"
    return sorted([row.key async for row in world.memory.list(start)])


async def compacted(world: World, entries: int = 3) -> Replica:
    """Return the writer of a log whose first entries are in segments, and one more that is not."""
    replica, committer = await world.writer()
    for _ in range(entries):
        await committer.submit([put()])
        await compact(world, replica, most_small=9)
    await committer.submit([put()])
    return replica


def test_an_hour_is_more_than_any_answer_is_trusted() -> None:
    assert GRACE_MS > 2 * TRUST_MS


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({}, CollectionStage.NOTHING),
        ({"snap_seq": 5}, CollectionStage.MOVE),
        ({"snap_seq": 5, "gc_watermark": 5, "gc_epoch": 1}, CollectionStage.CONFIRM),
        ({"snap_seq": 5, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 1001}, CollectionStage.WAIT),
        ({"snap_seq": 5, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 1000}, CollectionStage.SWEEP),
        ({"snap_seq": 9, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 1000}, CollectionStage.SWEEP),
        (
            {"snap_seq": 5, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 1, "gc_swept": 1},
            CollectionStage.NOTHING,
        ),
        (
            {"snap_seq": 9, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 1, "gc_swept": 1},
            CollectionStage.MOVE,
        ),
        ({"snap_seq": 5, "gc_watermark": 5, "gc_epoch": 1, "gc_moved_at": 3000}, CollectionStage.WAIT),
    ],
)
def test_what_is_next_follows_from_the_manifest_and_the_stores_time(
    fields: dict[str, int], stage: CollectionStage
) -> None:
    assert stage_of(Manifest(MANIFEST_FORMAT, **fields), now_ms=2000, grace_ms=1000) is stage


async def test_a_log_without_segments_has_nothing_to_collect(world: World) -> None:
    _, committer = await world.writer()
    await committer.submit([put()])
    store = RecordingStore(world.memory)
    assert await collector(world, store).run() == Collection(CollectionStage.NOTHING)
    assert [call.operation for call in store.calls] == ["get"]


async def test_slots_go_an_hour_after_the_watermark_moved_and_the_log_says_the_same(world: World) -> None:
    replica = await compacted(world)
    whole = await plain(world)
    assert await collector(world).run() == Collection(CollectionStage.WAIT)
    moved = await manifest_in(world)
    assert (moved.gc_watermark, moved.gc_epoch, moved.gc_swept) == (3, 1, 0)
    assert len(await objects(world, "wal")) == 4

    await world.clock.advance(HOUR - 1)
    assert await collector(world).run() == Collection(CollectionStage.WAIT)
    assert len(await objects(world, "wal")) == 4

    await world.clock.advance(1)
    assert await collector(world).run() == Collection(CollectionStage.NOTHING, slots=3)
    assert await objects(world, "wal") == [replica.slots.key(4)]
    assert (await manifest_in(world)).gc_swept == 1
    assert (await world.reloaded()).state == whole == replica.state


async def test_a_swept_log_is_not_listed_again(world: World) -> None:
    await compacted(world)
    await collector(world).run()
    await world.clock.advance(HOUR)
    await collector(world).run()
    store = RecordingStore(world.memory)
    assert await collector(world, store).run() == Collection(CollectionStage.NOTHING)
    assert store.count("list") == 0


async def test_merged_and_lost_segments_go_and_named_ones_stay(world: World) -> None:
    replica = await compacted(world, entries=4)
    old = await objects(world, "seg")
    await Compactor(world.ports(), replica, CompactionLimits(entries=99, most_small=0)).run()
    (row,) = (await manifest_in(world)).segments
    await world.clock.advance(60)
    await collector(world).run()
    await world.clock.advance(HOUR)
    assert await collector(world).run() == Collection(CollectionStage.NOTHING, slots=4, objects=len(old))
    assert await objects(world, "seg") == [row.key]
    assert (await world.reloaded()).state == replica.state


async def test_an_index_that_the_manifest_names_stays_and_any_other_goes(world: World) -> None:
    await compacted(world)
    named, loose = (Layout.index(world.incarnation, seq, b"u" * 16) for seq in (2, 3))
    for key in (named, loose):
        await world.memory.create(key, b"index")
    manifest = await manifest_in(world)
    await write_manifest(world, msgspec.structs.replace(manifest, index_key=named, index_seq=2))
    await world.clock.advance(60)
    await collector(world).run()
    await world.clock.advance(HOUR)
    await collector(world).run()
    assert await objects(world, "index") == [named]


async def test_an_upload_that_may_still_be_named_stays(world: World) -> None:
    """It was made after the watermark's time, so its compactor may have read the newest manifest."""
    await compacted(world)
    await collector(world).run()
    young = Layout.segment(world.incarnation, 4, b"u" * 16)
    await world.clock.advance(1)
    await world.memory.create(young, b"upload")
    await world.clock.advance(10 * HOUR)
    await collector(world).run()
    assert young in await objects(world, "seg")


async def test_a_compactor_that_was_stopped_before_its_swap_finds_it_refused_before_its_upload_goes(
    world: World,
) -> None:
    replica = await compacted(world)
    whole = await plain(world)
    store = SteppingStore(world.memory)

    class Split:
        def __getattr__(self, name: str):
            return getattr(store if name == "swap" else world.memory, name)

    other = world.replica(Split())
    await other.reload()
    stopped = asyncio.create_task(Compactor(world.ports(Split()), other, CompactionLimits(entries=1)).run())
    await store.wait_for()  # uploaded, and about to be named
    await world.clock.advance(60)
    await collector(world).run()
    await world.clock.advance(HOUR)
    assert (await collector(world).run()).objects == 1
    store.open_gates()

    compaction = await stopped
    assert compaction is not None
    assert not compaction.won
    assert (await world.reloaded()).state == whole == replica.state


async def test_i2_nothing_is_deleted_before_the_store_shows_the_watermark(world: World) -> None:
    """A collector may be stopped for hours between reading the time and moving the watermark."""
    await compacted(world)
    store = SteppingStore(world.memory)
    stopped = asyncio.create_task(collector(world, store).run())
    await store.wait_for()
    await store.step()  # the manifest
    await store.wait_for()
    assert store.pending[0].operation == "swap"
    await world.clock.advance(5 * HOUR)
    late = await world.reloaded()  # validates now, with the old watermark
    store.open_gates()
    assert await stopped == Collection(CollectionStage.WAIT)
    assert await collector(world).run() == Collection(CollectionStage.WAIT)
    assert late.manifest.recently_validated(world.clock.now_ms())
    assert len(await objects(world, "wal")) == 4


async def test_i11_a_store_whose_time_goes_back_makes_it_wait(world: World) -> None:
    await compacted(world)
    await collector(world).run()
    world.clock.jump(-7200)
    await world.clock.advance(HOUR)
    assert await collector(world).run() == Collection(CollectionStage.WAIT)


async def test_dead_slots_that_a_stalled_writer_revived_go_with_the_next_collection(world: World) -> None:
    replica = await compacted(world)
    await collector(world).run()
    await world.clock.advance(HOUR)
    await collector(world).run()
    await world.memory.create(replica.slots.key(2), b"revived")
    await compact(world, replica)
    await collector(world).run()
    await world.clock.advance(HOUR)
    assert (await collector(world).run()).slots == 2
    assert await objects(world, "wal") == []


async def swept(world: World) -> Replica:
    """Return the writer of a log whose collection is over."""
    replica = await compacted(world)
    await collector(world).run()
    await world.clock.advance(HOUR)
    await collector(world).run()
    return replica


async def test_an_idle_log_is_tidied_of_what_came_after_its_last_collection(world: World) -> None:
    replica = await swept(world)
    await world.memory.create(replica.slots.key(2), b"revived")
    stray = Layout.segment(replica.incarnation, 1, bytes(16))
    await world.memory.create(stray, b"lost a race")
    assert await collector(world).run() == Collection(CollectionStage.NOTHING)
    assert await collector(world).tidy() == Collection(CollectionStage.NOTHING, slots=1)
    assert stray in await objects(world, "seg"), "an upload that is young may still be named"

    await world.clock.advance(HOUR + 11)
    assert await collector(world).tidy() == Collection(CollectionStage.WAIT)
    await world.clock.advance(HOUR)
    assert await collector(world).tidy() == Collection(CollectionStage.NOTHING, objects=1)
    assert stray not in await objects(world, "seg")
    assert (await world.reloaded()).state == replica.state


async def test_tidying_a_log_that_is_tidy_changes_nothing(world: World) -> None:
    await swept(world)
    before = await manifest_in(world)
    assert await collector(world).tidy() == Collection(CollectionStage.NOTHING)
    assert await manifest_in(world) == before


async def test_what_goes_from_a_store_that_keeps_versions_goes_with_them() -> None:
    world = ErasingWorld()
    await world.create()
    replica = await compacted(world)
    await compact(world, replica, most_small=0)
    await collector(world).run()
    await world.clock.advance(HOUR)
    await collector(world).run()
    kept = {key for key in world.memory.history if "/wal/" in key or "/seg/" in key}
    there = {row.key async for row in world.memory.list("ns/") if "/wal/" in row.key or "/seg/" in row.key}
    assert kept == there
    await world.stop()


async def test_a_store_that_keeps_no_versions_is_not_asked_for_those_of_every_name(world: World) -> None:
    await compacted(world, entries=12)
    store = RecordingStore(world.memory)
    assert (await collector(world, store, grace_ms=0).run()).slots == 12
    asked = [call.operation for call in store.calls]
    assert (asked.count("delete"), asked.count("versions"), asked.count("purge")) == (12, 1, 0)


async def test_with_nothing_to_wait_for_one_run_does_it_all(world: World) -> None:
    await compacted(world)
    assert await collector(world, grace_ms=0).run() == Collection(CollectionStage.NOTHING, slots=3)


async def test_two_collectors_at_once_do_no_harm(world: World) -> None:
    replica = await compacted(world)
    await asyncio.gather(*(collector(world).run() for _ in range(3)))
    assert (await manifest_in(world)).gc_epoch == 1
    await world.clock.advance(HOUR)
    await asyncio.gather(*(collector(world).run() for _ in range(3)))
    assert (await world.reloaded()).state == replica.state


FATES = [Fate.LOST, Fate.APPLIED_UNANSWERED, Fate.DELAYED]


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name.lower())
async def test_whatever_becomes_of_any_request_nothing_is_lost_and_the_next_run_goes_on(fate: Fate) -> None:
    fatal = 0
    while await _survives(fatal, fate):
        fatal += 1
    # Three times manifest and swap, three listings and a manifest, two rounds of deletions.
    assert fatal >= 15


async def _survives(fatal: int, fate: Fate) -> bool:
    """Let request number ``fatal`` of a whole collection meet its fate; False if there were fewer requests."""
    world = World()
    await world.create()
    replica = await compacted(world, entries=6)
    await world.clock.advance(60)
    store = SteppingStore(world.memory)
    running = asyncio.create_task(collector(world, store, grace_ms=0).run())
    met = False
    for number in range(fatal + 1):
        await settle(20)
        if running.done():
            break
        met = number == fatal
        await store.step(fate=fate if met else Fate.PROCEED)
    await settle(20)
    store.open_gates()
    await asyncio.wait([running])
    assert isinstance(running.exception(), StoreUnavailable | None)

    assert (await world.reloaded()).state == replica.state
    while store.delayed:
        await store.apply_delayed()
    await collector(world, grace_ms=0).run()
    assert (await collector(world, grace_ms=0).run()).stage is CollectionStage.NOTHING
    assert await objects(world, "wal") == [replica.slots.key(7)]
    assert (await world.reloaded()).state == replica.state
    await world.stop()
    return met


def test_nobody_waits_for_a_clock_that_was_ahead_once() -> None:
    ahead = Manifest(MANIFEST_FORMAT, snap_seq=5, gc_watermark=5, gc_epoch=1, gc_moved_at=2001 + GRACE_MS)
    assert stage_of(ahead, now_ms=2000, grace_ms=1000) is CollectionStage.CONFIRM
    assert stage_of(ahead, now_ms=2001, grace_ms=1000) is CollectionStage.WAIT
