"""Learn which memories belong in a prompt: the weights of `relayer.search.relevance`.

    python -m bench.relevance --cases FILE            # search for all prompts once, and keep what the searches know in FILE
    python -m bench.relevance --cases FILE --write    # learn from FILE, report, and write the weights
    python -m bench.relevance --cases FILE --write --prompt-only    # keep the weights of memories, and learn those of prompts

The people of ``bench/sets/precise/train`` and of the halves ``seen`` and ``second`` of ``bench/sets/day`` are namespaces of their
own, alone and among memories of others. Each asks its own prompts, prompts that no memory answers, questions of other people, and
some of its questions again without the memory that answers them. The turn of a prompt's vector and the products of components are
learnt from two thirds of the people for the other third, so that the other weights are learnt from vectors as they will be. Needs scikit-learn, of the extra
``bench``. The same sets and model give the same file.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from unittest import mock

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bench.day import CachedEmbedder, personas
from bench.prompt_reader import labelled
from bench.spaces import PRECISE, people
from relayer.lib.n_grams import read_prompt
from relayer.search import index as index_module
from relayer.search.baseline import PRIORS, UNRELATED_PROMPTS, Calibration, shipped_priors
from relayer.search.index import MemoryIndex, QueryWords
from relayer.search.key_mask import KeyMask
from relayer.search.relevance import (
    CandidateScores,
    Logistic,
    PromptFacts,
    Relevances,
    chosen,
    features,
    gate_features,
    relevance_reader,
)

MODEL = "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "relevance.npz"
Numbers = NDArray[np.float64]
Kind = Literal["question", "plan", "unanswerable", "untouched", "unrelated", "removed", "unneeded"]
_FILLS = (40, 170)
_POOL = 40
_FOLDS = 3
# Of the untouched and unrelated prompts in a person's language, how many each person asks.
_ASKED_OF_EACH = 12
_COMPONENTS = 64
# The components of a prompt and of a memory whose products are learnt, and those of a prompt for its admission.
_BEARING = 20
_CONTENT = 40
# The logit from which a prompt is admitted, chosen with the people of the development set.
_BAR = -1.5
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
    asked: list[tuple[Kind, str, list[int], list[int]]]


@dataclass(slots=True)
class Case:
    """A search for a prompt: what it knew, and which of its candidates are right (1), wrong (0), or neither (-1)."""

    person: str
    language: str
    kind: Kind
    text: str
    fill: int
    query: NDArray[np.float32]
    rows: NDArray[np.float32]
    read: CandidateScores
    prompt: PromptFacts
    right: NDArray[np.int_]


def listed(part: str, name: str) -> dict[str, list[str]]:
    """Return the prompts of a table of ``bench/sets/precise``, by person or language."""
    prompts: dict[str, list[str]] = defaultdict(list)
    for line in (PRECISE / part / f"{name}.tsv").read_text("utf-8").splitlines():
        owner, text = line.split("\t")
        prompts[owner].append(text)
    return prompts


def of_people(part: str) -> Iterator[Person]:
    """Yield the people of ``train`` or ``dev``, who also ask prompts of the tables of untouched and unrelated ones."""
    rng = random.Random(7)
    untouched, unrelated = listed(part, "untouched"), listed(part, "unrelated")
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
        near = [text for owner, texts in untouched.items() if owner[:2] == space.language for text in texts]
        own = untouched.get(Path(space.name).name) or rng.sample(near, min(_ASKED_OF_EACH, len(near)))
        asked += [("untouched", text, [], []) for text in own]
        far = unrelated[space.language]
        asked += [("unrelated", text, [], []) for text in rng.sample(far, min(_ASKED_OF_EACH, len(far)))]
        yield Person(space.name, space.language, space.memories, asked)


def everyone() -> Iterator[Person]:
    """Yield the people of the sets for training, and those of the development set."""
    yield from of_people("train")
    yield from of_people("dev")
    for half in ("seen", "second"):
        for persona in personas(half):
            yield _of_the_day(half, persona.name, persona.language, persona.raw)


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
    asked: list[tuple[Kind, str, list[int], list[int]]] = [
        ("question", one["ask"], having(one["accept"]), []) for one in (*raw["questions"], *raw["short"])
    ]
    asked += [("question", one["ask"], having(one["new"]), having(one["old"])) for one in raw["corrections"]]
    asked += [("plan", one["prompt"], having(kept[one["fact"]]), []) for one in raw["touching"]]
    asked += [("unrelated", text, [], []) for text in raw["unrelated"]]
    return Person(
        f"day/{half}/{name}", language, texts, [one for one in asked if one[2] or one[0] == "unrelated"]
    )


class _Recorder:
    """Keeps what a search knows of its prompt, in place of a `RelevanceReader`."""

    def __init__(self) -> None:
        self.last: tuple[CandidateScores, PromptFacts] | None = None

    def turn(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vector as it is."""
        return query

    def bearing(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return a direction that counts for nothing."""
        return query, 0.0

    def content(self, query: NDArray[np.float32]) -> float:  # noqa: ARG002 - as of a reader
        """Return the logit of a prompt that is as likely admitted as not."""
        return 0.0

    def estimate(self, read: CandidateScores, prompt: PromptFacts) -> Relevances:
        """Keep both, and choose everything."""
        self.last = (read, prompt)
        return Relevances(np.ones(len(read.ranked)), 1.0)


async def gather() -> list[Case]:
    """Search for every prompt in its namespace."""
    rng = random.Random(5)
    embedder = CachedEmbedder("multilingual")
    await embedder.load()
    sha256 = embedder.model.sha256
    prior = Calibration(PRIORS[sha256], (), shipped_priors(sha256), sha256)
    persons = list(everyone())
    by_language: dict[str, list[Person]] = defaultdict(list)
    for person in persons:
        by_language[person.language].append(person)
    nones: dict[str, list[str]] = defaultdict(list)
    for language, label, text in labelled():
        if label == "none":
            nones[language].append(text)
    for prompts in nones.values():
        rng.shuffle(prompts)
    cases: list[Case] = []
    recorder = _Recorder()
    with mock.patch.object(index_module, "relevance_reader", return_value=recorder):
        for number, person in enumerate(persons):
            others = [
                one
                for one in by_language[person.language]
                if one is not person and not one.name.startswith("dev/")
            ]
            strange = [text for one in others for text in one.memories]
            strange += [
                text
                for one in rng.sample(persons, min(8, len(persons)))
                if one is not person and not one.name.startswith("dev/")
                for text in one.memories
            ]
            asked = list(person.asked)
            foreign = [text for one in others for kind, text, *_ in one.asked if kind == "question"]
            asked += [("unanswerable", text, [], []) for text in rng.sample(foreign, min(4, len(foreign)))]
            unrelated = rng.sample(nones[person.language][:_POOL], 8) + rng.sample(UNRELATED_PROMPTS, 8)
            asked += [("unrelated", text, [], []) for text in unrelated]
            asked += [
                ("removed", text, right, old)
                for kind, text, right, old in person.asked[::3]
                if kind == "question"
            ]
            asked += [
                ("unneeded", text, right, old) for kind, text, right, old in person.asked if kind == "plan"
            ]
            vectors = await embedder.embed([one[1] for one in asked], query=True)
            for fill in (0, _FILLS[number % len(_FILLS)]):
                texts = [*person.memories, *rng.sample(strange, min(fill, len(strange)))]
                rows = await embedder.embed(texts)
                found = MemoryIndex(embedder.model.dimension, prior)
                for key, (row, text) in enumerate(zip(rows, texts, strict=True)):
                    found.put(key, row, text)
                for (kind, text, right, old), vector in zip(asked, vectors, strict=True):
                    if fill and kind in ("removed", "unneeded"):
                        continue
                    allowed = None
                    if kind in ("removed", "unneeded"):
                        allowed = KeyMask.from_keys(set(range(len(texts))) - set(right))
                    form = read_prompt(text).reading(vector, sha256)
                    hits = found.search(
                        vector,
                        QueryWords.from_query(text),
                        30,
                        allowed=allowed,
                        floor=0.0,
                        reading=form,
                        prompt=True,
                    ).hits
                    keys = [hit.key for hit in hits]
                    assert recorder.last is not None
                    read, prompt = recorder.last
                    gold = np.array([1 if key in right else -1 if key in old else 0 for key in keys])
                    cases.append(
                        Case(
                            person.name,
                            person.language,
                            kind,
                            text,
                            fill,
                            vector,
                            rows[keys],
                            read,
                            prompt,
                            gold,
                        )
                    )
            if number % 10 == 0:
                print(number, len(cases), flush=True)
    await embedder.close()
    return cases


def learn_turn(
    cases: Sequence[Case], *, epochs: int = 12, rate: float = 0.02, decay: float = 2e-4
) -> NDArray[np.float32]:
    """Learn a matrix that turns prompts towards what answers them, by the softmax over the candidates and those of others."""
    rng = np.random.default_rng(0)
    used = [one for one in cases if (one.right == 1).any() and one.kind in ("question", "plan")]
    dimension = used[0].query.shape[0]
    matrix = np.zeros((dimension, dimension), np.float32)
    first, second = np.zeros_like(matrix), np.zeros_like(matrix)
    batch, scale, step = 48, np.float32(14.0), 0
    for epoch in range(epochs):
        order = rng.permutation(len(used))
        for start in range(0, len(order) - batch + 1, batch):
            some = [used[at] for at in order[start : start + batch]]
            queries = np.stack([one.query for one in some])
            rows = np.concatenate([one.rows for one in some])
            own = np.repeat(np.arange(batch), [len(one.rows) for one in some])
            label = np.concatenate([one.right for one in some])
            mine = own[None] == np.arange(batch)[:, None]
            logits = scale * ((queries + queries @ matrix) @ rows.T) - (~mine).astype(np.float32)
            logits[mine & (label == -1)[None]] = -1e4
            right = mine & (label == 1)[None]
            likely = np.exp(logits - logits.max(1, keepdims=True))
            likely /= likely.sum(1, keepdims=True)
            wanted = right * (likely + np.float32(1e-12))
            wanted /= wanted.sum(1, keepdims=True)
            gradient = (
                queries.T @ ((likely - wanted) @ rows) * (scale / batch) + decay * scale * matrix * batch
            )
            step += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient**2
            speed = rate * 0.05 * (1 - epoch / epochs)
            matrix -= (
                speed * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-6)
            ).astype(np.float32)
    return matrix


def halves(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the best approximation of a matrix of `_COMPONENTS` components, as stored."""
    left, values, right = np.linalg.svd(matrix)
    root = np.sqrt(values[:_COMPONENTS])
    down = (left[:, :_COMPONENTS] * root).astype(np.float16).astype(np.float32)
    up = (root[:, None] * right[:_COMPONENTS]).astype(np.float16).astype(np.float32)
    return down, up


class Matrices(NamedTuple):
    """The learnt matrices of prompts' vectors, as a `relayer.search.relevance.RelevanceReader` has them."""

    down: NDArray[np.float32]
    up: NDArray[np.float32]
    bearing_down: NDArray[np.float32]
    bearing_up: NDArray[np.float32]

    @classmethod
    def from_cases(cls, cases: Sequence[Case]) -> Matrices:
        """Learn them."""
        down, up = halves(learn_turn(cases))
        return cls(down, up, *learn_bearing(cases, [_turned(case, down, up) for case in cases]))

    def read(self, case: Case) -> CandidateScores:
        """Return what a search with these matrices knows."""
        direction = (case.query @ self.bearing_down) @ self.bearing_up
        bearing = (case.rows @ direction).astype(np.float64)
        return _turned(case, self.down, self.up)._replace(bearing=bearing)

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return them as they are stored, by name."""
        return {name.replace("_", "-"): one.astype(np.float16) for name, one in self._asdict().items()}


def _turned(case: Case, down: NDArray[np.float32], up: NDArray[np.float32]) -> CandidateScores:
    query = case.query + (case.query @ down) @ up
    query /= np.linalg.norm(query)
    return case.read._replace(turned=(case.rows @ query).astype(np.float64))


def learn_bearing(
    cases: Sequence[Case], reads: Sequence[CandidateScores]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
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
    known = np.concatenate([features(read, case.prompt) for case, read in zip(cases, reads, strict=True)])
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
    return _half(of_prompt @ matrix), _half(of_memory.T)


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
            np.full(len(case.right), _OF_MEMORY[case.kind]) * ((case.right >= 0) & _counted(case))
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


def report(cases: Sequence[Case], readings: Sequence[Relevances], bar: float = 0.0) -> str:
    """Return what would be in the prompts, with the order of the evidence."""
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
    return ", ".join(f"{name} {np.mean(values):.1f}" for name, values in sorted(counts.items()))


def learn(cases: Sequence[Case]) -> dict[str, NDArray[Any]]:
    """Learn all weights, and print what they choose for the people of the development set, whom nothing is learnt from."""
    held_out = np.array([_is_held_out(case) for case in cases])
    learnt_from = [case for case in cases if not _is_held_out(case)]
    names = sorted({case.person for case in learnt_from})
    fold = np.array([-1 if _is_held_out(case) else names.index(case.person) % _FOLDS for case in cases])
    reads: list[CandidateScores] = [case.read for case in cases]
    for one in range(_FOLDS):
        others = [case for case, its in zip(cases, fold, strict=True) if its not in (one, -1)]
        matrices = Matrices.from_cases(others)
        for at in np.flatnonzero(fold == one).tolist():
            reads[at] = matrices.read(cases[at])
        print(f"learnt from {len(others)} searches for {int((fold == one).sum())} others", flush=True)
    matrices = Matrices.from_cases(learnt_from)
    for at in np.flatnonzero(held_out).tolist():
        reads[at] = matrices.read(cases[at])
    _print_ranks(cases, reads)
    reads_of_all = [reads[at] for at in np.flatnonzero(~held_out)]
    every = np.concatenate(
        [features(read, case.prompt) for case, read in zip(learnt_from, reads_of_all, strict=True)]
    )
    labels = np.concatenate([case.right for case in learnt_from])
    weights = _memory_weights(learnt_from)
    memory = learn_logistic(every[weights > 0], labels[weights > 0], weights[weights > 0], 0.3)
    prompt, direction = learn_prompt(learnt_from, reads_of_all, memory)
    print_choices(cases, reads, memory, prompt, direction)
    return matrices.stored() | {
        "memory": memory.weights.astype(np.float32),
        "prompt": prompt.weights.astype(np.float32),
        "direction": direction.astype(np.float32),
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


def learn_prompt(
    cases: Sequence[Case], reads: Sequence[CandidateScores], memory: Logistic
) -> tuple[Logistic, Numbers]:
    """Learn which prompts are admitted: the weights of their features, and a direction for their vectors."""
    _, rows = estimates(cases, reads, memory)
    kinds = np.array([case.kind for case in cases])
    wanted = np.isin(kinds, ("question", "plan"))
    weights = np.array([_OF_PROMPT[case.kind] * (1.0 if _is_new(case) else _KNOWN) for case in cases])
    used = weights > 0
    queries = np.stack([case.query for case in cases]).astype(np.float64)
    main = components(queries[used], _CONTENT)
    both = np.concatenate([rows, queries @ main], axis=1)
    learnt = learn_logistic(both[used], wanted[used].astype(int), weights[used], 0.03).weights
    direction = main @ learnt[rows.shape[1] : -1]
    return Logistic(np.append(learnt[: rows.shape[1]], learnt[-1] - _BAR)), direction


def print_choices(
    cases: Sequence[Case],
    reads: Sequence[CandidateScores],
    memory: Logistic,
    prompt: Logistic,
    direction: Numbers,
) -> None:
    """Print what the people of the development set get, at bars around the one that is used."""
    some = [at for at, case in enumerate(cases) if _is_held_out(case) and not case.fill]
    held_out = [cases[at] for at in some]
    likelies, rows = estimates(held_out, [reads[at] for at in some], memory)
    logits = prompt.logits(rows) + np.stack([case.query for case in held_out]) @ direction
    for bar in (-1.0, -0.5, 0.0, 0.5, 1.0):
        readings = [Relevances(*one) for one in zip(likelies, logits.tolist(), strict=True)]
        print(f"bar {_BAR + bar:+.2f}:", report(held_out, readings, bar))


def learn_prompt_only(cases: Sequence[Case]) -> dict[str, NDArray[Any]]:
    """Learn which prompts are admitted, with the turn and the weights of memories that are in use."""
    reader = relevance_reader(MODEL)
    assert reader is not None
    matrices = Matrices(reader.down, reader.up, reader.bearing_down, reader.bearing_up)
    reads = [matrices.read(case) for case in cases]
    at = [number for number, case in enumerate(cases) if not _is_held_out(case)]
    prompt, direction = learn_prompt([cases[one] for one in at], [reads[one] for one in at], reader.memory)
    print_choices(cases, reads, reader.memory, prompt, direction)
    return matrices.stored() | {
        "memory": reader.memory.weights.astype(np.float32),
        "prompt": prompt.weights.astype(np.float32),
        "direction": direction.astype(np.float32),
    }


def _is_held_out(case: Case) -> bool:
    return case.person.startswith("dev/")


def _is_new(case: Case) -> bool:
    """Return whether the classifier of prompts was not learnt from the case's prompt."""
    return case.person.startswith("train/") and (
        case.kind != "unrelated" or case.text in UNRELATED_PROMPTS or case.text in _unrelated()
    )


@cache
def _unrelated() -> frozenset[str]:
    return frozenset(text for texts in listed("train", "unrelated").values() for text in texts)


def _counted(case: Case) -> NDArray[np.bool_]:
    """Of a prompt without a right memory only the best candidates count, since the others are all alike."""
    return np.arange(len(case.right)) < (30 if case.kind in ("question", "plan") else 8)


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
    write: Annotated[bool, typer.Option("--write", help="Learn, and write the weights.")] = False,
    prompt_only: Annotated[
        bool, typer.Option("--prompt-only", help="Learn only which prompts are admitted.")
    ] = False,
) -> None:
    """Learn which memories belong in a prompt."""
    if not cases.exists():
        cases.write_bytes(pickle.dumps(asyncio.run(gather())))
    found: list[Case] = pickle.loads(cases.read_bytes())
    learnt = learn_prompt_only(found) if prompt_only else learn(found)
    if write:
        Path(f"{cases}.learnt").write_bytes(pickle.dumps(learnt))
        np.savez_compressed(WEIGHTS, **{f"{MODEL}_{name}": one for name, one in learnt.items()})  # type: ignore[arg-type]
        data = WEIGHTS.read_bytes()
        print(f"{len(data):,} bytes written, SHA-256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    typer.run(main)
