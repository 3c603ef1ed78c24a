"""The default model's products in float32, in the 4-bit blocks of its file and in int8: what each costs, and what it changes.

    python -m bench.embedder_variants

Time of one thread, all variants in turn, so that a busy machine slows them alike and none keeps the caches to itself. Cosines
are to the vectors of float32, over texts and prompts of ``bench/sets/day`` in fourteen languages, others than those that
`bench.multilingual_divisors` measures over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.multilingual_divisors import Float32, texts
from relayer.adapters.local_embedder import e5, runtime
from relayer.adapters.local_embedder.e5 import E5, Product, WeightsFile
from relayer.adapters.local_embedder.onnx_graph import CONTRIB, OnnxGraph

TIMED = {
    "query": "what do I drink in the morning?",
    "statement": "I moved to Lisbon in March with my sister and her dog",
    "turn": "Mara (8 May 2023): " + "we walked along the river and talked about the summer in Porto " * 3,
}
_OTHERS = slice(7, None, 12)
_BLOCK = 32


def four_bits(
    graph: OnnxGraph, rows: str, name: str, matrix: NDArray[np.float32], bias: NDArray[np.float32]
) -> str:
    """Weights in blocks of 32 with 4 bits each, as the file has them; activations in int8 with a scale for each block."""
    blocks = matrix.reshape(len(matrix), -1, _BLOCK)
    # The file has the largest number of a block at -8, so its scale may be negative; this finds its numbers again.
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[..., None], axis=-1)
    scales = np.where(largest == 0, 1, largest / -8).astype(np.float32)
    numbers = (np.clip(np.rint(blocks / scales), -8, 7) + 8).astype(np.uint8)
    given = [
        rows,
        graph.constant(f"{name}.numbers", numbers[..., 0::2] | numbers[..., 1::2] << 4),
        graph.constant(f"{name}.scales", scales.ravel()),
    ]
    sizes = {"N": len(matrix), "K": matrix.shape[1], "bits": 4, "block_size": _BLOCK, "accuracy_level": 4}
    product = graph.node("MatMulNBits", given, f"{name}.product", domain=CONTRIB, **sizes)
    return graph.node("Add", [product, graph.constant(f"{name}.bias", bias)], name)


def loaded(file: WeightsFile, product: Product) -> Any:
    return runtime.session(
        e5.encoder(file, product, layers=range(file.layers)), 1, e5.INSTALL, as_written=True
    )


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
    divided, centre = e5.divisors(file), np.load(e5.centre_file()).astype(np.float32)
    variants = {
        "float32": loaded(file, Float32()),
        "4 bits": loaded(file, four_bits),
        "int8": loaded(file, e5.int8_products({})),
        "int8, evened": loaded(file, e5.int8_products(divided)),
        "uint8, evened": loaded(file, e5.int8_products(divided, signed=False)),
    }

    def vectors(session: Any) -> NDArray[np.float32]:
        made = [
            runtime.mean_row(
                runtime.hidden_states(session, {"rows": model.rows(model.encode(text, query=query))})
            )
            - centre[int(query)]
            for text, query in texts()[_OTHERS]
        ]
        return np.stack([runtime.unit(row) for row in made])

    exact = vectors(variants["float32"])
    table = Table("variant", *(f"{name}, ms" for name in TIMED), "cosine, mean", "lowest")
    columns = []
    for text in TIMED.values():
        rows = {"rows": model.rows(model.encode(text, query=True))}
        work = [lambda session=session, rows=rows: session.run(None, rows) for session in variants.values()]
        columns.append(milliseconds(work, rounds))
    for (name, session), *times in zip(variants.items(), *columns, strict=True):
        cosines = (vectors(session) * exact).sum(axis=1)
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
