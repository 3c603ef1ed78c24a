"""The default model's products in float32 and in int8: what each costs, and what it changes.

    python -m bench.embedder_variants

Time of one thread, all variants in turn, so that a busy machine slows them alike and none keeps the caches to itself. Cosines
are to the vectors of float32, over texts and prompts of ``bench/sets/day`` in fourteen languages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.day import personas
from bench.multilingual_centre import memories, prompts
from relayer.adapters.local_embedder import e5, runtime
from relayer.adapters.local_embedder.e5 import E5, WeightsFile
from relayer.adapters.local_embedder.tflite_model import Runner

TIMED = {
    "query": "what do I drink in the morning?",
    "statement": "I moved to Lisbon in March with my sister and her dog",
    "question": "what did I say about the restaurant near the station where we wanted to go with my sister and her dog next week?",
    "turn": "Mara (8 May 2023): " + "we walked along the river and talked about the summer in Porto " * 3,
}
_EVERY = 36


def texts() -> list[tuple[str, bool]]:
    """What cosines are taken over, and whether it is a query."""
    told = [(text, False) for persona in personas("seen") for text in memories(persona)]
    return (told + [(text, True) for persona in personas("seen") for text in prompts(persona)])[21::_EVERY]


def milliseconds(work: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median time of the processor of each, in ms, one after the other in each round."""
    taken: list[list[float]] = [[] for _ in work]
    for _ in range(rounds):
        for one, times in zip(work, taken, strict=True):
            start = time.thread_time()
            one()
            times.append(time.thread_time() - start)
    return [1e3 * median(times) for times in taken]


def main(rounds: int = 60) -> None:
    file, model = WeightsFile(e5.model_file()), E5()
    centre = np.load(e5.centre_file()).astype(np.float32)
    variants = {
        name: Runner(e5.encoder(file, product), 1, e5.INSTALL)
        for name, product in {"float32": e5.float_product, "int8": e5.int8_product}.items()
    }

    def vectors(runner: Runner) -> NDArray[np.float32]:
        made = [
            runtime.mean_row(runner.run(model.rows(model.encode(text, query=query)))[0]) - centre[int(query)]
            for text, query in texts()
        ]
        return np.stack([runtime.unit(row) for row in made])

    exact = vectors(variants["float32"])
    table = Table("variant", *(f"{name}, ms" for name in TIMED), "cosine, mean", "lowest")
    columns = []
    for text in TIMED.values():
        rows = model.rows(model.encode(text, query=True))
        work = [lambda runner=runner, rows=rows: runner.run(rows) for runner in variants.values()]
        columns.append(milliseconds(work, rounds))
    for (name, runner), *times in zip(variants.items(), *columns, strict=True):
        cosines = (vectors(runner) * exact).sum(axis=1)
        table.add_row(name, *(f"{ms:.2f}" for ms in times), f"{cosines.mean():.4f}", f"{cosines.min():.4f}")
    for name, text in TIMED.items():
        tokens = model.encode(text, query=True)
        encoded, row = milliseconds(
            [lambda text=text: model.encode(text, query=True), lambda tokens=tokens: model.rows(tokens)],
            rounds,
        )
        table.caption = f"{table.caption or ''}{name}: {len(tokens)} tokens, {encoded:.2f} ms to find them, {row:.2f} for their rows. "
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
