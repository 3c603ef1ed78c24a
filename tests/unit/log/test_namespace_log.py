import pytest
from log_world import ACCOUNT, World, put

from relayer.domain.outcomes import Result
from relayer.errors import StoreUnavailable
from relayer.log.namespace_log import Consistency, NamespaceLog
from relayer.testing.faulty_store import FaultyStore


def log_of(world: World, store=None) -> NamespaceLog:
    assert world.pointer is not None
    return NamespaceLog(world.ports(store), ACCOUNT, world.pointer)


async def test_what_one_log_appended_another_reads_after_a_restart(world: World) -> None:
    first = log_of(world)
    await first.start()
    operation = put("likes tea")
    assert (await first.append([operation]))[0].result is Result.STORED
    await first.close()

    second = log_of(world)
    assert await second.start() == first.position
    assert operation.stored.record in second.state.records
    await second.close()


async def test_the_position_that_a_write_led_to_can_be_read_elsewhere(world: World) -> None:
    writer, reader = log_of(world), log_of(world)
    await writer.start()
    await reader.start()
    await writer.append([put()])
    assert await reader.read(Consistency.MINE, writer.position) == writer.position
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
    log.subscribe(lambda applied: told.extend(one.outcome.subject for one in applied), lambda _: told.clear())
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
    assert (await log.append([put()]))[0].result is Result.STORED
    await log.close()


async def test_a_closed_log_takes_nothing_and_may_be_closed_again(world: World) -> None:
    log = log_of(world)
    await log.start()
    await log.close()
    await log.close()
    with pytest.raises(StoreUnavailable):
        await log.append([put()])
