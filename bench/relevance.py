"""Learn which memories belong in a prompt: the weights of `relayer.search.relevance`.

    python -m bench.relevance --cases FILE            # search for all prompts once, and keep what the searches know in FILE
    python -m bench.prompt_layers --cases FILE        # train the layers that prompts have of their own
    python -m bench.relevance --cases FILE --write    # search with them, learn, report, and write the weights

The people of ``bench/sets/precise/train``, ``more`` and ``third``, and of the halves ``seen`` and ``second`` of ``bench/sets/day`` are namespaces of their
own, alone and among memories of others. Each asks its own prompts, prompts that no memory answers, questions of other people, and
some of its questions again without the memory that answers them. The layers of prompts and the products of components are
learnt from two thirds of the people for the other third, so that the other weights are learnt from vectors as they will be.
The people of ``bench/sets/weeks`` came later: the package's file has not learnt from them.
Needs scikit-learn, of the extra ``bench``. The same sets and model give the same file.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import pickle
import random
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from unittest import mock

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bench.conversations import plain
from bench.day import CachedEmbedder, personas
from bench.prompt_reader import labelled
from bench.spaces import LEFT_OUT, PRECISE, people
from bench.weeks import SETS as WEEKS
from bench.weeks import weeks
from relayer.lib.n_grams import read_prompt
from relayer.ports import QueryVectors
from relayer.search import index as index_module
from relayer.search.baseline import PRIORS, UNRELATED_PROMPTS, Calibration, shipped_priors
from relayer.search.index import MemoryIndex, QueryWords
from relayer.search.relevance import (
    MOST_READ,
    CandidateScores,
    Logistic,
    PromptFacts,
    Relevances,
    chosen,
    features,
    gate_features,
)
from relayer.search.rows import KeyMask

MODEL = "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "relevance.npz"
Numbers = NDArray[np.float64]
SETS = Path(__file__).parent / "sets"
Kind = Literal["question", "plan", "unanswerable", "untouched", "unrelated", "removed", "unneeded"]
Asked = tuple[Kind, str, list[int], list[int]]
"""A prompt with the numbers of the memories that are right, and of those that are old."""
_FILLS = (40, 170)
_POOL = 40
FOLDS = 3
GENERAL = ("untouched", "unrelated")
"""The kinds of prompts that many people ask."""
# Of the untouched and unrelated prompts in a person's language, how many each person asks.
_ASKED_OF_EACH = 12
_BEST = 8
_LEFT_OUT = 0.5
# Messages of a chat that are not worth keeping, among the fewer memories of others: an import has them.
_OF_CHAT = 60
# The most further memories in a namespace of few, which a person begins with, and what `Case.fill` is then.
_FEW = 6
_OF_FEW = 0.35
AMONG_FEW = -1
# The components of a prompt and of a memory whose products are learnt.
_BEARING = 20
# The logit from which a prompt is admitted, chosen with the people of the development set.
_BAR = -1.25
# The weight of prompts that the classifier of prompts was learnt from: it is surer of them than of others.
_KNOWN = 0.2
# Weights of cases for the probability of a memory, and for the admission of a prompt.
_OF_MEMORY = {
    "question": 1.0,
    "plan": 1.5,
    "unanswerable": 0.5,
    "untouched": 0.8,
    "unrelated": 0.6,
    "removed": 0.4,
    "unneeded": 0.8,
}
_OF_PROMPT = {
    "question": 1.0,
    "plan": 1.0,
    "unanswerable": 0.0,
    "untouched": 1.5,
    "unrelated": 2.0,
    "removed": 0.0,
    "unneeded": 1.0,
}


@dataclass(slots=True)
class Person:
    """A namespace: its memories, and prompts with the memories that are right and those that are old."""

    name: str
    language: str
    memories: list[str]
    asked: list[Asked]


@dataclass(slots=True)
class Case:
    """A search for a prompt: what it knew, its candidates' texts, and which of them are right (1), wrong (0), or neither (-1)."""

    person: str
    language: str
    kind: Kind
    text: str
    fill: int
    query: NDArray[np.float32]
    rows: NDArray[np.float32]
    texts: list[str]
    read: CandidateScores
    prompt: PromptFacts
    right: NDArray[np.int_]


def listed(part: str, name: str) -> dict[str, list[str]]:
    """Return the prompts of a table of ``bench/sets/precise``, by person or language."""
    prompts: dict[str, list[str]] = defaultdict(list)
    for line in _lines(part, name):
        owner, text = line.split("\t")
        prompts[owner].append(text)
    return prompts


def _lines(part: str, name: str) -> Iterator[str]:
    for each in ("train", "more") if part in ("train", "more") else (part,):
        table = PRECISE / each / f"{name}.tsv"
        yield from table.read_text("utf-8").splitlines() if table.exists() else ()


def _plans(part: str) -> dict[str, list[tuple[str, list[int]]]]:
    """Return the plans of ``plans.tsv``, by person: each with the numbers of the memories that would change the answer."""
    plans: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for line in _lines(part, "plans"):
        owner, right, text = line.split("\t")
        plans[owner].append((text, [int(one) for one in right.split(",")]))
    return plans


def of_people(part: str) -> Iterator[Person]:
    """Yield the people of a part, who also ask prompts of the tables of untouched and unrelated ones."""
    rng = random.Random(7)
    untouched, unrelated, plans = listed(part, "untouched"), listed(part, "unrelated"), _plans(part)
    for space in people(f"{part}/people"):
        kinds: dict[str, Kind] = {
            "question": "question",
            "plan": "plan",
            "unanswerable": "unanswerable",
            "untouched": "untouched",
        }
        asked = [
            (kinds[one.kind], one.text, list(one.right), list[int]())
            for one in space.asked
            if one.kind in kinds
        ]
        name = Path(space.name).name
        near = untouched[space.language]
        own = untouched.get(name, []) + rng.sample(near, min(_ASKED_OF_EACH, len(near)))
        asked += [("untouched", text, [], []) for text in own]
        asked += [("plan", text, right, []) for text, right in plans[name]]
        far = unrelated[space.language]
        asked += [("unrelated", text, [], []) for text in rng.sample(far, min(_ASKED_OF_EACH, len(far)))]
        yield Person(space.name, space.language, space.memories, asked)


# The memories of a person of weeks of chats are those after each third of the turns. Remains of fewer characters say nothing.
_THIRDS = 3
_SHORTEST = 12
_NEEDED, _NEAR = 2, 1
# What is asked for stands in so many memories at most.
_MOST_RIGHT = 2
_OF_TURN: dict[str, Kind] = {
    "ask": "question", "question": "question", "plan": "plan", "never": "unanswerable", "none": "untouched", "fiction": "untouched", "remark": "unrelated",
}  # fmt: skip


def of_weeks(*, left_out: bool = False) -> Iterator[Person]:
    """Yield the people of weeks of chats, three times each: what captures kept, without what is over, and the prompts of each time.

    What is known of prompts and memories by ``judged`` counts more than what the turns have marked. After all turns, each asks the prompts
    of ``asked``, too.
    """
    for name, turns in weeks(left_out=left_out):
        judged = _judged(name)
        for third in range(_THIRDS):
            begun, end = (len(turns) * number // _THIRDS for number in (third, third + 1))
            memories = list(dict.fromkeys(_still_true(turns[:end])))
            person = f"weeks/{name}-{third}"
            asked: list[Asked] = []
            for turn in turns[begun:end]:
                kind = _OF_TURN.get(turn["kind"])
                rights = [
                    [at for at, text in enumerate(memories) if plain(word) in plain(text)]
                    for word in turn.get("want", ())
                ]
                certain = {at for right in rights for at in right if len(right) <= _MOST_RIGHT}
                # What a prompt itself left behind comes after it, and is no wrong memory for it.
                own = {at for at, text in enumerate(memories) if plain(text) in plain(turn["user"])}
                if kind and (bool(certain) is (kind in ("question", "plan"))):
                    known = judged.get((third, turn["user"]), {})
                    asked.append(_by_judgement(kind, turn["user"], certain, own, known))
            if end == len(turns):
                asked += _asked_then(name, judged)
            yield Person(person, name.split("-")[1], memories, asked)


def _judged(name: str) -> dict[tuple[int, str], dict[int, int]]:
    """Return how much memories help with the prompts of each third of a person's weeks, by number: needed (2), near (1), or useless (0)."""
    found = {}
    path = WEEKS / "judged" / f"{name}.tsv"
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        third, text, *levels = line.split("\t")
        found[int(third), text] = {
            int(number): level
            for level, numbers in enumerate(levels)
            for number in numbers.split(",")
            if number
        }
    return found


def _by_judgement(kind: Kind, text: str, certain: set[int], own: set[int], known: Mapping[int, int]) -> Asked:
    """Return a prompt with the memories that are right, and those that are neither right nor wrong."""
    needed = {at for at, level in known.items() if level == _NEEDED}
    right = (certain - known.keys() | needed) - own
    if not known:
        return kind, text, sorted(right), sorted(own)
    if right and kind not in ("question", "plan"):
        kind = "question" if kind == "unanswerable" else "plan"
    elif not right and kind in ("question", "plan"):
        kind = "unanswerable" if kind == "question" else "untouched"
    # What is near does no harm where something else is needed.
    near = {at for at, level in known.items() if level == _NEAR} if right else set[int]()
    return kind, text, sorted(right), sorted(near | own)


def _asked_then(name: str, judged: Mapping[tuple[int, str], Mapping[int, int]]) -> Iterator[Asked]:
    path = WEEKS / "asked" / f"{name}.tsv"
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        kind, right, text = line.split("\t")
        numbers = {int(one) for one in right.split(",") if one}
        yield _by_judgement(_OF_TURN[kind], text, numbers, set(), judged.get((_THIRDS - 1, text), {}))


def _still_true(turns: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, turn in enumerate(turns):
        for text in turn["stored"]:
            left = text
            for end in (one["was"] for later in turns[number + 1 :] for one in later.get("over", ())):
                at = left.casefold().find(end.casefold())
                left = left[:at] + left[at + len(end) :] if at >= 0 else left
            left = left if left == text else left.strip(" ,;.-")
            if len(left) >= _SHORTEST or left == text:
                yield left


def everyone() -> Iterator[Person]:
    """Yield the people of the sets for training, and those of the development set."""
    yield from of_people("train")
    yield from of_people("more")
    yield from of_people("third")
    yield from (person for person in of_people("fourth") if not is_left_out(person))
    yield from of_weeks()
    yield from of_people("dev")
    for half in ("seen", "second"):
        for persona in personas(half):
            yield _of_the_day(half, persona.name, persona.language, persona.raw)


def is_left_out(person: Person) -> bool:
    """Return whether a person of the fourth set is by an author whose people layers never learn from."""
    return Path(person.name).name[:2] in LEFT_OUT


def _of_the_day(half: str, name: str, language: str, raw: dict[str, Any]) -> Person:
    texts = [" ".join(fact["said"]) for fact in raw["facts"]] + [item["said"] for item in raw["short"]]
    texts += [item[part] for item in raw["compatible"] for part in ("first", "then")]
    texts += [item["then"] for item in raw["corrections"]]
    texts = list(dict.fromkeys(texts))

    def having(parts: Sequence[str]) -> list[int]:
        return [
            at
            for at, text in enumerate(texts)
            if any(part.casefold() in text.casefold() for part in parts if part)
        ]

    kept = {fact["id"]: fact["kept"] for fact in raw["facts"]}
    asked: list[Asked] = [
        ("question", one["ask"], having(one["accept"]), []) for one in (*raw["questions"], *raw["short"])
    ]
    asked += [("question", one["ask"], having(one["new"]), having(one["old"])) for one in raw["corrections"]]
    asked += [("plan", one["prompt"], having(kept[one["fact"]]), []) for one in raw["touching"]]
    asked += [("unrelated", text, [], []) for text in raw["unrelated"]]
    return Person(
        f"day/{half}/{name}", language, texts, [one for one in asked if one[2] or one[0] == "unrelated"]
    )


Prompts = dict[tuple[int, str], tuple[NDArray[np.float32], float]]
"""The vector and the admission of prompts by layers that were trained without a fold, see `fold_of`."""


def folds_of(persons: Iterable[str]) -> dict[str, int]:
    """Return the third of the people that each person is in; those of the development set are in none."""
    names = sorted({name for name in persons if not name.startswith("dev/")})
    return {name: number % FOLDS for number, name in enumerate(names)}


def fold_of(person: str, kind: str, text: str, folds: Mapping[str, int]) -> int:
    """Return the fold that a prompt's vector is learnt without: -1 for the development set, which no fold is learnt from.

    Prompts that many people ask have folds of their own, by their text.
    """
    if person not in folds:
        return -1
    return zlib.crc32(text.encode()) % FOLDS if kind in GENERAL else folds[person]


class _Recorder:
    """Keeps what a search knows of its prompt, in place of a `RelevanceReader`."""

    def __init__(self) -> None:
        self.last: tuple[CandidateScores, PromptFacts] | None = None

    def bearing(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return a direction that counts for nothing."""
        return query, 0.0

    def estimate(self, read: CandidateScores, prompt: PromptFacts) -> Relevances:
        """Keep both, and choose everything."""
        self.last = (read, prompt)
        return Relevances(np.ones(len(read.ranked)), 1.0)


def gather(prompts: Prompts | None) -> list[Case]:
    """Search for every prompt in its namespace, on all processors.

    Args:
        prompts: the vectors of prompts; None searches without them, and adds the right memories that it does not find.
    """
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        parts = pool.map(_gather_part, range(workers), repeat(workers), repeat(prompts))
        return [case for part in parts for case in part]


def _gather_part(part: int, parts: int, prompts: Prompts | None) -> list[Case]:
    return asyncio.run(searched(list(everyone()), part, parts, prompts))


async def searched(
    persons: Sequence[Person], part: int, parts: int, prompts: Prompts | None, *, of_others: bool = True
) -> list[Case]:
    """Search for the prompts of a part of the people, each alone, with few memories, and among memories of others (``of_others``)."""
    embedder = CachedEmbedder("multilingual")
    await embedder.load()
    folds = folds_of(person.name for person in persons)
    cases: list[Case] = []
    for number, person in enumerate(persons):
        if number % parts != part:
            continue
        rng = random.Random(person.name)
        everyone_else = [one for one in persons if one is not person and not one.name.startswith("dev/")]
        near = [one for one in everyone_else if one.language == person.language]
        strange = [text for one in (*near, *rng.sample(everyone_else, 8)) for text in one.memories]
        asked = _asked(person, near, rng)
        vectors = await embedder.embed([one[1] for one in asked], query=True)
        searches: list[tuple[int, Asked, MemoryIndex, NDArray[np.float32], list[str]]] = []
        for fill in (0, _FILLS[number // parts % len(_FILLS)])[: 1 + of_others]:
            texts = [*person.memories, *rng.sample(strange, min(fill, len(strange)))]
            if fill == _FILLS[0]:
                texts += rng.sample(_chat(person.language), _OF_CHAT)
            rows = await embedder.embed(texts)
            index = _index(texts, rows)
            for one in asked:
                # Among memories of others, half of the prompts that nothing answers are enough.
                if fill and (one[0] in ("removed", "unneeded") or (not one[2] and rng.random() < _LEFT_OUT)):
                    continue
                searches.append((fill, one, index, rows, texts))
        rows = await embedder.embed(person.memories)
        for kind, text, right, _ in asked:
            if kind in ("removed", "unneeded") or rng.random() < _LEFT_OUT:
                continue
            others = [key for key in range(len(person.memories)) if key not in right]
            keys = [*right, *rng.sample(others, rng.randint(int(not right), _FEW))]
            texts = [person.memories[key] for key in keys]
            index = _index(texts, rows[keys])
            searches.append((AMONG_FEW, (kind, text, list(range(len(right))), []), index, rows[keys], texts))
        of_texts = dict(zip((one[1] for one in asked), vectors, strict=True))
        for fill, one, index, among, texts in searches:
            own = of_texts[one[1]], 0.0
            if prompts is not None:
                own = prompts[fold_of(person.name, one[0], one[1], folds), one[1]]
            asked_by = QueryVectors(of_texts[one[1]], *own)
            cases.append(_case(person, fill, one, asked_by, index, among, texts, known=prompts is not None))
        if number % 10 == part:
            print(number, len(cases), flush=True)
    await embedder.close()
    return cases


def _asked(person: Person, near: Sequence[Person], rng: random.Random) -> list[Asked]:
    """Return the prompts of a person, questions of others, unrelated ones, and some without their memories."""
    asked = list(person.asked)
    foreign = [text for one in near for kind, text, *_ in one.asked if kind == "question"]
    asked += [("unanswerable", text, [], []) for text in rng.sample(foreign, min(4, len(foreign)))]
    unrelated = rng.sample(_nones()[person.language][:_POOL], 6) + rng.sample(UNRELATED_PROMPTS, 6)
    asked += [("unrelated", text, [], []) for text in unrelated]
    asked += [("removed", *one[1:]) for one in person.asked[::3] if one[0] == "question"]
    asked += [("unneeded", *one[1:]) for one in person.asked if one[0] == "plan"]
    return asked


@cache
def _chat(language: str) -> list[str]:
    """Return replies, courtesies and results of chats in a language, with those in English if there are few."""
    found = []
    for each in dict.fromkeys((language, "en")):
        for line in (SETS / "messages" / f"{each}.tsv").read_text("utf-8").splitlines():
            label, text = line.split("\t", 1)
            found += [text] if label in ("courtesy", "hedge", "reply", "result") else []
    return found


def _index(texts: Sequence[str], rows: NDArray[np.float32]) -> MemoryIndex:
    index = MemoryIndex(rows.shape[1], Calibration(PRIORS[MODEL], (), shipped_priors(MODEL), MODEL))
    for key, (row, text) in enumerate(zip(rows, texts, strict=True)):
        index.put(key, row, text)
    return index


@cache
def _nones() -> dict[str, list[str]]:
    """Return the prompts that the classifier of prompts learnt to be without memories, by language."""
    nones: dict[str, list[str]] = defaultdict(list)
    for language, label, text in labelled():
        if label == "none":
            nones[language].append(text)
    for texts in nones.values():
        random.Random(5).shuffle(texts)
    return nones


def _case(  # noqa: PLR0917 - a search
    person: Person,
    fill: int,
    asked: Asked,
    vectors: QueryVectors,
    index: MemoryIndex,
    rows: NDArray[np.float32],
    texts: Sequence[str],
    *,
    known: bool,
) -> Case:
    """Search for one prompt."""
    kind, text, right, old = asked
    allowed = None
    if kind in ("removed", "unneeded"):
        allowed = KeyMask.from_keys(set(range(len(rows))) - set(right))
    recorder = _Recorder()
    with mock.patch.object(index_module, "relevance_reader", return_value=recorder):
        hits = index.search(
            vectors.query,
            QueryWords.from_query(text),
            2 * MOST_READ,
            allowed=allowed,
            floor=0.0,
            reading=read_prompt(text).reading(vectors.query, MODEL),
            prompt=vectors,
        ).hits
    assert recorder.last is not None
    keys = [hit.key for hit in hits]
    if not known and kind in ("question", "plan"):
        keys += [key for key in right if key not in keys]
    gold = np.array([1 if key in right else -1 if key in old else 0 for key in keys])
    return Case(
        person.name,
        person.language,
        kind,
        text,
        fill,
        vectors.query,
        rows[keys],
        [texts[key] for key in keys],
        *recorder.last,
        gold,
    )


class Bearing(NamedTuple):
    """The learnt matrices of contents, as a `relayer.search.relevance.RelevanceReader` has them."""

    down: NDArray[np.float32]
    up: NDArray[np.float32]

    def read(self, case: Case) -> CandidateScores:
        """Return what a search with these matrices knows."""
        direction = (case.query @ self.down) @ self.up
        return case.read._replace(bearing=(case.rows @ direction).astype(np.float64))


def learn_bearing(cases: Sequence[Case]) -> Bearing:
    """Learn how much a memory with one content bears on a prompt with another, as for a meal and an allergy.

    A logistic regression on the features of candidates and on all products of the first components of both vectors, which are
    not centred: their first component is nearly constant, so that the others count by themselves too.
    """
    queries = np.stack([case.query for case in cases]).astype(np.float64)
    rows = np.concatenate([case.rows for case in cases]).astype(np.float64)
    own = np.repeat(np.arange(len(cases)), [len(case.right) for case in cases])
    of_prompt, of_memory = components(queries, _BEARING), components(rows, _BEARING)
    weights = _memory_weights(cases)
    used = weights > 0
    known = np.concatenate([features(case.read, case.prompt) for case in cases])
    known = (known - known.mean(0)) / (known.std(0) + 1e-6)
    products = ((queries @ of_prompt)[own[used]][:, :, None] * (rows[used] @ of_memory)[:, None]).reshape(
        int(used.sum()), -1
    )
    # A smaller scale is a stronger regularisation: 0.01 for the products where the features have 0.3.
    scale = np.sqrt(0.01 / 0.3) / (products.std(0) + 1e-6)
    learnt = LogisticRegression(C=0.3, max_iter=200, solver="newton-cholesky")
    labels = np.concatenate([case.right for case in cases])[used]
    learnt.fit(np.concatenate([known[used], products * scale], axis=1), labels, sample_weight=weights[used])
    matrix = (learnt.coef_[0][known.shape[1] :] * scale).reshape(_BEARING, _BEARING)
    return Bearing(_half(of_prompt @ matrix), _half(of_memory.T))


def components(vectors: Numbers, count: int) -> Numbers:
    """Return the first principal components of vectors as columns, without centring them."""
    main: Numbers = np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1][:, :count]
    return main


def _half(matrix: Numbers) -> NDArray[np.float32]:
    """Return a matrix as it is stored."""
    return matrix.astype(np.float16).astype(np.float32)


def _memory_weights(cases: Sequence[Case]) -> Numbers:
    """Return the weight of each candidate of the cases for the probability of a memory."""
    return np.concatenate(
        [
            np.full(len(case.right), _OF_MEMORY[case.kind] * share(case))
            * ((case.right >= 0) & counted(case))
            for case in cases
        ]
    )


def learn_logistic(rows: Numbers, labels: NDArray[np.int_], weights: Numbers, strength: float) -> Logistic:
    """Learn a logistic regression on standardised features."""
    mean, spread = rows.mean(0), rows.std(0) + 1e-6
    learnt = LogisticRegression(C=strength, max_iter=200, solver="newton-cholesky")
    learnt.fit((rows - mean) / spread, labels, sample_weight=weights)
    scaled = learnt.coef_[0] / spread
    return Logistic(np.append(scaled, learnt.intercept_[0] - float(scaled @ mean)))


def chosen_for(cases: Sequence[Case], readings: Sequence[Relevances], bar: float = 0.0) -> dict[str, float]:
    """Return the means of what would be in the prompts, in percent and in lines, with the order of the evidence."""
    counts: dict[str, list[float]] = defaultdict(list)
    for case, reading in zip(cases, readings, strict=True):
        each = chosen(reading._replace(admitted=reading.admitted - bar))
        shown = case.right[each >= 0.3][:10]
        if case.kind == "question":
            counts["told"].append(100.0 * (shown == 1).any())
            counts["first 3"].append(100.0 * (shown[:3] == 1).any())
            likeliest = case.right[np.argsort(-each, kind="stable")[:3]]
            counts["first 3 by relevance"].append(100.0 * bool(len(shown)) * (likeliest == 1).any())
            counts["lines"].append(len(shown))
        elif case.kind == "plan":
            if (total := (case.right == 1).sum()) > 0:
                counts["plans"] += [100.0] * int((shown == 1).sum()) + [0.0] * int(total - (shown == 1).sum())
            counts["plan lines"].append(len(shown))
        else:
            counts[case.kind].append(100.0 * bool(len(shown)))
            counts[f"{case.kind} lines"].append(len(shown))
    return {name: float(np.mean(values)) for name, values in sorted(counts.items())}


def report(cases: Sequence[Case], readings: Sequence[Relevances], bar: float = 0.0) -> str:
    """Return the same as a line."""
    return ", ".join(f"{name} {mean:.1f}" for name, mean in chosen_for(cases, readings, bar).items())


def learn(cases: Sequence[Case]) -> dict[str, NDArray[Any]]:
    """Learn all weights, and print what they choose for the people of the development set, whom nothing is learnt from."""
    held_out = np.array([_is_held_out(case) for case in cases])
    learnt_from = [case for case in cases if not _is_held_out(case)]
    folds = folds_of(case.person for case in cases)
    fold = np.array([folds.get(case.person, -1) for case in cases])
    reads: list[CandidateScores] = [case.read for case in cases]
    for one in range(FOLDS):
        others = [case for case, its in zip(cases, fold, strict=True) if its not in (one, -1)]
        bearing = learn_bearing(others)
        for at in np.flatnonzero(fold == one).tolist():
            reads[at] = bearing.read(cases[at])
        print(f"learnt from {len(others)} searches for {int((fold == one).sum())} others", flush=True)
    bearing = learn_bearing(learnt_from)
    for at in np.flatnonzero(held_out).tolist():
        reads[at] = bearing.read(cases[at])
    _print_ranks(
        [case for case in cases if _is_held_out(case)], [reads[at] for at in np.flatnonzero(held_out)]
    )
    reads_of_all = [reads[at] for at in np.flatnonzero(~held_out)]
    every = np.concatenate(
        [features(read, case.prompt) for case, read in zip(learnt_from, reads_of_all, strict=True)]
    )
    labels = np.concatenate([case.right for case in learnt_from])
    weights = _memory_weights(learnt_from)
    memory = learn_logistic(every[weights > 0], labels[weights > 0], weights[weights > 0], 0.3)
    prompt = learn_prompt(learnt_from, reads_of_all, memory)
    print_choices(cases, reads, memory, prompt)
    return {
        "bearing-down": bearing.down.astype(np.float16),
        "bearing-up": bearing.up.astype(np.float16),
        "memory": memory.weights.astype(np.float32),
        "prompt": prompt.weights.astype(np.float32),
    }


def estimates(
    cases: Sequence[Case], reads: Sequence[CandidateScores], memory: Logistic
) -> tuple[list[Numbers], Numbers]:
    """Return the probabilities of the candidates of each case, and the features of its prompt."""
    likelies, rows = [], []
    for case, read in zip(cases, reads, strict=True):
        likely = 1 / (1 + np.exp(-np.clip(memory.logits(features(read, case.prompt)), -30, 30)))
        steps = float(np.clip(case.prompt.steps(read.judged), -3, 6).max())
        likelies.append(likely)
        rows.append(gate_features(likely, steps, case.prompt))
    return likelies, np.stack(rows)


def learn_prompt(cases: Sequence[Case], reads: Sequence[CandidateScores], memory: Logistic) -> Logistic:
    """Learn which prompts are admitted."""
    _, rows = estimates(cases, reads, memory)
    wanted = np.isin([case.kind for case in cases], ("question", "plan"))
    weights = np.array(
        [_OF_PROMPT[case.kind] * share(case) * (1.0 if _is_new(case) else _KNOWN) for case in cases]
    )
    used = weights > 0
    learnt = learn_logistic(rows[used], wanted[used].astype(int), weights[used], 0.03).weights
    learnt[-1] -= _BAR
    return Logistic(learnt)


def print_choices(
    cases: Sequence[Case], reads: Sequence[CandidateScores], memory: Logistic, prompt: Logistic
) -> None:
    """Print what the people of the development set get, at bars around the one that is used."""
    some = [at for at, case in enumerate(cases) if _is_held_out(case) and not case.fill]
    held_out = [cases[at] for at in some]
    likelies, rows = estimates(held_out, [reads[at] for at in some], memory)
    logits = prompt.logits(rows)
    for bar in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5):
        readings = [Relevances(*one) for one in zip(likelies, logits.tolist(), strict=True)]
        print(f"bar {_BAR + bar:+.2f}:", report(held_out, readings, bar))


def share(case: Case) -> float:
    """Return the weight of a case by its namespace: most prompts are asked among more than a few memories."""
    return _OF_FEW if case.fill == AMONG_FEW else 1.0


def _is_held_out(case: Case) -> bool:
    return case.person.startswith("dev/")


def _is_new(case: Case) -> bool:
    """Return whether the classifier of prompts was not learnt from the case's prompt."""
    return case.person.startswith(("train/", "more/", "third/", "weeks/")) and (
        case.kind != "unrelated" or case.text in UNRELATED_PROMPTS or case.text in _unrelated()
    )


@cache
def _unrelated() -> frozenset[str]:
    return frozenset(text for texts in listed("train", "unrelated").values() for text in texts)


def counted(case: Case) -> NDArray[np.bool_]:
    """Of a prompt without a right memory only the best candidates count, since the others are all alike."""
    place = np.arange(len(case.right))
    if case.kind in ("question", "plan"):
        return place >= 0
    return (place < _BEST) | np.isin(place, np.argsort(-case.read.turned, kind="stable")[: _BEST // 2])


def _print_ranks(cases: Sequence[Case], reads: Sequence[CandidateScores]) -> None:
    for kind in ("question", "plan"):
        places: list[tuple[int, int, int]] = []
        for case, read in zip(cases, reads, strict=True):
            if case.kind == kind and (right := case.right == 1).any():
                scores = (read.ranked, read.cosine, read.turned)
                places.append(tuple(int((one > one[right].max()).sum()) for one in scores))  # type: ignore[arg-type]
        ranks = np.array(places)
        print(
            kind, len(ranks), "first", (ranks < 1).mean(0).round(3), "first 3", (ranks < 3).mean(0).round(3)
        )


def main(
    cases: Annotated[Path, typer.Option(help="Where the searches are kept.")],
    *,
    write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False,
) -> None:
    """Learn which memories belong in a prompt."""
    layers = Path(f"{cases}.prompts")
    if not layers.exists():
        cases.write_bytes(pickle.dumps(gather(None)))
        print(f"train the layers of prompts now: python -m bench.prompt_layers --cases {cases}")
        return
    searched = Path(f"{cases}.searched")
    if not searched.exists():
        searched.write_bytes(pickle.dumps(gather(pickle.loads(layers.read_bytes()))))
    learnt = learn(pickle.loads(searched.read_bytes()))
    if write:
        Path(f"{cases}.learnt").write_bytes(pickle.dumps(learnt))
        # The weights of bench.cross_encoder stay until they are learnt again.
        with np.load(WEIGHTS) as stored:
            arrays: dict[str, Any] = dict(stored)
        np.savez_compressed(WEIGHTS, **arrays | {f"{MODEL}_{name}": one for name, one in learnt.items()})
        data = WEIGHTS.read_bytes()
        print(f"{len(data):,} bytes written, SHA-256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    # By its own name, under which `bench.prompt_layers` finds the class of the cases, too.
    typer.run(importlib.import_module("bench.relevance").main)
