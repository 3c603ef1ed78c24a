import asyncio

import msgspec
import pytest
from doubles.faulty_store import Faults, FaultyStore
from doubles.stepping_store import Fate, SteppingStore
from log_world import World, compact, drop_slots, entry, manifest_of, put, settle, store_entry, write_manifest

from relayer.domain.namespace import MANIFEST_FORMAT, LogPosition
from relayer.domain.operations import (
    ENTRY_VERSION,
    Forget,
    OperationResult,
    Origin,
    Refusal,
    encode_stored,
)
from relayer.domain.state import Applied
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable, UpgradeRequired
from relayer.log.objects import Layout, PositionUnknown, RollbackDetected, digest_of
from relayer.log.replica import DIGESTS_KEPT
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.fields import Consistency


async def test_a_strong_read_sees_what_another_process_had_acknowledged(world: World) -> None:
    _, committer = await world.writer()
    reader = await world.reloaded()
    operation = put("likes tea")
    await committer.submit([operation])

    await reader.read(Consistency.STRONG)
    assert operation.stored.record in reader.state.records


async def test_a_warm_strong_read_is_one_request(world: World) -> None:
    store = RecordingStore(world.memory)
    replica = await world.reloaded(store)
    store.clear()

    await replica.read(Consistency.STRONG)
    assert [(call.operation, call.key) for call in store.calls] == [("get", replica.slots.key(1))]


async def test_concurrent_strong_reads_share_their_requests(world: World) -> None:
    slow = FaultyStore(world.memory, clock=world.clock, seed=0, faults=Faults(latency=(0.01, 0.02)))
    store = RecordingStore(slow)
    replica = world.replica(store)
    await world.clock.run(replica.reload())
    store.clear()

    async def reads() -> None:
        await asyncio.gather(*(replica.read(Consistency.STRONG) for _ in range(50)))

    await world.clock.run(reads())
    assert store.count() == 2  # the one that had begun, and one for all who asked after it


async def test_a_read_does_not_share_a_request_that_began_before_it(world: World) -> None:
    _, committer = await world.writer()
    store, reader = await world.gated()

    early = asyncio.create_task(reader.read(Consistency.STRONG))
    await store.wait_for()
    held = store.pending[0]
    operation = put()
    late = asyncio.create_task(reader.read(Consistency.STRONG))
    await settle()
    await store.step()  # absent: read before the write below
    assert held.done.is_set()
    await committer.submit([operation])
    await store.wait_for()
    store.open_gates()
    await asyncio.gather(early, late)
    assert operation.stored.record in reader.state.records


async def test_any_reads_nothing_and_mine_reads_only_when_behind(world: World) -> None:
    _, committer = await world.writer()
    store = RecordingStore(world.memory)
    reader = world.replica(store)
    here = await reader.reload()
    await committer.submit([put()])
    other = world.replica()
    there = await other.reload()
    store.clear()

    assert await reader.read(Consistency.ANY, there) == here
    assert await reader.read(Consistency.MINE, here) == here
    assert await reader.read(Consistency.MINE) == here
    assert store.count() == 0
    assert await reader.read(Consistency.MINE, there) == there


async def test_a_position_above_the_head_is_a_rollback(world: World) -> None:
    replica = await world.reloaded()
    for consistency in (Consistency.STRONG, Consistency.MINE):
        with pytest.raises(RollbackDetected):
            await replica.read(consistency, LogPosition(1, b"d" * 32))


async def test_a_known_position_with_another_digest_is_a_rollback(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    seen = replica.state.position

    assert await replica.read(Consistency.STRONG, seen) == seen
    with pytest.raises(RollbackDetected):
        await replica.read(Consistency.STRONG, LogPosition(seen.seq, b"d" * 32))


async def test_a_position_older_than_every_kept_digest_is_unknown(world: World) -> None:
    replica = await world.reloaded()
    first = replica.state.position
    for _ in range(DIGESTS_KEPT):
        await store_entry(world, replica, entry(replica))
        await replica.catch_up()

    with pytest.raises(PositionUnknown) as caught:
        await replica.read(Consistency.ANY, first)
    assert caught.value.current == replica.state.position
    assert replica.digest_at(1) is not None


async def test_i4_a_tail_that_starts_at_or_below_the_watermark_is_not_applied(world: World) -> None:
    replica = await world.reloaded()
    revived = entry(replica, encode_stored(put()))
    writer, committer = await world.writer()
    await committer.submit([put()])
    await compact(world, writer)
    await drop_slots(world)
    # A stalled writer revives the slot: its chain is right, and it is dead.
    await store_entry(world, replica, revived)
    await world.clock.advance(601)

    await replica.catch_up()
    assert replica.state == writer.state


async def test_i4_what_is_known_of_the_watermark_counts_without_reading_the_manifest(world: World) -> None:
    replica = await world.reloaded()
    revived = entry(replica, encode_stored(put()))
    writer, committer = await world.writer()
    await committer.submit([put()])
    await compact(world, writer)
    await drop_slots(world)
    await store_entry(world, replica, revived)
    await replica.manifest.read()

    await replica.catch_up()
    assert replica.state == writer.state


async def test_i11_the_manifest_is_read_again_ten_minutes_later_by_the_stores_time(world: World) -> None:
    store = RecordingStore(world.memory)
    replica = await world.reloaded(store)
    manifest = Layout.manifest(world.incarnation)
    store.clear()

    await world.clock.advance(599)
    await replica.catch_up()
    assert store.count("get", manifest) == 0
    await world.clock.advance(1)
    await replica.catch_up()
    assert store.count("get", manifest) == 1


async def test_i11_a_store_time_that_went_back_vouches_for_nothing(world: World) -> None:
    replica = await world.reloaded()
    validated = replica.manifest.validated_at
    assert validated is not None
    assert replica.manifest.recently_validated(validated)
    assert not replica.manifest.recently_validated(validated - 1)


async def test_i12_a_newer_manifest_format_asks_for_an_upgrade(world: World) -> None:
    await write_manifest(world, manifest_of(world, format=MANIFEST_FORMAT + 1))
    with pytest.raises(UpgradeRequired):
        await world.replica().reload()


@pytest.mark.parametrize("change", [{"gc_epoch": 1}, {"snap_seq": 1}])
async def test_a_manifest_older_than_one_seen_is_refused(world: World, change: dict[str, int]) -> None:
    ahead = {"gc_epoch": 2, "snap_seq": 2}
    replica = await world.reloaded()
    await write_manifest(world, manifest_of(world, **ahead))
    await replica.manifest.read()
    await write_manifest(world, manifest_of(world, **(ahead | change)))
    with pytest.raises(CorruptNamespace):
        await replica.manifest.read()


async def test_a_vanished_manifest_means_that_the_namespace_was_erased(world: World) -> None:
    replica = await world.reloaded()
    await world.memory.delete(Layout.manifest(world.incarnation))
    await world.clock.advance(601)
    with pytest.raises(NamespaceClosed):
        await replica.catch_up()


async def test_i12_an_operation_of_a_newer_version_stops_the_replica_before_the_entry(world: World) -> None:
    replica = await world.reloaded()
    newer = msgspec.msgpack.encode(["grant", b"x"])
    await store_entry(world, replica, entry(replica, encode_stored(put()), newer))

    for consistency in Consistency:
        with pytest.raises(UpgradeRequired):
            await replica.catch_up()
        with pytest.raises(UpgradeRequired):
            await replica.read(consistency)
    assert (replica.state.position.seq, replica.state.records) == (0, {})


async def test_i12_an_entry_of_a_newer_version_stops_the_replica(world: World) -> None:
    replica = await world.reloaded()
    await store_entry(world, replica, entry(replica, version=ENTRY_VERSION + 1))
    with pytest.raises(UpgradeRequired):
        await replica.catch_up()


async def test_i12_a_malformed_operation_is_recorded_as_refused_and_bricks_nothing(world: World) -> None:
    seen: list[Applied] = []
    replica = world.replica()
    replica.subscribe(seen.extend, lambda _: None)
    await replica.reload()
    good = put()
    bad = (
        msgspec.msgpack.encode(["put", 7]),
        b"\xc0",
        b"\x92\xa3put\xa1\xff",
        b"\x92\xa3put" + b"\x91" * 5000 + b"\x01",
    )
    await store_entry(world, replica, entry(replica, *bad, encode_stored(good)))
    await replica.catch_up()

    assert [item.outcome.refusal for item in seen[:-1]] == [Refusal.MALFORMED] * len(bad)
    assert seen[-1].outcome.result is OperationResult.STORED


@pytest.mark.parametrize("wrong", ["slot", "link", "bytes"])
async def test_an_entry_that_does_not_belong_there_is_corruption(world: World, wrong: str) -> None:
    replica = await world.reloaded()
    data = {
        "slot": entry(replica, seq=2),
        "link": entry(replica, previous=b"p" * 32),
        "bytes": entry(replica)[:-1] + b"\x00",
    }[wrong]
    await store_entry(world, replica, data)
    with pytest.raises(CorruptNamespace):
        await replica.catch_up()
    with pytest.raises(CorruptNamespace):
        await replica.read(Consistency.ANY)


async def test_the_chain_is_made_of_the_digests_of_stored_bytes(world: World) -> None:
    replica = await world.reloaded()
    data = entry(replica)
    await store_entry(world, replica, data)
    assert await replica.catch_up() == LogPosition(1, digest_of(data))


async def test_an_answer_that_was_cut_short_is_read_again(world: World) -> None:
    _, committer = await world.writer()
    for _ in range(5):
        await committer.submit([put()])
    for seed in range(40):
        store = FaultyStore(world.memory, clock=world.clock, seed=seed, faults=Faults(truncated=0.1))
        replica = world.replica(store)
        try:
            position = await replica.reload()
        except CorruptNamespace:
            continue  # cut twice in a row
        assert position.seq == 5


async def test_a_store_that_fails_in_the_middle_leaves_what_was_applied_and_can_be_asked_again(
    world: World,
) -> None:
    _, committer = await world.writer()
    for _ in range(40):
        await committer.submit([put()])
    store = SteppingStore(world.memory)
    replica = world.replica(store)
    loading = asyncio.create_task(replica.reload())
    for _ in range(2):  # manifest, first slot
        await store.wait_for()
        await store.step()
    await store.wait_for(16)
    await store.step(7, Fate.LOST)
    with pytest.raises(StoreUnavailable):
        await loading
    assert replica.state.position.seq == 1

    store.open_gates()
    assert (await replica.catch_up()).seq == 40


async def test_projections_are_told_of_each_entry_once_and_in_order(world: World) -> None:
    told: list[bytes] = []
    replica = world.replica()

    def on_applied(applied: list[Applied]) -> None:
        told.extend(item.outcome.subject for item in applied)

    replica.subscribe(on_applied, lambda _: told.clear())
    _, committer = await world.writer()
    operations = [put() for _ in range(70)]
    for operation in operations:
        await committer.submit([operation])
    await replica.reload()
    await asyncio.gather(*(replica.catch_up() for _ in range(5)))
    assert told == [operation.stored.record for operation in operations]

    await replica.reload()
    assert told == [operation.stored.record for operation in operations]


async def test_a_projection_that_cannot_follow_stops_the_replica_until_it_is_reloaded(world: World) -> None:
    broken = True

    def on_applied(_: list[Applied]) -> None:
        if broken:
            raise ValueError("no room in the index")

    replica, committer = await world.writer()
    replica.subscribe(on_applied, lambda _: None)
    with pytest.raises(CorruptNamespace):
        await committer.submit([put()])
    with pytest.raises(CorruptNamespace):
        await replica.read(Consistency.ANY)
    with pytest.raises(CorruptNamespace):
        await committer.submit([put()])

    assert replica.broken

    broken = False
    await replica.reload()
    assert not replica.broken
    assert (await committer.submit([put()]))[0].result is OperationResult.STORED


async def test_a_long_catch_up_lets_other_tasks_run(world: World) -> None:
    _, committer = await world.writer()
    for _ in range(32):
        await committer.submit([put(size=200_000)])
    replica = world.replica()
    loading = asyncio.create_task(replica.reload())
    turns = 0
    while not loading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 16
    assert replica.state.position.seq == 32


async def test_a_refused_operation_is_told_with_its_refusal(world: World) -> None:
    seen: list[Applied] = []
    replica, committer = await world.writer()
    replica.subscribe(seen.extend, lambda _: None)
    await committer.submit([Forget(Origin(b"a", b"n"), b"nobody")])
    assert [item.outcome.refusal for item in seen] == [Refusal.UNKNOWN_RECORD]
