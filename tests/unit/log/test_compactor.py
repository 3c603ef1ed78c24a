"""The compactor: what it writes says what the log says, and nothing that happens to it loses anything."""

import asyncio
from collections.abc import Callable

import pytest
from doubles.stepping_store import Fate, SteppingStore
from log_world import World, compact, drop_slots, ends, entry, manifest_in, plain, put, settle, store_entry

from relayer.domain.operations import Erase, Forget, JobAccepted, JobFinished, OperationResult, Origin
from relayer.domain.state import Applied
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.compactor import Compaction, CompactionLimits, Compactor, Work
from relayer.log.objects import TRUST_MS, Layout
from relayer.log.replica import Replica
from relayer.ports import Found
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.fields import Consistency

TINY = CompactionLimits(entries=1)


def compactor(world: World, replica: Replica, **limits: int) -> Compactor:
    return Compactor(world.ports(), replica, CompactionLimits(**limits))


async def keys(world: World, prefix: Callable[[bytes], str]) -> set[str]:
    return {row.key async for row in world.memory.list(prefix(world.incarnation))}


async def test_nothing_is_done_before_the_tail_is_long_enough(world: World) -> None:
    replica, committer = await world.writer()
    for _ in range(3):
        await committer.submit([put()])
    short = compactor(world, replica, entries=4)
    assert not short.due
    assert await short.run() is None
    await committer.submit([put()])
    assert short.due
    assert await short.run() is not None
    assert not short.due


async def test_a_tail_of_few_large_entries_is_long_enough(world: World) -> None:
    replica, committer = await world.writer()
    by_size = compactor(world, replica, entries=64, bytes=10_000)
    await committer.submit([put(size=9_000)])
    assert not by_size.due
    await committer.submit([put(size=9_000)])
    assert by_size.due
    compaction = await by_size.run()
    assert compaction == Compaction(Work.TAIL, compaction.written if compaction else 0, won=True)


async def test_a_segment_says_what_its_entries_said(world: World) -> None:
    replica, committer = await world.writer()
    first = put("tea")
    await committer.submit([first, put("tea"), put("milk")])
    await committer.submit([Forget(Origin(b"a", b"f"), first.stored.record)])
    await compact(world, replica)
    whole = await plain(world)
    await drop_slots(world)

    fresh = await world.reloaded()
    assert fresh.state == whole == replica.state
    assert fresh.digest_at(1) == replica.digest_at(1)


async def test_an_operation_repeated_after_compaction_gets_its_first_outcome(world: World) -> None:
    replica, committer = await world.writer()
    operation = put(key=b"key")
    first = await committer.submit([operation])
    await compact(world, replica)
    await drop_slots(world)

    fresh, again = await world.writer()
    assert await again.submit([operation]) == first
    assert fresh.state.position.seq == 1


async def test_texts_that_nobody_needs_are_not_in_the_store_any_more(world: World) -> None:
    replica, committer = await world.writer()
    gone, kept = put("gone", size=50), put("kept", size=60)
    await committer.submit([gone, kept])
    await committer.submit([Erase(Origin(b"a", b"e"), (gone.stored.record,))])
    await compact(world, replica)
    (row,) = (await manifest_in(world)).segments
    found = await world.memory.get(row.key)
    assert isinstance(found, Found)
    assert b"x" * 60 in found.data
    assert row.live == 1
    assert found.data.count(b"x") < 110


async def test_projections_are_told_the_same_from_segments(world: World) -> None:
    told: list[Applied] = []
    replica, committer = await world.writer()
    live = put("live")
    await committer.submit([live])
    await committer.submit([JobAccepted(Origin(b"a", b"j"), b"job", "embed", (live.stored.record,), b"in")])
    await committer.submit([JobFinished(b"job")])
    await compact(world, replica)
    await drop_slots(world)

    fresh = world.replica()
    fresh.subscribe(told.extend, lambda _: told.clear())
    await fresh.reload()
    assert [item.outcome.result for item in told] == [
        OperationResult.STORED,
        OperationResult.ACCEPTED,
        OperationResult.FINISHED,
    ]
    assert told[0].operation == live


async def test_a_live_replica_that_fell_behind_goes_on_where_it_was(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    behind = world.replica()
    resets: list[object] = []
    told: list[Applied] = []
    behind.subscribe(told.extend, resets.append)
    await behind.reload()
    for _ in range(3):
        await committer.submit([put()])
    await compact(world, replica, entries=4)
    await drop_slots(world)
    await world.clock.advance(601)

    await behind.catch_up()
    assert behind.state == replica.state
    assert len(resets) == 1
    assert len(told) == 4


async def test_small_segments_are_merged_and_say_the_same(world: World) -> None:
    replica, committer = await world.writer()
    for number in range(12):
        await committer.submit([put(str(number % 5))])
        await compact(world, replica, most_small=3)
    manifest = await manifest_in(world)
    assert len(manifest.segments) <= 5
    whole = await plain(world)
    await drop_slots(world)
    assert (await world.reloaded()).state == whole


async def test_no_merge_exceeds_the_full_size(world: World) -> None:
    replica, committer = await world.writer()
    for _ in range(12):
        await committer.submit([put(size=1000)])
        await compact(world, replica, most_small=0, full_bytes=6000)
    sizes = [row.size for row in (await manifest_in(world)).segments]
    assert all(size <= 6000 for size in sizes)
    assert len(sizes) < 12


async def test_a_long_tail_is_cut_into_segments_of_the_full_size(world: World) -> None:
    replica, committer = await world.writer()
    for _ in range(10):
        await committer.submit([put(size=1000)])
    await compact(world, replica, entries=2, most_small=99, full_bytes=4000)
    manifest = await manifest_in(world)
    assert len(manifest.segments) > 2
    assert all(row.size <= 4000 for row in manifest.segments)
    await drop_slots(world)
    assert (await world.reloaded()).state == replica.state


async def test_a_segment_that_was_merged_away_is_looked_up_in_the_manifest_again(world: World) -> None:
    replica, committer = await world.writer()
    for _ in range(2):
        await committer.submit([put()])
        await compact(world, replica, most_small=9)
    old = (await manifest_in(world)).segments
    await drop_slots(world)
    store = SteppingStore(world.memory)
    late = world.replica(store)
    loading = asyncio.create_task(late.reload())
    await store.wait_for()
    await store.step()  # the manifest
    await compact(world, replica, entries=99, most_small=0)
    for row in old:
        await world.memory.delete(row.key)
    store.open_gates()

    await loading
    assert late.state == replica.state


async def test_a_segment_that_stays_absent_is_corruption(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    await compact(world, replica)
    (row,) = (await manifest_in(world)).segments
    await world.memory.delete(row.key)
    store = RecordingStore(world.memory)
    late = world.replica(store)
    with pytest.raises(CorruptNamespace, match="does not exist"):
        await late.reload()
    assert store.count("get", row.key) == 5
    assert late.broken


async def test_i9_the_loser_of_a_race_leaves_its_upload_and_the_winners_manifest(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    store, losing = await _gated_run(world, TINY)
    await store.wait_for()
    await store.step()  # reads the manifest before the winner swaps it
    (won,) = await compact(world, replica)
    store.open_gates()

    lost = await losing
    assert (won.won, lost and lost.won) == (True, False)
    assert len(await keys(world, Layout.segments)) == 2
    manifest = await manifest_in(world)
    assert len(manifest.segments) == 1
    assert (await world.reloaded()).state == replica.state


FATES = [Fate.LOST, Fate.APPLIED_UNANSWERED, Fate.DELAYED]


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name.lower())
@pytest.mark.parametrize("merge", [False, True], ids=["tail", "merge"])
async def test_whatever_becomes_of_any_request_nothing_is_lost(fate: Fate, *, merge: bool) -> None:
    limits = CompactionLimits(entries=99, most_small=0) if merge else TINY
    fatal = 0
    while await _survives(limits, fatal, fate, merge=merge):
        fatal += 1
    assert fatal >= 6  # manifest, slots or segments, upload, swap, manifest


async def _survives(limits: CompactionLimits, fatal: int, fate: Fate, *, merge: bool) -> bool:
    """Let request number ``fatal`` of a compaction meet its fate; False if there were fewer requests."""
    world = World()
    await world.create()
    replica, committer = await world.writer()
    for _ in range(3):
        await committer.submit([put()])
        if merge:
            await compact(world, replica, most_small=9)
    store, running = await _gated_run(world, limits)
    for _ in range(fatal):
        if await ends(running):
            await world.stop()
            return False
        await store.step()
    met = not await ends(running)
    if met:
        await store.step(fate=fate)
        await settle()
        store.open_gates()
    await asyncio.wait([running])
    assert isinstance(running.exception(), StoreUnavailable | None)

    whole = await plain(world)
    assert (await world.reloaded()).state == whole
    while store.delayed:
        await store.apply_delayed()
    assert (await world.reloaded()).state == whole
    await world.stop()
    return met


async def _gated_run(
    world: World, limits: CompactionLimits
) -> tuple[SteppingStore, asyncio.Task[Compaction | None]]:
    """Return a compaction whose requests wait for the test, of a replica that has caught up."""
    store, gated = await world.gated()
    return store, asyncio.create_task(Compactor(world.ports(store), gated, limits).run())


async def test_a_swap_that_lands_late_and_unanswered_is_known_as_won(world: World) -> None:
    _replica, committer = await world.writer()
    await committer.submit([put()])
    store, running = await _gated_run(world, TINY)
    while not await ends(running):
        applied = store.pending[0].operation == "swap"
        await store.step(fate=Fate.APPLIED_UNANSWERED if applied else Fate.PROCEED)
    compaction = await running
    assert compaction is not None
    assert compaction.won


async def test_i9_a_compactor_deletes_nothing(world: World) -> None:
    store = RecordingStore(world.memory)
    replica, committer = await world.writer(store)
    for _ in range(6):
        await committer.submit([put()])
        await compact(world, replica, most_small=1)
    assert {call.operation for call in store.calls} == {"get", "create", "swap"}


async def test_a_stuck_compaction_delays_no_request(world: World) -> None:
    _replica, committer = await world.writer()
    await committer.submit([put()])
    store = SteppingStore(world.memory)

    class Split:
        """Everything but the compactor's writes goes straight to the store."""

        def __getattr__(self, name: str):
            return getattr(store if name in {"create", "swap"} else world.memory, name)

    split = world.replica(Split())
    await split.reload()
    running = asyncio.create_task(Compactor(world.ports(Split()), split, TINY).run())
    await store.wait_for()  # the upload

    operation = put()
    assert (await committer.submit([operation]))[0].result is OperationResult.STORED
    await split.read(Consistency.STRONG)
    assert operation.stored.record in split.state.records
    assert not running.done()
    store.open_gates()
    await running
    assert (await world.reloaded()).state == split.state


async def test_a_reload_during_a_compaction_takes_no_text_from_it(world: World) -> None:
    _replica, committer = await world.writer()
    operation = put(size=77)
    await committer.submit([operation])
    store, running = await _gated_run(world, TINY)
    await store.wait_for()
    await store.step()  # the manifest
    await store.wait_for()
    gated = running.get_coro().cr_frame.f_locals["self"]._replica
    reloading = asyncio.create_task(gated.reload())
    await settle()
    store.open_gates()
    await asyncio.gather(running, reloading)

    told: list[Applied] = []
    fresh = world.replica()
    fresh.subscribe(told.extend, lambda _: None)
    await drop_slots(world)
    await fresh.reload()
    assert told[0].operation == operation


async def test_a_replica_that_knows_less_than_the_manifest_compacts_nothing(world: World) -> None:
    behind = await world.reloaded()
    replica, committer = await world.writer()
    await committer.submit([put()])
    await compact(world, replica)
    assert await Compactor(world.ports(), behind, TINY).run() is None


async def test_a_compactor_that_paused_while_its_slots_were_collected_and_taken_anew_leaves_off(
    world: World,
) -> None:
    replica, committer = await world.writer()
    for _ in range(3):
        await committer.submit([put()])
    store, running = await _gated_run(world, TINY)
    await store.wait_for()
    await store.step()  # the manifest
    await store.wait_for(3)  # the slots

    await compact(world, replica)
    world.clock.jump(2 * TRUST_MS / 1000)
    await drop_slots(world)
    # Of a writer that paused as long; it sees the watermark as soon as it has written, and takes nothing for stored.
    await store_entry(world, replica, entry(replica, seq=1, previous=b"o" * 32), seq=1)
    await store_entry(world, replica, entry(replica, seq=2, previous=b"o" * 32), seq=2)
    await store_entry(world, replica, entry(replica, seq=3, previous=b"o" * 32), seq=3)
    store.open_gates()

    assert await running is None
    assert (await world.reloaded()).state == replica.state


async def test_what_the_manifest_says_of_its_segments_is_kept_up(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put(), put()])
    await committer.submit([Forget(Origin(b"a", b"f"), b"nobody")])
    await compact(world, replica)
    manifest = await manifest_in(world)
    assert (manifest.snap_seq, manifest.chain_digest) == (2, replica.state.position.digest)
    assert (manifest.live_count, manifest.live_bytes) == (2, manifest.segments[0].size)
    assert manifest.last_time == replica.state.last_time
    assert manifest.gc_watermark == 0


async def written(world: World, count: int, size: int = 40) -> tuple[RecordingStore, Replica]:
    """A process that has just written some entries, and its store, as if nothing had been asked of it yet."""
    store = RecordingStore(world.memory)
    replica, committer = await world.writer(store)
    for _ in range(count):
        await committer.submit([put(size=size)])
    store.clear()
    return store, replica


def slots_read(store: RecordingStore, replica: Replica) -> int:
    return store.count("get", replica.slots.key(1).rpartition("/")[0] + "/")


async def test_what_was_just_written_here_is_not_read_again(world: World) -> None:
    store, replica = await written(world, 5)
    await compact(world, replica)
    assert slots_read(store, replica) == 0
    whole = await plain(world)
    await drop_slots(world)
    fresh = await world.reloaded()
    assert fresh.state == whole == replica.state
    assert fresh.state.position.seq == 5


async def test_what_was_written_a_minute_ago_is_read_again_and_takes_no_memory(world: World) -> None:
    store, replica = await written(world, 5, size=10_000)
    before = replica.nbytes
    await world.clock.advance(61)
    replica.tidy_written()
    assert before - replica.nbytes > 50_000
    await compact(world, replica)
    assert slots_read(store, replica) == 5
    assert (await world.reloaded()).state == replica.state


async def test_what_is_kept_of_what_was_written_is_bounded_and_goes_with_a_compaction(world: World) -> None:
    _, replica = await written(world, 0)
    few = replica.nbytes
    _, replica = await written(world, 40, size=100_000)
    kept = replica.nbytes
    assert kept - few < 2 * 1024 * 1024
    await compact(world, replica)
    replica.tidy_written()
    assert replica.nbytes < kept - 900_000
    assert (await world.reloaded()).state == replica.state


async def test_entries_of_others_between_ones_own_are_read(world: World) -> None:
    store, replica = await written(world, 2)
    _, other = await world.writer()
    await other.submit([put("theirs")])
    await replica.catch_up()
    committer = world.committer(replica, store)
    committer.start()
    await committer.submit([put("mine")])
    store.clear()
    await compact(world, replica)
    assert slots_read(store, replica) >= 1
    whole = await plain(world)
    await drop_slots(world)
    assert (await world.reloaded()).state == whole == replica.state
