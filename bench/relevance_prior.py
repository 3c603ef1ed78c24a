"""Measure the shipped priors of `relevance` anew and print the constants of relayer/search/baseline.py.

    python bench/relevance_prior.py [multilingual]

Uses only the texts of relayer.search.baseline.py. Also prints, for each size of namespace, which share of
prompts that the prior never saw (bench/unrelated_prompts.py) passes a floor of 0.3 among the statements.
"""

from __future__ import annotations

import asyncio
import random
import sys

from unrelated_prompts import HELD_OUT

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import UNRELATED_PROMPTS, Calibration, fit_prior, statement_texts
from relayer.search.index import MemoryIndex
from relayer.search.ranking import Prior


def constants(prior: Prior) -> str:
    points = ", ".join(
        f"({size}, Baseline({null.median:.3f}, {null.high:.3f}))" for size, null in prior.points
    )
    return f"Prior(({points}))"


async def main() -> None:
    embedder = LocalEmbedder("multilingual" if "multilingual" in sys.argv[1:] else "local", threads=2)
    texts = statement_texts()
    rows = await embedder.embed(texts)
    prior = fit_prior(rows, await embedder.embed(UNRELATED_PROMPTS, query=True))
    lexical = fit_prior(None, None)
    print(f"{embedder.model.sha256}: {constants(prior)}")
    print(f"LEXICAL_PRIOR = {constants(lexical)}")
    held_out = await embedder.embed(HELD_OUT, query=True)
    seed = random.Random(7)
    for size in (1, 3, 10, 30, 100, len(texts)):
        passed = {"dense": 0, "lexical": 0}
        rounds = 30 if size < len(texts) else 1
        for _ in range(rounds):
            index = MemoryIndex(embedder.model.dimension, Calibration(prior))
            for member in seed.sample(range(len(texts)), size):
                index.put(member, rows[member], texts[member])
            for prompt, vector in zip(HELD_OUT, held_out, strict=True):
                passed["dense"] += bool(index.search(vector, prompt, 5, floor=0.3).hits)
                passed["lexical"] += bool(index.search(None, prompt, 5, floor=0.3).hits)
        asked = rounds * len(HELD_OUT)
        print(
            f"n={size:4d} unrelated prompts that pass 0.3: "
            + ", ".join(f"{k} {v / asked:.1%}" for k, v in passed.items())
        )
    await embedder.close()


if __name__ == "__main__":
    asyncio.run(main())
