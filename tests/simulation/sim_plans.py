"""How simulated worlds differ: in the number of relayers and clients, in what fails, in how long anybody waits."""

from __future__ import annotations

import random
from dataclasses import dataclass

from doubles.faulty_store import Faults

__all__ = ["CROWDED", "LATE", "PLANS", "STALLED", "TRUSTING", "WORKERS", "Plan"]


@dataclass(frozen=True)
class Plan:
    """What happens how often. Times are in seconds.

    Attributes:
        name: what `replay.py` knows it by.
        stall: how often a request, on its way there or back, takes up to ``stall_for``.
        freeze: how often a relayer that the chaos meets is stopped for that long, and not killed.
        pause: longest time that a client thinks, now and then.
        trust: for how long an answer of the manifest vouches for slots.
        grace: how long a collector waits.
        compact, collect: how long until a relayer looks again whether there is something to do.
        index: how long until it stores an index.
    """

    relayers: int
    clients: int
    faults: Faults
    operations: int = 5
    crash_every: float = 12.0
    stall: float = 0.004
    stall_for: float = 900.0
    freeze: float = 0.0
    pause: float = 0.0
    trust: float = 600.0
    grace: float = 3600.0
    entries: int = 2
    most_small: int = 1
    compact: float = 3.0
    collect: float = 3.0
    index: float = 6.0
    workers_first: bool = False
    name: str = "drawn"

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Few relayers with many clients, many with few, stores that answer late by little or by much."""
        rng = random.Random(seed)
        relayers = rng.choice((1, 2, 2, 3))
        alone = relayers == 1
        trust = rng.choice((2.0, 10.0, 600.0))
        return cls(
            relayers=relayers,
            clients=8 if alone else 3,
            operations=3 if alone else 5,
            crash_every=60.0 if alone else rng.choice((12.0, 40.0)),
            faults=Faults(
                throttled=0.04,
                unanswered=rng.choice((0.02, 0.15)),
                lost=0.06,
                delayed=0.3 if alone else rng.choice((0.05, 0.2)),
                delay=1.0 if alone else rng.choice((1.0, 30.0)),
                unavailable=rng.choice((0.01, 0.08)),
            ),
            stall=rng.choice((0.004, 0.03)),
            stall_for=rng.choice((60.0, 900.0)),
            freeze=rng.choice((0.0, 0.3)),
            pause=rng.choice((0.0, 30.0, 120.0)),
            trust=trust,
            grace=trust * rng.choice((1.5, 6.0)),
            entries=rng.choice((1, 1, 2, 3)),
            most_small=rng.choice((0, 1, 3)),
            compact=rng.choice((2.0, 8.0)),
            collect=rng.choice((3.0, 15.0)),
        )


# One relayer whose queue is never empty and whose writes often land late.
CROWDED = Plan(
    name="crowded",
    relayers=1,
    clients=8,
    operations=3,
    crash_every=120.0,
    faults=Faults(delayed=0.4, delay=0.6),
)
# Several workers that end the same job at the same moment.
WORKERS = Plan(
    name="workers", relayers=3, clients=6, operations=2, workers_first=True, faults=Faults(unanswered=0.1)
)
# Relayers that stop for longer than a collector waits, between any two requests, while others go on and collect.
STALLED = Plan(
    name="stalled",
    relayers=3,
    clients=4,
    operations=6,
    crash_every=15.0,
    faults=Faults(delayed=0.1, delay=20.0),
    stall=0.06,
    stall_for=60.0,
    freeze=0.6,
    pause=10.0,
    trust=4.0,
    grace=6.0,
    entries=1,
    most_small=0,
    compact=1.0,
    collect=1.0,
)

# Relayers that trust an answer for a minute, beside a collector that waits little longer.
TRUSTING = Plan(
    name="trusting",
    relayers=2,
    clients=4,
    operations=6,
    crash_every=25.0,
    faults=Faults(delayed=0.05, delay=20.0),
    stall=0.02,
    stall_for=120.0,
    freeze=0.3,
    pause=20.0,
    trust=60.0,
    grace=66.0,
    entries=1,
    most_small=0,
    compact=0.5,
    collect=5.0,
)
# Compactors that are stopped between their upload and the swap for longer than anybody waits.
LATE = Plan(
    name="late",
    relayers=4,
    clients=3,
    operations=6,
    crash_every=60.0,
    faults=Faults(delayed=0.05, delay=20.0),
    stall=0.1,
    stall_for=40.0,
    pause=30.0,
    trust=20.0,
    grace=22.0,
    entries=1,
    most_small=0,
    compact=0.5,
    collect=20.0,
)

PLANS = {plan.name: plan for plan in (CROWDED, WORKERS, STALLED, TRUSTING, LATE)}
