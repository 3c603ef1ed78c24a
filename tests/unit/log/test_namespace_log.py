import pytest
from doubles.faulty_store import FaultyStore
from log_world import ACCOUNT, SECRET, World, compact, drop_slots, put

from relayer.domain.operations import OperationResult
from relayer.errors import StoreUnavailable
from relayer.log import creation
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import TRUST_MS, Layout
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.fields import Consistency


async def found(world: World, store=None) -> creation.OpenedNamespace:
    ports = world.ports(store)
    pointer = await creation.find(ports, ACCOUNT, "research")
    assert pointer is not None
    opened = await creation.open_existing(ports, pointer, ACCOUNT, SECRET)
    assert opened is not None
    return opened


async def written(world: World) -> tuple[set[bytes], NamespaceLog]:
    """Append three memories; return their ids and the log, which is closed."""
    log = log_of(world)
    await log.start()
    operations = [put() for _ in range(3)]
    for operation in operations:
        await log.append([operation])
    await log.close()
    return {operation.stored.record for operation in operations}, log


def log_of(world: World, store=None) -> NamespaceLog:
    assert world.pointer is not None
    return NamespaceLog(world.ports(store), ACCOUNT, world.pointer)


async def test_what_one_log_appended_another_reads_after_a_restart(world: World) -> None:
    first = log_of(world)
    await first.start()
    operation = put("likes tea")
    assert (await first.append([operation]))[0].result is OperationResult.STORED
    await first.close()

    second = log_of(world)
    assert await second.start() == first.state.position
    assert operation.stored.record in second.state.records
    await second.close()


async def test_the_position_that_a_write_led_to_can_be_read_elsewhere(world: World) -> None:
    writer, reader = log_of(world), log_of(world)
    await writer.start()
    await reader.start()
    await writer.append([put()])
    assert await reader.replica.read(Consistency.MINE, writer.state.position) == writer.state.position
    await writer.close()
    await reader.close()


async def test_a_projection_sees_the_past_at_the_start_and_each_append_before_its_answer(
    world: World,
) -> None:
    past = log_of(world)
    await past.start()
    await past.append([put()])
    await past.close()

    told: list[bytes] = []
    log = log_of(world)
    log.replica.subscribe(
        lambda applied: told.extend(one.outcome.subject for one in applied), lambda _: told.clear()
    )
    await log.start()
    assert len(told) == 1
    outcome = (await log.append([put()]))[0]
    assert told[1:] == [outcome.subject]
    await log.close()


async def test_a_start_that_failed_can_be_repeated(world: World) -> None:
    store = FaultyStore(world.memory, clock=world.clock, seed=0)
    log = log_of(world, store)
    store.down = True
    with pytest.raises(StoreUnavailable):
        await log.start()
    store.down = False
    await log.start()
    assert (await log.append([put()]))[0].result is OperationResult.STORED
    await log.close()


async def test_a_closed_log_takes_nothing_and_may_be_closed_again(world: World) -> None:
    log = log_of(world)
    await log.start()
    await log.close()
    await log.close()
    with pytest.raises(StoreUnavailable):
        await log.append([put()])


async def test_a_manifest_that_was_seen_while_it_was_opened_is_not_read_again(world: World) -> None:
    records, _ = await written(world)
    store = RecordingStore(world.memory)
    opened = await found(world, store)
    log = NamespaceLog(world.ports(store), ACCOUNT, opened.pointer, seen=opened.seen)
    await log.start()
    assert set(log.state.records) == records
    assert store.count("get", Layout.manifest(opened.pointer.incarnation)) == 1
    await log.close()


@pytest.mark.parametrize("later_ms", [0, TRUST_MS], ids=["at once", "when it vouches for nothing any more"])
async def test_a_seen_manifest_of_which_all_was_compacted_since_hides_nothing(
    world: World, later_ms: int
) -> None:
    records, log = await written(world)
    opened = await found(world)
    await compact(world, log.replica)
    if later_ms:
        # No sooner than an hour after the watermark moved, which is longer than a seen manifest vouches for a slot.
        world.clock.jump(later_ms / 1000)
        await drop_slots(world)
    late = NamespaceLog(world.ports(), ACCOUNT, opened.pointer, seen=opened.seen)
    await late.start()
    assert set(late.state.records) == records
    await late.close()
