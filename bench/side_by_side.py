"""The same turns, vectors and questions in one process: the relayer's index, its parts left out, and other stores.

The index is filled and searched as a relayer with default settings does for a recall with a question. Also measured is what the
HTTP part has no room for: blocks of many sizes, all conversations in one namespace, and namespaces of a few memories.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.evidence import LINES, BudgetScores, evidence_section
from bench.locomo import Conversation, conversations
from bench.quality_curve import DEFAULT_FLOOR
from bench.report import Lab, Section
from bench.rivals import RIVALS, missing
from bench.scores import Scores
from bench.stats import percentile
from bench.unrelated_prompts import HELD_OUT
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.lib.n_grams import read_prompt
from relayer.search.baseline import Calibration, calibrate
from relayer.search.index import MemoryIndex
from relayer.search.passages import MOST_VECTORS, is_long, passages
from relayer.search.ranking import ABOUT, ONESELF, in_order, without_name
from relayer.search.rows import search_row
from relayer.search.terms import (
    TIME_WEIGHT,
    context_text,
    indexed_text,
    named_times,
    nearness,
    terms,
    variety,
)
from relayer.use_cases.recall import wanted
from relayer.wire import schemas

__all__ = ["side_by_side"]

TINY = (1, 3, 10)
_SAMPLES = 8
# Of one question, as in a recall.
_MOST_NAMED = 3
_AT_ONCE = 256
Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Turns:
    """Turns in the form in which they are indexed.

    Attributes:
        texts: each with its speaker and day.
        speakers: the name of each speaker.
        said_at: the time of each, in ms since the epoch.
        own: the vector of each text.
        rows: the vector by which each is found, with the previous turn.
        before: the index of the previous turn; -1 without one.
        further: start and vector of the passages of each long text, without its first.
        passages: start and text of all passages of each long text.
    """

    texts: list[str]
    speakers: list[str]
    said_at: list[int]
    own: Rows
    rows: Rows
    before: list[int]
    further: list[list[tuple[int, Rows]]]
    passages: list[list[tuple[int, str]]]

    def part(self, start: int, stop: int) -> _Turns:
        before = [at - start if at >= start else -1 for at in self.before[start:stop]]
        inside = slice(start, stop)
        rows = np.where(np.array(before)[:, None] >= 0, self.rows[inside], self.own[inside])
        return _Turns(
            self.texts[inside],
            self.speakers[inside],
            self.said_at[inside],
            self.own[inside],
            rows,
            before,
            self.further[inside],
            self.passages[inside],
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question; ``topic`` is its vector without the names of speakers, None if it names none."""

    text: str
    vector: Rows
    evidence: list[str]
    topic: Rows | None = None


_Search = Callable[[_Asked], list[int]]


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
    embedder = LocalEmbedder("multilingual", threads=2)
    calibration = await calibrate(embedder)
    turns, questions = [], []
    for conversation in chosen:
        lab.say(f"quality: embedding {conversation.id}")
        turns.append(await _turns(embedder, conversation))
        vectors = await _embedded(
            embedder, [question.text for question in conversation.questions], query=True
        )
        numbers = {turn.id: str(at) for at, turn in enumerate(conversation.turns)}
        questions.append(
            [
                _Asked(question.text, vector, [numbers[turn] for turn in question.evidence])
                for question, vector in zip(conversation.questions, vectors, strict=True)
            ]
        )
    prompts = await _embedded(embedder, HELD_OUT, query=True)
    unrelated = [_Asked(text, vector, []) for text, vector in zip(HELD_OUT, prompts, strict=True)]
    pooled, shifted = _pool(turns, questions)
    names = _Names(embedder, calibration)
    questions = [await names.removed(*space) for space in zip(turns, questions, strict=True)]
    shifted = await names.removed(pooled, shifted)
    await embedder.close()
    ranked, blocks = await _systems(lab, "one namespace each", turns, questions, calibration)
    return [
        ranked,
        evidence_section(blocks),
        (await _systems(lab, "all in one namespace", [pooled], [shifted], calibration))[0],
        await _silence(lab, turns, pooled, unrelated, calibration),
    ]


async def _systems(
    lab: Lab,
    title: str,
    spaces: Sequence[_Turns],
    questions: Sequence[Sequence[_Asked]],
    calibration: Calibration,
) -> tuple[Section, dict[str, BudgetScores]]:
    """Ask every system the questions of every namespace."""
    bare = "memrelay, without conversation and speaker"
    own = {"memrelay": 0.0, f"memrelay, floor {DEFAULT_FLOOR}": DEFAULT_FLOOR, bare: 0.0}
    absent = [package for package, _ in RIVALS.values() if missing(package)]
    rows, data, blocks = [], {}, {}
    for name in (*own, *(name for name, (package, _) in RIVALS.items() if package not in absent)):
        lab.say(f"quality: {title}, {name}")
        measured, blocks[name] = _Measured(Scores(), []), BudgetScores()
        for number, (space, asked) in enumerate(zip(spaces, questions, strict=True)):
            if name in own:
                index = await _filled(space, calibration, bare=name == bare)
                search = _recalling(index, space, own[name], bare=name == bare)
            else:
                search = _asking_rival(name, space, lab.work, f"{title.replace(' ', '-')}-{number}")
            for question in asked:
                start = time.process_time()
                found = search(question)
                measured.seconds.append(time.process_time() - start)
                ids = [str(key) for key in found]
                measured.scores.add(ids, question.evidence)
                blocks[name].add([space.texts[key] for key in found], ids, question.evidence)
        rows.append(measured.row(name))
        data[name] = measured.scores.means() | {"cpu_p95_seconds": percentile(measured.seconds, 0.95)}
    notes = [
        f"{sum(map(len, questions))} questions, {sum(len(space.texts) for space in spaces)} turns, limit {LINES};",
        "every system gets the same text with speaker and day, and vectors of the same model; CPU time of all threads,",
        "without embedding, in process. Only memrelay is told when a turn was said, and which turn follows which and who speaks",
        "unless it says not.",
    ]
    if absent:
        notes.append(f"not installed: {', '.join(absent)} (pip install '.[bench]', and mem0ai)")
    columns = ("system", "r@5", "r@10", "r@20", "MRR", "CPU p50 ms", "CPU p95 ms")
    return Section(f"Side by side, {title}", columns, rows, data, tuple(notes)), blocks


async def _silence(
    lab: Lab,
    spaces: Sequence[_Turns],
    pooled: _Turns,
    unrelated: Sequence[_Asked],
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
        passed: list[bool] = []
        for part in parts:
            index = await _filled(part, calibration)
            passed += map(bool, map(_recalling(index, part, DEFAULT_FLOOR), unrelated))
        data[str(size)] = sum(passed) / len(passed)
        rows.append((f"{size:,}", str(len(passed)), f"{data[str(size)]:.1%}"))
    return Section(
        f"Unrelated prompts that inject at floor {DEFAULT_FLOOR}, by size of the namespace",
        ("memories", "n", "share"),
        rows,
        data,
        (f"consecutive turns, {_SAMPLES} samples of each conversation; {len(unrelated)} prompts each.",),
    )


def _asking_rival(name: str, space: _Turns, work: Path, table: str) -> _Search:
    ask = RIVALS[name][1](space.texts, space.own, work, table)
    return lambda asked: ask(asked.text, asked.vector, LINES)


def _recalling(index: MemoryIndex, space: _Turns, floor: float, *, bare: bool = False) -> _Search:
    """Return a search that ranks as `relayer.use_cases.recall` does for a question that is asked after the last turn."""
    now, model = max(space.said_at), index.calibration.model

    def search(asked: _Asked) -> list[int]:
        request = schemas.RecallRequest(query=asked.text, limit=LINES, floor=floor)
        times = named_times(asked.text, now)
        hits = index.search(
            asked.vector,
            asked.text,
            wanted(request, times),
            floor=floor,
            topic=None if bare else asked.topic,
            reading=read_prompt(asked.text).reading(asked.vector, model),
        ).hits
        if times:
            near = {hit.key: TIME_WEIGHT * nearness(times, space.said_at[hit.key]) for hit in hits}
            hits = tuple(in_order(hits, {hit.key: hit.evidence + near[hit.key] for hit in hits}))
        return [hit.key for hit in hits[:LINES]]

    return search


async def _filled(space: _Turns, calibration: Calibration, *, bare: bool = False) -> MemoryIndex:
    index = MemoryIndex(space.rows.shape[1], calibration)
    _fill(index, space, bare=bare)
    await index.maintain()
    await index.measure_null()
    return index


def _fill(index: MemoryIndex, space: _Turns, *, bare: bool) -> None:
    for key, text in enumerate(space.texts):
        before = space.before[key]
        further = space.further[key]
        if bare:
            index.put(key, space.own[key], text, passages=further)
        elif before < 0:
            index.put(key, space.rows[key], text, speaker=space.speakers[key], passages=further)
        else:
            index.put(
                key,
                space.rows[key],
                text,
                space.texts[before],
                speaker=space.speakers[key],
                before=before,
                passages=further,
            )
        for start, passage in space.passages[key]:
            index.put_passage(key, start, passage)


class _Names:
    """Removes the names of speakers from the vectors of questions."""

    def __init__(self, embedder: LocalEmbedder, calibration: Calibration) -> None:
        self._embedder = embedder
        self._calibration = calibration
        self._known: dict[str, Rows] = {}

    async def removed(self, space: _Turns, questions: Sequence[_Asked]) -> list[_Asked]:
        """Return the questions with their topics, for the speakers of a namespace."""
        index = MemoryIndex(space.rows.shape[1], self._calibration)
        for key, text in enumerate(space.texts):
            index.put(key, None, text, speaker=space.speakers[key])
        topics = []
        for asked in questions:
            about = [await self._about(name) for name in index.speakers(asked.text)[:_MOST_NAMED]]
            oneself = await self._about(ONESELF)
            topics.append(without_name(asked.vector, about, oneself) if about else None)
        return [replace(asked, topic=topic) for asked, topic in zip(questions, topics, strict=True)]

    async def _about(self, name: str) -> Rows:
        if name not in self._known:
            (self._known[name],) = await self._embedder.embed([ABOUT.format(name)], query=True)
        return self._known[name]


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
            [at for space in turns for at in space.said_at],
            np.concatenate([space.own for space in turns]),
            np.concatenate([space.rows for space in turns]),
            before,
            [further for space in turns for further in space.further],
            [parts for space in turns for parts in space.passages],
        ),
        shifted,
    )


async def _turns(embedder: LocalEmbedder, conversation: Conversation) -> _Turns:
    said = conversation.turns
    said_at = [int(datetime.fromisoformat(turn.occurred_at).timestamp() * 1000) for turn in said]

    def headed(at: int, text: str) -> str:
        return indexed_text(said[at].speaker, said_at[at], text)

    texts = [headed(at, turn.text) for at, turn in enumerate(said)]
    before = [at - 1 if at and said[at - 1].session == turn.session else -1 for at, turn in enumerate(said)]
    own = await _embedded(embedder, texts)
    linked = [at for at in range(len(said)) if before[at] >= 0]
    contexts = await _embedded(embedder, [context_text(texts[before[at]], texts[at]) for at in linked])
    rows = own.copy()
    for at, context in zip(linked, contexts, strict=True):
        rows[at] = search_row(own[at], context)
    further: list[list[tuple[int, Rows]]] = [[] for _ in said]
    parts: list[list[tuple[int, str]]] = [[] for _ in said]
    for at, turn in enumerate(said):
        if not is_long(turn.text):
            continue
        cuts = list(passages(turn.text, MOST_VECTORS))[1:]
        vectors = await _embedded(embedder, [headed(at, turn.text[start:end]) for start, end in cuts])
        further[at] = [(start, vector) for (start, _), vector in zip(cuts, vectors, strict=True)]
        if variety(Counter(terms(turn.text))) == 1:
            parts[at] = [(start, headed(at, turn.text[start:end])) for start, end in passages(turn.text)]
    return _Turns(texts, [turn.speaker for turn in said], said_at, own, rows, before, further, parts)


async def _embedded(embedder: LocalEmbedder, texts: Sequence[str], *, query: bool = False) -> Rows:
    parts = [
        await embedder.embed(texts[at : at + _AT_ONCE], query=query) for at in range(0, len(texts), _AT_ONCE)
    ]
    joined: Rows = np.concatenate(parts)
    return joined
