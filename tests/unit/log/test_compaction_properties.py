"""Whatever is written, compacted, merged, dropped and read again: the log says what its entries said."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from log_world import World, compact, drop_slots

from relayer.domain.entry import Entry
from relayer.domain.namespace import Position, genesis
from relayer.domain.operations import (
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Operation,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
)
from relayer.domain.state import NamespaceState
from relayer.log.replica import Replica
from relayer.log.slots import digest_of

RECORDS = [b"r%d" % number for number in range(6)]
JOBS = [b"j1", b"j2"]


def _operation(rng: random.Random, nonce: int) -> Operation:
    origin = Origin(b"a", b"%d" % nonce, idempotency=rng.choice([b"", b"k%d" % rng.randrange(4)]), body=b"b")
    stored = Stored(
        rng.choice(RECORDS),
        b"c%d" % rng.randrange(4),
        b"sealed%d" % nonce,
        vector=rng.choice([b"", b"v%d" % nonce]),
        context_vector=rng.choice([b"", b"w"]),
        sources=tuple(rng.sample(RECORDS, rng.choice([0, 0, 1]))),
        captured=rng.random() < 0.5,
    )
    job, record = rng.choice(JOBS), rng.choice(RECORDS)
    return rng.choice(
        [
            Put(origin, stored),
            Put(origin, stored),
            Put(origin, stored),
            Supersede(origin, record, stored),
            Forget(origin, record),
            Restore(origin, record, rng.choice([b"", rng.choice(RECORDS)])),
            Erase(origin, (record,)),
            JobAccepted(origin, job, "extract", (record,), b"input"),
            JobFinished(
                job, failed=rng.random() < 0.3, vectors=(VectorSet(record, b"vv"),), stored=(stored, stored)
            ),
        ]
    )


class _Journal:
    """Every entry of the log as a replica applied it, kept where no collector comes."""

    def __init__(self, replica: Replica) -> None:
        self.entries: list[tuple[Entry, bytes]] = []
        replica.slots.seal = self._watch(replica.slots.seal)

    def _watch(self, seal):
        def watched(entry: Entry) -> bytes:
            sealed = seal(entry)
            self.entries.append((entry, digest_of(sealed)))
            return sealed

        return watched

    def replayed(self, incarnation: bytes) -> NamespaceState:
        state = NamespaceState(Position(0, genesis(incarnation)))
        for entry, digest in self.entries:
            state.apply(entry, digest)
        return state


def _bodies(replica: Replica, told: list) -> dict[bytes, tuple[bytes, bytes]]:
    """Return what a projection would hold of every record that is in the state."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for item in told:
        if item.repeated or item.outcome.refusal is not None:
            continue
        match item.operation:
            case Put(stored=stored) | Supersede(stored=stored):
                if item.outcome.subject == stored.record and item.outcome.result != "duplicate":
                    found[stored.record] = (stored.sealed, stored.vector)
            case JobFinished(job=job, stored=results):
                for stored in results:
                    if stored.record in replica.state.jobs[job].results:
                        found.setdefault(stored.record, (stored.sealed, stored.vector))
    return {record: found[record] for record in replica.state.records}


async def _run(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    world = World()
    pointer = await world.create()
    replica, committer = await world.writer()
    told: list = []
    replica.subscribe(told.extend, lambda _: told.clear())
    journal = _Journal(replica)
    for nonce in range(steps):
        await committer.submit([_operation(rng, nonce * 8 + part) for part in range(rng.randrange(1, 4))])
        if rng.random() < 0.4:
            await compact(
                world, replica, entries=rng.randrange(1, 4), most_small=rng.randrange(3), full_bytes=100_000
            )
        if rng.random() < 0.2:
            await drop_slots(world)
        if rng.random() < 0.1:
            await replica.reload()
    whole = journal.replayed(pointer.incarnation)
    fresh = world.replica()
    again: list = []
    fresh.subscribe(again.extend, lambda _: again.clear())
    await fresh.reload()
    assert fresh.state == whole
    assert replica.state == whole
    assert _bodies(fresh, again) == _bodies(replica, told)
    await world.stop()


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_the_state_after_any_compactions_is_that_of_a_plain_replay(seed: int, steps: int) -> None:
    asyncio.run(_run(seed, steps))
