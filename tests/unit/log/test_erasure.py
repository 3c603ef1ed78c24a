"""Erasing memories from the store: no version of any object holds a body of them, and every crash is gone on from."""

import msgspec
import pytest
from doubles.stepping_store import Fate, SteppingStore
from erasing_world import CANARY, HOUR, ErasingWorld, canary, crashed, erase
from log_world import ACCOUNT, compact, entry, manifest_in, plain, put, store_entry

from relayer.domain.operations import JobAccepted, JobFinished, Origin, Stored, encode_stored
from relayer.log.collector import Collector
from relayer.log.erasure import ErasureReports, ErasureStage, SeenReport
from relayer.log.namespace_log import Committer
from relayer.log.objects import Layout
from relayer.log.replica import Replica
from relayer.ports import SwapOutcome
from relayer.testing.local_relayer import RecordingStore


@pytest.fixture
def world(erasing_world: ErasingWorld) -> ErasingWorld:
    return erasing_world


async def filled(world: ErasingWorld) -> tuple[Replica, Committer, SeenReport]:
    """A log with the canary in segments and in the tail: text, vectors, neighbour, job input, a repeated text."""
    replica, committer = await world.writer()
    said = canary()
    record = said.stored.record
    await committer.submit([put("before"), said, put("beside")])
    await compact(world, replica, most_small=9)
    await committer.submit(
        [JobAccepted(Origin(b"a", b"j"), b"job", "extract", (record,), CANARY + b" input")]
    )
    await compact(world, replica, most_small=9)
    await committer.submit([canary(record=b"again" * 3)])
    await committer.submit(
        [canary("next", sealed=b"next", vector=b"own", context_vector=CANARY, context_of=record)]
    )
    await committer.submit([put("after")])
    await committer.submit([erase(said)])
    return replica, committer, await world.begin(replica, record)


async def later(world: ErasingWorld, hours: int = 2) -> SeenReport:
    """Let the rest happen on relayers that start anew; returns what became of it."""
    seen = await world.resumed()
    for _ in range(hours):
        if seen.report.stage is ErasureStage.CONFIRMED:
            break
        await world.clock.advance(HOUR)
        seen = await world.resumed()
    return seen


async def test_destroying_takes_a_body_from_all_that_a_manifest_names_at_once(world: ErasingWorld) -> None:
    replica, _, seen = await filled(world)
    whole = await plain(world)
    before = set(world.holding())
    assert any("/seg/" in key for key in before)
    destroyed = (await world.eraser(replica).run(seen)).report
    assert destroyed.stage is ErasureStage.DESTROYED
    assert destroyed.destroyed == 2
    assert {key for key in world.holding() if "/seg/" in key} == set()
    fresh = await world.reloaded()
    assert fresh.state == whole == replica.state


async def test_confirmed_is_when_no_version_of_anything_holds_a_body(world: ErasingWorld) -> None:
    replica, committer, seen = await filled(world)
    eraser = world.eraser(replica)
    seen = await eraser.run(seen)
    await world.clock.advance(HOUR - 1)
    assert (await eraser.run(seen)).report.stage is ErasureStage.DESTROYED
    assert world.holding()
    await committer.submit([put("meanwhile")])
    await world.clock.advance(1)
    done = (await later(world)).report
    assert done.stage is ErasureStage.CONFIRMED
    assert done.confirmed_at >= done.destroyed_at + HOUR * 1000
    assert world.holding() == []
    assert world.holding(b"own"), "the neighbour's own vector stays"
    fresh = await world.reloaded()
    assert fresh.state == replica.state
    assert [
        item.report for item in [await ErasureReports(world.ports()).find(ACCOUNT, done.erasure)] if item
    ] == [done]
    assert await ErasureReports(world.ports()).pending() == []


async def test_nothing_is_confirmed_before_the_slots_were_swept(world: ErasingWorld) -> None:
    replica, _, seen = await filled(world)
    seen = await world.eraser(replica).run(seen)
    await world.clock.advance(3 * HOUR)

    async def lazy() -> None:
        """Collect nothing."""

    eraser = world.eraser(replica)
    eraser._collect = lazy
    assert (await eraser.run(seen)).report.stage is ErasureStage.DESTROYED


async def test_stored_indexes_from_before_are_destroyed_and_no_longer_named(world: ErasingWorld) -> None:
    replica, _, seen = await filled(world)
    old = Layout.index(world.incarnation, 2, bytes(16))
    lost = Layout.index(world.incarnation, 1, bytes(16))
    newer = Layout.index(world.incarnation, 99, bytes(16))
    for key in (old, lost, newer):
        await world.memory.create(key, CANARY)
    named = await replica.manifest.see()
    await replica.manifest.swap(named, msgspec.structs.replace(named.manifest, index_key=old, index_seq=2))
    await world.eraser(replica).run(seen)
    assert (await manifest_in(world)).index_key == ""
    assert {key for key in world.memory.history if "/index/" in key} == {newer}


class NamesAnIndexFirst(RecordingStore):
    """A store in which another relayer swaps the manifest just before this one's first swap of it."""

    def __init__(self, world: ErasingWorld, index: str) -> None:
        super().__init__(world.memory)
        self._world = world
        self._index = index

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        if self._index and key == Layout.manifest(self._world.incarnation):
            index, self._index = self._index, ""
            view = self._world.replica().manifest
            named = await view.see()
            await view.swap(named, msgspec.structs.replace(named.manifest, index_key=index, index_seq=1))
        return await super().swap(key, data, etag)


async def test_an_index_from_before_that_is_named_meanwhile_is_named_no_longer(world: ErasingWorld) -> None:
    replica, committer = await world.writer()
    said = canary()
    await committer.submit([said])
    await committer.submit([erase(said)])
    await compact(world, replica, most_small=9)
    old = Layout.index(world.incarnation, 1, bytes(16))
    await world.memory.create(old, CANARY)
    named = await replica.manifest.see()
    await replica.manifest.swap(named, msgspec.structs.replace(named.manifest, index_key=old, index_seq=1))
    await world.begin(replica, said.stored.record)

    seen = await world.resumed(NamesAnIndexFirst(world, old))

    assert seen.report.stage is ErasureStage.DESTROYED
    assert (await manifest_in(world)).index_key == ""
    assert old not in world.memory.history


async def test_what_a_stalled_writer_makes_again_is_destroyed_before_anything_is_confirmed(
    world: ErasingWorld,
) -> None:
    replica, _, seen = await filled(world)
    seen = await world.eraser(replica).run(seen)
    await world.clock.advance(HOUR)
    await Collector(world.ports(), ACCOUNT, world.incarnation).run()
    free = next(seq for seq in range(1, seen.report.seq) if seq not in seen.report.slots)
    await store_entry(world, replica, entry(replica, encode_stored(canary()), seq=free), free)
    assert world.holding()
    assert (await later(world)).report.stage is ErasureStage.CONFIRMED
    assert world.holding() == []


async def test_what_a_stalled_compactor_uploads_takes_another_collection(world: ErasingWorld) -> None:
    replica, _, seen = await filled(world)
    key = next(key for key in world.holding() if "/seg/" in key)
    stalled = world.memory.history[key][0]
    await world.eraser(replica).run(seen)
    await world.clock.advance(HOUR / 2)
    await world.memory.create(key, stalled)
    await world.clock.advance(HOUR / 2)
    assert (await world.resumed()).report.stage is ErasureStage.DESTROYED
    assert key in world.holding()
    assert (await later(world)).report.stage is ErasureStage.CONFIRMED
    assert world.holding() == []


async def test_a_collection_that_is_waited_for_and_was_never_begun_is_begun(world: ErasingWorld) -> None:
    replica, _, seen = await filled(world)
    seen = await world.eraser(replica).run(seen)
    epoch = (await replica.manifest.read()).gc_epoch
    waits = msgspec.structs.replace(seen.report, epoch=epoch + 1)
    assert await ErasureReports(world.ports()).advance(seen, waits) is not None
    assert (await later(world, 4)).report.stage is ErasureStage.CONFIRMED
    assert (await replica.manifest.read()).gc_epoch == epoch + 1


async def test_a_segment_that_a_relayer_from_before_merged_is_written_again(world: ErasingWorld) -> None:
    replica, committer, seen = await filled(world)
    await world.eraser(replica).run(seen)
    rows = (await manifest_in(world)).segments
    assert all(row.reduced_at >= seen.report.seq for row in rows if row.first_seq <= seen.report.seq)
    await committer.submit([put("more")])
    await compact(world, replica, most_small=0)
    assert (await later(world)).report.stage is ErasureStage.CONFIRMED


async def test_results_that_arrive_late_leave_the_tail_and_are_collected(world: ErasingWorld) -> None:
    replica, committer, seen = await filled(world)
    seen = await world.eraser(replica).run(seen)
    late = JobFinished(b"job", stored=(Stored(b"fact" * 4, b"fact", CANARY + b" fact"),))
    await committer.submit([late])
    # A relayer that knows of the end would not write it: this one did not.
    await store_entry(world, replica, entry(replica, encode_stored(late)))
    await replica.catch_up()
    assert replica.state.erasures.last_late == replica.state.position.seq > seen.report.seq
    eraser = world.eraser(replica)
    for done in (False, False, True):
        assert await eraser.tidy() is done
        await world.clock.advance(HOUR)
    assert not any(CANARY + b" fact" in body for bodies in world.bodies().values() for body in bodies)


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.APPLIED_UNANSWERED])
@pytest.mark.parametrize("hours", [0, 1], ids=["destroying", "confirming"])
async def test_a_relayer_may_stop_after_any_request_and_another_one_goes_on(hours: int, fate: Fate) -> None:
    for after in range(300):
        made = ErasingWorld()
        await made.create()
        await filled(made)
        if hours:
            await made.resumed()
            await made.clock.advance(HOUR)
        store = SteppingStore(made.memory)
        finished = await crashed(made.resumed(store), store, after, fate)
        pending = await ErasureReports(made.ports()).pending()
        assert pending or hours, after
        assert not pending or (await later(made, 3)).report.stage is ErasureStage.CONFIRMED, after
        assert made.holding() == [], after
        await made.stop()
        if finished:
            assert after > 20
            return
    pytest.fail("it never came to an end")


async def test_an_erasure_is_confirmed_although_the_clock_was_a_year_ahead_when_it_began(
    world: ErasingWorld,
) -> None:
    replica, _, seen = await filled(world)
    world.clock.jump(365 * 86_400)
    assert (await world.eraser(replica).run(seen)).report.stage is ErasureStage.DESTROYED
    world.clock.jump(-365 * 86_400)
    assert (await world.resumed()).report.stage is ErasureStage.DESTROYED
    assert world.holding()
    await world.clock.advance(HOUR)
    done = await world.resumed()
    assert done.report.stage is ErasureStage.CONFIRMED
    assert world.holding() == []
