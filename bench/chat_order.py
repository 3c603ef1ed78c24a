"""The order of what is found in conversations, LoCoMo and real chats side by side: `python -m bench.chat_order PATH PATH`.

`MemoryIndex` alone, one memory a turn, the bare question as the query; vectors are kept on disk between runs, so that a
weight can be tried on both sets in half a minute. Both are for measuring only, see `bench.locomo`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from bench.locomo import Conversation, Turn, conversations
from bench.report import Section, show
from bench.scores import Scores
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import Calibration, calibrate
from relayer.search.index import MemoryIndex
from relayer.search.ranking import ABOUT, ONESELF, without_name
from relayer.search.rows import search_row
from relayer.search.terms import context_text, indexed_text

__all__ = ["main"]

LIMIT = 20
DEFAULT_FLOOR = 0.3
Vector = NDArray[np.float32]


class _Vectors:
    """The model's vectors by text, kept in a file."""

    def __init__(self, embedder: LocalEmbedder, path: Path) -> None:
        self._embedder, self._path = embedder, path
        self._known: dict[str, Vector] = {}
        if path.is_file():
            kept = np.load(path)
            self._known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    async def of(self, texts: Sequence[str], *, query: bool = False) -> list[Vector]:
        names = [f"{'?' if query else '.'}{text}" for text in texts]
        missing = [name for name in dict.fromkeys(names) if name not in self._known]
        if missing:
            rows = await self._embedder.embed([name[1:] for name in missing], query=query)
            self._known.update(zip(missing, rows, strict=True))
        return [self._known[name] for name in names]

    def keep(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self._path, texts=np.array(list(self._known)), vectors=np.array(list(self._known.values())))


@dataclass(frozen=True, slots=True)
class _Way:
    """What the search is told of a conversation, and what its vector is ranked by."""

    who_and_when: bool = True
    what_follows: bool = True
    topic: bool = True
    floor: float = 0.0


WAYS = {
    "as it is": _Way(),
    f"at floor {DEFAULT_FLOOR}": _Way(floor=DEFAULT_FLOOR),
    "names left in the query": _Way(topic=False),
    "not knowing what follows": _Way(what_follows=False),
    "nor who speaks and when": _Way(what_follows=False, who_and_when=False, topic=False),
}


async def _index(
    conversation: Conversation, vectors: _Vectors, calibration: Calibration, way: _Way
) -> MemoryIndex:
    turns = conversation.turns
    texts = [_text(turn) if way.who_and_when else turn.text for turn in turns]
    before = [
        at - 1 if at and way.what_follows and turns[at - 1].session == turn.session else None
        for at, turn in enumerate(turns)
    ]
    together = [
        text if at is None else context_text(texts[at], text) for at, text in zip(before, texts, strict=True)
    ]
    index = MemoryIndex(len((await vectors.of(texts[:1]))[0]), calibration)
    rows = zip(await vectors.of(texts), await vectors.of(together), strict=True)
    for key, (own, context) in enumerate(rows):
        previous = before[key]
        index.put(
            key,
            search_row(own, None if previous is None else context),
            texts[key],
            None if previous is None else texts[previous],
            speaker=turns[key].speaker if way.who_and_when else None,
            before=previous,
        )
    await index.maintain()
    await index.measure_null()
    return index


def _text(turn: Turn) -> str:
    moment = int(datetime.fromisoformat(turn.occurred_at).timestamp() * 1000)
    return indexed_text(turn.speaker, moment, turn.text)


async def _scores(
    chosen: Iterable[Conversation], vectors: _Vectors, calibration: Calibration, way: _Way
) -> Scores:
    scores = Scores()
    for conversation in chosen:
        index = await _index(conversation, vectors, calibration, way)
        ids = [turn.id for turn in conversation.turns]
        for question in conversation.questions:
            (vector,) = await vectors.of([question.text], query=True)
            topic = None
            if way.topic and (named := index.speakers(question.text)):
                written = [ABOUT.format(name) for name in (*named, ONESELF)]
                *about, oneself = await vectors.of(written, query=True)
                topic = without_name(vector, about, oneself)
            found = index.search(vector, question.text, LIMIT, floor=way.floor, topic=topic)
            scores.add([ids[hit.key] for hit in found.hits], question.evidence)
    return scores


async def _measured(paths: Sequence[Path], cache: Path, say: Callable[[str], None]) -> Section:
    embedder = LocalEmbedder("multilingual", threads=2)
    calibration, vectors = await calibrate(embedder), _Vectors(embedder, cache)
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    sets = {path.stem: conversations(path) for path in paths}
    chosen = {**sets, **{item.id: [item] for items in sets.values() for item in items}}
    for name, items in chosen.items():
        for way, how in WAYS.items() if name in sets else (("as it is", WAYS["as it is"]),):
            say(f"{name}, {way}")
            means = (await _scores(items, vectors, calibration, how)).means()
            data[f"{name}, {way}"] = means
            rows.append((name, way, *(f"{means[measure]:.1f}" for measure in ("r@5", "r@10", "MRR"))))
        vectors.keep()
    await embedder.close()
    return Section("Order of what is found, in percent", ("set", "way", "r@5", "r@10", "MRR"), rows, data)


def main(
    paths: Annotated[list[Path], typer.Argument(help="Files of conversations.")],
    cache: Annotated[Path, typer.Option(help="Where vectors are kept.")] = Path("bench/out/chat-order.npz"),
) -> None:
    """Measure both sets, and each conversation alone."""
    with Console(stderr=True).status("starting") as status:
        section = asyncio.run(_measured(paths, cache, status.update))
    show(section, Console(width=120))


if __name__ == "__main__":
    typer.run(main)
