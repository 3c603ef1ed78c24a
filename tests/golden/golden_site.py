"""Write and open the golden bucket, with fixed keys and an embedder that needs no model."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
from doubles.seeded_randomness import SeededRandomness
from operator_site import ROOT, Site
from stored_fields import stored_fields

from relayer.access.store_keys import FleetKeys
from relayer.adapters.directory_store import DirectoryStore
from relayer.domain.namespace import Custody
from relayer.domain.operations import (
    EXTRACT,
    JobAccepted,
    JobFinished,
    Origin,
    Stored,
    Supersede,
    encode_stored,
)
from relayer.jobs import JobInput, JobLine, seal_input
from relayer.log.collector import GRACE_MS
from relayer.log.erasure import ErasureReports
from relayer.log.objects import Layout, LogPorts
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.maintenance.open_namespaces import maintain
from relayer.operator.backup import back_up
from relayer.operator.backup_store import BackupStore
from relayer.operator.probe import stamp
from relayer.search.baseline import calibrate
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases.capture import analyze
from relayer.use_cases.erase import erase_memory, erase_namespace
from relayer.use_cases.lifecycle import restore
from relayer.use_cases.memories import list_memories
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire import codec as ulid
from relayer.wire.fields import Audience, Role
from relayer.wire.schemas import (
    AnalyzeRequest,
    EraseNamespaceRequest,
    RecallRequest,
    RememberRequest,
    TurnItem,
)

BUCKET = Path(__file__).parent / "format-1"
NAMESPACES = {"researcher": Custody.AGENT, "notes": Custody.RELAYER}
SECRET = ROOT.agent("researcher").secret
SESSION = "agent:main:one"
LONG_NOTE = " ".join(
    f"On day {day} the wind came from the {one} side." for day in range(12) for one in ("north", "sea")
)
WRITTEN_AT = 1_700_000_000_000
OWN = (".staging", ".locks")


async def open_site(folder: Path, seed: int = 6) -> Site:
    """Open a store, by default with another seed than `write` has, whose nonces are in the log. Skip the test of the file system."""
    clock = FakeClock(WRITTEN_AT)
    store = await DirectoryStore.open(folder, clock=clock, tried=True)
    return Site(clock, store, await calibrate(HashingEmbedder()), SeededRandomness(seed))


async def write(folder: Path) -> None:
    """Make a bucket that holds every kind of object and operation of this version's format."""
    site = await open_site(folder, seed=5)
    await site.begin()
    ids = await site.say(*(f"the kettle number {number} stands on shelf {number}" for number in range(8)))
    await site.forget(ids[2])
    await site.erase(ids[3])
    await site.compact(entries=1, full_bytes=8192)
    await supersede(site, ids[4], "the kettle number 4 stands in the cellar now")
    await site.compact(entries=1, full_bytes=8192)
    await site.collect()
    site.embedder.down = True
    await site.say("the ladder leans on the barn")
    site.embedder.down = False
    await site.say(LONG_NOTE)  # its passages get their vectors later
    await embed_later(site)
    site.embedder.down = True
    await site.say("a compass needs no battery")  # without a vector, and with a job for it
    site.embedder.down = False
    await site.say("the tide is out at six")
    access = site.access("notes", Custody.RELAYER)
    request = RememberRequest(
        items=[
            {
                "text": "the gate code is on the fridge",
                "kind": "fact",
                "audience": "direct",
                "ttl_seconds": 3600,
                "occurred_at": WRITTEN_AT,
                "lang": "en",
                "source": {"host": "openclaw", "session": "s1", "speaker": "Ada", "message_ids": ["m1"]},
            },
            {"text": "the fridge is in the hall", "context_of": None},
        ],
        idempotency_key="golden-1",
    )
    await remember(site.relayer(), access, request, site.deadline())
    await restore_one(site, ids[5])
    await promise_facts(site)
    await erase_to_the_end(site, ids[6])
    await erase_a_namespace(site)
    assert await write_index(site)
    await site.say("the lighthouse was painted in May", "the ferry leaves at noon")
    await erase_memory(site.relayer(), site.access("researcher"), ids[7], site.deadline())
    await keep_a_turn(site)
    assert await write_index(site)
    await site.say("the ferry was late again")
    await FleetKeys(site.ports).start()
    await site.close()
    await site.store.close()


async def keep_a_turn(site: Site) -> None:
    """Keep a turn word for word."""
    request = AnalyzeRequest(
        turns=(
            TurnItem(role="user", text="I sold the kettle to my neighbour Ada.", id="m1", calls=("look_up",)),
            TurnItem(role="assistant", text="ok", occurred_at=WRITTEN_AT),
        ),
        session=SESSION,
        store_transcript=True,
        idempotency_key="golden-2",
    )
    await analyze(site.relayer(), site.access("researcher"), request, site.deadline())


async def supersede(site: Site, old: str, text: str) -> None:
    """Replace a memory by the sealed text of another one, as a job's result does."""
    access = site.access("researcher")
    fresh = (await site.say(text))[0]
    async with site.relayer().namespaces.use(access, site.deadline(), create=False) as opened:
        record = opened.record(ulid.parse(fresh))
        assert record is not None
        new = msgspec.structs.replace(record, id=ulid.make(WRITTEN_AT, b"superseding"[:10]), text=f"{text}!")
        keys = opened.keys
        stored = Stored(
            new.id,
            keys.content_mac(new.text),
            keys.seal_record(new.id, encode_stored(new), salt=site.randomness.bytes(32)),
            created_at=WRITTEN_AT,
        )
        origin = Origin(access.principal.author, access.principal.nonce)
        assert (await opened.log.append([Supersede(origin, ulid.parse(old), stored)]))[0].refusal is None


async def embed_later(site: Site) -> None:
    """Keep the promise of vectors for what was said while there was no embedder."""
    context = site.relayer()
    async with context.namespaces.use(site.access("researcher"), site.deadline(), create=False) as opened:
        await maintain(context)
        assert not opened.view.space.lacking


async def restore_one(site: Site, memory: str) -> None:
    await site.forget(memory)
    await restore(site.relayer(), site.access("researcher"), memory, site.deadline())


async def promise_facts(site: Site) -> None:
    """Promise facts of two messages: one promise is kept, with nothing found, the other is still to be."""
    context, access = site.relayer(), site.access("researcher")
    origin = Origin(access.principal.author, access.principal.nonce)
    line = JobLine(Role.USER, "the lighthouse keeper is called Ines", WRITTEN_AT, "Ada", "m2")
    given = JobInput((line,), Audience.DIRECT, "openclaw", "researcher", "s1", access.principal.author)
    async with context.namespaces.use(access, site.deadline(), create=False) as opened:
        for index, letter in enumerate((b"k", b"p")):
            job = ulid.make(WRITTEN_AT, letter * 10)
            sealed = seal_input(context, opened, job, given)
            promise = JobAccepted(msgspec.structs.replace(origin, index=index), job, EXTRACT, (), sealed)
            assert (await opened.log.append([promise]))[0].refusal is None
        kept = JobFinished(ulid.make(WRITTEN_AT, b"k" * 10), reason="nothing to keep")
        assert (await opened.log.append([kept]))[0].refusal is None


async def erase_to_the_end(site: Site, memory: str) -> None:
    """Erase a memory and see to it that this is confirmed."""
    context = site.relayer()
    await erase_memory(context, site.access("researcher"), memory, site.deadline())
    while await ErasureReports(site.ports).pending():
        site.clock.jump(GRACE_MS / 1000)
        await site.clock.advance(3600)
        await context.erasures.round(_raise)


async def erase_a_namespace(site: Site) -> None:
    access = site.access("scratch")
    await site.say("this was for a day only", agent="scratch")
    context = site.relayer()
    asked = await erase_namespace(context, access, EraseNamespaceRequest(dry_run=True), site.deadline())
    request = EraseNamespaceRequest(dry_run=False, confirm=asked.confirm)
    await erase_namespace(context, site.access("scratch"), request, site.deadline())


async def write_index(site: Site) -> bool:
    """Write an index of what is there now; says whether the manifest names it."""
    context = site.relayer()
    keeper = IndexMaintenance(context, IndexLimits(least=1, growth=1.0))
    async with context.namespaces.use(site.access("researcher"), site.deadline(), create=False) as opened:
        return await keeper.keep(opened)


def _raise(error: BaseException) -> None:
    raise error


async def backup_of(site: Site, folder: Path) -> BackupStore:
    """Open a backup in a folder, of this site's store or for it."""
    store = await DirectoryStore.open(folder, clock=site.clock, tried=True)
    return BackupStore(LogPorts(store, site.clock, site.randomness, site.ports.keys))


async def read(site: Site) -> dict[str, Any]:
    """Say everything that a bucket holds, as its users see it."""
    seen: dict[str, Any] = {}
    for name, custody in NAMESPACES.items():
        context, access = site.relayer(), site.access(name, custody)
        listed = await list_memories(
            context,
            access,
            limit=100,
            cursor=None,
            kinds=(),
            states=("live", "superseded", "forgotten"),
            deadline=site.deadline(),
        )
        manifest = await site.manifest(name)
        async with context.namespaces.use(access, site.deadline(), create=False) as opened:
            state = opened.log.state
            jobs = sorted(f"{job.work} {job.state}" for job in state.jobs.values())
            seen[name] = {
                "memories": sorted(
                    f"{item.state} {item.kind} {item.audience} {item.text}" for item in listed.memories
                ),
                "jobs": jobs,
                "erased": [ulid.render(record) for record in sorted(state.erased)],
                "position": {"seq": state.position.seq, "digest": state.position.digest.hex()},
                "segments": [[row.first_seq, row.last_seq] for row in manifest.segments],
                "without_vector": len(opened.view.space.lacking),
            }
        seen[name]["recalled"] = await hears(site, name, custody)
    reports = ErasureReports(site.ports)
    found = [await reports.read(key) for key in await site.ports.keys_below("eras")]
    seen["erasures"] = sorted(
        f"{one.report.namespace} {one.report.what} {one.report.stage}" for one in found if one is not None
    )
    return seen


async def hears(site: Site, name: str, custody: Custody) -> list[str]:
    query = "kettle shelf compass tide fridge gate code"
    request = RecallRequest(query=query, limit=50, floor=0.0)
    answer = await recall(site.relayer(), site.access(name, custody), request, site.deadline())
    return sorted(hit.text for hit in answer.memories)


def copied(folder: Path, part: str = "objects") -> Path:
    """Copy the golden bucket, or its backup, to where it may be written to."""
    target = folder / part
    shutil.copytree(BUCKET / part, target)
    return target


def generate() -> None:
    """Replace the golden bucket, its backup and its two listings by what this version writes."""
    shutil.rmtree(BUCKET, ignore_errors=True)
    BUCKET.mkdir()

    async def work() -> None:
        await write(BUCKET / "objects")
        site = await open_site(BUCKET / "objects")
        seen = await read(site)
        (BUCKET / "expected.json").write_text(json.dumps(seen, indent=2, sort_keys=True) + "\n")
        backup = await backup_of(site, BUCKET / "backup")
        assert not (await back_up(site.ports, backup)).findings
        await stamp(site.ports, Layout.backed_up())
        await backup.ports.store.close()
        await site.close()
        await site.store.close()

    asyncio.run(work())
    for part in ("objects", "backup"):
        for own in OWN:
            shutil.rmtree(BUCKET / part / own, ignore_errors=True)
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in stored_fields().items()]
    (BUCKET / "fields.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
