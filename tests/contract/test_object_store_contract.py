"""What every object store does, whatever it is made of."""

from __future__ import annotations

import asyncio
import time

import pytest

from relayer.ports import (
    Absent,
    Changed,
    Created,
    Exists,
    Found,
    ObjectStore,
    Swapped,
    Throttled,
    Unchanged,
    Unknown,
)

KEY = "ns/0f/wal/00000000000000000001"
RACERS = 16


async def put(store: ObjectStore, key: str, data: bytes = b"data") -> Created:
    outcome = await store.create(key, data)
    assert isinstance(outcome, Created)
    return outcome


async def read(store: ObjectStore, key: str) -> bytes:
    outcome = await store.get(key)
    assert isinstance(outcome, Found)
    return outcome.data


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return sorted([info.key async for info in store.list(prefix)])


async def test_what_was_created_is_read(store: ObjectStore) -> None:
    await put(store, KEY, b"\x00\xff body")
    assert await read(store, KEY) == b"\x00\xff body"


async def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    await put(store, KEY, b"")
    assert await read(store, KEY) == b""


async def test_an_object_of_eight_mebibytes_comes_back_whole(store: ObjectStore) -> None:
    body = bytes(range(256)) * (8 * 4096)
    await put(store, KEY, body)
    assert await read(store, KEY) == body


async def test_what_was_never_written_is_absent(store: ObjectStore) -> None:
    assert isinstance(await store.get(KEY), Absent)


async def test_a_key_below_an_object_is_absent(store: ObjectStore) -> None:
    await put(store, "a/b")
    assert isinstance(await store.get("a/b/c"), Absent)


async def test_the_beginning_of_a_key_is_no_object(store: ObjectStore) -> None:
    await put(store, "a/b/c")
    assert isinstance(await store.get("a/b"), Absent)
    assert await store.versions("a/b") == 0


async def test_a_second_create_changes_nothing(store: ObjectStore) -> None:
    await put(store, KEY, b"first")
    assert isinstance(await store.create(KEY, b"second"), Exists)
    assert await read(store, KEY) == b"first"


async def test_create_answers_the_etag_that_a_read_gives(store: ObjectStore) -> None:
    created = await put(store, KEY)
    found = await store.get(KEY)
    assert isinstance(found, Found)
    assert found.etag == created.etag


async def test_swap_replaces_and_answers_the_new_etag(store: ObjectStore) -> None:
    created = await put(store, KEY, b"old")
    swapped = await store.swap(KEY, b"new", created.etag)
    assert isinstance(swapped, Swapped)
    found = await store.get(KEY)
    assert isinstance(found, Found)
    assert (found.data, found.etag) == (b"new", swapped.etag)
    assert swapped.etag != created.etag


async def test_swap_with_a_used_etag_changes_nothing(store: ObjectStore) -> None:
    created = await put(store, KEY, b"one")
    await store.swap(KEY, b"two", created.etag)
    assert isinstance(await store.swap(KEY, b"three", created.etag), Changed)
    assert await read(store, KEY) == b"two"


async def test_swap_of_an_absent_object_is_changed_and_creates_nothing(store: ObjectStore) -> None:
    created = await put(store, "other")
    assert isinstance(await store.swap(KEY, b"new", created.etag), Changed)
    assert isinstance(await store.get(KEY), Absent)


async def test_swap_after_a_deletion_is_changed(store: ObjectStore) -> None:
    created = await put(store, KEY)
    await store.delete(KEY)
    assert isinstance(await store.swap(KEY, b"new", created.etag), Changed)
    assert isinstance(await store.get(KEY), Absent)


async def test_a_deleted_object_is_absent_and_its_name_is_free(store: ObjectStore) -> None:
    await put(store, KEY, b"old")
    await store.delete(KEY)
    assert isinstance(await store.get(KEY), Absent)
    await put(store, KEY, b"new")
    assert await read(store, KEY) == b"new"


async def test_deleting_what_is_absent_is_fine(store: ObjectStore) -> None:
    await store.delete(KEY)
    await store.delete("nowhere")


@pytest.mark.parametrize(
    ("byte_range", "part"),
    [((0, 1), b"0"), ((2, 5), b"234"), ((0, 10), b"0123456789"), ((8, 99), b"89")],
)
async def test_a_range_is_half_open_and_cut_at_the_end(
    store: ObjectStore, byte_range: tuple[int, int], part: bytes
) -> None:
    created = await put(store, KEY, b"0123456789")
    found = await store.get(KEY, byte_range=byte_range)
    assert isinstance(found, Found)
    assert found.data == part
    assert found.etag in {created.etag, ""}
    known = await store.get(KEY, byte_range=byte_range, if_none_match=created.etag)
    assert isinstance(known, Unchanged)


async def test_a_range_of_an_absent_object_is_absent(store: ObjectStore) -> None:
    assert isinstance(await store.get(KEY, byte_range=(0, 4)), Absent)


@pytest.mark.parametrize("byte_range", [(3, 3), (4, 2), (-1, 2)])
async def test_an_impossible_range_is_refused(store: ObjectStore, byte_range: tuple[int, int]) -> None:
    await put(store, KEY)
    with pytest.raises(ValueError, match="byte range"):
        await store.get(KEY, byte_range=byte_range)


async def test_a_known_etag_is_unchanged_until_a_swap(store: ObjectStore) -> None:
    created = await put(store, KEY, b"one")
    assert isinstance(await store.get(KEY, if_none_match=created.etag), Unchanged)
    await store.swap(KEY, b"two", created.etag)
    found = await store.get(KEY, if_none_match=created.etag)
    assert isinstance(found, Found)
    assert found.data == b"two"


async def test_a_known_etag_of_an_absent_object_is_absent(store: ObjectStore) -> None:
    created = await put(store, KEY)
    await store.delete(KEY)
    assert isinstance(await store.get(KEY, if_none_match=created.etag), Absent)


async def test_a_listing_goes_by_the_beginning_of_the_key(store: ObjectStore) -> None:
    for key in ("ns/aa/wal/1", "ns/ab/wal/1", "ns/ab/wal/2", "ns/b", "other"):
        await put(store, key)
    assert await keys(store, "ns/a") == ["ns/aa/wal/1", "ns/ab/wal/1", "ns/ab/wal/2"]
    assert await keys(store, "ns/ab/") == ["ns/ab/wal/1", "ns/ab/wal/2"]
    assert await keys(store, "ns/ab/wal/2") == ["ns/ab/wal/2"]
    assert await keys(store, "ns/") == ["ns/aa/wal/1", "ns/ab/wal/1", "ns/ab/wal/2", "ns/b"]
    assert await keys(store, "nothing/here") == []


async def test_the_empty_prefix_lists_every_object_and_nothing_else(store: ObjectStore) -> None:
    created = await put(store, "a/b", b"1")
    await store.swap("a/b", b"2", created.etag)
    await put(store, "c", b"3")
    await store.delete("c")
    await put(store, "d")
    assert await keys(store, "") == ["a/b", "d"]


async def test_a_listing_tells_sizes_and_times(store: ObjectStore) -> None:
    created = await put(store, KEY, b"12345")
    [info] = [info async for info in store.list("ns/")]
    assert info.size == 5
    assert abs(info.modified - created.store_time) < 5_000


async def test_a_listing_survives_deletions_while_it_runs(store: ObjectStore) -> None:
    names = [f"ns/{number:02d}/manifest" for number in range(20)]
    for name in names:
        await put(store, name)
    seen = []
    async for info in store.list("ns/"):
        seen.append(info.key)
        for name in names:
            await store.delete(name)
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(names)


async def test_versions_and_purge_see_the_object_and_then_nothing(store: ObjectStore) -> None:
    assert await store.versions(KEY) == 0
    await put(store, KEY)
    assert await store.versions(KEY) >= 1
    assert await store.purge(KEY) >= 1
    assert await store.versions(KEY) == 0
    assert await store.purge(KEY) == 0
    assert isinstance(await store.get(KEY), Absent)


async def test_every_answer_carries_the_time(store: ObjectStore) -> None:
    before = time.time_ns() // 1_000_000 - 2_000  # S3 tells whole seconds
    created = await put(store, KEY)
    answers = [
        await store.get("absent"),
        created,
        await store.create(KEY, b""),
        await store.get(KEY),
        await store.get(KEY, if_none_match=created.etag),
        await store.swap(KEY, b"x", "0" * 64),
        await store.swap(KEY, b"y", created.etag),
    ]
    after = time.time_ns() // 1_000_000 + 2_000
    assert [type(answer) for answer in answers] == [
        Absent,
        Created,
        Exists,
        Found,
        Unchanged,
        Changed,
        Swapped,
    ]
    for answer in answers:
        assert not isinstance(answer, Unknown | Throttled)
        assert before <= answer.store_time <= after


@pytest.mark.parametrize(
    "key",
    ["", "/", "/a", "a/", "a//b", "A", "a.b", "../a", "a/../b", ".staging/x", "ä", "a b", "a\n", "a" * 256],
)
async def test_what_is_not_a_key_is_refused_by_every_operation(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        await store.get(key)
    with pytest.raises(ValueError, match="key"):
        await store.create(key, b"")
    with pytest.raises(ValueError, match="key"):
        await store.swap(key, b"", "0" * 64)
    with pytest.raises(ValueError, match="key"):
        await store.delete(key)
    with pytest.raises(ValueError, match="key"):
        await store.versions(key)
    with pytest.raises(ValueError, match="key"):
        await store.purge(key)


@pytest.mark.parametrize("prefix", ["/", "a//", "A", "..", "a/."])
async def test_what_no_key_can_begin_with_is_refused(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        await keys(store, prefix)


async def test_of_sixteen_creates_of_one_name_one_wins(raced_store: ObjectStore) -> None:
    for number in range(5):
        key = f"race/{number}"
        outcomes = await asyncio.gather(*(raced_store.create(key, b"%d" % racer) for racer in range(RACERS)))
        [winner] = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, Created)]
        assert all(isinstance(outcome, Created | Exists | Unknown | Throttled) for outcome in outcomes)
        assert await read(raced_store, key) == b"%d" % winner


async def test_of_sixteen_swaps_from_one_etag_one_wins(raced_store: ObjectStore) -> None:
    for number in range(5):
        key = f"race/{number}"
        first = await put(raced_store, key)
        outcomes = await asyncio.gather(
            *(raced_store.swap(key, b"%d" % racer, first.etag) for racer in range(RACERS))
        )
        [winner] = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, Swapped)]
        assert all(isinstance(outcome, Swapped | Changed | Unknown | Throttled) for outcome in outcomes)
        assert await read(raced_store, key) == b"%d" % winner


async def test_no_reader_sees_a_half_written_object(store: ObjectStore) -> None:
    size = 200_000
    etag = (await put(store, KEY, b"0" * size)).etag
    done = asyncio.Event()

    async def write() -> None:
        nonlocal etag
        for number in range(1, 10):
            swapped = await store.swap(KEY, b"%d" % number * size, etag)
            assert isinstance(swapped, Swapped)
            etag = swapped.etag
        done.set()

    async def watch() -> None:
        while not done.is_set():
            data = await read(store, KEY)
            assert data == data[:1] * size

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(watch())


async def test_the_store_says_where_it_is(store: ObjectStore) -> None:
    assert store.description
