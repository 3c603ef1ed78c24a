"""CPU time of a hybrid search with the query's vector given, by size of the namespace; `make bench-quality` runs it.

Vectors lie around 200 centres, words follow Zipf's law, a hundred people speak in conversations of twenty turns: what
matters to the cost is how many memories share a term with a query, and frequent words are shared by thousands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.report import Lab, Section
from bench.stats import percentile
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex

__all__ = ["DIMENSION", "SIZES", "memories", "questions", "recall_latency"]

SIZES = (1_000, 10_000, 100_000)
DIMENSION = 384
_QUERIES = 300
_WORDS = 30_000
_PER_TEXT = 14
_PER_QUERY = 7
_PER_SESSION = 20
_SPEAKERS = 100
_CENTRES = 200
_CHUNK = 5_000


async def recall_latency(lab: Lab) -> list[Section]:
    """Measure `MemoryIndex.search` alone: what embedding and HTTP add is measured elsewhere."""
    rows: list[tuple[str, ...]] = []
    data: dict[str, dict[str, float]] = {}
    for size in SIZES[: lab.count(len(SIZES), 1)]:
        lab.say(f"quality: searching among {size:,} memories")
        index = MemoryIndex(DIMENSION, Calibration(next(iter(PRIORS.values()))))
        for key, (row, text, speaker) in enumerate(memories(size, lab.seed)):
            before = key - 1 if key % _PER_SESSION else None
            index.put(key, row, text, speaker=speaker, before=before)
        await index.maintain()
        seconds = _asked(index, lab)
        data[str(size)] = {f"p{share}": percentile(seconds, share / 100) for share in (50, 95, 99)}
        rows.append((f"{size:,}", *(f"{value * 1e3:.1f}" for value in data[str(size)].values())))
    return [
        Section(
            "CPU time of a hybrid search, the query's vector given, in milliseconds",
            ("memories", "p50", "p95", "p99"),
            rows,
            data,
            (
                f"{_QUERIES} queries of {_PER_QUERY} words, limit 5, floor 0.3, one thread; CPU time of the process.",
            ),
        )
    ]


def _asked(index: MemoryIndex, lab: Lab) -> list[float]:
    seconds: list[float] = []
    for query, text in questions(lab.count(_QUERIES, 20), lab.seed + 1):
        start = time.thread_time()
        index.search(query, text, 5)
        seconds.append(time.thread_time() - start)
    return seconds


def questions(count: int, seed: int) -> Iterator[tuple[NDArray[np.float32], str]]:
    """Yield queries with their vectors; each names a speaker."""
    for query, text in zip(_vectors(count, seed), _words(count, _PER_QUERY, seed), strict=True):
        speaker = f"speaker{int(query[0] * 1e6) % _SPEAKERS}"
        yield query, f"what did {speaker} say about {text}?"


def memories(size: int, seed: int) -> Iterator[tuple[NDArray[np.float32], str, str]]:
    """Yield rows with their texts and speakers, the same for the same seed."""
    for start in range(0, size, _CHUNK):
        count = min(_CHUNK, size - start)
        rows, texts = _vectors(count, seed + start), _words(count, _PER_TEXT, seed + start)
        for at, (row, text) in enumerate(zip(rows, texts, strict=True)):
            speaker = f"speaker{(start + at) // _PER_SESSION % _SPEAKERS}"
            yield row, f"{speaker} ({1 + at % 28} May 2023): {text}", speaker


def _vectors(count: int, seed: int) -> NDArray[np.float32]:
    # The same centres for every seed: questions are about what the memories are about.
    centres = np.random.default_rng(99).standard_normal((_CENTRES, DIMENSION))
    drawn = np.random.default_rng(seed)
    points = centres[drawn.integers(0, _CENTRES, count)] + 0.9 * drawn.standard_normal((count, DIMENSION))
    unit: NDArray[np.float32] = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _words(count: int, length: int, seed: int) -> list[str]:
    ranks = np.random.default_rng(seed).zipf(1.2, (count, length)) % _WORDS
    return [" ".join(f"word{rank}" for rank in text) for text in ranks.tolist()]
