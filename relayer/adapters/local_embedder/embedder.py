"""The embedder that needs no network and no account: a small model in this process, on its own thread.

Queries must not wait behind bulk work: of all calls with several texts, one run at a time is queued for the thread,
and a call with one text goes straight to that queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder.model import MINILM, OnnxModel, batches
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.ports import EmbeddingModel

__all__ = ["LocalEmbedder"]

Vectors = NDArray[np.float32]
Result = TypeVar("Result")

# Tokenising this many takes a few milliseconds.
ENCODED_AT_ONCE = 64


class LocalEmbedder:
    """`Embedder` over all-MiniLM-L6-v2 (384 dimensions; English mostly) on one worker thread.

    Construction is cheap; the model is loaded by `load`, or else by the first `embed`.

    Args:
        threads: of the model's runtime, 1 or 2.
        waiting_limit: calls that may be under way or waiting at once.
        weights: ``model.onnx``; None finds the installed package's.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        waiting_limit: int = 64,
        weights: Path | None = None,
    ) -> None:
        self._threads = threads
        self._weights = weights
        self._waiting_limit = waiting_limit
        self._waiting = 0
        self._model: OnnxModel | None = None
        self._bulk = asyncio.Lock()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._closed = asyncio.Event()

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model; its sha256 is that of the weights file."""
        return MINILM

    async def load(self) -> None:
        """Verify and load the model now, off the event loop.

        Raises:
            ConfigurationError: a file or library is missing, or a file is not the expected one.
            EmbedderUnavailable: the embedder is closed.
        """
        await self._on_thread(self._loaded)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts; shape (len(texts), 384), float32, rows of length 1, in the order given.

        Raises:
            QueueFull: as many calls as allowed are waiting already.
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        if not texts:
            return np.empty((0, MINILM.dimension), dtype=np.float32)
        if self._waiting >= self._waiting_limit:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
        self._waiting += 1
        try:
            return await (self._one(texts[0]) if len(texts) == 1 else self._many(texts))
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Finish the run under way, refuse the rest, and release thread and memory."""
        self._closed.set()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        self._model = None

    async def _one(self, text: str) -> Vectors:
        return await self._on_thread(lambda: self._run([self._loaded().encode(text)]))

    async def _many(self, texts: Sequence[str]) -> Vectors:
        encoded: list[list[int]] = []
        for start in range(0, len(texts), ENCODED_AT_ONCE):
            encoded += await self._queued(partial(self._encode, texts[start : start + ENCODED_AT_ONCE]))
        vectors = np.empty((len(texts), MINILM.dimension), dtype=np.float32)
        for batch in batches([len(ids) for ids in encoded]):
            vectors[batch] = await self._queued(partial(self._run, [encoded[index] for index in batch]))
        return vectors

    async def _queued(self, work: Callable[[], Result]) -> Result:
        async with self._bulk:
            return await self._on_thread(work)

    async def _on_thread(self, work: Callable[[], Result]) -> Result:
        if self._closed.is_set():
            raise EmbedderUnavailable("the embedder is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except asyncio.CancelledError:
            if self._closed.is_set() and not _cancelling():
                raise EmbedderUnavailable("the embedder was closed") from None
            raise

    def _loaded(self) -> OnnxModel:
        if self._model is None:
            self._model = OnnxModel(weights=self._weights, threads=self._threads)
        return self._model

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        model = self._loaded()
        return [model.encode(text) for text in texts]

    def _run(self, encoded: Sequence[Sequence[int]]) -> Vectors:
        return self._loaded().run(encoded)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
