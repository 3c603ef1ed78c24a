"""A turn as a host lives it: `before_turn` with a question that nobody asked before, and a sentence said until it is durable.

    python bench/plugin_turns.py URL HOME --count N --seed SEED

prints seconds and CPU seconds of each, as JSON. It is a process of its own, so that what it costs is the plugin's, and so that
``PYTHONPATH`` says whose plugin it is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from memrelay import AsyncMemoryPlugin

_WHO = (
    "Ada",
    "Bruno",
    "Chiara",
    "Dmitri",
    "Elif",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kemal",
    "Lena",
)
_WHAT = ("bicycle", "camera", "lamp", "guitar", "tent", "kettle", "passport", "ladder", "jacket", "notebook")
_WHERE = ("Porto", "Leipzig", "the office", "the cellar", "Lyon", "the garage", "Turin", "the library")
_SECRET = "3c" * 32
_DEADLINE = 30.0
_WARM_UP = 5


async def _measure(
    work: Callable[[int], Awaitable[object]], count: int, pause: float
) -> dict[str, list[float]]:
    seconds, cpu = [], []
    for number in range(-_WARM_UP, count):
        began, busy = time.perf_counter(), time.process_time()
        await work(number)
        if number >= 0:
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - busy)
        await asyncio.sleep(pause)
    return {"seconds": seconds, "cpu": cpu}


async def _turns(
    url: str, home: Path, count: int, seed: int, pause: float
) -> dict[str, dict[str, list[float]]]:
    chosen = random.Random(seed)

    def about() -> tuple[str, str, str]:
        return chosen.choice(_WHO), chosen.choice(_WHAT), chosen.choice(_WHERE)

    async with AsyncMemoryPlugin(url, secret=_SECRET, environ={"HOME": str(home)}) as plugin:

        async def ask(number: int) -> None:
            who, what, where = about()
            prompt = f"Where did {who} leave the {what} of number {seed}-{number}, was it in {where}?"
            found = await plugin.before_turn(prompt, session_key="agent:main:asking", deadline=_DEADLINE)
            if found.status not in {"ok", "empty"}:
                raise RuntimeError(f"before_turn: {found.status}")

        async def say(number: int) -> None:
            who, what, where = about()
            said = [{"role": "user", "content": f"My friend {who} keeps {what} {seed}-{number} in {where}."}]
            kept = await plugin.after_turn(said, session_key=f"agent:main:said-{seed}-{number}")
            if kept.status != "queued" or not await plugin.flush(_DEADLINE):
                raise RuntimeError(f"after_turn: {kept.status}")

        return {
            "said and durable": await _measure(say, count, pause),
            "new question": await _measure(ask, count, pause),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("home", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.02, help="Seconds between turns.")
    given = parser.parse_args()
    found = uvloop.run(_turns(given.url, given.home, given.count, given.seed, given.pause))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
