"""A bucket that is in the repository is read as it was when it was written.

If one of these tests fails, the stored format has changed. If that was meant: keep docs/format.md true and run
tests/golden/generate.py.
"""

from __future__ import annotations

import json

import pytest
from golden_site import (
    BUCKET,
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
from stored_fields import stored_fields

from relayer.access.store_keys import probe
from relayer.adapters.directory_store import DirectoryStore
from relayer.domain.namespace import MANIFEST_FORMAT, Custody, PointerState
from relayer.domain.operations import ENTRY_VERSION
from relayer.log.index_file import model_tag
from relayer.log.segments import PAGE_FORMAT
from relayer.operator.probe import last_backup
from relayer.operator.restore import restore
from relayer.operator.verify import verify_store
from relayer.use_cases.transcripts import transcript
from relayer.wire.service import TranscriptRequest

A_DAY = 86_400.0
EXPECTED = json.loads((BUCKET / "expected.json").read_text())


@pytest.fixture
async def site(tmp_path):
    made = await open_site(copied(tmp_path))
    yield made
    await made.close()
    await made.store.close()


async def opened_from(site) -> int:
    access = site.access("researcher")
    async with site.relayer().namespaces.use(access, site.deadline(), create=False) as opened:
        assert opened.ignored == 0
        return opened.from_index


async def test_a_golden_bucket_says_what_it_said_when_it_was_written(site):
    assert await read(site) == EXPECTED


async def test_a_golden_bucket_is_sound_inside_and_out(site):
    report = await verify_store(site.ports, secrets=[SECRET])
    assert report.sound
    live = [space for space in report.namespaces if space.listed.pointer.state is PointerState.LIVE]
    assert [space.inner_seals is not None for space in live] == [True] * len(NAMESPACES)


@pytest.mark.parametrize("restored", [False, True])
async def test_a_golden_dialogue_is_read_and_is_no_memory(restored, tmp_path):
    site = await open_site(tmp_path / "restored" if restored else copied(tmp_path))
    if restored:
        backup = await backup_of(site, copied(tmp_path, "backup"))
        assert not (await restore(backup, site.ports)).findings
        assert isinstance(backup.ports.store, DirectoryStore)
        await backup.ports.store.close()
        await probe(site.ports)
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


async def test_a_golden_index_is_opened(site):
    manifest = await site.manifest("researcher")
    assert manifest.index_model == model_tag(site.embedder.model)
    assert await opened_from(site) == manifest.index_seq > 0


async def test_an_index_is_written_again_and_says_the_same(site):
    site.clock.jump(A_DAY)
    await site.say("the index was one entry behind")
    before = await read(site)
    assert await write_index(site)
    assert await opened_from(site) == before["researcher"]["position"]["seq"]
    assert await read(site) == before


async def test_a_golden_backup_restores_what_its_bucket_says(tmp_path):
    site = await open_site(tmp_path / "restored")
    backup = await backup_of(site, copied(tmp_path, "backup"))
    assert not (await restore(backup, site.ports)).findings
    await probe(site.ports)
    said = await read(site)
    for name in NAMESPACES:
        assert said[name]["memories"] == EXPECTED[name]["memories"]
        assert said[name]["erased"] == EXPECTED[name]["erased"]
    await site.close()
    for store in (site.store, backup.ports.store):
        assert isinstance(store, DirectoryStore)
        await store.close()


async def test_a_golden_bucket_says_when_it_was_backed_up(site):
    assert await last_backup(site.ports)


def test_a_golden_bucket_is_of_the_formats_that_are_written():
    assert BUCKET.name == f"format-{MANIFEST_FORMAT}"
    assert (ENTRY_VERSION, PAGE_FORMAT) == (1, 1)


def test_a_golden_bucket_has_every_stored_field():
    assert json.loads((BUCKET / "fields.json").read_text()) == stored_fields(), (
        "what is stored has changed: run tests/golden/generate.py"
    )
