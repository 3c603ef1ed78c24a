"""Raising the format of manifests, tried with one that does not exist yet."""

from __future__ import annotations

import pytest

from relayer.admin.upgrade import upgrade_store
from relayer.domain import namespace
from relayer.errors import UpgradeRequired


@pytest.fixture
def next_version(monkeypatch):
    """Switches this process between the version to come and the present one."""

    def switch(number: int) -> None:
        monkeypatch.setattr(namespace, "MANIFEST_FORMAT", number)

    return switch


async def test_there_is_nothing_to_do_in_a_store_of_this_version(site):
    await site.say("a kettle")
    before = await site.everything()
    done = await upgrade_store(site.ports, apply=True)
    assert (done.raised, done.had, done.findings) == (0, 1, [])
    assert await site.everything() == before


async def test_the_next_version_raises_every_manifest_and_then_has_nothing_to_do(site, next_version):
    await site.say("a kettle")
    await site.say("a compass", agent="coder")
    next_version(2)
    assert (await upgrade_store(site.ports, apply=False)).raised == 2
    assert (await site.manifest()).format == 1
    assert (await upgrade_store(site.ports, apply=True)).raised == 2
    again = await upgrade_store(site.ports, apply=True)
    assert (again.raised, again.had) == (0, 2)
    assert await site.hears("kettle") == ["a kettle"]


async def test_this_version_refuses_what_the_next_one_raised_and_says_so(site, next_version):
    await site.say("a kettle")
    next_version(2)
    await upgrade_store(site.ports, apply=True)
    next_version(1)
    before = await site.everything()
    with pytest.raises(UpgradeRequired):
        await site.hears("kettle")
    with pytest.raises(UpgradeRequired):
        await site.say("another kettle")
    done = await upgrade_store(site.ports, apply=True)
    assert [item.flaw.value for item in done.findings] == ["newer_version"]
    assert await site.everything() == before


async def test_everything_else_in_a_manifest_stays_as_it_was(site, next_version):
    await site.say("a kettle", "another kettle")
    await site.compact()
    before = await site.manifest()
    next_version(2)
    await upgrade_store(site.ports, apply=True)
    after = await site.manifest()
    assert after.format == 2
    assert (after.segments, after.snap_seq, after.chain_digest) == (
        before.segments,
        before.snap_seq,
        before.chain_digest,
    )
