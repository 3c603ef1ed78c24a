"""The same turns, vectors and questions in one process: the relayer's index, its parts left out, and other stores.

Also what the HTTP part has no room for: all conversations in one namespace, and namespaces of a few memories.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.locomo import Conversation, conversations
from bench.quality_curve import DEFAULT_FLOOR
from bench.report import Lab, Section
from bench.rivals import RIVALS, Ask, missing
from bench.scores import Scores
from bench.stats import percentile
from bench.unrelated_prompts import HELD_OUT
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import Calibration, calibrate
from relayer.search.index import MemoryIndex
from relayer.search.rows import search_row
from relayer.search.terms import context_text, indexed_text

__all__ = ["side_by_side"]

LIMIT = 20
TINY = (1, 3, 10)
_SAMPLES = 8
_AT_ONCE = 256
Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Turns:
    """Turns as they are indexed: own vectors, vectors with the previous turn, and where that is (-1: nowhere)."""

    texts: list[str]
    speakers: list[str]
    own: Rows
    rows: Rows
    before: list[int]

    def part(self, start: int, stop: int) -> _Turns:
        before = [at - start if at >= start else -1 for at in self.before[start:stop]]
        inside = slice(start, stop)
        rows = np.where(np.array(before)[:, None] >= 0, self.rows[inside], self.own[inside])
        return _Turns(self.texts[inside], self.speakers[inside], self.own[inside], rows, before)


@dataclass(frozen=True, slots=True)
class _Asked:
    text: str
    vector: Rows
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class _Measured:
    scores: Scores
    seconds: list[float]

    def row(self, name: str) -> tuple[str, ...]:
        means = self.scores.means()
        times = [f"{percentile(self.seconds, share) * 1e3:.2f}" for share in (0.5, 0.95)]
        return (name, *(f"{means[measure]:.1f}" for measure in ("r@5", "r@10", "r@20", "MRR")), *times)


async def side_by_side(lab: Lab) -> list[Section]:
    """Measure, if the data is there; the HTTP part says when it is not."""
    if lab.data is None or not lab.data.is_file():
        return []
    chosen = conversations(lab.data)[: lab.count(100, 1)]
    embedder = LocalEmbedder(threads=2)
    calibration = await calibrate(embedder)
    turns, questions = [], []
    for conversation in chosen:
        lab.say(f"quality: embedding {conversation.id}")
        turns.append(await _turns(embedder, conversation))
        vectors = await _embedded(embedder, [question.text for question in conversation.questions])
        numbers = {turn.id: str(at) for at, turn in enumerate(conversation.turns)}
        questions.append(
            [
                _Asked(question.text, vector, [numbers[turn] for turn in question.evidence])
                for question, vector in zip(conversation.questions, vectors, strict=True)
            ]
        )
    unrelated = list(zip(HELD_OUT, await _embedded(embedder, HELD_OUT), strict=True))
    await embedder.close()
    pooled, shifted = _pool(turns, questions)
    return [
        await _systems(lab, "one namespace each", turns, questions, calibration),
        await _systems(lab, "all in one namespace", [pooled], [shifted], calibration),
        await _silence(lab, turns, pooled, unrelated, calibration),
    ]


async def _systems(
    lab: Lab,
    title: str,
    spaces: Sequence[_Turns],
    questions: Sequence[Sequence[_Asked]],
    calibration: Calibration,
) -> Section:
    """Ask every system the questions of every namespace."""
    bare = "memrelay, without conversation and speaker"
    own = {"memrelay": 0.0, f"memrelay, floor {DEFAULT_FLOOR}": DEFAULT_FLOOR, bare: 0.0}
    builders: dict[str, Callable[[Sequence[str], Rows, Path, str], Ask] | None] = dict.fromkeys(own)
    absent = []
    for name, (package, build) in RIVALS.items():
        if missing(package):
            absent.append(package)
        else:
            builders[name] = build
    rows, data = [], {}
    for name, build_rival in builders.items():
        lab.say(f"quality: {title}, {name}")
        measured = _Measured(Scores(), [])
        for number, (space, asked) in enumerate(zip(spaces, questions, strict=True)):
            if build_rival is None:
                index = await _filled(space, calibration, bare=name == bare)
                ask = _asking(index, own[name])
            else:
                ask = build_rival(space.texts, space.own, lab.work, f"{title.replace(' ', '-')}-{number}")
            for question in asked:
                start = time.process_time()
                found = ask(question.text, question.vector, LIMIT)
                measured.seconds.append(time.process_time() - start)
                measured.scores.add([str(key) for key in found], question.evidence)
        rows.append(measured.row(name))
        data[name] = measured.scores.means() | {"cpu_p95_seconds": percentile(measured.seconds, 0.95)}
    notes = [
        f"{sum(map(len, questions))} questions, {sum(len(space.texts) for space in spaces)} turns, limit {LIMIT};",
        "every system gets the same text with speaker and day, and vectors of the same model; CPU time of all threads,",
        "without embedding, in process. Only memrelay is told which turn follows which, and who speaks, unless it says not.",
    ]
    if absent:
        notes.append(f"not installed: {', '.join(absent)} (pip install '.[bench]', and mem0ai)")
    columns = ("system", "r@5", "r@10", "r@20", "MRR", "CPU p50 ms", "CPU p95 ms")
    return Section(f"Side by side, {title}", columns, rows, data, tuple(notes))


async def _silence(
    lab: Lab,
    spaces: Sequence[_Turns],
    pooled: _Turns,
    unrelated: Sequence[tuple[str, Rows]],
    calibration: Calibration,
) -> Section:
    """Count the unrelated prompts that inject in namespaces of every size."""
    lab.say("quality: unrelated prompts in small and large namespaces")
    drawn = random.Random(lab.seed)
    rows, data = [], {}
    for size in (*TINY, 100, len(pooled.texts)):
        parts = [pooled]
        if size < len(pooled.texts):
            starts = [
                (space, drawn.randrange(max(1, len(space.texts) - size)))
                for space in spaces
                for _ in range(_SAMPLES)
            ]
            parts = [space.part(start, start + size) for space, start in starts]
        passed = []
        for part in parts:
            index = await _filled(part, calibration)
            passed += [bool(index.search(vector, text, 5).hits) for text, vector in unrelated]
        data[str(size)] = sum(passed) / len(passed)
        rows.append((f"{size:,}", str(len(passed)), f"{data[str(size)]:.1%}"))
    return Section(
        f"Unrelated prompts that inject at floor {DEFAULT_FLOOR}, by size of the namespace",
        ("memories", "n", "share"),
        rows,
        data,
        (f"consecutive turns, {_SAMPLES} samples of each conversation; {len(unrelated)} prompts each.",),
    )


def _asking(index: MemoryIndex, floor: float) -> Ask:
    def ask(text: str, vector: Rows, count: int) -> list[int]:
        return [hit.key for hit in index.search(vector, text, count, floor=floor).hits]

    return ask


async def _filled(space: _Turns, calibration: Calibration, *, bare: bool = False) -> MemoryIndex:
    index = MemoryIndex(space.rows.shape[1], calibration)
    _fill(index, space, bare=bare)
    await index.maintain()
    await index.measure_null()
    return index


def _fill(index: MemoryIndex, space: _Turns, *, bare: bool) -> None:
    for key, text in enumerate(space.texts):
        before = space.before[key]
        if bare:
            index.put(key, space.own[key], text)
        elif before < 0:
            index.put(key, space.rows[key], text, speaker=space.speakers[key])
        else:
            context = space.texts[before]
            index.put(key, space.rows[key], text, context, speaker=space.speakers[key], before=before)


def _pool(turns: Sequence[_Turns], questions: Sequence[Sequence[_Asked]]) -> tuple[_Turns, list[_Asked]]:
    before: list[int] = []
    shifted: list[_Asked] = []
    for space, asked in zip(turns, questions, strict=True):
        start = len(before)
        before += [at + start if at >= 0 else -1 for at in space.before]
        shifted += [
            _Asked(one.text, one.vector, [str(int(at) + start) for at in one.evidence]) for one in asked
        ]
    return (
        _Turns(
            [text for space in turns for text in space.texts],
            [speaker for space in turns for speaker in space.speakers],
            np.concatenate([space.own for space in turns]),
            np.concatenate([space.rows for space in turns]),
            before,
        ),
        shifted,
    )


async def _turns(embedder: LocalEmbedder, conversation: Conversation) -> _Turns:
    said = conversation.turns
    texts = [
        indexed_text(
            turn.speaker, int(datetime.fromisoformat(turn.occurred_at).timestamp() * 1000), turn.text
        )
        for turn in said
    ]
    before = [at - 1 if at and said[at - 1].session == turn.session else -1 for at, turn in enumerate(said)]
    own = await _embedded(embedder, texts)
    linked = [at for at in range(len(said)) if before[at] >= 0]
    contexts = await _embedded(embedder, [context_text(texts[before[at]], texts[at]) for at in linked])
    rows = own.copy()
    for at, context in zip(linked, contexts, strict=True):
        rows[at] = search_row(own[at], context)
    return _Turns(texts, [turn.speaker for turn in said], own, rows, before)


async def _embedded(embedder: LocalEmbedder, texts: Sequence[str]) -> Rows:
    parts = [await embedder.embed(texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]
    joined: Rows = np.concatenate(parts)
    return joined
