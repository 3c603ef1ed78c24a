"""Exact scan against graph: latency by size, recall of the graph, memory per 10,000 memories.

    OPENBLAS_NUM_THREADS=1 python bench/search_crossover.py

Vectors are random around 200 centres; no data needed. Of sentences, which lie less evenly, a graph finds less (docs/adr/0031).
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relayer.search.dense import DenseIndex
from relayer.search.graph import Graph
from relayer.search.lexical import LexicalIndex
from relayer.search.rows import Block, Vector, best_of, products

DIMENSION = 384
K = 20


def rows(count: int, seed: int = 0) -> NDArray[np.float32]:
    # The same centres for every seed: questions are about what the memories are about.
    centres = np.random.default_rng(99).standard_normal((200, DIMENSION))
    random = np.random.default_rng(seed)
    points = centres[random.integers(0, 200, count)] + 0.9 * random.standard_normal((count, DIMENSION))
    unit: NDArray[np.float32] = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return unit


def scan(block: Block, query: Vector) -> NDArray[np.int64]:
    """Positions of the best rows, as the exact search finds them."""
    return best_of(products(block, query), K)


def microseconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(40):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def crossover() -> None:
    usearch = importlib.import_module("usearch.index")
    print("rows    f32 numpy  f16 kernel  f16 as f32   graph   build s  recall@20   (microseconds, median)")
    for count in (100, 1_000, 3_000, 5_000, 10_000, 20_000, 40_000):
        block, query = rows(count), rows(1, seed=1)[0]
        half = block.astype(np.float16)
        graph = Graph(DIMENSION)
        start = time.perf_counter()
        graph.add(0, block)
        built = time.perf_counter() - start
        found = sum(
            len(set(graph.search(each, K).tolist()) & set(scan(block, each).tolist()))
            for each in rows(50, seed=2)
        )
        timings = (
            microseconds(lambda block=block, query=query: scan(block, query)),
            microseconds(
                lambda half=half, query=query: usearch.search(
                    half, query.astype(np.float16), K, usearch.MetricKind.IP, exact=True, threads=1
                )
            ),
            microseconds(lambda half=half, query=query: scan(half, query)),
            microseconds(lambda graph=graph, query=query: graph.search(query, K)),
        )
        print(
            f"{count:6d} {timings[0]:9.0f} {timings[1]:11.0f} {timings[2]:11.0f} {timings[3]:8.0f} {built:9.2f} {found / 50 / K:9.3f}"
        )


async def memory() -> None:
    count = 10_000
    vectors = rows(count)
    words = np.random.default_rng(5).zipf(1.3, (count, 18)) % 20_000
    Graph(DIMENSION)
    before = resident()
    index = DenseIndex(DIMENSION, crossover=count // 2)
    for key in range(count):
        index.add(key, vectors[key])
    exact = resident()
    await index.maintain()
    graph = resident()
    lexical = LexicalIndex()
    for key in range(count):
        lexical.put(key, " ".join(f"word{word}" for word in words[key]))
    print(
        f"resident MB for {count} memories: rows f32 {exact - before:.1f}; rows f16 and graph {graph - before:.1f}; terms {resident() - graph:.1f}"
    )
    started = time.perf_counter()
    waits: list[float] = []
    for key in range(count, count + 2_000):
        index.add(key, vectors[key - count])
    work = asyncio.create_task(index.maintain())
    while not work.done():
        waits.append(microseconds_once(lambda: index.search(vectors[5], K)))
        await asyncio.sleep(0)
    print(
        f"2,000 additions folded into the graph in {time.perf_counter() - started:.2f} s; searches meanwhile: median {statistics.median(waits):.0f} us, worst {max(waits):.0f} us of {len(waits)}"
    )


def microseconds_once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


if __name__ == "__main__":
    # First, so that freed memory of the measurements does not hide what the index takes.
    asyncio.run(memory())
    crossover()
