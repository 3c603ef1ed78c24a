"""What goes wrong, when and for how long: decided by a seed, then done to real processes and connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chaos_link import Link, Weather
from chaos_processes import RelayerUnit, Victim

__all__ = ["Deed", "Harm", "Nemesis", "plan"]

# Longer than a client waits (4 s), and now and then longer than a relayer waits for its store (30 s).
_SHORT, _LONG, _VERY_LONG = (0.5, 3.0), (4.5, 10.0), (31.0, 45.0)
_EVERY_SECONDS = 2.5
_WATCH_SECONDS = 0.25


class Harm(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    SLOW = "slow"
    LOST = "lost"
    CUT = "cut"
    MUTE = "mute"


_TO_PROCESSES = (Harm.KILL, Harm.PAUSE)
_TO_LINKS = (Harm.SLOW, Harm.LOST, Harm.CUT, Harm.MUTE)
_WEATHER = {
    Harm.SLOW: Weather.SLOW,
    Harm.LOST: Weather.LOST,
    Harm.CUT: Weather.CUT,
    Harm.MUTE: Weather.MUTE,
}


@dataclass(frozen=True, slots=True)
class Deed:
    """One harm to one victim; times in seconds since the beginning."""

    at: float
    victim: str
    harm: Harm
    seconds: float
    strength: float = 0.0


def plan(
    seed: int, seconds: float, relayers: Sequence[str], links: Sequence[str], parts: Sequence[str]
) -> list[Deed]:
    """Return what is to happen: a deed every few seconds, none to a victim that still suffers.

    A store of one process suffers seldom, because everybody waits for it. Everything is over in time.
    """
    rng = random.Random(seed)
    busy: dict[str, float] = {}
    deeds: list[Deed] = []
    now = rng.uniform(0.5, 2.0)
    while now < seconds - 1:
        victims = rng.choices((relayers, links, parts), weights=(3, 4, min(3, len(parts))))[0]
        victim = rng.choice(victims)
        harm = rng.choice(_TO_LINKS if victims is links else _TO_PROCESSES)
        lasts = rng.uniform(*rng.choices((_SHORT, _LONG, _VERY_LONG), weights=(12, 6, 1))[0])
        end = min(now + lasts, seconds)
        if busy.get(victim, 0.0) < now:
            busy[victim] = end
            strength = rng.choice((0.02, 0.2, 1.5)) if harm is Harm.SLOW else 0.0
            deeds.append(Deed(now, victim, harm, end - now, strength))
        now += rng.expovariate(1 / _EVERY_SECONDS)
    return deeds


@dataclass
class Nemesis:
    """Does what was planned. Attributes: done: what was done, and how long victims took to be back."""

    victims: Mapping[str, Victim]
    links: Mapping[str, Link]
    done: list[tuple[Deed, float]] = field(default_factory=list)

    async def run(self, deeds: Sequence[Deed]) -> None:
        """Return when every deed is done and every victim is back."""
        begun = time.monotonic()
        watches = [
            asyncio.create_task(self._watch(unit))
            for unit in self.victims.values()
            if isinstance(unit, RelayerUnit)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for deed in deeds:
                    group.create_task(self._do(deed, begun))
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _do(self, deed: Deed, begun: float) -> None:
        await asyncio.sleep(max(0.0, begun + deed.at - time.monotonic()))
        harmed = time.monotonic()
        if deed.victim in self.links:
            await self._spoil(self.links[deed.victim], deed)
        else:
            victim = self.victims[deed.victim]
            async with self._lock(victim):
                await self._hurt(victim, deed)
        self.done.append((deed, time.monotonic() - harmed - deed.seconds))

    async def _spoil(self, link: Link, deed: Deed) -> None:
        link.turn(_WEATHER[deed.harm], deed.strength)
        await asyncio.sleep(deed.seconds)
        link.turn(Weather.FAIR)

    async def _hurt(self, victim: Victim, deed: Deed) -> None:
        if deed.harm is Harm.PAUSE:
            victim.pause()
            await asyncio.sleep(deed.seconds)
            victim.resume()
        else:
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(deed.seconds)
            await victim.start()

    def _lock(self, victim: Victim) -> asyncio.Lock:
        # A victim whose start takes long may still be starting when its next deed is due.
        return self._locks.setdefault(victim.name, asyncio.Lock())

    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def _watch(self, unit: RelayerUnit) -> None:
        """Start a relayer again that ended by itself, and remember that it did."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            async with self._lock(unit):
                if unit.notice():
                    await unit.start()
