"""A bucket that keeps versions: conditions hold as in any other, and what is purged is gone with all of them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
from s3_servers import S3Server

from relayer.adapters.s3_store import S3Store
from relayer.adapters.system import SystemClock
from relayer.log.collector import discard
from relayer.ports import Absent, Changed, Created, Exists, Swapped

KEY = "ns/0f/manifest"
pytestmark = pytest.mark.tier("all")


@pytest.fixture(params=["seaweed", "moto_server"])
async def store(request: pytest.FixtureRequest, s3_credentials: None) -> AsyncIterator[S3Store]:
    server: S3Server = request.getfixturevalue(request.param)
    bucket = f"versioned-{secrets.token_hex(4)}"
    server.admin.create_bucket(Bucket=bucket)
    server.admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = await S3Store.open(bucket, clock=SystemClock(), endpoint_url=server.url)
    yield store
    await store.close()


async def test_older_versions_and_markers_are_counted_and_purged(store: S3Store) -> None:
    created = await store.create(KEY, b"one")
    assert isinstance(created, Created)
    swapped = await store.swap(KEY, b"two", created.etag)
    assert isinstance(swapped, Swapped)
    assert isinstance(await store.swap(KEY, b"three", created.etag), Changed)
    assert isinstance(await store.create(KEY, b"four"), Exists)
    assert isinstance(await store.create(f"{KEY}-2", b"another name"), Created)
    assert await store.versions(KEY) == 2
    await store.delete(KEY)
    assert isinstance(await store.get(KEY), Absent)
    assert [info.key async for info in store.list("ns/")] == [f"{KEY}-2"]
    assert await store.versions(KEY) == 3

    assert await store.purge(KEY) == 3
    assert await store.versions(KEY) == 0
    assert isinstance(await store.get(KEY), Absent)
    assert await store.versions(f"{KEY}-2") == 1
    assert isinstance(await store.create(KEY, b"five"), Created)


async def test_a_name_under_a_delete_marker_is_free(store: S3Store) -> None:
    await store.create("ns/0f/wal/1", b"one")
    await store.delete("ns/0f/wal/1")
    assert isinstance(await store.create("ns/0f/wal/1", b"two"), Created)


async def test_what_a_collection_discards_leaves_no_version(store: S3Store) -> None:
    keys = [f"ns/0f/wal/{number}" for number in range(7)]
    for key in keys:
        await store.create(key, b"an entry")
    created = await store.create(KEY, b"one")
    assert isinstance(created, Created)
    await store.swap(KEY, b"two", created.etag)
    await discard(store, keys, KEY)
    assert [await store.versions(key) for key in keys] == [0] * 7
    assert await store.versions(KEY) == 2


async def test_two_prefixes_of_a_bucket_are_two_stores(moto_server: S3Server, s3_credentials: None) -> None:
    bucket = f"shared-{secrets.token_hex(4)}"
    moto_server.admin.create_bucket(Bucket=bucket)
    stores = [
        await S3Store.open(bucket, prefix=prefix, clock=SystemClock(), endpoint_url=moto_server.url)
        for prefix in ("", "other", "other/deeper")
    ]
    for store in stores[1:]:
        assert isinstance(await store.create(KEY, b"mine"), Created)
    assert [[info.key async for info in store.list("ns/")] for store in stores] == [[], [KEY], [KEY]]
    assert isinstance(await stores[0].get(KEY), Absent)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("prefix", ["/", "a/", "/a", "A", "a//b", "a b"])
async def test_a_prefix_that_is_no_key_is_refused(prefix: str, s3_credentials: None) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        await S3Store.open("memories", prefix=prefix, clock=SystemClock(), endpoint_url="http://127.0.0.1:1")
