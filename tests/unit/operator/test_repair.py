"""Repair: what exists anywhere is kept, what does not is named, and a second look finds nothing wrong."""

from __future__ import annotations

import pytest

from relayer.errors import CorruptNamespace
from relayer.log.objects import Layout
from relayer.operator.repair import repair_namespace
from relayer.operator.verify import verify_store

TEXTS = [
    f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green", "grey"))
]
QUERY = "kettle shelf"


async def mend(site):
    return await repair_namespace(site.ports, await site.listed(), apply=True)


async def collected(site):
    """Compact, and delete the slots as a collector would."""
    await site.compact()
    await site.drop(await site.wal())


async def test_a_dry_run_says_what_is_lost_and_changes_nothing(site):
    await site.say(*TEXTS)
    await site.flip((await site.wal())[1])
    before = await site.everything()
    plan = await repair_namespace(site.ports, await site.listed(), apply=False)
    assert plan.lost_entries == [2]
    assert not plan.done
    assert await site.everything() == before


@pytest.mark.parametrize("slot", [0, 1, 3])
async def test_a_lost_entry_takes_only_itself_along(site, slot):
    await site.say(*TEXTS)
    await site.flip((await site.wal())[slot])
    with pytest.raises(CorruptNamespace):
        await site.hears(QUERY)
    repair = await mend(site)
    assert repair.lost_entries == [slot + 1]
    assert await site.hears(QUERY) == sorted(text for text in TEXTS if text != TEXTS[slot])
    assert (await verify_store(site.ports)).sound


async def test_a_repaired_log_goes_on(site):
    await site.say(*TEXTS)
    await site.flip((await site.wal())[3])
    await mend(site)
    await site.say("the kettle is on a new shelf")
    assert "the kettle is on a new shelf" in await site.hears(QUERY)
    await site.compact()
    assert (await verify_store(site.ports)).sound


async def test_a_damaged_segment_is_rebuilt_from_its_slots_without_loss(site):
    await site.say(*TEXTS)
    await site.compact()
    key = (await site.manifest()).segments[0].key
    await site.drop([key])
    repair = await mend(site)
    assert repair.lost_entries == []
    assert await site.hears(QUERY) == sorted(TEXTS)
    assert (await verify_store(site.ports)).sound


async def test_a_segment_with_a_damaged_text_keeps_all_others(site):
    await site.say(*TEXTS)
    await collected(site)
    row = (await site.manifest()).segments[0]
    data = await site.bytes_of(row.key)
    await site.flip(row.key, 28 + int.from_bytes(data[4:12], "big") + 5)  # in the first text
    repair = await mend(site)
    assert (repair.lost_entries, repair.mendings[0].salvaged) == ([], 4)
    assert await site.hears(QUERY) == sorted(TEXTS[1:])
    assert (await verify_store(site.ports)).sound


async def test_a_segment_that_was_cut_short_keeps_the_texts_before_the_cut(site):
    await site.say(*TEXTS)
    await collected(site)
    row = (await site.manifest()).segments[0]
    data = await site.bytes_of(row.key)
    texts = 28 + int.from_bytes(data[4:12], "big")
    await site.replace(row.key, data[: texts + int.from_bytes(data[12:20], "big") // 2])
    await mend(site)
    assert set(await site.hears(QUERY)) <= set(TEXTS)
    assert (await verify_store(site.ports)).sound


async def test_a_segment_that_is_gone_leaves_its_place_empty(site):
    await site.say(*TEXTS[:2])
    await collected(site)
    await site.say(*TEXTS[2:])
    await site.drop([(await site.manifest()).segments[0].key])
    repair = await mend(site)
    assert repair.lost_entries == [1, 2]
    assert await site.hears(QUERY) == sorted(TEXTS[2:])
    assert (await verify_store(site.ports)).sound


async def test_two_damaged_segments_side_by_side_are_both_mended(site):
    for text in TEXTS:
        await site.say(text)
        await site.compact(most_small=16)
    rows = (await site.manifest()).segments
    assert len(rows) == 4
    await site.drop(await site.wal())
    await site.drop([rows[1].key, rows[2].key])
    repair = await mend(site)
    assert repair.lost_entries == [2, 3]
    assert await site.hears(QUERY) == sorted([TEXTS[0], TEXTS[3]])
    assert (await verify_store(site.ports)).sound


@pytest.mark.parametrize("gone", [True, False])
async def test_a_lost_manifest_is_made_anew_from_what_is_there(site, gone):
    await site.say(*TEXTS[:3])
    await collected(site)
    await site.say(TEXTS[3])
    key = Layout.manifest((await site.listed()).incarnation)
    await (site.drop([key]) if gone else site.flip(key))
    repair = await mend(site)
    assert (repair.manifest_rebuilt, repair.lost_entries) == (True, [])
    assert await site.hears(QUERY) == sorted(TEXTS)
    assert (await verify_store(site.ports)).sound


async def test_a_dry_run_says_what_would_be_lost_of_a_log_without_a_manifest_and_changes_nothing(site):
    await site.say(*TEXTS)
    await site.flip((await site.wal())[1])
    await site.drop([Layout.manifest((await site.listed()).incarnation)])
    before = await site.everything()
    plan = await repair_namespace(site.ports, await site.listed(), apply=False)
    assert (plan.manifest_rebuilt, plan.lost_entries, plan.done) == (True, [2], False)
    assert await site.everything() == before
    repair = await mend(site)
    assert (repair.lost_entries, repair.done) == ([2], True)
    assert await site.hears(QUERY) == sorted([TEXTS[0], *TEXTS[2:]])
    assert (await verify_store(site.ports)).sound


async def test_a_copy_of_what_was_damaged_stays_in_quarantine(site):
    await site.say(*TEXTS)
    await collected(site)
    key = (await site.manifest()).segments[0].key
    await site.flip(key)
    damaged = await site.bytes_of(key)
    repair = await mend(site)
    assert repair.quarantined == [key]
    copies = await site.keys("quarantine/")
    assert [await site.bytes_of(copy) for copy in copies] == [damaged]
    assert key not in await site.keys()


async def test_a_sound_namespace_is_left_alone(site):
    await site.say(*TEXTS)
    await site.compact(entries=2)
    before = await site.everything()
    assert not (await mend(site)).needed
    assert await site.everything() == before


async def test_a_lost_manifest_of_segments_alone_is_refused_until_it_is_made_anew(site):
    await site.say(*TEXTS)
    await site.compact()
    await site.collect()
    await site.drop([Layout.manifest((await site.listed()).incarnation)])
    with pytest.raises(CorruptNamespace, match="no manifest"):
        await site.hears(QUERY)
    with pytest.raises(CorruptNamespace, match="no manifest"):
        await site.say("the kettle that would have begun an empty log")
    repair = await repair_namespace(site.ports, await site.listed(), apply=True)
    assert (repair.manifest_rebuilt, repair.lost_entries) == (True, [])
    assert await site.hears(QUERY) == sorted(TEXTS)


async def test_what_is_behind_a_lost_segment_stays_when_the_manifest_is_lost_as_well(site):
    for text in TEXTS:
        await site.say(text)
        await site.compact()
    await site.collect()
    lost = (await site.manifest()).segments[1].key
    await site.drop([lost, Layout.manifest((await site.listed()).incarnation)])
    repair = await mend(site)
    assert (repair.manifest_rebuilt, repair.lost_entries) == (True, [2])
    assert await site.hears(QUERY) == sorted([TEXTS[0], *TEXTS[2:]])
    assert (await verify_store(site.ports)).sound
    await site.say("the kettle is on a new shelf")
    assert len(await site.hears(QUERY)) == len(TEXTS)
