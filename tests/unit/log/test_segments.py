"""What a segment is refused for."""

import hashlib

import msgspec
import pytest
from doubles.faulty_store import Faults, FaultyStore
from log_world import ACCOUNT, OTHER_ACCOUNT, World, compact, manifest_in, put, write_manifest

from relayer.domain.namespace import Manifest, SegmentRow
from relayer.domain.operations import ENTRY_VERSION, Entry, encode_stored
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.log.objects import Layout, LinkedEntry, ObjectSealer, PartSealer
from relayer.log.segments import PAGE_BYTES, PackBuilder, open_pack, pack_place, windows
from relayer.ports import Found

Compacted = tuple[World, Manifest, bytes]


@pytest.fixture
async def compacted(world: World) -> Compacted:
    """A log of two segments, its manifest, and the bytes of the first."""
    replica, committer = await world.writer()
    for _ in range(2):
        await committer.submit([put(size=100), put()])
        await compact(world, replica)
    manifest = await manifest_in(world)
    found = await world.memory.get(manifest.segments[0].key)
    assert isinstance(found, Found)
    return world, manifest, found.data


async def load(world: World) -> None:
    await world.replica().reload()


async def replace(world: World, manifest: Manifest, data: bytes) -> None:
    """Put other bytes in place of the first segment, and let the manifest name them."""
    row = manifest.segments[0]
    await world.memory.delete(row.key)
    await world.memory.create(row.key, data)
    named = msgspec.structs.replace(row, digest=hashlib.sha256(data).digest(), size=len(data))
    await write_manifest(world, msgspec.structs.replace(manifest, segments=(named, *manifest.segments[1:])))


async def test_other_bytes_than_the_manifest_names_are_refused(compacted: Compacted) -> None:
    world, manifest, data = compacted
    row = manifest.segments[0]
    await world.memory.delete(row.key)
    await world.memory.create(row.key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptNamespace, match="other bytes"):
        await load(world)


async def test_an_answer_that_was_cut_short_is_asked_for_once_more(compacted: Compacted) -> None:
    world, _, _ = compacted
    broken = 0
    for seed in range(30):
        store = FaultyStore(world.memory, clock=world.clock, seed=seed, faults=Faults(truncated=0.2))
        try:
            await world.replica(store).reload()
        except CorruptNamespace:
            broken += 1  # cut short twice in a row
    assert broken < 10


@pytest.mark.parametrize("cut", [0, 10, 27, 28, 40, -1])
async def test_a_segment_that_is_too_short_is_refused(compacted: Compacted, cut: int) -> None:
    world, manifest, data = compacted
    await replace(world, manifest, data[:cut])
    with pytest.raises(CorruptNamespace):
        await load(world)


@pytest.mark.parametrize("at", [0, 4, 28, 60, 140])
async def test_a_changed_header_or_directory_is_refused(compacted: Compacted, at: int) -> None:
    world, manifest, data = compacted
    await replace(world, manifest, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(CorruptNamespace):
        await load(world)


async def test_a_segment_does_not_open_in_the_place_of_another(compacted: Compacted) -> None:
    world, manifest, _ = compacted
    found = await world.memory.get(manifest.segments[1].key)
    assert isinstance(found, Found)
    await replace(world, manifest, found.data)
    with pytest.raises(CorruptNamespace, match="does not open in its place"):
        await load(world)


def pack(world: World, account: str, key: str, *entries: Entry) -> bytes:
    builder = PackBuilder()
    for entry in entries:
        builder.add(LinkedEntry(entry, b"d%d" % entry.seq), entry.operations)
    return builder.finish(place(world, account, key))


def place(world: World, account: str, key: str) -> PartSealer:
    return pack_place(ObjectSealer(world.ports()), account, world.incarnation, key)


def entry(seq: int, size: int = 10) -> Entry:
    previous = b"d%d" % (seq - 1)
    return Entry(ENTRY_VERSION, seq, previous, b"", b"", seq, (encode_stored(put(size=size)), b""))


async def test_a_segment_of_another_account_does_not_open(compacted: Compacted) -> None:
    world, manifest, _ = compacted
    await replace(world, manifest, pack(world, OTHER_ACCOUNT, manifest.segments[0].key, entry(1)))
    with pytest.raises(CorruptNamespace, match="does not open in its place"):
        await load(world)


@pytest.mark.parametrize("seqs", [(2,), (1, 2), (), (1, 3)])
async def test_a_segment_with_other_entries_than_its_row_says_is_refused(
    compacted: Compacted, seqs: tuple[int, ...]
) -> None:
    world, manifest, _ = compacted
    key = manifest.segments[0].key
    await replace(world, manifest, pack(world, ACCOUNT, key, *map(entry, seqs)))
    with pytest.raises(CorruptNamespace):
        await load(world)


async def test_entries_that_do_not_follow_each_other_are_refused(compacted: Compacted) -> None:
    world, manifest, _ = compacted
    key = manifest.segments[0].key
    await replace(world, manifest, pack(world, ACCOUNT, key, entry(1)))
    with pytest.raises(CorruptNamespace, match="does not follow"):
        await load(world)


@pytest.mark.parametrize(
    "change",
    [{"snap_seq": 3}, {"snap_seq": 1}, {"gc_watermark": 3}, {"chain_digest": b"d" * 32}, {"segments": ()}],
    ids=lambda change: next(iter(change)),
)
async def test_a_manifest_whose_segments_do_not_lead_where_it_says_is_refused(
    compacted: Compacted, change: dict[str, object]
) -> None:
    world, manifest, _ = compacted
    await write_manifest(world, msgspec.structs.replace(manifest, **change))
    with pytest.raises(CorruptNamespace):
        await load(world)


async def test_a_gap_between_segments_is_refused(compacted: Compacted) -> None:
    world, manifest, _ = compacted
    await write_manifest(world, msgspec.structs.replace(manifest, segments=manifest.segments[1:]))
    with pytest.raises(CorruptNamespace, match="gap at entry 1"):
        await load(world)


async def test_i12_a_segment_of_a_newer_format_asks_for_an_upgrade(
    compacted: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, manifest, _ = compacted
    with monkeypatch.context() as newer:
        newer.setattr("relayer.log.segments.PAGE_FORMAT", 2)
        data = pack(world, ACCOUNT, manifest.segments[0].key, entry(1))
    await replace(world, manifest, data)
    with pytest.raises(UpgradeRequired):
        await load(world)


async def test_a_large_segment_has_several_pages_and_texts_lie_apart_from_vectors(world: World) -> None:
    count = 3 * PAGE_BYTES // 200
    data = pack(world, "a", "key", *(entry(seq) for seq in range(1, count)))
    opened = list(open_pack(data, place(world, "a", "key")))
    assert [linked.entry.seq for linked in opened] == list(range(1, count))
    assert b"x" * 10 * (count - 1) in data
    assert data.count(b"MRL1") > 2


def test_few_bytes_are_read_at_the_same_time_and_few_segments() -> None:
    def rows(*sizes: int) -> list[SegmentRow]:
        return [SegmentRow(1, 1, str(number), b"", size, 0) for number, size in enumerate(sizes)]

    assert [len(window) for window in windows(rows(*[1] * 40))] == [16, 16, 8]
    assert [len(window) for window in windows(rows(20 << 20, 20 << 20, 99 << 20, 1))] == [1, 1, 1, 1]
    assert list(windows([])) == []


def test_keys_of_segments_are_in_the_order_of_the_log() -> None:
    first, second = (Layout.segment(b"i" * 16, seq, b"u" * 16) for seq in (9, 10))
    assert first < second
    assert first.startswith(Layout.segments(b"i" * 16))
