"""A namespace that is opened from its stored index is the namespace that its log tells."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from index_world import answers, do_something, opened_of, write_index

from relayer.adapters.memory_store import MemoryStore
from relayer.domain.operations import FACETS, Erase, Forget, Origin
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import OpenNamespaces
from relayer.ports import Absent, EmbeddingModel, Found, GetOutcome
from relayer.testing.local_relayer import RecordingStore


class _WithoutIndexes(RecordingStore):
    """A store that has lost every index."""

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        if "/index/" in key:
            return Absent(0)
        return await super().get(key, byte_range=byte_range, if_none_match=if_none_match)


async def _index_keys(house) -> list[str]:
    return [info.key async for info in house.store.list("ns/") if "/index/" in info.key]


async def _change(house, key: str, data: bytes) -> None:
    await house.store.delete(key)
    await house.store.create(key, data)


async def _bytes_of(house, key: str) -> bytes:
    found = await house.store.get(key)
    assert isinstance(found, Found)
    return found.data


async def _stored_graphs(house) -> list[bytes]:
    """Return the shards of the graph that an index of the namespace would be stored with now."""
    view = (await opened_of(house)).view
    pinned = await view.pin()
    try:
        return list(map(bytes, (await pinned.index.parts()).dense.graphs))
    finally:
        view.unpin()


async def test_a_forgotten_memory_leaves_the_graph_in_the_stored_index_and_an_erased_one_takes_it_out(house):
    await house.put(*(f"harbour{number} kettle{number}" for number in range(40)))
    opened = await opened_of(house)
    await opened.wait_indexed()
    # A namespace of twenty thousand has its first graph.
    opened.view.index._dense._whole._crossover = 20
    await opened.tidy_indexes()
    [whole] = await _stored_graphs(house)
    forgotten, erased, *_ = opened.ids()
    row = opened.view.index.meaning(opened.view.table.numbers[erased]).row.astype("<f2").tobytes()
    assert row in whole
    await opened.log.append([Forget(Origin(b"author", house.randomness.bytes(16)), forgotten)])
    await opened.wait_indexed()
    assert await _stored_graphs(house) == [whole]
    await opened.log.append([Erase(Origin(b"author", house.randomness.bytes(16)), (erased,))])
    await opened.wait_indexed()
    assert not await _stored_graphs(house)
    await opened.tidy_indexes()
    [again] = await _stored_graphs(house)
    assert row not in again


@pytest.mark.row("MW-52")
@pytest.mark.parametrize("seed", range(16))
async def test_index_and_tail_answer_as_the_whole_log_does_scores_included(house, seed):
    rng = random.Random(seed)
    writer = await house.another(store=MemoryStore(house.clock))
    for _ in range(2):
        for _ in range(rng.randrange(1, 14)):
            await do_something(writer, rng)
        await write_index(writer)
    for _ in range(rng.randrange(5)):
        await do_something(writer, rng)
    by_index, by_log = (
        await house.another(store=writer.store),
        await house.another(store=_WithoutIndexes(writer.store)),
    )
    assert (await opened_of(by_index)).from_index > 0
    assert (await opened_of(by_log)).from_index == 0
    assert await answers(by_index, seed) == await answers(by_log, seed)
    for _ in range(4):
        await do_something(by_index, rng)
    assert await answers(by_index, seed) == await answers(by_log, seed)
    for one in (writer, by_index, by_log):
        await one.ctx.namespaces.close(1.0)


async def test_an_index_of_an_index_is_the_same_again(house):
    rng = random.Random(4)
    for _ in range(20):
        await do_something(house, rng)
    await write_index(house)
    second = await house.another()
    await do_something(second, rng)
    assert (await opened_of(second)).from_index > 0
    await write_index(second)
    third, by_log = await house.another(), await house.another(store=_WithoutIndexes(house.store))
    assert (await opened_of(third)).from_index == 21
    assert await answers(third, 1) == await answers(by_log, 1)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.6, 0.9, 0.999])
async def test_a_damaged_index_is_ignored_and_written_anew(house, share):
    await house.put("I drink oat milk coffee", "I moved to Oslo")
    await write_index(house)
    [key] = await _index_keys(house)
    data = bytearray(await _bytes_of(house, key))
    data[int(share * len(data))] ^= 1
    await _change(house, key, bytes(data))
    other = await house.another()
    assert (await other.found("coffee"))[0] == "I drink oat milk coffee"
    assert (await opened_of(other)).from_index == 0
    assert other.ctx.namespaces.ignored_indexes == 1
    await other.put("I play the piano")
    assert await write_index(other)
    assert (await opened_of(await house.another())).from_index > 0


async def test_an_index_of_another_model_is_ignored_and_replaced(house):
    await house.put("I drink oat milk coffee")
    await write_index(house)

    class _Other(type(house.embedder)):
        @property
        def model(self) -> EmbeddingModel:
            return EmbeddingModel("another", "ef" * 32, super().model.dimension)

    embedder = _Other()
    namespaces = OpenNamespaces(house.ctx.ports, embedder.model, house.calibration)
    other = replace(
        house, embedder=embedder, ctx=replace(house.ctx, embedder=embedder, namespaces=namespaces)
    )
    assert (await opened_of(other)).from_index == 0
    assert await other.found("coffee") == ["I drink oat milk coffee"]
    assert await write_index(other)
    assert (await opened_of(await house.another())).from_index == 0
    await namespaces.close(1.0)


async def test_an_index_that_lacks_a_facet_is_ignored_and_replaced(house, monkeypatch):
    await house.put("I drink oat milk coffee")
    await write_index(house)
    assert (await opened_of(await house.another())).from_index > 0
    monkeypatch.setitem(FACETS, "namespace", "namespace")
    other = await house.another()
    assert (await opened_of(other)).from_index == 0
    assert any(facet == "namespace" for facet, _, _ in (await opened_of(other)).view.table.parts(()).facets)
    await other.put("I play the piano")
    assert await write_index(other)
    assert (await opened_of(await house.another())).from_index > 0


async def test_an_index_shows_nothing_to_whoever_lacks_the_key(house):
    await house.put("canarytext of the harbour")
    await write_index(house)
    [key] = await _index_keys(house)
    data = await _bytes_of(house, key)
    opened = await opened_of(house)
    assert b"canarytext" not in data
    [rows] = (await opened.view.index.pin().parts()).dense.rows
    assert rows
    assert rows not in data


async def test_what_is_erased_is_not_in_the_next_index_and_not_in_memory(house):
    await house.put("the canarytext is blue", "I drink coffee")
    await write_index(house)
    other = await house.another()
    opened = await opened_of(other)
    assert opened.from_index > 0
    [erased] = [one.id for one in opened.memories() if one.record.text == "the canarytext is blue"]
    await opened.log.append([Erase(Origin(b"a", b"nonce"), (erased,))])
    assert opened.record(erased) is None
    assert await other.found("canarytext") == ["I drink coffee"]
    for block in opened.view.records.encoded_blocks(len(opened.view.table)):
        assert b"canarytext" not in block
    assert await write_index(other)
    third = await opened_of(await house.another())
    assert third.from_index > 0
    assert third.record(erased) is None


async def test_an_index_is_written_when_a_namespace_has_doubled_and_not_before(house):
    limits = IndexLimits(least=10, growth=2.0)
    keeper = IndexMaintenance(house.ctx, limits)
    written = []
    for number in range(1, 46):
        await house.put(f"note {number} about the harbour")
        if await keeper.keep(await opened_of(house)):
            written.append(number)
    assert written == [10, 20, 40]


async def test_once_nobody_writes_a_quarter_more_is_enough(house):
    keeper = IndexMaintenance(house.ctx, IndexLimits(least=4))
    await house.put(*(f"note {number} about the harbour" for number in range(40)))
    opened = await opened_of(house)
    assert await keeper.keep(opened)
    await house.put(*(f"note {number} about tea" for number in range(9)))
    await house.clock.advance(60)
    # Nobody knows yet since when it has been quiet.
    assert not await keeper.keep(opened)
    await house.clock.advance(60)
    assert not await keeper.keep(opened)
    await house.put("a tenth note")
    assert not await keeper.keep(opened)
    await house.clock.advance(9)
    assert not await keeper.keep(opened)
    await house.clock.advance(1)
    assert await keeper.keep(opened)
    await house.clock.advance(60)
    assert not await keeper.keep(opened)
    assert (await opened_of(await house.another())).records_ever == 50


async def test_a_small_namespace_gets_none(house):
    await house.put("one", "two", "three")
    assert not await IndexMaintenance(house.ctx).keep(await opened_of(house))
    assert await _index_keys(house) == []


async def test_another_relayer_knows_what_is_indexed_and_does_not_do_it_again(house):
    limits = IndexLimits(least=3, growth=2.0)
    await house.put("one", "two", "three", "four")
    assert await write_index(house, limits=limits)
    other = await house.another()
    await other.put("five")
    assert not await write_index(other, limits=limits)
    assert len(await _index_keys(house)) == 1


async def test_what_a_namespace_was_opened_from_is_not_asked_for_again(house):
    limits = IndexLimits(least=3, growth=2.0)
    await house.put("one", "two", "three", "four")
    assert await write_index(house, limits=limits)
    other = await house.another()
    opened = await opened_of(other)
    asked = RecordingStore(house.store)
    opened.log.replica.manifest._ports = replace(house.ctx.ports, store=asked)
    keeper = IndexMaintenance(other.ctx, limits)
    await other.put("five")
    assert not await keeper.keep(opened)
    assert asked.calls == []
    await other.put("six", "seven", "eight")
    assert await keeper.keep(opened)


async def test_a_failed_writing_is_not_tried_again_at_once(house):
    keeper = IndexMaintenance(house.ctx, IndexLimits(least=2, growth=2.0))
    await house.put("one", "two", "three")
    opened = await opened_of(house)

    class _Refusing(RecordingStore):
        async def create(self, key: str, data: bytes):
            if "/index/" in key:
                return await super().create("taken", data)
            return await super().create(key, data)

    store = _Refusing(house.store)
    await store.create("taken", b"")
    opened.log.indexes._ports = replace(house.ctx.ports, store=store)
    assert not await keeper.keep(opened)
    assert keeper.lost == 1
    assert not await keeper.keep(opened)
    assert keeper.lost == 1


@pytest.fixture
def small_turns(monkeypatch):
    """Work on the event loop gives others a turn at every step."""
    monkeypatch.setattr("relayer.lib.scheduler._SECONDS", 0.0)


@pytest.mark.usefixtures("small_turns")
async def test_what_is_remembered_while_an_index_is_written_is_recalled_before_that_is_done(house):
    await house.put(*(f"note {number} about tea" for number in range(70)))
    opened = await opened_of(house)
    seq = opened.position.seq
    writing = asyncio.create_task(opened.write_index())
    await asyncio.sleep(0)
    await house.put("the harbour froze")
    assert (await house.found("harbour froze"))[0] == "the harbour froze"
    assert not await _index_keys(house)
    assert (await writing).seq == seq
    other = await opened_of(await house.another())
    assert other.from_index == seq < other.position.seq


@pytest.mark.usefixtures("small_turns")
@pytest.mark.parametrize("seed", range(16))
async def test_an_index_is_of_the_moment_at_which_it_was_begun_whatever_happens_meanwhile(house, seed):
    rng = random.Random(seed)
    writer = await house.another(store=MemoryStore(house.clock))
    for again in (False, True):
        for _ in range(rng.randrange(4, 14)):
            await do_something(writer, rng)
        opened = await opened_of(writer)
        seq, writing = opened.position.seq, asyncio.create_task(opened.write_index())
        await asyncio.sleep(0)
        while not writing.done():
            await do_something(writer, rng, erases=False)
        assert (await writing).named
        assert opened.position.seq > seq
        by_index, by_log = (
            await house.another(store=writer.store),
            await house.another(store=_WithoutIndexes(writer.store)),
        )
        assert (await opened_of(by_index)).from_index == seq
        assert await answers(by_index, seed) == await answers(by_log, seed) == await answers(writer, seed)
        for one in (writer, by_log):
            await one.ctx.namespaces.close(1.0)
        # What came out of an index is written while it goes on, too.
        writer = by_index
        assert again or (await opened_of(writer)).from_index
    await writer.ctx.namespaces.close(1.0)


async def test_what_is_erased_while_an_index_is_written_is_in_none(house):
    class _Waiting(RecordingStore):
        async def create(self, key: str, data: bytes):
            if "/index/" in key:
                began.set()
                await erased.wait()
            return await super().create(key, data)

    began, erased = asyncio.Event(), asyncio.Event()
    other = await house.another(store=_Waiting(house.store))
    await other.put("the canarytext is blue", "I drink coffee")
    opened = await opened_of(other)
    [record] = [one.id for one in opened.memories() if "canarytext" in one.record.text]
    writing = asyncio.create_task(opened.write_index())
    await began.wait()
    await opened.log.append([Erase(Origin(b"a", b"nonce"), (record,))])
    erased.set()
    assert not (await writing).named
    assert not await _index_keys(house)


@pytest.mark.usefixtures("small_turns")
async def test_a_namespace_that_is_written_down_is_not_tended(house):
    house.embedder.down = True
    await house.put("the harbour froze")
    house.embedder.down = False
    opened = await opened_of(house)
    writing = asyncio.create_task(opened.write_index())
    await asyncio.sleep(0)
    await maintain(house.ctx)
    assert opened.view.space.lacking
    await writing
    await maintain(house.ctx)
    assert not opened.view.space.lacking


async def test_tending_looks_again_only_after_the_log_has_moved(house):
    await house.put("the harbour froze")
    opened = await opened_of(house)
    assert opened.needs_maintenance
    await maintain(house.ctx)
    assert not opened.needs_maintenance
    await house.put("the harbour thawed")
    assert opened.needs_maintenance
