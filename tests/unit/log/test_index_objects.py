"""A stored index is found where the manifest names it, and never stands in the way of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from doubles.stepping_store import Fate
from log_world import ACCOUNT, World, compact, ends, manifest_in, plain, put

from relayer.domain.namespace import LogPosition, Manifest
from relayer.domain.operations import Erase, Origin
from relayer.domain.snapshot import write_state
from relayer.errors import CorruptNamespace, RelayerError
from relayer.log import index_file as index_reader
from relayer.log.index_file import IndexBuilder, IndexObjects, Part, model_tag
from relayer.log.namespace_log import Committer
from relayer.log.replica import Replica, StartingState
from relayer.ports import EmbeddingModel, Found, ObjectStore
from relayer.testing.local_relayer import RecordingStore

MODEL = EmbeddingModel("model", "ab" * 32, 8)
OTHER = EmbeddingModel("other", "cd" * 32, 8)
BLOCKS = [b"view one", b"view two" * 100]
TEXTS = [b"texts"]


def indexes(world: World, replica: Replica, store: ObjectStore | None = None) -> IndexObjects:
    return IndexObjects(world.ports(store), ACCOUNT, replica)


def draft(indexed: IndexObjects, replica: Replica) -> IndexBuilder:
    builder = indexed.begin(MODEL)
    for page in write_state(replica.state):
        builder.add_page(page)
    for block in BLOCKS:
        builder.add(Part.VIEW, block)
    for block in TEXTS:
        builder.add(Part.TEXTS, block)
    return builder


async def write(world: World, replica: Replica, store: ObjectStore | None = None) -> bool:
    indexed = indexes(world, replica, store)
    builder = draft(indexed, replica)
    return await indexed.publish(builder, MODEL, builder.finish(), len(replica.state.erased))


async def indexed_log(world: World) -> tuple[Replica, Committer]:
    """Return the writer of a log of one entry with a stored index."""
    replica, committer = await world.writer()
    await committer.submit([put()])
    assert await write(world, replica)
    return replica, committer


async def keys(world: World) -> list[str]:
    return sorted([info.key async for info in world.memory.list("ns/") if "/index/" in info.key])


async def change(world: World, key: str, made_of: Callable[[bytes], bytes]) -> None:
    """Put other bytes in the place of an object, made of its own."""
    found = await world.memory.get(key)
    assert isinstance(found, Found)
    await world.memory.delete(key)
    await world.memory.create(key, made_of(found.data))


async def read(
    indexed: IndexObjects, manifest: Manifest
) -> tuple[StartingState, list[bytes], list[bytes]] | None:
    reader = await indexed.open(manifest, MODEL)
    if reader is None:
        return None
    try:
        start = await reader.state()
        view = [block async for block in reader.blocks(Part.VIEW)]
        return start, view, [block async for block in reader.blocks(Part.TEXTS)]
    finally:
        await reader.close()


class Beginning:
    """Begins with the stored index, as a service does that has no view to restore."""

    def __init__(self, world: World, store: ObjectStore | None = None) -> None:
        self.ports = world.ports(store)
        self.begun = 0
        self.replica = Replica(self.ports, ACCOUNT, world.incarnation, self._begin)
        self._indexes = IndexObjects(self.ports, ACCOUNT, self.replica)

    async def _begin(self, manifest: Manifest) -> StartingState | None:
        found = await read(self._indexes, manifest)
        self.begun = 0 if found is None else found[0].state.position.seq
        return None if found is None else found[0]


async def test_what_was_written_is_read_with_its_state_and_its_blocks(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put("one"), put("two")])
    await committer.submit([put("three")])
    assert await write(world, replica)
    found = await read(indexes(world, replica), await manifest_in(world))
    assert found is not None
    start, view, texts = found
    assert start.state == replica.state
    assert list(start.positions) == replica.positions()
    assert (view, texts) == (BLOCKS, TEXTS)


async def test_a_log_begun_with_an_index_goes_on_with_segments_and_slots(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put("indexed")])
    assert await write(world, replica)
    await committer.submit([put("in a segment")])
    await compact(world, replica)
    await committer.submit([put("in a slot")])
    begun = Beginning(world)
    await begun.replica.reload()
    assert begun.begun == 1
    assert begun.replica.state == replica.state == await plain(world)
    assert [begun.replica.digest_at(seq) for seq in range(4)] == [replica.digest_at(seq) for seq in range(4)]


async def test_an_index_above_the_segments_is_begun_with(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put("in a segment")])
    await compact(world, replica)
    await committer.submit([put("in a slot")])
    assert await write(world, replica)
    begun = Beginning(world)
    await begun.replica.reload()
    assert begun.begun == 2
    assert begun.replica.state == replica.state


async def test_an_index_of_another_model_is_none(world: World) -> None:
    replica, _ = await indexed_log(world)
    manifest, indexed = await manifest_in(world), indexes(world, replica)
    assert await indexed.open(manifest, OTHER) is None
    assert await indexed.indexed(MODEL) == 1
    assert await indexed.indexed(OTHER) == 0


async def test_an_index_that_is_absent_is_none(world: World) -> None:
    replica, _ = await indexed_log(world)
    for key in await keys(world):
        await world.memory.delete(key)
    assert await indexes(world, replica).open(await manifest_in(world), MODEL) is None


@pytest.mark.parametrize("at", [0, 5, 12, 40, 130, 700, -1])
async def test_a_changed_byte_is_noticed_unless_the_view_has_to_notice_it(world: World, at: int) -> None:
    replica, _ = await indexed_log(world)
    [key] = await keys(world)

    def flipped(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[len(data[:at]) + 1 :]

    await change(world, key, flipped)
    indexed, manifest = indexes(world, replica), await manifest_in(world)
    if at == -1:  # the last block of texts is sealed under a key that the log has not
        again = await read(indexed, manifest)
        assert again is not None
        assert again[2] != TEXTS
    else:
        with pytest.raises(CorruptNamespace):
            await read(indexed, manifest)


@pytest.mark.parametrize("left", [0, 3, 20, 400])
async def test_an_index_that_was_cut_short_is_noticed(world: World, left: int) -> None:
    replica, _ = await indexed_log(world)
    [key] = await keys(world)
    await change(world, key, lambda data: data[:left])
    with pytest.raises(CorruptNamespace):
        await read(indexes(world, replica), await manifest_in(world))


async def test_an_index_in_the_place_of_another_is_noticed(world: World) -> None:
    replica, committer = await indexed_log(world)
    [older] = await keys(world)
    await committer.submit([put()])
    await write(world, replica)
    [newer] = [key for key in await keys(world) if key != older]
    found = await world.memory.get(older)
    assert isinstance(found, Found)
    await world.memory.delete(newer)
    await world.memory.create(newer, found.data)
    with pytest.raises(CorruptNamespace):
        await read(indexes(world, replica), await manifest_in(world))


async def test_a_large_index_is_read_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_reader, "FIRST_BYTES", 64)
    monkeypatch.setattr(index_reader, "PIECE_BYTES", 100)
    replica, committer = await world.writer()
    await committer.submit([put("one"), put("two")])
    await write(world, replica)
    store = RecordingStore(world.memory)
    found = await read(indexes(world, replica, store), await manifest_in(world))
    assert found is not None
    assert found[0].state == replica.state
    assert found[1:] == (BLOCKS, TEXTS)
    assert len(store.calls) > 10


async def test_of_two_indexes_the_one_that_goes_further_stays(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    indexed = indexes(world, replica)
    older = draft(indexed, replica)
    await committer.submit([put()])
    assert await write(world, replica)
    assert not await indexed.publish(older, MODEL, older.finish(), 0)
    assert (await manifest_in(world)).index_seq == 2


async def test_an_index_takes_the_place_of_one_of_another_model(world: World) -> None:
    replica, _ = await indexed_log(world)
    indexed = indexes(world, replica)
    other = indexed.begin(OTHER)
    for page in write_state(replica.state):
        other.add_page(page)
    assert await indexed.publish(other, OTHER, other.finish(), 0)
    assert (await manifest_in(world)).index_model == model_tag(OTHER)


async def test_an_index_made_before_a_compaction_is_named_after_it(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])
    indexed = indexes(world, replica)
    builder = draft(indexed, replica)
    await compact(world, replica)
    assert await indexed.publish(builder, MODEL, builder.finish(), 0)
    manifest = await manifest_in(world)
    assert (manifest.index_seq, manifest.snap_seq) == (1, 1)


async def test_an_index_that_holds_what_was_erased_meanwhile_is_taken_back(world: World) -> None:
    replica, committer = await world.writer()
    memory = put("secret")
    await committer.submit([memory])
    indexed = indexes(world, replica)
    builder = draft(indexed, replica)
    # By another relayer: this one learns of it on the way.
    _other, elsewhere = await world.writer()
    await elsewhere.submit([Erase(Origin(b"a", b"n"), (memory.stored.record,))])
    assert not await indexed.publish(builder, MODEL, builder.finish(), 0)
    assert await keys(world) == []
    assert (await manifest_in(world)).index_key == ""


async def _interrupted(world: World, after: int, fate: Fate | None) -> int:
    """Write an index of which request number ``after`` goes wrong, or the process dies there; return how many there were."""
    store, gated = await world.gated()
    writing = asyncio.create_task(write(world, gated, store))
    count = 0
    while not await ends(writing):
        if count == after and fate is None:
            writing.cancel()
            break
        await store.step(0, fate if count == after and fate is not None else Fate.PROCEED)
        count += 1
    await asyncio.gather(writing, return_exceptions=True)
    store.open_gates()
    while store.delayed:
        await store.apply_delayed()
    return count


@pytest.mark.parametrize("fate", [None, *Fate])
@pytest.mark.parametrize("after", range(5))
async def test_whatever_goes_wrong_while_an_index_is_written_the_log_says_the_same(
    world: World, after: int, fate: Fate | None
) -> None:
    replica, committer = await world.writer()
    await committer.submit([put("one"), put("two")])
    await _interrupted(world, after, fate)
    await committer.submit([put("three")])
    begun = Beginning(world)
    await begun.replica.reload()
    assert begun.replica.state == replica.state
    assert begun.begun in {0, 1}
    # And it can be written again.
    await replica.catch_up()
    assert await write(world, replica)
    again = Beginning(world)
    await again.replica.reload()
    assert again.begun == 2
    assert again.replica.state == replica.state


async def test_what_is_begun_with_must_belong_to_the_log(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([put()])

    async def begin(_: Manifest) -> StartingState:
        return StartingState(await plain(world), [LogPosition(1, b"another")])

    await compact(world, replica)
    begun = Replica(world.ports(), ACCOUNT, replica.incarnation, begin)
    with pytest.raises(RelayerError):
        await begun.reload()
