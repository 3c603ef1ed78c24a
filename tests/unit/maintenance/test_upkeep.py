"""Logs are compacted and collected beside the requests, and nobody notices."""

from __future__ import annotations

import asyncio

from doubles.stepping_store import SteppingStore

from relayer.errors import RelayerError, StoreUnavailable
from relayer.lib.scheduler import Scheduler
from relayer.log.compactor import CompactionLimits
from relayer.maintenance.logs import LogMaintenance, LogMaintenanceLimits
from relayer.use_cases.erase import erase_namespace
from relayer.wire.schemas import EraseNamespaceRequest

LIMITS = LogMaintenanceLimits(CompactionLimits(entries=2, most_small=1))
TWO = ("I drink oat milk", "I ride a red bicycle")


class Rounds:
    """An upkeep whose rounds a test runs."""

    def __init__(self, house, limits: LogMaintenanceLimits = LIMITS) -> None:
        self.house = house
        self.upkeep = LogMaintenance(house.ctx.ports, house.ctx.namespaces, limits)
        self.errors: list[BaseException] = []

    @property
    def counts(self):
        return self.upkeep.counts

    async def run(self, count: int = 1, every: float = 0.0) -> None:
        for _ in range(count):
            await self.house.clock.advance(every)
            await self.upkeep.round(self.errors.append)


def keys(house, kind: str) -> list[str]:
    return [key for key in house.store._inner._objects if f"/{kind}/" in key]


async def test_what_is_open_is_compacted_when_its_tail_is_long_enough(house) -> None:
    rounds = Rounds(house)
    await house.put("I drink oat milk")
    await rounds.run()
    assert keys(house, "seg") == []
    await house.put("I ride a red bicycle")
    await rounds.run()
    assert len(keys(house, "seg")) == 1
    assert rounds.counts["segments"] == 1
    assert rounds.counts["bytes"] > 500


async def test_slots_are_deleted_in_the_end_and_every_memory_is_still_found(house) -> None:
    rounds = Rounds(house)
    for text in ("I drink oat milk", "I ride a red bicycle", "My cat is called Ada"):
        await house.put(text)
    await rounds.run(6, every=3600.0)
    assert rounds.counts["slots"] == 3
    assert keys(house, "wal") == []
    assert rounds.errors == []

    another = await house.another()
    assert "I ride a red bicycle" in await another.found("What do I ride?")


async def test_a_log_whose_key_ended_is_collected_to_the_end_and_then_let_go(house) -> None:
    rounds = Rounds(house)
    for text in TWO:
        await house.put(text)
    await rounds.run()
    await house.clock.advance(3600)
    await house.ctx.namespaces.drop_expired()
    assert len(house.ctx.namespaces) == 0
    await rounds.run(6, every=3600.0)
    assert keys(house, "wal") == []
    requests = house.store.count()
    await rounds.run(6, every=3600.0)
    assert house.store.count() == requests


async def test_a_failure_is_reported_counted_and_tried_again_later(house) -> None:
    failing = True

    class Failing:
        def __getattr__(self, name: str):
            return getattr(house.store, name)

        async def create(self, key: str, data: bytes):
            if failing and "/seg/" in key:
                raise StoreUnavailable("down")
            return await house.store.create(key, data)

    object.__setattr__(house.ctx.ports, "store", Failing())
    rounds = Rounds(house)
    for text in TWO:
        await house.put(text)
    await rounds.run()
    await rounds.run()
    assert [type(error) for error in rounds.errors] == [StoreUnavailable]
    assert rounds.counts["failures"] == 1
    failing = False
    await rounds.run(1, every=3.1)
    assert rounds.counts["segments"] == 1


async def test_requests_go_on_while_a_compaction_is_stuck(house) -> None:
    gate = SteppingStore(house.store)

    class Gated:
        def __getattr__(self, name: str):
            return getattr(house.store, name)

        async def create(self, key: str, data: bytes):
            return await (gate if "/seg/" in key else house.store).create(key, data)

    object.__setattr__(house.ctx.ports, "store", Gated())
    rounds = Rounds(house)
    for text in TWO:
        await house.put(text)
    stuck = asyncio.create_task(rounds.run())
    await gate.wait_for()
    await house.put("My cat is called Ada")
    assert "My cat is called Ada" in await house.found("What is my cat called?")
    assert not stuck.done()
    gate.open_gates()
    await stuck


async def test_upkeep_goes_on_until_it_is_cancelled_with_uneven_pauses(house) -> None:
    upkeep = LogMaintenance(house.ctx.ports, house.ctx.namespaces, LIMITS)
    for text in TWO:
        await house.put(text)

    def fail(_: str, error: BaseException) -> None:
        raise error

    async with Scheduler(house.clock, house.ctx.randomness, fail) as scheduler:
        scheduler.start(upkeep.task)
        await house.clock.advance(3.1)
    assert upkeep.counts["segments"] == 1
    assert {upkeep._uneven() for _ in range(9)} != {upkeep._uneven()}


async def test_an_erased_log_is_let_go_of(house) -> None:
    rounds = Rounds(house)
    for text in TWO:
        await house.put(text)
    await rounds.run()
    for key in [key for key in house.store._inner._objects if key.endswith("/manifest")]:
        await house.store._inner.delete(key)
    await house.ctx.namespaces.close(0.0)
    await rounds.run(2, every=7200.0)
    assert not [error for error in rounds.errors if not isinstance(error, RelayerError)]
    requests = house.store.count()
    await rounds.run(3, every=7200.0)
    assert house.store.count() == requests


async def test_a_log_that_another_relayer_erased_is_no_failure(house) -> None:
    await house.put("I drink oat milk")
    await house.put("I ride a red bicycle")
    other = await house.another()
    assert len(await other.found("bicycle")) == 2
    confirm = (await house.call(erase_namespace, EraseNamespaceRequest())).confirm
    request = EraseNamespaceRequest(dry_run=False, confirm=confirm)
    await house.call(erase_namespace, request)
    rounds = Rounds(other)
    await rounds.run(3, every=3600)
    assert rounds.errors == []
    assert rounds.counts["failures"] == 0
