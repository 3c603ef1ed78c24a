"""Erasing a namespace: in any order of accidents its keys go first, its name is free again, and nobody is misled."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from doubles.stepping_store import Fate, SteppingStore
from erasing_world import HOUR, ErasingWorld, crashed
from log_world import ACCOUNT, SECRET, compact, manifest_in, new, put, write_manifest

from relayer.domain.namespace import PointerState
from relayer.domain.operations import OperationResult, Refusal
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.log import creation
from relayer.log.erasure import ErasureReports, ErasureStage, NamespaceEraser, SeenReport, namespace_report
from relayer.log.objects import Layout
from relayer.ports import GetOutcome, ObjectStore
from relayer.testing.local_relayer import RecordingStore


@pytest.fixture
def world(erasing_world: ErasingWorld) -> ErasingWorld:
    return erasing_world


async def filled(world: ErasingWorld) -> None:
    replica, committer = await world.writer()
    for _ in range(3):
        await committer.submit([put()])
        await compact(world, replica, most_small=9)
    await committer.submit([put()])
    await world.memory.create(Layout.index(world.incarnation, 2, bytes(16)), b"index")


async def begin(world: ErasingWorld) -> SeenReport:
    assert world.pointer is not None
    report = namespace_report(ACCOUNT, world.pointer, world.clock.now_ms())
    return await ErasureReports(world.ports()).begin(report)


async def resumed(world: ErasingWorld, store: ObjectStore | None = None) -> SeenReport:
    """Go on with the one report there is, on a relayer that has just started."""
    ports = world.ports(store)
    reports = ErasureReports(ports)
    (key,) = await reports.pending()
    seen = await reports.read(key)
    assert seen is not None
    return await NamespaceEraser(ports).run(seen)


def left(world: ErasingWorld) -> set[str]:
    """Return what kinds of objects have a version left."""
    below = Layout.incarnation(world.incarnation)
    return {key.removeprefix(below).split("/")[0] for key in world.memory.history if key.startswith(below)}


async def pointer_state(world: ErasingWorld) -> PointerState:
    (pointer,) = await creation.list_pointers(world.ports(), ACCOUNT)
    return pointer.state


async def test_keys_and_contents_go_at_once_and_entries_when_nobody_can_be_misled(
    world: ErasingWorld,
) -> None:
    await filled(world)
    await begin(world)
    seen = await resumed(world)
    assert seen.report.stage is ErasureStage.DESTROYED
    assert left(world) == {"wal"}
    assert await pointer_state(world) is PointerState.ERASED
    assert await creation.find(world.ports(), ACCOUNT, "research") is None
    await world.clock.advance(HOUR - 1)
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    assert left(world) == {"wal"}
    await world.clock.advance(1)
    done = await resumed(world)
    assert done.report.stage is ErasureStage.CONFIRMED
    assert left(world) == set()
    assert await ErasureReports(world.ports()).pending() == []
    found = await ErasureReports(world.ports()).find(ACCOUNT, world.incarnation)
    assert found is not None
    assert found.report == done.report


async def test_whoever_is_late_is_refused_and_never_told_that_it_was_stored(world: ErasingWorld) -> None:
    await filled(world)
    live, writer = await world.writer()
    stale, late = await world.writer()
    await begin(world)
    await resumed(world)
    assert (await writer.submit([put()]))[0].refusal is Refusal.CLOSED
    assert live.state.closed
    await world.clock.advance(HOUR)
    await resumed(world)
    with pytest.raises(NamespaceClosed):
        await late.submit([put()])
    assert not stale.state.closed, "it never heard of the end, and still nothing was acknowledged"


async def test_a_write_under_way_while_the_log_is_closed_is_either_before_the_end_or_refused(
    world: ErasingWorld,
) -> None:
    await filled(world)
    store = SteppingStore(world.memory)
    store.open_gates()
    _, writer = await world.writer(store)
    await begin(world)
    writing = asyncio.create_task(writer.submit([put()]))
    erasing = asyncio.create_task(resumed(world))
    outcome = (await writing)[0]
    await erasing
    assert outcome.result is OperationResult.STORED or outcome.refusal is Refusal.CLOSED


async def test_the_name_can_be_used_again_at_once_and_does_not_meet_its_past(world: ErasingWorld) -> None:
    await filled(world)
    await begin(world)
    await resumed(world)
    again = await creation.open_or_create(world.ports(), new(), SECRET)
    assert again.pointer.incarnation != world.incarnation
    await world.clock.advance(HOUR)
    assert (await resumed(world)).report.stage is ErasureStage.CONFIRMED
    assert await creation.find(world.ports(), ACCOUNT, "research") == again.pointer
    assert await creation.open_existing(world.ports(), again.pointer, ACCOUNT, SECRET) is not None


async def test_a_log_that_cannot_be_read_can_be_erased(world: ErasingWorld) -> None:
    await filled(world)
    manifest = await manifest_in(world)
    await write_manifest(world, msgspec.structs.replace(manifest, snap_seq=99))
    await begin(world)
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    assert left(world) == {"wal"}


async def test_a_namespace_that_was_never_finished_can_be_erased(world: ErasingWorld) -> None:
    await world.memory.purge(Layout.manifest(world.incarnation))
    await begin(world)
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    assert await pointer_state(world) is PointerState.ERASED


class StoppedBefore(RecordingStore):
    """A store in front of which a relayer is stopped, before it reads a key, while something happens."""

    def __init__(self, world: ErasingWorld, key: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(world.memory)
        self._key = key
        self._meanwhile = meanwhile

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        if key == self._key:
            self._key = ""
            await self._meanwhile()
        return await super().get(key, byte_range=byte_range, if_none_match=if_none_match)


@pytest.mark.parametrize("creates", [False, True], ids=["read", "write"])
async def test_parts_made_after_an_erasure_open_nothing_to_who_still_takes_the_name_for_alive(
    world: ErasingWorld, creates: bool
) -> None:
    parts = [Layout.keyring(world.incarnation), Layout.manifest(world.incarnation)]
    made = [world.memory.history[key][0] for key in parts]
    for key in parts:
        await world.memory.purge(key)
    before = await creation.find(world.ports(), ACCOUNT, "research")
    assert before is not None

    async def erased_and_made_late() -> None:
        await begin(world)
        assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
        for key, data in zip(parts, made, strict=True):
            await world.memory.create(key, data)

    ports = world.ports(StoppedBefore(world, parts[1], erased_and_made_late))
    if creates:
        opened = await creation.open_or_create(ports, new(), SECRET)
        assert opened.pointer.incarnation != world.incarnation
    else:
        with pytest.raises(NamespaceClosed):
            await creation.open_existing(ports, before, ACCOUNT, SECRET)


@pytest.mark.parametrize("with_segments", [False, True])
async def test_who_opens_a_namespace_while_its_keys_go_is_told_that_it_ended_and_not_that_it_is_damaged(
    world: ErasingWorld, with_segments: bool
) -> None:
    if with_segments:
        await filled(world)
    keyring = Layout.keyring(world.incarnation)
    before = await creation.find(world.ports(), ACCOUNT, "research")
    assert before is not None

    async def erased() -> None:
        await begin(world)
        await resumed(world)

    with pytest.raises(NamespaceClosed):
        await creation.open_existing(
            world.ports(StoppedBefore(world, keyring, erased)), before, ACCOUNT, SECRET
        )


async def test_a_keyring_that_is_lost_is_damage(world: ErasingWorld) -> None:
    await world.memory.purge(Layout.keyring(world.incarnation))
    before = await creation.find(world.ports(), ACCOUNT, "research")
    assert before is not None
    with pytest.raises(CorruptNamespace):
        await creation.open_existing(world.ports(), before, ACCOUNT, SECRET)


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.APPLIED_UNANSWERED])
async def test_a_relayer_may_stop_after_any_request_and_another_one_goes_on(fate: Fate) -> None:
    for after in range(300):
        made = ErasingWorld()
        await made.create()
        await filled(made)
        await begin(made)
        store = SteppingStore(made.memory)
        finished = await crashed(resumed(made, store), store, after, fate)
        if await pointer_state(made) is not PointerState.LIVE:
            # Nobody gets in any more, wherever the work stopped.
            found = await creation.find(made.ports(), ACCOUNT, "research")
            assert found is None or found.state is PointerState.ERASING, after
        again = await settled_again(made)
        await made.clock.advance(HOUR)
        assert (await resumed(made)).report.stage is ErasureStage.CONFIRMED, after
        assert left(made) == set(), after
        assert await creation.find(made.ports(), ACCOUNT, "research") == again
        await made.stop()
        if finished:
            assert after > 20
            return
    pytest.fail("it never came to an end")


async def settled_again(world: ErasingWorld) -> object:
    """Finish the destruction, then use the name again; returns the new pointer."""
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    return (await creation.open_or_create(world.ports(), new(), SECRET)).pointer


async def test_entries_do_not_stay_until_a_clock_that_was_ahead_is_caught_up_with(
    world: ErasingWorld,
) -> None:
    await filled(world)
    await begin(world)
    world.clock.jump(365 * 86_400)
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    world.clock.jump(-365 * 86_400)
    assert (await resumed(world)).report.stage is ErasureStage.DESTROYED
    await world.clock.advance(3600)
    assert (await resumed(world)).report.stage is ErasureStage.CONFIRMED
    assert left(world) == set()
