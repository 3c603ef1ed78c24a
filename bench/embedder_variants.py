"""The local model as delivered against the same model quantised dynamically: what each costs and how well it finds.

    pip install onnx
    python bench/embedder_variants.py --data PATH --work DIRECTORY

`onnx` is needed here alone. The data (LoCoMo, CC BY-NC 4.0) is for measuring only.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from locomo_retrieval import Scores, namespaces
from numpy.typing import NDArray

from relayer.adapters.local_embedder.embedder import batches
from relayer.adapters.local_embedder.minilm import MiniLm, model_file
from relayer.search.rows import search_row
from relayer.search.terms import context_text

QUERY = "what do I drink in the morning?"
TURN = "Mara (8 May 2023): " + "we walked along the river and talked about the summer in Porto " * 3


class Variant:
    """A weights file run as the embedder runs its own, without the check of its hash."""

    def __init__(self, weights: Path, threads: int) -> None:
        delivered = MiniLm(threads=1)
        self._encode = delivered.encode
        started, before = time.perf_counter(), resident()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(
            str(weights), options, providers=["CPUExecutionProvider"]
        )
        self.load_seconds, self.resident = time.perf_counter() - started, resident() - before
        delivered._session = self._session  # noqa: SLF001 - the same pooling over another graph is what is compared
        self._run = delivered.run

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        encoded = [self._encode(text) for text in texts]
        rows = np.empty((len(texts), 384), dtype=np.float32)
        for batch in batches([len(ids) for ids in encoded]):
            rows[batch] = self._run([encoded[at] for at in batch])
        return rows


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def quantised(directory: Path) -> Path:
    """Fold the delivered int8 weights to float32, then quantise the products dynamically, per channel."""
    target = directory / "quantised.onnx"
    if not target.exists():
        started = time.perf_counter()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        folded = directory / "folded.onnx"
        options.optimized_model_filepath = str(folded)
        onnxruntime.InferenceSession(str(model_file()), options, providers=["CPUExecutionProvider"])
        tools = importlib.import_module("onnxruntime.quantization")
        logging.disable(logging.WARNING)
        tools.quantize_dynamic(
            str(folded),
            str(target),
            per_channel=True,
            weight_type=tools.QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gather"],
        )
        print(f"folding and quantising took {time.perf_counter() - started:.1f} s")
    return target


def cost(variant: Variant, text: str, repeats: int = 60) -> tuple[float, float]:
    variant.embed([text])
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        variant.embed([text])
    return (time.perf_counter() - wall) / repeats * 1e3, (time.process_time() - cpu) / repeats * 1e3


def quality(variant: Variant, data: Path) -> tuple[Scores, float]:
    scores = Scores()
    texts = 0
    started = time.perf_counter()
    for space in namespaces(data):
        own = variant.embed(space.texts)
        context = variant.embed(
            [
                text if before is None else context_text(before, text)
                for before, text in zip(space.previous, space.texts, strict=True)
            ]
        )
        texts += 2 * len(own)
        rows = np.array([search_row(one, other) for one, other in zip(own, context, strict=True)])
        queries = variant.embed([question for question, _, _ in space.questions])
        for (_, _, evidence), query in zip(space.questions, queries, strict=True):
            scores.add([space.ids[at] for at in np.argsort(-(rows @ query), kind="stable")], evidence)
    return scores, texts / (time.perf_counter() - started)


def batch_dependence(variant: Variant) -> float:
    """The lowest cosine between a text's vector alone and its vector in a batch."""
    texts = [
        QUERY,
        TURN,
        "ok",
        "I keep bees behind the garage.",
        "12345 67890",
        "An entirely different subject: tax law.",
    ]
    alone = np.concatenate([variant.embed([text]) for text in texts])
    encoded = [variant._encode(text) for text in texts]  # noqa: SLF001 - one batch whatever the lengths
    return float((alone * variant._run(encoded)).sum(axis=1).min())  # noqa: SLF001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where the quantised file goes")
    parser.add_argument(
        "--only", choices=["delivered", "quantised"], help="measure one variant, in this process"
    )
    options = parser.parse_args()
    if options.only is None:
        # A process each, so that the second does not reuse memory that the first gave back.
        for name in ("delivered", "quantised"):
            command = [
                sys.executable,
                __file__,
                "--data",
                options.data,
                "--work",
                options.work,
                "--only",
                name,
            ]
            subprocess.run([str(part) for part in command], check=True)
        return
    weights = model_file() if options.only == "delivered" else quantised(options.work)
    for threads in (1, 2):
        variant = Variant(weights, threads)
        for name, text in (("query", QUERY), ("turn", TURN)):
            wall, cpu = cost(variant, text)
            print(f"{options.only}, {threads} thread(s), {name}: {wall:.2f} ms, {cpu:.2f} ms of CPU")
        print(
            f"{options.only}, {threads} thread(s): loaded in {variant.load_seconds:.2f} s, {variant.resident:.0f} MB"
        )
    print(f"{options.only}: lowest cosine of a text alone and in a batch {batch_dependence(variant):.4f}")
    scores, rate = quality(variant, options.data)
    print(f"{options.only}: LoCoMo, dense with header and context: {scores}; {rate:.0f} texts/s at 2 threads")


if __name__ == "__main__":
    main()
