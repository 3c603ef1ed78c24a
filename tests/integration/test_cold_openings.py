"""What a recall waits for when its namespace is not open: seen over HTTP, by a relayer that starts over a store with memories."""

from __future__ import annotations

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.testing.local_relayer import LocalRelayer, local_relayer
from relayer.testing.signing_gateway import SigningGateway


async def test_forty_memories_are_opened_from_an_index_and_not_one_by_one() -> None:
    store = MemoryStore(SystemClock())
    async with local_relayer(store, rate_limits="off") as first:
        await remember(first, 40)
        # What the scheduler runs every few seconds.
        await first.relayer.indexes.round(fail)
        position = (await recall(first, 7))["position"]
    async with local_relayer(store, rate_limits="off") as second:
        found = await recall(second, 7, gateway=first.gateway)
        metrics = (await second.http.get(second.url + "/metrics")).text
        entries = second.store.count("get", f"ns/{incarnation(second)}/wal/")
    assert found["memories"][0]["text"] == text(7)
    assert (found["position"], found["considered"]) == (position, 40)
    assert "memrelay_indexes_read_total 1.0" in metrics
    assert entries <= 2


async def remember(relayer: LocalRelayer, count: int) -> None:
    for number in range(count):
        answer = await relayer.call("POST", "/v1/memories", {"items": [{"text": text(number)}]})
        assert answer.status_code == 200, answer.text


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
