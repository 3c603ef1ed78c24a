"""Runs schedules of the simulation by hand: ``replay.py --plan late 4711``, or many: ``--plan late 0 --seeds 2000``.

Prints the digest of every schedule's requests, which is the same wherever and whenever it runs.
"""

from __future__ import annotations

import argparse

from sim_lives import simulate_lives
from sim_plans import PLANS
from sim_world import simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument(
        "--plan", default="drawn", choices=["drawn", *PLANS], help="drawn: each seed draws its own"
    )
    parser.add_argument("--lives", action="store_true", help="the lives of a name, not a log's")
    parser.add_argument("--quiet", action="store_true", help="print failures alone")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.seeds):
        world = (simulate_lives if options.lives else simulate)(seed, PLANS.get(options.plan))
        if not options.quiet:
            print(seed, world.digest)


if __name__ == "__main__":
    main()
