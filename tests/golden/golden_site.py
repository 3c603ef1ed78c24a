"""What the golden buckets were written by, and how one is opened: fixed keys, an embedder without a model."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
from operator_site import ROOT, Site

from relayer.adapters.directory_store import DirectoryStore
from relayer.domain.namespace import Custody
from relayer.domain.operations import Origin, Stored, Supersede
from relayer.domain.record import encode_record
from relayer.search.calibration import calibrate
from relayer.services.memories import list_memories
from relayer.services.recall import recall
from relayer.services.remember import remember
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.wire import ulid
from relayer.wire.schemas import RecallRequest, RememberRequest

HERE = Path(__file__).parent
NAMESPACES = {"researcher": Custody.AGENT, "notes": Custody.RELAYER}
SECRET = ROOT.agent("researcher").secret
WRITTEN_AT = 1_700_000_000_000
OWN = (".staging", ".locks")


async def open_site(folder: Path, now_ms: int = WRITTEN_AT) -> Site:
    clock = FakeClock(now_ms)
    store = await DirectoryStore.open(folder, clock=clock)
    return Site(clock, store, await calibrate(HashingEmbedder()))


async def write(folder: Path) -> None:
    """Make a bucket that holds every kind of object and operation of this version's format."""
    site = await open_site(folder)
    await site.begin()
    ids = await site.say(*(f"the kettle number {number} stands on shelf {number}" for number in range(8)))
    await site.forget(ids[2])
    await site.erase(ids[3])
    await site.compact(entries=1, full_bytes=8192)
    await supersede(site, ids[4], "the kettle number 4 stands in the cellar now")
    await site.compact(entries=1, full_bytes=8192)
    await site.collect()
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
    await site.close()
    await site.store.close()


async def supersede(site: Site, old: str, text: str) -> None:
    """Replace a memory by the sealed text of another one, as a job's result does."""
    access = site.access("researcher")
    fresh = (await site.say(text))[0]
    async with site.relayer().namespaces.use(access, site.deadline(), create=False) as opened:
        record = opened.view.get(ulid.parse(fresh))
        assert record is not None
        new = msgspec.structs.replace(record, id=ulid.make(WRITTEN_AT, b"superseding"[:10]), text=f"{text}!")
        keys = opened.keys
        stored = Stored(
            new.id,
            keys.content_mac(new.text),
            keys.seal_record(new.id, encode_record(new), salt=site.randomness.bytes(32)),
            created_at=WRITTEN_AT,
        )
        origin = Origin(access.principal.author, access.principal.nonce)
        assert (await opened.log.append([Supersede(origin, ulid.parse(old), stored)]))[0].refusal is None


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
                "without_vector": len(opened.view.without_vector),
            }
        seen[name]["recalled"] = await hears(site, name, custody)
    return seen


async def hears(site: Site, name: str, custody: Custody) -> list[str]:
    query = "kettle shelf compass tide fridge gate code"
    request = RecallRequest(query=query, limit=50, floor=0.0)
    answer = await recall(site.relayer(), site.access(name, custody), request, site.deadline())
    return sorted(hit.text for hit in answer.memories)


def copied(format_number: int, folder: Path) -> Path:
    """Copy a golden bucket to where it may be written to."""
    target = folder / "objects"
    shutil.copytree(HERE / f"format-{format_number}" / "objects", target)
    return target


def generate(format_number: int) -> Path:
    """Write the golden bucket of this version; refuses to touch one that is there."""
    folder = HERE / f"format-{format_number}"
    folder.mkdir()

    async def work() -> None:
        await write(folder / "objects")
        site = await open_site(folder / "objects")
        seen = await read(site)
        (folder / "expected.json").write_text(json.dumps(seen, indent=2, sort_keys=True) + "\n")
        await site.close()
        await site.store.close()

    asyncio.run(work())
    for own in OWN:
        shutil.rmtree(folder / "objects" / own, ignore_errors=True)
    return folder
