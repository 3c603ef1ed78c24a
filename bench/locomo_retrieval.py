"""Evidence recall and unwanted injection of the search itself, on LoCoMo, without network or language model.

    python bench/locomo_retrieval.py --data PATH [--weights model.onnx]

One namespace per conversation, one memory per turn, the bare question as the query. The data is licensed for
measuring only (CC BY-NC 4.0): nothing derived from it ships.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from unrelated_prompts import HELD_OUT

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import UNRELATED_PROMPTS, calibrate
from relayer.search.index import MemoryIndex
from relayer.search.rows import search_row
from relayer.search.terms import context_text, indexed_text

CATEGORIES = ("single_hop", "multi_hop", "temporal", "open_domain")
Ranking = Callable[[str], list[str]]


@dataclass(frozen=True)
class Namespace:
    name: str
    ids: list[str]
    texts: list[str]
    previous: list[str | None]
    plain: list[str]
    questions: list[tuple[str, str, list[str]]]


def namespaces(path: Path) -> Iterator[Namespace]:
    for conversation in json.loads(path.read_text())["conversations"]:
        turns: list[dict[str, Any]] = conversation["turns"]
        texts = [indexed_text(turn["speaker"], when(turn["date"]), turn["text"]) for turn in turns]
        previous = [
            texts[at - 1] if at and turns[at - 1]["session"] == turn["session"] else None
            for at, turn in enumerate(turns)
        ]
        ids = [turn["id"] for turn in turns]
        questions = [
            (question["q"], question["cat"], evidence)
            for question in conversation["questions"]
            if question["cat"] in CATEGORIES
            and (evidence := [turn for turn in dict.fromkeys(question["evidence"]) if turn in ids])
        ]
        yield Namespace(conversation["id"], ids, texts, previous, [turn["text"] for turn in turns], questions)


def when(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() * 1000)


class Scores:
    def __init__(self) -> None:
        self.recall: dict[int, list[float]] = {5: [], 10: [], 20: []}
        self.reciprocal: list[float] = []

    def add(self, found: list[str], evidence: list[str]) -> None:
        place = {turn: at for at, turn in enumerate(found)}
        for k, values in self.recall.items():
            values.append(sum(place.get(turn, k) < k for turn in evidence) / len(evidence))
        self.reciprocal.append(
            max((1 / (1 + place[turn]) for turn in evidence if turn in place), default=0.0)
        )

    def __str__(self) -> str:
        recall = " ".join(f"r@{k} {100 * np.mean(values):.1f}" for k, values in self.recall.items())
        return f"{recall} MRR {100 * np.mean(self.reciprocal):.1f} (n={len(self.reciprocal)})"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--embedder", choices=("multilingual", "local"), default="multilingual")
    options = parser.parse_args()
    embedder = LocalEmbedder(options.embedder, threads=2)
    calibration = await calibrate(embedder)
    spaces = list(namespaces(options.data))
    totals: dict[str, Scores] = {}
    by_category: dict[str, Scores] = {}
    silent = passed = asked = near_passed = near_asked = 0
    prompts = [*UNRELATED_PROMPTS, *HELD_OUT]
    prompt_vectors = await embedder.embed(prompts, query=True)
    seed = random.Random(5)
    for space in spaces:
        own = await embedder.embed(space.texts)
        context = await embedder.embed(
            [
                text if before is None else context_text(before, text)
                for before, text in zip(space.previous, space.texts, strict=True)
            ]
        )
        mean = np.array([search_row(one, other) for one, other in zip(own, context, strict=True)])
        variants = {
            "dense, plain text": await embedder.embed(space.plain),
            "dense, header": own,
            "dense, header + context": mean,
        }
        index = MemoryIndex(embedder.model.dimension, calibration)
        for at, text in enumerate(space.texts):
            before = None if space.previous[at] is None else at - 1
            index.put(at, mean[at], text, space.previous[at], speaker=text.partition(" (")[0], before=before)
        await index.maintain()
        await index.measure_null()
        vectors = await embedder.embed([question for question, _, _ in space.questions], query=True)
        for (question, category, evidence), vector in zip(space.questions, vectors, strict=True):
            for name, rows in variants.items():
                totals.setdefault(name, Scores()).add(ranked(space, rows, vector), evidence)
            for name, query, floor in (
                ("terms alone", None, 0.0),
                ("both", vector, 0.0),
                ("both, floor 0.3", vector, 0.3),
            ):
                hits = index.search(query, question, 20, floor=floor).hits
                found = [space.ids[hit.key] for hit in hits]
                totals.setdefault(name, Scores()).add(found, evidence)
                if name == "both":
                    by_category.setdefault(category, Scores()).add(found, evidence)
                elif floor and not hits:
                    silent += 1
        for prompt, vector in zip(prompts, prompt_vectors, strict=True):
            passed += bool(index.search(vector, prompt, 5).hits)
            asked += 1
        others = [question for other in spaces if other is not space for question, _, _ in other.questions]
        for question in seed.sample(others, 150):
            near_passed += bool(
                index.search((await embedder.embed([question], query=True))[0], question, 5).hits
            )
            near_asked += 1
    for name, scores in totals.items():
        print(f"{name:24} {scores}")
    for name, scores in sorted(by_category.items()):
        print(f"  both, {name:16} {scores}")
    print(f"questions answered with silence at 0.3: {silent} of {len(totals['both'].reciprocal)}")
    print(f"unrelated prompts that inject at 0.3: {passed / asked:.1%} of {asked}")
    print(f"questions about other people that inject at 0.3: {near_passed / near_asked:.1%} of {near_asked}")
    await embedder.close()


def ranked(space: Namespace, rows: NDArray[np.float32], query: NDArray[np.float32]) -> list[str]:
    return [space.ids[at] for at in np.argsort(-(rows @ query), kind="stable")]


if __name__ == "__main__":
    asyncio.run(main())
