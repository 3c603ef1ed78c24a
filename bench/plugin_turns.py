"""A turn as a host lives it: `before_turn` with a question that nobody asked before, and a sentence said until it is durable.

    python bench/plugin_turns.py URL HOME < TEXTS

reads ``{"asked": [...], "said": [...]}`` and prints seconds and CPU seconds of each, and of a question while no relayer is there,
as JSON; the first five texts of each warm it up. It is a process of its own, so that what it costs is the plugin's, and so that
``PYTHONPATH`` says whose plugin it is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from memrelay import AsyncMemoryPlugin

_SECRET = "3c" * 32
_DEADLINE = 30.0
# Port 9 of loopback, where nobody listens.
_NOBODY = "http://127.0.0.1:9"
_WARM_UP = 5


async def _measure(
    work: Callable[[str], Awaitable[object]], texts: Sequence[str], pause: float
) -> dict[str, list[float]]:
    seconds, cpu = [], []
    for number, text in enumerate(texts):
        began, busy = time.perf_counter(), time.process_time()
        await work(text)
        if number >= _WARM_UP:
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - busy)
        await asyncio.sleep(pause)
    return {"seconds": seconds, "cpu": cpu}


async def _turns(
    url: str, home: Path, texts: dict[str, list[str]], pause: float
) -> dict[str, dict[str, list[float]]]:
    async with AsyncMemoryPlugin(url, secret=_SECRET, environ={"HOME": str(home)}) as plugin:

        async def ask(prompt: str) -> None:
            found = await plugin.before_turn(prompt, session_key="agent:main:asking", deadline=_DEADLINE)
            if found.status not in {"ok", "empty"}:
                raise RuntimeError(f"before_turn: {found.status}")

        async def say(sentence: str) -> None:
            said = [{"role": "user", "content": sentence}]
            kept = await plugin.after_turn(said, session_key=f"agent:main:{uuid.uuid4()}")
            if kept.status != "queued" or not await plugin.flush(_DEADLINE):
                raise RuntimeError(f"after_turn: {kept.status}")

        lived = {
            "said and durable": await _measure(say, texts["said"], pause),
            "new question": await _measure(ask, texts["asked"], pause),
        }
    async with AsyncMemoryPlugin(_NOBODY, secret=_SECRET, environ={"HOME": str(home)}) as alone:

        async def ask_nobody(prompt: str) -> None:
            found = await alone.before_turn(prompt, session_key="agent:main:asking", deadline=_DEADLINE)
            if found.status != "unavailable":
                raise RuntimeError(f"before_turn without a relayer: {found.status}")

        return lived | {"no relayer": await _measure(ask_nobody, texts["asked"], 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("home", type=Path)
    parser.add_argument("--pause", type=float, default=0.02, help="Seconds between turns.")
    given = parser.parse_args()
    found = uvloop.run(_turns(given.url, given.home, json.load(sys.stdin), given.pause))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
