"""Vector stores that answer the same questions from the same vectors, where they are installed (extra ``bench``)."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.long_chats import best_matching

__all__ = ["QUICK_RIVALS", "RIVALS", "Ask", "missing"]

Rows = NDArray[np.float32]
# A query's text and vector, and how many; numbers of the texts, best first.
Ask = Callable[[str, Rows, int], list[int]]


_STARTS = 150  # tries, a fifth of a second apart


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


def chroma_over_http(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """Chroma's server in a process of its own, asked by its client: cosine over the given vectors, kept on disk."""
    chromadb: Any = importlib.import_module("chromadb")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "chroma"), "run", "--host", "127.0.0.1", "--port", str(port)]
    with (work / "chroma.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--path", str(work / "chroma")], stdout=log, stderr=log, cwd=work
        )
    atexit.register(server.terminate)
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    for _ in range(_STARTS):
        try:
            client = chromadb.HttpClient("127.0.0.1", port, settings=settings)
            break
        except ValueError:  # its word for a server that does not answer
            time.sleep(0.2)
    else:
        raise TimeoutError("Chroma's server does not answer")
    collection = client.create_collection(
        name, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    for start in range(0, len(texts), 1000):
        stop = min(start + 1000, len(texts))
        ids = [str(at) for at in range(start, stop)]
        collection.add(ids=ids, embeddings=rows[start:stop], documents=list(texts[start:stop]))

    def ask(_: str, vector: Rows, count: int) -> list[int]:
        found = collection.query(query_embeddings=[vector], n_results=count, include=["documents"])
        return [int(one) for one in found["ids"][0]]

    return ask


def lancedb_vectors(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """LanceDB by vectors alone, in process, without an index: exact."""
    lance: Any = importlib.import_module("lancedb")
    data = [
        {"id": at, "text": text, "vector": row}
        for at, (text, row) in enumerate(zip(texts, rows, strict=True))
    ]
    table = lance.connect(str(work / "lancedb")).create_table(name, data=data, mode="overwrite")

    def ask(_: str, vector: Rows, count: int) -> list[int]:
        return [int(row["id"]) for row in table.search(vector).limit(count).to_list()]

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


def best_matching_words(texts: Sequence[str], rows: Rows, work: Path, name: str) -> Ask:
    """BM25 alone, with its usual constants."""
    del rows, work, name
    ordered = best_matching(texts)

    def ask(text: str, _: Rows, count: int) -> list[int]:
        return ordered(text)[:count]

    return ask


RIVALS: dict[str, tuple[str, Callable[[Sequence[str], Rows, Path, str], Ask]]] = {
    "Chroma, vectors": ("chromadb", chroma),
    "LanceDB, hybrid": ("lancedb", lancedb),
    "mem0, infer=False": ("mem0", mem0),
    "BM25": ("bench", best_matching_words),
}

# Those that `bench.rival_speed` asks by vectors alone, by the words of its table.
QUICK_RIVALS: dict[str, tuple[str, Callable[[Sequence[str], Rows, Path, str], Ask]]] = {
    "Chroma, over HTTP": ("chromadb", chroma_over_http),
    "Chroma, in process": ("chromadb", chroma),
    "LanceDB, in process": ("lancedb", lancedb_vectors),
    "mem0 over Qdrant, in process": ("mem0", mem0),
}
