"""Whatever is written, compacted, merged, dropped and read again: the log says what its entries said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from log_operations import operations
from log_world import World, compact, drop_slots

from relayer.domain.namespace import LogPosition, genesis
from relayer.domain.operations import Entry, JobFinished, Operation, Put, Supersede
from relayer.domain.state import NamespaceState
from relayer.log.objects import digest_of
from relayer.log.replica import Replica


@dataclass(frozen=True)
class Step:
    """What is appended at once, and what is done to the log afterwards."""

    operations: tuple[Operation, ...]
    entries: int
    most_small: int
    drops: bool
    reloads: bool


STEPS = st.builds(
    Step,
    operations=st.lists(operations, min_size=1, max_size=3).map(tuple),
    entries=st.sampled_from([0, 0, 1, 2, 3]),
    most_small=st.integers(0, 2),
    drops=st.sampled_from([False, False, False, True]),
    reloads=st.sampled_from([False] * 7 + [True]),
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
        state = NamespaceState(LogPosition(0, genesis(incarnation)))
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


async def _run(steps: Sequence[Step]) -> None:
    world = World()
    pointer = await world.create()
    replica, committer = await world.writer()
    told: list = []
    replica.subscribe(told.extend, lambda _: told.clear())
    journal = _Journal(replica)
    for step in steps:
        await committer.submit(step.operations)
        if step.entries:
            await compact(
                world, replica, entries=step.entries, most_small=step.most_small, full_bytes=100_000
            )
        if step.drops:
            await drop_slots(world)
        if step.reloads:
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


@given(st.lists(STEPS, min_size=1, max_size=25))
def test_the_state_after_any_compactions_is_that_of_a_plain_replay(steps: list[Step]) -> None:
    asyncio.run(_run(steps))
