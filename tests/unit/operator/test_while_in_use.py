"""Relayers compact and collect while an operator looks: nothing sound is called damaged, and nothing is missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from operator_site import Site

from relayer.access.store_keys import probe
from relayer.adapters.memory_store import MemoryStore
from relayer.log.objects import LogPorts
from relayer.operator.backup import back_up
from relayer.operator.backup_store import BackupStore
from relayer.operator.restore import restore
from relayer.operator.verify import verify_store

TEXTS = [
    f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green", "grey"))
]


class Busy:
    """Does something to the store just before one of its objects is read for the first time."""

    def __init__(self, inner, part: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._part = part
        self._meanwhile = meanwhile
        self.came = False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def get(self, key, **options):
        if self._part in key and not self.came:
            self.came = True
            await self._meanwhile()
        return await self._inner.get(key, **options)


@pytest.fixture
async def busy(site):
    """A log of two segments and a tail, and what a relayer does to it: merge all, collect, delete what was replaced."""
    await site.say(*TEXTS[:2])
    await site.compact(entries=1)
    await site.say(TEXTS[2])
    await site.compact(entries=1)
    await site.collect()
    await site.say(TEXTS[3])

    async def meanwhile() -> None:
        old = {row.key for row in (await site.manifest()).segments}
        await site.compact(entries=1, most_small=0)
        await site.collect()
        await site.drop(sorted(old - {row.key for row in (await site.manifest()).segments}))

    return meanwhile


def over(site: Site, part: str, meanwhile) -> Site:
    return site.over(Busy(site.store, part, meanwhile))


@pytest.mark.parametrize("part", ["/seg/", "/wal/", "/manifest"])
async def test_a_log_that_is_compacted_while_it_is_verified_is_sound(site, busy, part):
    watched = over(site, part, busy)
    report = await verify_store(watched.ports)
    assert watched.store.came
    assert report.sound
    assert report.namespaces[0].memories == 4


@pytest.mark.parametrize("part", ["/seg/", "/wal/", "/manifest"])
async def test_a_log_that_is_compacted_while_it_is_backed_up_is_backed_up_whole(site, busy, part):
    ports = site.ports
    target = MemoryStore(site.clock)

    def place() -> BackupStore:
        return BackupStore(LogPorts(target, ports.clock, ports.randomness, ports.keys))

    watched = over(site, part, busy)
    done = await back_up(watched.ports, place())
    assert watched.store.came
    assert done.findings == []
    other = site.over(MemoryStore(site.clock))
    await restore(place(), other.ports)
    await probe(other.ports)
    assert await other.hears("kettle shelf") == sorted(TEXTS)
    assert (await verify_store(other.ports)).sound


async def test_a_backup_while_somebody_writes_is_a_state_that_the_log_was_in(site):
    await site.say(TEXTS[0])
    ports = site.ports
    target = BackupStore(LogPorts(MemoryStore(site.clock), ports.clock, ports.randomness, ports.keys))

    async def write() -> None:
        await site.say(*TEXTS[1:])

    await back_up(over(site, "/wal/", write).ports, target)
    other = site.over(MemoryStore(site.clock))
    await restore(target, other.ports)
    await probe(other.ports)
    heard = await other.hears("kettle shelf")
    assert heard in [sorted(TEXTS[:count]) for count in range(1, 5)]
