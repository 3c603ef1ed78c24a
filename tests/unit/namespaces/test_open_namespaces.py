"""What is open is shared, fresh, and given up for nobody else's trouble."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from doubles.stepping_store import SteppingStore
from index_world import opened_of

from relayer.errors import CorruptNamespace, WrongGeneration
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import OpenNamespaces
from relayer.ports import GetOutcome, ObjectStore
from relayer.testing.local_relayer import RecordingStore
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest

COFFEE = "I only drink oat milk coffee"


async def _remember(house, text=COFFEE, agent="researcher"):
    request = RememberRequest(items=[{"text": text}])
    return await house.call(remember, request, agent=agent)


async def _recall(house, query="oat milk coffee", **access):
    request = RecallRequest(query=query, floor=0)
    return await house.call(recall, request, access=house.access(**access))


@pytest.fixture
async def behind(house):
    """A second replica, of which every request to the store waits until the test lets it go."""
    store = SteppingStore(house.store)
    ports = replace(house.ctx.ports, store=store)
    namespaces = OpenNamespaces(ports, house.embedder.model, house.calibration)
    yield replace(house, store=store, ctx=replace(house.ctx, ports=ports, namespaces=namespaces))
    store.open_gates()
    await namespaces.close(1.0)


class _LateAnswers(RecordingStore):
    """Reads at once, and tells what was read when the test says."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read = asyncio.Event()
        self.tell = asyncio.Event()

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        found = await super().get(key, byte_range=byte_range, if_none_match=if_none_match)
        self.read.set()
        await self.tell.wait()
        return found


async def test_a_recall_finds_what_was_acknowledged_before_it_also_while_an_older_one_looks(house):
    store = _LateAnswers(house.store)
    ports = replace(house.ctx.ports, store=store)
    namespaces = OpenNamespaces(ports, house.embedder.model, house.calibration)
    other = replace(house, ctx=replace(house.ctx, ports=ports, namespaces=namespaces))
    older = asyncio.create_task(_recall(other))
    await store.read.wait()  # it has seen that there is no namespace
    await _remember(house)
    younger = asyncio.create_task(_recall(other))
    await asyncio.sleep(0)
    store.tell.set()
    assert [hit.text for hit in (await younger).memories] == [COFFEE]
    assert (await older).memories == ()
    await namespaces.close(1.0)


async def test_another_generation_fails_alone(house, behind):
    await _remember(house)
    secret = house.root.agent("researcher").namespace_secret("researcher", 0)
    wrong = asyncio.create_task(_recall(behind, generation=1, secret=secret))
    await behind.store.wait_for()
    right = asyncio.create_task(_recall(behind, secret=secret))
    behind.store.open_gates()
    with pytest.raises(WrongGeneration):
        await wrong
    assert [hit.text for hit in (await right).memories] == [COFFEE]


async def test_a_projection_that_failed_once_is_read_anew(house, monkeypatch):
    await _remember(house)
    opened = house.ctx.namespaces.peek(house.access().account, "researcher")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(opened.view.index, "put", fail)
    with pytest.raises(CorruptNamespace):
        await _remember(house, "I moved to Oslo")
    found = await _recall(house, "moved to Oslo")
    assert "I moved to Oslo" in [hit.text for hit in found.memories]


async def test_a_broken_namespace_does_not_keep_the_others_from_being_tended(house, monkeypatch):
    house.embedder.down = True
    await _remember(house, agent="broken")
    await _remember(house, agent="well")
    house.embedder.down = False
    broken, well = house.ctx.namespaces.all()

    async def refuse(_: object) -> None:
        raise CorruptNamespace("the log contradicts itself")

    monkeypatch.setattr(broken.log, "append", refuse)
    with pytest.raises(CorruptNamespace):
        await maintain(house.ctx)
    assert not well.view.space.lacking


async def test_whoever_waits_is_told_when_a_namespace_is_closed_before_its_indexing_began(house, monkeypatch):
    opened = await opened_of(house)
    closing: list[asyncio.Task[None]] = []

    async def at_once(_: float) -> None:
        pass

    def close(_: object) -> None:
        if not closing:
            closing.append(asyncio.create_task(opened.close()))

    monkeypatch.setattr(opened.log, "close", at_once)
    # Told before the view is, so that it closes before the task that indexes has taken its first step.
    opened.replica._subscribers.insert(0, (close, lambda _: None))
    request = RememberRequest(items=[{"text": f"tea of number {number}"} for number in range(30)])
    await house.call(remember, request)
    async with asyncio.timeout(5):
        with pytest.raises(CorruptNamespace):
            await opened.wait_indexed()
        await closing[0]
