"""What every format wrote is read by this version, as it was; and this version writes no other than it says.

One of these failing means that users' stores would be misread. If a format was changed on purpose: give it a new number,
keep reading the old one, and write its bucket with tests/golden/generate.py. A golden bucket itself is never changed. What is
stored anew when it does not fit, an index, only needs a new number and a new bucket.
"""

from __future__ import annotations

import json

import pytest
from golden_site import (
    BUCKETS,
    HERE,
    NAMESPACES,
    SECRET,
    SESSION,
    WRITTEN_AT,
    backup_of,
    copied,
    hears,
    open_site,
    read,
    write_index,
)
from stored_fields import durable, stored_fields

from relayer.access.relayer_check import check_relayer_key
from relayer.adapters.directory_store import DirectoryStore
from relayer.admin.last_backup import last_backup
from relayer.admin.restore import restore
from relayer.admin.verify import verify_store
from relayer.domain.namespace import MANIFEST_FORMAT, Custody, PointerState
from relayer.domain.operations import ENTRY_VERSION
from relayer.log.index_file import model_tag
from relayer.log.segments import PAGE_FORMAT
from relayer.use_cases.transcripts import transcript
from relayer.wire.service import TranscriptRequest

NEWEST = BUCKETS[-1]
A_DAY = 86_400.0


@pytest.fixture(params=BUCKETS)
def bucket(request) -> str:
    return request.param


@pytest.fixture
async def site(bucket, tmp_path):
    made = await open_site(copied(bucket, tmp_path))
    yield made
    await made.close()
    await made.store.close()


def expected_of(bucket):
    return json.loads((HERE / bucket / "expected.json").read_text())


def fields_of(bucket):
    return json.loads((HERE / bucket / "fields.json").read_text())


def index_of(bucket):
    """The format of a bucket's index, empty without one."""
    return bucket.partition("-index-")[2].partition("-")[0]


async def said_of(site, bucket):
    """What the site holds, as far as the bucket's expectation asks."""
    said = await read(site)
    return {name: said[name] for name in expected_of(bucket)}


async def opened_from(site) -> int:
    access = site.access("researcher")
    async with site.relayer().namespaces.use(access, site.deadline(), create=False) as opened:
        assert opened.ignored == 0
        return opened.from_index


async def test_a_golden_bucket_says_what_it_said_when_it_was_written(site, bucket):
    assert await said_of(site, bucket) == expected_of(bucket)


async def test_a_golden_bucket_is_sound_inside_and_out(site):
    report = await verify_store(site.ports, secrets=[SECRET])
    assert report.sound
    live = [space for space in report.namespaces if space.listed.pointer.state is PointerState.LIVE]
    assert [space.inner_seals is not None for space in live] == [True] * len(NAMESPACES)


@pytest.mark.parametrize("restored", [False, True])
async def test_a_golden_dialogue_is_read_and_is_no_memory(restored, tmp_path):
    site = await open_site(tmp_path / "restored" if restored else copied(NEWEST, tmp_path))
    if restored:
        backup = await backup_of(site, copied(NEWEST, tmp_path, "backup"))
        assert not (await restore(backup, site.ports)).findings
        assert isinstance(backup.ports.store, DirectoryStore)
        await backup.ports.store.close()
        await check_relayer_key(site.ports)
    assert await opened_from(site)
    access = site.access("researcher")
    kept = await transcript(site.relayer(), access, TranscriptRequest(session=SESSION), site.deadline())
    assert [(line.role, line.text, line.id, line.call) for line in kept.lines] == [
        ("user", "I sold the kettle to my neighbour Ada.", "m1", False),
        ("assistant", "(called look_up)", "m1", True),
        ("assistant", "ok", "", False),
    ]
    assert kept.lines[2].occurred_at == WRITTEN_AT
    assert "" not in await hears(site, "researcher", Custody.AGENT)
    await site.close()
    await site.store.close()


async def test_a_golden_bucket_goes_on(site):
    before = await hears(site, "researcher", Custody.AGENT)
    site.clock.jump(A_DAY)
    await site.say("the kettle was sold to a fridge")
    await site.compact(entries=1)
    assert await hears(site, "researcher", Custody.AGENT) == sorted(
        [*before, "the kettle was sold to a fridge"]
    )


async def test_an_index_of_this_version_is_opened_and_one_of_another_version_is_ignored(site, bucket):
    manifest = await site.manifest("researcher")
    fits = manifest.index_model == model_tag(site.embedder.model)
    assert fits == (index_of(bucket) == index_of(NEWEST)), (
        "raise the format of indexes, or write the bucket of what is written now"
    )
    assert await opened_from(site) == (manifest.index_seq if fits else 0)


async def test_an_index_is_written_anew_where_none_fits_and_says_the_same(site, bucket):
    site.clock.jump(A_DAY)
    if index_of(bucket) == index_of(NEWEST):
        await site.say("the index was one entry behind")
    before = await read(site)
    assert await write_index(site)
    assert await opened_from(site) == before["researcher"]["position"]["seq"]
    assert await read(site) == before


@pytest.mark.parametrize("bucket", [one for one in BUCKETS if (HERE / one / "backup").exists()])
async def test_a_golden_backup_restores_what_its_bucket_says(bucket, tmp_path):
    site = await open_site(tmp_path / "restored")
    backup = await backup_of(site, copied(bucket, tmp_path, "backup"))
    assert not (await restore(backup, site.ports)).findings
    await check_relayer_key(site.ports)
    said, wanted = await said_of(site, bucket), expected_of(bucket)
    for name in NAMESPACES:
        assert said[name]["memories"] == wanted[name]["memories"]
        assert said[name]["erased"] == wanted[name]["erased"]
    await site.close()
    for store in (site.store, backup.ports.store):
        assert isinstance(store, DirectoryStore)
        await store.close()


async def test_when_a_golden_bucket_was_backed_up_can_be_told(site, bucket):
    noted = BUCKETS.index(bucket) >= BUCKETS.index("format-1-index-4-backups")
    assert bool(await last_backup(site.ports)) is noted


def test_the_newest_golden_bucket_is_of_the_formats_that_are_written():
    assert NEWEST.startswith(f"format-{MANIFEST_FORMAT}-")
    assert (ENTRY_VERSION, PAGE_FORMAT) == (1, 1), (
        "a new version of entries or segments needs a golden bucket"
    )


def test_the_newest_golden_bucket_knows_every_stored_field():
    assert fields_of(NEWEST) == stored_fields(), (
        "something new is stored: write its bucket with tests/golden/generate.py"
    )


def test_stored_fields_keep_their_place_and_new_ones_have_defaults(bucket):
    frozen, now = durable(fields_of(bucket)), stored_fields()
    assert frozen.keys() <= now.keys(), "a stored type is gone or has another name"
    for name, fields in frozen.items():
        assert now[name][: len(fields)] == fields, f"{name}: fields that are stored have changed"
        added = now[name][len(fields) :]
        assert all(default != "required" for _, _, default in added), f"{name}: a new field needs a default"
