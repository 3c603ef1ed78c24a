"""Read ``bench/sets/weeks``: weeks of chats of made-up people, with what captures kept of each turn, to learn from.

    python -m bench.weeks FILE...   # play files through the captures of a relayer, and note in each turn what was kept

A turn is one of ``bench.conversations``. ``facts`` are the parts of it that are worth keeping, ``over`` the parts of earlier turns that it ends, each with
the part that says so (``by``), ``near`` is a part of an earlier turn that stays true, ``stored`` what a capture kept. `bench.relation_reader`
learns from what was kept which statements replace which, and `bench.message_layers` what is worth keeping.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.progress import track

from bench.conversations import SECRET, plain
from memrelay import AsyncMemoryPlugin
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.adapters.local_embedder.e5 import E5, MULTILINGUAL
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex
from relayer.telemetry import configure
from relayer.testing.local_relayer import local_relayer
from relayer.writing.merging import AMONG, nearest_first

SETS = Path(__file__).parent / "sets" / "weeks"
_PATIENCE = 60.0
# A capture is compared with the nearest memories.
_NEAREST = 5


class Seen(NamedTuple):
    """Two memories of one person as a capture compares them.

    Attributes:
        old: the older text.
        new: the newer one.
        over: the start and the end of each part of the older text that the newer one ends.
        unknown: the same of each part that is over, or about which it is not known.
        rank: of the older one among those that are compared, from 0 on; None if it is too far.
        cosine: of the two; 0 if it is too far.
        covered: the share of the newer one's terms that the older one has; 0 if it is too far.
    """

    old: str
    new: str
    over: Sequence[tuple[int, int]]
    unknown: Sequence[tuple[int, int]]
    rank: int | None
    cosine: float = 0.0
    covered: float = 0.0


def weeks(*, left_out: bool = False) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name and the turns of each person: those to learn from, or those that are left out to choose bars with."""
    for path in sorted((SETS / ("left_out" if left_out else "learnt")).glob("*.json")):
        yield path.stem, json.loads(path.read_text("utf-8"))


def seen(turns: Sequence[dict[str, Any]], model: E5) -> Iterator[Seen]:
    """Yield each memory of a person beside the nearest earlier ones, and beside those of which it ends a part."""
    said = [(number, text) for number, turn in enumerate(turns) for text in turn["stored"]]
    rows = np.stack([model.vector(model.encode(text, query=False), query=False) for _, text in said])
    index = MemoryIndex(rows.shape[1], Calibration(PRIORS[MULTILINGUAL.sha256], model=MULTILINGUAL.sha256))
    put = 0
    for at, (number, new) in enumerate(said):
        while said[put][0] < number:
            index.put(put, rows[put], said[put][1])
            put += 1
        earlier = range(put)
        if not earlier:
            continue
        hits = index.search(rows[at], new, AMONG * _NEAREST, floor=0.0).hits
        nearest = nearest_first(hits)[:_NEAREST]
        places = {hit.key: (rank, hit.cosine or 0.0, hit.covered) for rank, hit in enumerate(nearest)}
        for one in earlier:
            turn, old = said[one]
            over, unknown = [], []
            for later in range(turn + 1, number + 1):
                for end in turns[later].get("over", ()):
                    if part := _place(end["was"], old):
                        says_so = later == number and _overlap(end["by"], new)
                        (over if says_so else unknown).append(part)
            if over or one in places:
                yield Seen(old, new, over, unknown, *places.get(one, (None,)))


def _place(part: str, text: str) -> tuple[int, int] | None:
    """Return where a part of a message stands in a memory of it, which may hold half of it."""
    start = text.casefold().find(part.casefold())
    if start >= 0:
        return start, start + len(part)
    return (
        (0, len(text)) if len(text) > _SHORT and text.casefold().strip(" .,;!") in part.casefold() else None
    )


# A text of fewer characters may stand in another by chance.
_SHORT = 8


def _overlap(part: str, text: str) -> bool:
    return plain(part) in plain(text) or plain(text).strip(" .,;!") in plain(part)


async def captured(turns: list[dict[str, Any]], embedder: LocalEmbedder, name: str) -> None:
    """Play a person's turns through captures, and write what each kept of what the person said under ``stored``."""
    with tempfile.TemporaryDirectory() as home:
        async with (
            local_relayer(embedder=embedder, rate_limits="off") as relayer,
            AsyncMemoryPlugin(relayer.url, secret=SECRET, environ={"HOME": home}) as plugin,
        ):
            known: set[str] = set()
            for turn in turns:
                key = f"agent:{name}:{turn['session']}"
                messages = [
                    {"role": "user", "content": turn["user"]},
                    {"role": "assistant", "content": turn["assistant"]},
                ]
                await plugin.after_turn(messages, session_key=key)
                while not await plugin.flush(_PATIENCE):
                    pass
                answer = await plugin.tool("memory_list", {"limit": 30}, session_key=key)
                new = {one["id"]: one["text"] for one in answer.details["memories"] if one["id"] not in known}
                known |= new.keys()
                turn["stored"] = [text for text in new.values() if plain(text) in plain(turn["user"])]


async def _play(files: Sequence[Path]) -> None:
    embedder = LocalEmbedder("multilingual")
    for path in track(files, "weeks"):
        turns = json.loads(path.read_text("utf-8"))
        await captured(turns, embedder, path.stem)
        path.write_text(json.dumps(turns, ensure_ascii=False, indent=1) + "\n", "utf-8")


def main(files: Annotated[list[Path], typer.Argument(help="They are written again.")]) -> None:
    """Note in each turn of some files what a capture keeps of it."""
    configure("console", "warning")
    asyncio.run(_play(files))


if __name__ == "__main__":
    typer.run(main)
