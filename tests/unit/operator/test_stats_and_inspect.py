"""What is counted is what is there, and what is shown says nothing of what was said."""

from __future__ import annotations

import pytest
from operator_site import ROOT

from relayer.log.objects import Layout
from relayer.operator.catalogue import ObjectKind, read_catalogue
from relayer.operator.inspect import (
    Traffic,
    describe_key,
    describe_namespace,
    lines_of,
    measure,
    parse_traffic,
)
from relayer.testing.local_relayer import RecordingStore
from relayer.use_cases.erase import erase_namespace
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import EraseNamespaceRequest, RecallRequest, RememberRequest

TEXTS = [f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green"))]


async def test_everything_in_a_store_is_counted_once(site):
    await site.say(*TEXTS)
    stats = await measure(site.ports)
    there = await site.everything()
    assert stats.total.objects == len(there)
    assert stats.total.bytes == sum(map(len, there.values()))
    assert (stats.accounts, stats.namespaces, stats.entries, stats.tail_entries) == (1, 1, 3, 3)
    assert ObjectKind.OTHER.value not in stats.kinds


async def test_entries_that_a_segment_holds_as_well_are_garbage(site):
    await site.say(*TEXTS)
    sizes = [len(await site.bytes_of(key)) for key in await site.wal()]
    await site.compact(entries=3)
    await site.say("one more kettle")
    stats = await measure(site.ports)
    assert (stats.tail_entries, stats.segments) == (1, 1)
    assert (stats.garbage.covered_slots.objects, stats.garbage.covered_slots.bytes) == (3, sum(sizes))
    await site.collect()
    assert (await measure(site.ports)).garbage.covered_slots.objects == 0


async def test_a_segment_that_nobody_names_is_garbage(site):
    await site.say(*TEXTS)
    await site.compact()
    await site.store.create((await site.manifest()).segments[0].key[:-1] + "0", b"12345")
    stats = await measure(site.ports)
    assert (stats.garbage.unnamed.objects, stats.garbage.unnamed.bytes) == (1, 5)


async def test_an_erased_namespace_is_no_manifest_that_cannot_be_read(site):
    await site.say(*TEXTS)
    ctx, access = site.relayer(), site.access("researcher")
    counted = await erase_namespace(ctx, access, EraseNamespaceRequest(), site.deadline())
    confirmed = EraseNamespaceRequest(dry_run=False, confirm=counted.confirm)
    await erase_namespace(ctx, access, confirmed, site.deadline())
    assert (await measure(site.ports)).unread_manifests == 0


async def test_a_manifest_that_is_damaged_is_counted(site):
    await site.say(*TEXTS)
    await site.flip(Layout.manifest((await site.listed()).incarnation))
    assert (await measure(site.ports)).unread_manifests == 1


@pytest.mark.parametrize("what", ["write", "recall"])
async def test_a_warm_relayer_makes_one_store_request_for_a_write_or_a_recall(site, what):
    counted = site.over(RecordingStore(site.store))
    context, access = counted.relayer(), counted.access("researcher")

    async def ask():
        if what == "write":
            request = RememberRequest(items=[{"text": "a kettle"}])
            await remember(context, counted.access("researcher"), request, site.deadline())
        else:
            await recall(context, access, RecallRequest(query="kettle"), site.deadline())

    await remember(context, access, RememberRequest(items=[{"text": "first"}]), site.deadline())
    counted.store.clear()
    await ask()
    expected = Traffic(writes=1, reads=0) if what == "write" else Traffic(writes=0, reads=1)
    asked = Traffic(counted.store.count("create") + counted.store.count("swap"), counted.store.count("get"))
    assert asked == expected


def test_traffic_is_read_from_a_relayers_metrics():
    metrics = """# TYPE memrelay_store_requests counter
memrelay_store_requests_total{call="create",end="created"} 10.0
memrelay_store_requests_total{call="get",end="found"} 4.0
memrelay_store_requests_total{call="get",end="absent"} 26.0
memrelay_store_requests_total{call="delete",end="done"} 99.0
memrelay_http_requests_total{code="ok",method="POST",route="/v1/remember",status="200"} 10.0
memrelay_http_requests_total{code="ok",method="POST",route="/v1/recall",status="200"} 10.0
memrelay_http_requests_total{code="ok",method="GET",route="/health",status="200"} 500.0
"""
    traffic = parse_traffic(metrics)
    assert traffic == Traffic(writes=0.5, reads=1.5)
    assert parse_traffic("") is None


async def test_a_namespace_is_described_without_a_word_of_it(site):
    ids = await site.say(*TEXTS)
    await site.forget(ids[0])
    await site.erase(ids[1])
    await site.compact(entries=4)
    lines = dict(lines_of(await describe_namespace(site.ports, await site.listed())))
    assert lines["memories"] == "1 forgotten, 1 live"
    assert lines["erased"] == "1"
    assert lines["entries"].startswith("5 (5 of them in segments)")
    assert lines["account"] == ROOT.account
    assert not any(word in " ".join(lines.values()) for text in TEXTS for word in ("kettle", text))


async def test_every_object_of_a_store_can_be_described(site):
    await site.say(*TEXTS)
    await site.compact(entries=2)
    await site.say("one more")
    catalogue = await read_catalogue(site.ports)
    for key in await site.keys():
        facts = await describe_key(site.ports, catalogue, key)
        assert facts is not None
        shown = dict(lines_of(facts))
        assert shown["kind"] != "other"
        assert "problem" not in shown
        assert "kettle" not in str(facts)
    newest = dict(lines_of(await describe_key(site.ports, catalogue, (await site.wal())[-1]) or []))
    assert (newest["seq"], newest["operations"]) == ("4", "1 put")


async def test_a_damaged_object_is_described_as_far_as_it_goes(site):
    await site.say(*TEXTS)
    key = (await site.wal())[0]
    await site.flip(key)
    lines = dict(lines_of(await describe_key(site.ports, await read_catalogue(site.ports), key) or []))
    assert "does not open" in lines["problem"]
    assert lines["kind"] == "entry"


async def test_nothing_is_said_of_an_object_that_is_not_there(site):
    await site.say(*TEXTS)
    absent = Layout.entry(bytes(16), 1)
    assert await describe_key(site.ports, await read_catalogue(site.ports), absent) is None
