"""Vector stores that answer the same questions from the same vectors, where they are installed (extra ``bench``)."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RIVALS", "Ask", "missing"]

Rows = NDArray[np.float32]
# A query's text and vector, and how many; numbers of the texts, best first.
Ask = Callable[[str, Rows, int], list[int]]


def missing(package: str) -> bool:
    """Whether a package is not installed."""
    return importlib.util.find_spec(package) is None


def chroma(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """Chroma: cosine over the given vectors, in memory."""
    chromadb: Any = importlib.import_module("chromadb")
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    client = chromadb.EphemeralClient(settings=settings)
    collection = client.create_collection(
        f"{name}-{work.name}"[:60], configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    for start in range(0, len(texts), 1000):
        stop = min(start + 1000, len(texts))
        ids = [str(at) for at in range(start, stop)]
        collection.add(ids=ids, embeddings=rows[start:stop], documents=list(texts[start:stop]))

    def ask(_: str, vector: Rows, count: int) -> list[int]:
        found = collection.query(query_embeddings=[vector], n_results=min(count, len(texts)), include=[])
        return [int(one) for one in found["ids"][0]]

    return ask


def lancedb(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """LanceDB's hybrid search: vectors and full text, fused by reciprocal rank."""
    lance: Any = importlib.import_module("lancedb")
    database = lance.connect(str(work / "lancedb"))
    data = [
        {"id": at, "text": text, "vector": row}
        for at, (text, row) in enumerate(zip(texts, rows, strict=True))
    ]
    table = database.create_table(name, data=data, mode="overwrite")
    table.create_fts_index("text", replace=True)

    def ask(text: str, vector: Rows, count: int) -> list[int]:
        # Its query language gives meaning to punctuation.
        words = "".join(c if c.isalnum() or c.isspace() else " " for c in text)
        search = table.search(query_type="hybrid").vector(vector).text(words).limit(count)
        return [int(row["id"]) for row in search.to_list()][:count]

    return ask


class _Given:
    """The embedder that mem0 is given: it knows the vectors already."""

    def __init__(self, texts: Sequence[str], rows: Rows) -> None:
        self.known = dict(zip(texts, rows, strict=True))

    def embed(self, text: str, memory_action: object = None) -> list[float]:
        del memory_action
        vector: list[float] = self.known[text].tolist()
        return vector

    def embed_batch(self, texts: Sequence[str], memory_action: object = None) -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]


def mem0(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """mem0 without its language model (``infer=False``), over its default store, Qdrant, in memory; vectors alone.

    Its keyword search needs further packages that fetch models from the network, so it is off, as in a plain installation.
    """
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(work / "mem0")
    library: Any = importlib.import_module("mem0")
    qdrant: Any = importlib.import_module("qdrant_client")
    unused = {"provider": "openai", "config": {"api_key": "unused"}}
    memory = library.Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "client": qdrant.QdrantClient(":memory:"),
                    "collection_name": name,
                    "embedding_model_dims": rows.shape[1],
                },
            },
            "llm": unused,
            "embedder": unused,
            "history_db_path": ":memory:",
        }
    )
    given = memory.embedding_model = _Given(texts, rows)
    numbers: dict[str, int] = {}
    for at, text in enumerate(texts):
        added = memory.add(text, user_id="bench", infer=False)["results"]
        numbers |= {one["id"]: at for one in added}

    def ask(text: str, vector: Rows, count: int) -> list[int]:
        given.known[text] = vector
        found = memory.search(text, filters={"user_id": "bench"}, top_k=count, threshold=0.0)
        return [numbers[one["id"]] for one in found["results"]]

    return ask


RIVALS: dict[str, tuple[str, Callable[[Sequence[str], Rows, Path, str], Ask]]] = {
    "Chroma, vectors": ("chromadb", chroma),
    "LanceDB, hybrid": ("lancedb", lancedb),
    "mem0, infer=False": ("mem0", mem0),
}
