"""The sum of what an account keeps: what processes add to it, how far it can be wrong, and how it is corrected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.quotas import CountedUsage, Quota, Quotas, Usage, read_usage, write_usage
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.operations import JobAccepted, Operation, OperationResult, Origin, Outcome
from relayer.errors import Refused, StoreError, StoreUnavailable
from relayer.log.objects import LogPorts
from relayer.ports import T, WrappedStore
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore

LIMIT = 256_000
KEYS = RelayerKeys.derive(b"k" * 32)


@dataclass
class House:
    """A store, and as many processes as are asked for."""

    clock: FakeClock = field(default_factory=FakeClock)
    ports: LogPorts = field(init=False)
    store: RecordingStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = RecordingStore(MemoryStore(self.clock))
        self.ports = LogPorts(self.store, self.clock, SeededRandomness(1), KEYS)

    def process(self, **limits: int) -> Quotas:
        return Quotas(self.ports, Quota(**limits))

    async def stored(self, account: str = "account") -> Usage:
        return (await read_usage(self.ports, account)).usage


@pytest.fixture
def house() -> House:
    return House()


def promise(size: int) -> Operation:
    """An operation of a request that takes so many bytes."""
    return JobAccepted(Origin(b"author", bytes(16)), bytes(16), "work", sealed=bytes(size))


async def take(quotas: Quotas, size: int, account: str = "account") -> Callable[..., None]:
    return await quotas.take(account, [promise(size)])


async def fill(quotas: Quotas, size: int) -> int:
    """Write until the quota refuses, and return the bytes."""
    total = 0
    while True:
        try:
            (await take(quotas, size))([Outcome(OperationResult.STORED, 1)])
        except Refused:
            return total
        total += size


async def test_one_process_keeps_a_quota_to_the_byte(house):
    assert await fill(house.process(bytes=LIMIT), 100) == LIMIT


async def test_writes_that_come_at_once_keep_a_quota_to_the_byte(house):
    quotas = house.process(bytes=LIMIT)
    results = await asyncio.gather(*(take(quotas, 1000) for _ in range(300)), return_exceptions=True)
    assert sum(not isinstance(result, Refused) for result in results) == LIMIT // 1000


async def test_each_further_process_goes_beyond_a_quota_by_a_256th_at_most(house):
    processes = [house.process(bytes=LIMIT) for _ in range(5)]
    for quotas in processes:
        await take(quotas, 10)
    totals = [10 + await fill(quotas, 100) for quotas in processes]
    assert 0.99 * LIMIT < sum(totals) <= LIMIT + 4 * LIMIT // 256


async def test_a_process_that_dies_takes_a_256th_of_the_quota_with_it_at_most(house):
    for _ in range(5):
        dies = house.process(bytes=LIMIT)
        for _ in range(20):
            await take(dies, 300)
    assert 5 * 6000 - (await house.stored()).bytes <= 5 * LIMIT // 256


async def test_a_process_that_ends_loses_nothing(house):
    quotas = house.process(bytes=LIMIT)
    await take(quotas, 900)
    await quotas.close()
    assert (await house.stored()).bytes == 900


async def test_far_from_the_quota_a_write_asks_the_store_for_nothing(house):
    quotas = house.process(bytes=LIMIT)
    await take(quotas, 10)
    house.store.clear()
    for _ in range(50):
        await take(quotas, 10)
    assert not house.store.calls


async def test_what_was_counted_and_not_kept_is_taken_back(house):
    quotas = house.process(bytes=LIMIT)
    for outcomes in ([], [Outcome(OperationResult.REFUSED, 1)], [Outcome(OperationResult.DUPLICATE, 1)]):
        (await take(quotas, LIMIT))(outcomes)
    assert await fill(quotas, 1000) == LIMIT


async def test_where_one_limit_is_reached_the_others_cost_no_request(house):
    quotas = house.process(namespaces=1, bytes=LIMIT)
    (await quotas.take_namespace("account"))()
    house.store.clear()
    await take(quotas, 10)
    assert not house.store.calls
    with pytest.raises(Refused, match="1 namespaces"):
        await quotas.take_namespace("account")


async def test_what_does_not_open_is_counted_anew(house):
    quotas = house.process(bytes=LIMIT)
    await take(quotas, 10)
    await quotas.close()
    key = house.store.calls[-1].key
    seen = await house.store.get(key)
    await house.store.swap(key, b"damaged", seen.etag)
    assert (await read_usage(house.ports, "account")).usage == Usage()
    assert await write_usage(house.ports, "account", Usage(1, 2, 3), 0, "another etag") is None
    again = house.process(bytes=LIMIT)
    assert await fill(again, 1000) == LIMIT


async def test_two_processes_that_compare_at_the_same_time_correct_a_sum_once(house):
    wrong = house.process(bytes=LIMIT)
    (await take(wrong, 90_000))([Outcome(OperationResult.STORED, 1)])
    await wrong.close()
    # There is no namespace: the store holds nothing of what was counted.
    found = await asyncio.gather(*(house.process().used("account") for _ in range(3)))
    assert found == [Usage()] * 3
    assert await house.stored() == Usage()


class _Down(WrappedStore):
    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        raise StoreUnavailable("down")


async def test_a_store_that_is_down_is_told_to_the_caller_and_keeps_no_process_from_ending(house):
    ports = LogPorts(_Down(house.store), house.clock, SeededRandomness(1), KEYS)
    quotas = Quotas(ports, Quota(bytes=LIMIT))
    quotas.begin("account")
    await take(quotas, 10)
    with pytest.raises(StoreError):
        await take(quotas, LIMIT // 2)
    await quotas.close()


async def test_a_failed_comparison_is_told_and_comes_again_after_a_pause(house):
    ports = LogPorts(_Down(house.store), house.clock, SeededRandomness(1), KEYS)
    quotas, failures = Quotas(ports, Quota(bytes=LIMIT)), []
    house.process()
    for _ in range(3):
        quotas._compare_in(0.0, "account")
        pause = await quotas.task.round(failures.append)
        assert pause >= 1.0
    assert len(failures) == 1
    await house.clock.advance(16)
    await quotas.task.round(failures.append)
    assert len(failures) == 2


def test_memories_are_corrected_only_as_far_as_a_sum_cannot_be_right():
    counted = CountedUsage(Usage(2, 10, 5000), most_memories=25)
    assert counted.corrects(Usage(3, 20, 5500)) == Usage(-1, 0, -500)
    assert counted.corrects(Usage(2, 30, 5000)) == Usage(0, -5, 0)
    assert counted.corrects(Usage()) == Usage(2, 10, 5000)
