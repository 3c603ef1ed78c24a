"""Which of the local models finds what is asked, by language: the seen half of ``bench/sets/day``, ranked without a floor.

    python -m bench.which_model

All that the personas of a language tell lies in one index, ranked as the relayer ranks it, by meaning and words. Printed for each
model and language: how often the answer is among the first five and the mean reciprocal rank, in percent; and how often the best cosine
to a question that has an answer exceeds that to an unrelated prompt (50 is chance), which is what silence can be judged by.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from bench.day import personas
from relayer.adapters.local_embedder import Kind, LocalEmbedder
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex
from relayer.search.terms import indexed_text

_FIRST_DAY = 1_683_504_000_000
_DAY = 86_400_000
_KINDS: tuple[Kind, ...] = ("local", "multilingual")


@dataclass
class Told:
    """What is told in a language, what is asked for (with the place of the answer), and what has nothing to do with it."""

    memories: list[str] = field(default_factory=list)
    questions: list[tuple[str, int]] = field(default_factory=list)
    unrelated: list[str] = field(default_factory=list)


def by_language() -> dict[str, Told]:
    """The personas' facts and questions by language."""
    found: defaultdict[str, Told] = defaultdict(Told)
    for persona in personas("seen"):
        told = found[persona.language]
        places = {}
        for fact in persona.raw["facts"]:
            places[fact["id"]] = len(told.memories)
            told.memories.append(" ".join(fact["said"]))
        told.questions += [(case["ask"], places[case["fact"]]) for case in persona.raw["questions"]]
        for short in persona.raw["short"]:
            told.questions.append((short["ask"], len(told.memories)))
            told.memories.append(short["said"])
        told.unrelated += persona.raw["unrelated"]
    return dict(sorted(found.items()))


async def scores(embedder: LocalEmbedder, told: Told) -> tuple[float, float, float]:
    """Share of answers among the first five, mean reciprocal rank, and how well questions stand out; in percent."""
    texts = [indexed_text(None, _FIRST_DAY + at * _DAY, text) for at, text in enumerate(told.memories)]
    index = MemoryIndex(embedder.model.dimension, Calibration(PRIORS[embedder.model.sha256]))
    rows = await embedder.embed(texts)
    for at, (text, row) in enumerate(zip(texts, rows, strict=True)):
        index.put(at, row, text)
    asked = await embedder.embed([question for question, _ in told.questions], query=True)
    ranks = []
    for (question, answer), vector in zip(told.questions, asked, strict=True):
        keys = [hit.key for hit in index.search(vector, question, len(texts), floor=0.0).hits]
        ranks.append(keys.index(answer) + 1 if answer in keys else np.inf)
    best = (asked @ rows.T).max(axis=1)
    noise = (await embedder.embed(told.unrelated, query=True) @ rows.T).max(axis=1)
    first = np.asarray(ranks)
    return (
        100 * float(np.mean(first <= 5)),
        100 * float(np.mean(1 / first)),
        100 * float(np.mean(best[:, None] > noise)),
    )


async def main() -> None:
    """Print the table."""
    every = by_language()
    found: dict[Kind, dict[str, tuple[float, float, float]]] = {}
    for kind in _KINDS:
        embedder = LocalEmbedder(kind)
        found[kind] = {language: await scores(embedder, told) for language, told in every.items()}
        await embedder.close()
    for language in [*every, "all"]:
        row = [f"{language:4}"]
        for kind in _KINDS:
            some = list(found[kind].values()) if language == "all" else [found[kind][language]]
            row += [f"{value:5.0f}" for value in np.mean(some, axis=0)]
        print(" | ".join(row))


if __name__ == "__main__":
    asyncio.run(main())
