"""The embedder that needs no network and no account: a small model in this process, on threads of its own.

Queries must not wait behind bulk work: of all calls with several texts, one run at a time is queued for the threads,
and a call with one text goes straight to that queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from relayer.adapters.local_embedder import e5, minilm
from relayer.adapters.local_embedder.e5 import E5
from relayer.adapters.local_embedder.minilm import MiniLm
from relayer.adapters.local_embedder.runtime import LocalModel, Vectors
from relayer.errors import ConfigurationError, EmbedderUnavailable, QueueFull
from relayer.ports import EmbeddingModel

Kind = Literal["local", "multilingual"]
_MODELS: dict[Kind, type[MiniLm | E5]] = {"local": MiniLm, "multilingual": E5}
_FILES: dict[Kind, Callable[[], Path]] = {"local": minilm.model_file, "multilingual": e5.model_file}

MAX_BATCH = 32
# Padded tokens in one run: bounds both the memory of a run and how long a query waits behind it.
MAX_BATCH_TOKENS = 512


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Group texts of similar length: indexes, at most 32 and 512 padded tokens to a group."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda position: lengths[position]):
        group = groups[-1] if groups else []
        # Sorted by length: this text is the longest of its group so far, and sets the padding.
        if not group or len(group) >= MAX_BATCH or (len(group) + 1) * lengths[index] > MAX_BATCH_TOKENS:
            groups.append([index])
        else:
            group.append(index)
    return groups


Result = TypeVar("Result")

# Tokenising so many texts, or so many characters, takes a few milliseconds, and a question waits no longer behind it.
ENCODED_AT_ONCE = 64
ENCODED_CHARACTERS = 16_384


def is_installed(kind: Kind) -> bool:
    """Whether the package of a model's weights is there."""
    try:
        return _FILES[kind]().exists()
    except ConfigurationError:
        return False


class LocalEmbedder:
    """`Embedder` over a model in this process, of 384 dimensions, on worker threads.

    Construction is cheap; the model is loaded by `load`, or else by the first `embed`.

    Args:
        kind: multilingual-e5-small, or all-MiniLM-L6-v2 (English mostly).
        threads: of the model's runtime, 1 or 2, for each run.
        at_once: runs at the same time.
        waiting_limit: calls that may be under way or waiting at once.
        weights: the model's file; None finds the installed package's.
    """

    def __init__(
        self,
        kind: Kind = "local",
        *,
        threads: int = 1,
        at_once: int = 2,
        waiting_limit: int = 64,
        weights: Path | None = None,
    ) -> None:
        self._kind = _MODELS[kind]
        self._threads = threads
        self._weights = weights
        self._waiting_limit = waiting_limit
        self._waiting = 0
        self._model: LocalModel | None = None
        self._bulk = asyncio.Lock()
        self._loading = threading.Lock()
        self._executor = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="embedder")
        self._closed = asyncio.Event()

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model; its sha256 is that of what its vectors depend on."""
        return self._kind.identity

    async def load(self) -> None:
        """Verify and load the model now, off the event loop.

        Raises:
            ConfigurationError: a file or library is missing, or a file is not the expected one.
            EmbedderUnavailable: the embedder is closed.
        """
        await self._on_thread(self._loaded)

    def load_here(self) -> None:
        """Verify and load the model in this thread, before there is an event loop: for processes that are forked later.

        Raises:
            ConfigurationError: as `load`.
        """
        self._loaded()

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Embed texts; shape (len(texts), 384), float32, rows of length 1, in the order given.

        Raises:
            QueueFull: as many calls as allowed are waiting already.
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        if not texts:
            return np.empty((0, self.model.dimension), dtype=np.float32)
        if self._waiting >= self._waiting_limit:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
        self._waiting += 1
        try:
            return await (self._one(texts[0], query) if len(texts) == 1 else self._many(texts, query))
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Finish the run under way, refuse the rest, and release thread and memory."""
        self._closed.set()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        self._model = None

    async def _one(self, text: str, query: bool) -> Vectors:  # noqa: FBT001 - the port's
        return await self._on_thread(lambda: self._run(self._encode([text], query), query))

    async def _many(self, texts: Sequence[str], query: bool) -> Vectors:  # noqa: FBT001 - the port's
        encoded: list[list[int]] = []
        for some in _pieces(texts):
            encoded += await self._queued(partial(self._encode, some, query))
        vectors = np.empty((len(texts), self.model.dimension), dtype=np.float32)
        for batch in batches([len(ids) for ids in encoded]):
            vectors[batch] = await self._queued(
                partial(self._run, [encoded[index] for index in batch], query)
            )
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

    def _loaded(self) -> LocalModel:
        with self._loading:
            if self._model is None:
                self._model = self._kind(weights=self._weights, threads=self._threads)
            return self._model

    def _encode(self, texts: Sequence[str], query: bool) -> list[list[int]]:  # noqa: FBT001 - the port's
        model = self._loaded()
        return [model.encode(text, query=query) for text in texts]

    def _run(self, encoded: Sequence[Sequence[int]], query: bool) -> Vectors:  # noqa: FBT001 - the port's
        return self._loaded().run(encoded, query=query)


def _pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, as many at once as are tokenised in one go."""
    some: list[str] = []
    characters = 0
    for text in texts:
        if some and (len(some) == ENCODED_AT_ONCE or characters + len(text) > ENCODED_CHARACTERS):
            yield some
            some, characters = [], 0
        some.append(text)
        characters += len(text)
    if some:
        yield some


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
