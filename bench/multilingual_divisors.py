"""Measure what the multilingual model's activations are divided by before they become int8, and write the file of it.

    python -m bench.multilingual_divisors

A column of activations that is larger than the others is divided by more, and the weights that meet it are multiplied by as much:
what the weights lose is less than what the other columns gain. How much more is the geometric mean of both, weighted
(SmoothQuant, https://arxiv.org/abs/2211.10438). The largest numbers are those of the layers in float32 over the ``seen`` half of
``bench/sets/day``, fourteen languages. Also prints the file's SHA-256, which the adapter checks.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.day import personas
from bench.multilingual_centre import memories, prompts
from relayer.adapters.local_embedder import e5, runtime
from relayer.adapters.local_embedder.e5 import E5, EVENED, WeightsFile
from relayer.adapters.local_embedder.onnx_graph import OnnxGraph

# Of the weight, activations have this share: at 0.75 and 0.85 vectors are as near to those of float32, at 0.65 and 0.9 less.
_SHARE = 0.8
_LEAST = 1e-3
# Every so manieth text: more change nothing.
_EVERY = 3


class Float32:
    """Products as they are, and what stands before and in each of them, by name."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.matrices: dict[str, NDArray[np.float32]] = {}

    def __call__(
        self, graph: OnnxGraph, rows: str, name: str, matrix: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> str:
        self.rows[name], self.matrices[name] = rows, matrix
        product = graph.node("MatMul", [rows, graph.constant(f"{name}.matrix", matrix.T)], f"{name}.product")
        return graph.node("Add", [product, graph.constant(f"{name}.bias", bias)], name)


def texts() -> list[tuple[str, bool]]:
    """What is measured over, and whether it is a query."""
    told = [(text, False) for persona in personas("seen") for text in memories(persona)]
    return (told + [(text, True) for persona in personas("seen") for text in prompts(persona)])[::_EVERY]


def largest(model: E5, file: WeightsFile, products: Float32) -> dict[str, NDArray[np.float32]]:
    """The largest number of each column before each product."""
    e5.encoder(file, products, layers=range(file.layers))
    names = [name for name in products.rows if name.split(".")[1] in EVENED]
    graph = e5.encoder(file, products, [products.rows[name] for name in names], layers=range(file.layers))
    session: Any = runtime.session(graph, 1, e5.INSTALL, as_written=True)
    found: defaultdict[str, NDArray[np.float32]] = defaultdict(lambda: np.zeros(1, np.float32))
    for text, query in texts():
        _, *seen = session.run(None, {"rows": model.rows(model.encode(text, query=query))})
        for name, rows in zip(names, seen, strict=True):
            found[name] = np.maximum(found[name], np.abs(rows[0]).max(axis=0))
    return found


def divisors(columns: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """The divisors of one product; their geometric mean is 1."""
    weights = np.maximum(np.abs(matrix).max(axis=0), _LEAST)
    logs = _SHARE * np.log(np.maximum(columns, _LEAST)) - (1 - _SHARE) * np.log(weights)
    evened: NDArray[np.float32] = np.exp(logs - logs.mean()).astype(np.float32)
    return evened


def main() -> None:
    file, products = WeightsFile(e5.model_file()), Float32()
    columns = largest(E5(), file, products)
    parts = {name: divisors(columns[name], products.matrices[name]) for name in columns}
    rows = [np.concatenate([parts[f"l{layer}.{name}"] for name in EVENED]) for layer in range(file.layers)]
    # Half precision, so that the last bits do not depend on the processor that measured.
    written = io.BytesIO()
    np.save(written, np.stack(rows).astype(np.float16))
    e5.divisors_file().write_bytes(written.getvalue())
    print(hashlib.sha256(written.getvalue()).hexdigest())


if __name__ == "__main__":
    main()
