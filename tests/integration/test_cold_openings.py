"""What a recall waits for when its namespace is not open: seen over HTTP, by a relayer that starts over a store with memories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from doubles.set_clocks import AheadClock

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreUnavailable
from relayer.ports import ObjectStore, T, WrappedStore
from relayer.testing.local_relayer import LocalRelayer, SigningGateway, local_relayer


async def test_forty_memories_are_opened_from_an_index_and_not_one_by_one() -> None:
    store = MemoryStore(SystemClock())
    async with local_relayer(store, rate_limits="off") as first:
        await remember(first, 40)
        await indexed(first)
        position = (await recall(first, 7))["position"]
    async with local_relayer(store, rate_limits="off") as second:
        found = await recall(second, 7, gateway=first.gateway)
        metrics = (await second.http.get(second.url + "/metrics")).text
        entries = second.store.count("get", f"ns/{incarnation(second)}/wal/")
    assert found["memories"][0]["text"] == text(7)
    assert (found["position"], found["considered"]) == (position, 40)
    assert "memrelay_indexes_read_total 1.0" in metrics
    assert entries == 1


async def test_what_was_written_last_is_in_an_index_as_well_when_nobody_writes_any_more() -> None:
    store = MemoryStore(SystemClock())
    clock = AheadClock()
    async with local_relayer(store, clock, rate_limits="off") as first:
        await remember(first, 40)
        await indexed(first)
        await remember(first, 32, start=40)
        await first.relayer.indexes.round(fail)
        assert first.relayer.indexes.written == 1
        clock.ahead += 15
        await indexed(first, 2)
    async with local_relayer(store, rate_limits="off") as second:
        assert (await recall(second, 71, gateway=first.gateway))["considered"] == 72
        assert len([call for call in second.store.calls if "/wal/" in call.key]) == 1


class Meeting(WrappedStore):
    """Answers reads of some parts of a namespace only when somebody waits for each of them."""

    def __init__(self, inner: ObjectStore, *parts: str) -> None:
        super().__init__(inner)
        self._parts = parts
        self._waiting: set[str] = set()
        self._all = asyncio.Event()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        found = [part for part in self._parts if part in key]
        if operation == "get" and found:
            self._waiting.update(found)
            if len(self._waiting) == len(self._parts):
                self._all.set()
            await self._all.wait()
        return await ask()


async def test_what_a_manifest_names_is_asked_for_at_once() -> None:
    store = MemoryStore(SystemClock())
    async with local_relayer(store, rate_limits="off", compact_entries=2) as first:
        await remember(first, 40)
        await indexed(first)
        for number in range(40, 44):
            await remember(first, 1, start=number)
        async with asyncio.timeout(30):
            while not first.relayer.upkeep.counts["segments"]:
                await first.relayer.upkeep.round(fail)
        await remember(first, 1, start=44)
    meeting = Meeting(store, "/keyring", "/index/", "/seg/", "/wal/")
    async with local_relayer(meeting, rate_limits="off") as second:
        found = await recall(second, 41, gateway=first.gateway)
    assert found["memories"][0]["text"] == text(41)
    assert found["considered"] == 45


async def test_a_recall_that_opens_a_namespace_looks_for_the_next_entry_once() -> None:
    store = MemoryStore(SystemClock())
    async with local_relayer(store, rate_limits="off") as first:
        await remember(first, 40)
        await indexed(first)
    async with local_relayer(store, rate_limits="off") as second:
        await recall(second, 7, gateway=first.gateway)
        slots = [call.key for call in second.store.calls if "/wal/" in call.key]
        assert len(slots) == 1
        # A later one looks again: somebody else may have written meanwhile.
        await recall(second, 7)
        assert [call.key for call in second.store.calls if "/wal/" in call.key] == slots * 2


class Gate(WrappedStore):
    """Holds reads of some keys back until it is opened."""

    def __init__(self, inner: ObjectStore, held: str) -> None:
        super().__init__(inner)
        self._held = held
        self.opened, self.looked = asyncio.Event(), asyncio.Event()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        if operation == "get" and self._held in key:
            await self.opened.wait()
        answer = await ask()
        if "/wal/" in key:
            self.looked.set()
        return answer


@pytest.mark.parametrize("held", ["/keyring", "/index/"])
async def test_who_comes_while_another_request_opens_sees_what_was_written_before_it_came(held: str) -> None:
    store = MemoryStore(SystemClock())
    gate = Gate(store, held)
    async with (
        local_relayer(store, rate_limits="off") as first,
        local_relayer(gate, rate_limits="off") as second,
    ):
        await remember(first, 40)
        await indexed(first)
        opening = asyncio.create_task(recall(second, 7, gateway=first.gateway))
        # The opening has looked for the next entry by now, and found none.
        await gate.looked.wait()
        await remember(first, 1, start=40)
        later = asyncio.create_task(recall(second, 40))
        assert not (await asyncio.wait([later], timeout=0.1))[0]
        gate.opened.set()
        assert (await opening)["considered"] in {40, 41}
        assert (await later)["considered"] == 41


@pytest.mark.parametrize("lost", ["/index/", "/keyring", "/wal/"])
async def test_an_opening_fails_with_what_it_reads_ahead_and_the_next_one_does_not(lost: str) -> None:
    store = MemoryStore(SystemClock())
    async with local_relayer(store, rate_limits="off") as first:
        await remember(first, 40)
        await indexed(first)
    failing = Failing(store, lost)
    async with local_relayer(failing, rate_limits="off") as second:
        second.gateway = first.gateway
        answer = await second.call("POST", "/v1/recall", {"query": text(7), "floor": 0})
        assert answer.status_code == 503, answer.text
        failing.lost = ""
        assert (await recall(second, 7))["considered"] == 40


class Failing(WrappedStore):
    """Does not answer reads of some keys."""

    def __init__(self, inner: ObjectStore, lost: str) -> None:
        super().__init__(inner)
        self.lost = lost

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        if self.lost and operation == "get" and self.lost in key:
            raise StoreUnavailable("no answer")
        return await ask()


async def remember(relayer: LocalRelayer, count: int, *, start: int = 0) -> None:
    """Store memories in one entry: the scheduler, which runs as well, finds none of them or all."""
    items = [{"text": text(number)} for number in range(start, start + count)]
    answer = await relayer.call("POST", "/v1/memories", {"items": items})
    assert answer.status_code == 200, answer.text


async def indexed(relayer: LocalRelayer, written: int = 1) -> None:
    """Wait for indexes that are due; the scheduler, which looks every few seconds, may be at it already."""
    async with asyncio.timeout(30):
        while relayer.relayer.indexes.written < written:
            await relayer.relayer.indexes.round(fail)
            await asyncio.sleep(0)


async def recall(
    relayer: LocalRelayer, number: int, *, gateway: SigningGateway | None = None
) -> dict[str, object]:
    """Ask for one of the memories; as ``gateway``, whose sealed key is made for this relayer."""
    relayer.gateway = gateway or relayer.gateway
    answer = await relayer.call("POST", "/v1/recall", {"query": text(number), "floor": 0})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(number: int) -> str:
    return f"Locker {number} in the harbour office holds the papers of boat {number * 7}."


def incarnation(relayer: LocalRelayer) -> str:
    """Whose log was read, as keys of the store have it."""
    (found,) = {call.key.split("/")[1] for call in relayer.store.calls if call.key.startswith("ns/")}
    return found


def fail(error: BaseException) -> None:
    raise error
