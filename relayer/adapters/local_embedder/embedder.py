"""The `Embedder` over a small model in this process, on threads of its own.

Texts are embedded one by one. Queries must not wait for bulk work: all calls with several texts together queue one text at a time
for the threads, and a call with one text is queued immediately.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from relayer.adapters.local_embedder import e5, minilm
from relayer.adapters.local_embedder.e5 import E5
from relayer.adapters.local_embedder.minilm import MiniLm
from relayer.adapters.local_embedder.runtime import LocalModel, Vectors, give_back
from relayer.adapters.local_embedder.trained import (
    CrossEncoder,
    MessageLayers,
    PairReader,
    PromptReader,
    verify_trained,
)
from relayer.errors import ConfigurationError, EmbedderUnavailable, QueueFull
from relayer.ports import MESSAGE_LOGITS, EmbeddingModel

Kind = Literal["local", "multilingual"]
_MODELS: dict[Kind, type[MiniLm | E5]] = {"local": MiniLm, "multilingual": E5}
_FILES: dict[Kind, Callable[[], Path]] = {"local": minilm.model_file, "multilingual": e5.model_file}

# How many texts are embedded at a time, and how many calls may run or wait.
_AT_ONCE = 2
_WAITING_LIMIT = 64

Reader = TypeVar("Reader", PromptReader, MessageLayers, PairReader, CrossEncoder)
Item = TypeVar("Item")
Result = TypeVar("Result")


def is_installed(kind: Kind) -> bool:
    """Return whether the package with a model's weights is installed."""
    try:
        return _FILES[kind]().exists()
    except ConfigurationError:
        return False


class LocalEmbedder:
    """`Embedder` over a model in this process, of 384 dimensions, on worker threads.

    Construction is cheap; the model is loaded by `load`, or else by the first `embed`.

    Args:
        kind: multilingual-e5-small, or all-MiniLM-L6-v2 (English mostly).
        threads: of the model's runtime, 1 or 2, for each text.
        weights: the model's file; None for that of the installed package.
    """

    def __init__(
        self,
        kind: Kind = "local",
        *,
        threads: int = 1,
        weights: Path | None = None,
    ) -> None:
        self._kind = _MODELS[kind]
        self._threads = threads
        self._weights = weights
        self._waiting = 0
        self._model: LocalModel | None = None
        self._readers: dict[type[Any], Any] = {}
        self._bulk = asyncio.Lock()
        self._loading = threading.Lock()
        self._executor = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="embedder")
        self._closed = asyncio.Event()

    @property
    def model(self) -> EmbeddingModel:
        """The identity of the model; its SHA-256 covers everything that the meaning of its vectors depends on."""
        return self._kind.identity

    async def load(self) -> None:
        """Verify and load the model now, off the event loop; of the readers of statements, the files are only verified.

        Raises:
            ConfigurationError: a file or library is missing, or a file is not the expected one.
            EmbedderUnavailable: the embedder is closed.
        """
        await self._on_thread(self._loaded)

    async def embed(self, texts: Sequence[str], *, query: bool = False, prompt: bool = False) -> Vectors:
        """Embed texts; shape (len(texts), 384), float32, rows of length 1, in the order given.

        Rows of prompts have 769 numbers with the multilingual model, see `relayer.ports.QueryVectors`.

        Raises:
            QueueFull: too many calls run or wait already.
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        if not texts:
            return np.empty((0, self.model.dimension), dtype=np.float32)
        with self._one_more():
            embed = partial(self._vector, query=query, prompt=prompt)
            if len(texts) == 1:
                return (await self._on_thread(partial(embed, texts[0])))[None]
            return np.stack(await self._in_turn(embed, texts))

    async def scores(self, prompt: str, texts: Sequence[str]) -> Vectors:
        """Read a prompt together with memories as `relayer.ports.CrossEncoder` defines; only the multilingual model can.

        Raises:
            QueueFull: too many calls run or wait already.
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        with self._one_more():
            return await self._on_thread(lambda: self._reader(CrossEncoder).scores(prompt, texts))

    @property
    def reads(self) -> bool:
        """Return whether `relations`, `scores` and `messages` can be called: their layers are those of the multilingual model."""
        return self._kind is E5

    async def relations(self, pairs: Sequence[tuple[Sequence[str], str]]) -> list[Vectors]:
        """Read pairs as `relayer.ports.RelationReader` defines, after queries and in turn with other bulk work.

        The layers of the reader are loaded by the first call.

        Raises:
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        return await self._in_turn(lambda pair: self._reader(PairReader).read(*pair), pairs)

    async def messages(self, texts: Sequence[str]) -> Vectors:
        """Read messages as `relayer.ports.MessageReader` defines, after queries and in turn with other bulk work.

        The layers of the reader are loaded by the first call.

        Raises:
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        read = await self._in_turn(lambda text: self._reader(MessageLayers).read(text), texts)
        return np.array(read, np.float32).reshape(-1, MESSAGE_LOGITS)

    async def close(self) -> None:
        """Finish the texts that are being embedded, reject the others, and release threads and memory."""
        self._closed.set()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        self._model = None
        self._readers.clear()

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._waiting >= _WAITING_LIMIT:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _in_turn(self, work: Callable[[Item], Vectors], items: Sequence[Item]) -> list[Vectors]:
        """Work on items one by one, in turn with other bulk work."""
        done = []
        for item in items:
            async with self._bulk:
                done.append(await self._on_thread(partial(work, item)))
        return done

    async def _on_thread(self, work: Callable[[], Result]) -> Result:
        if self._closed.is_set():
            raise EmbedderUnavailable("the embedder is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and (task is None or not task.cancelling()):
                raise EmbedderUnavailable("the embedder was closed") from None
            raise

    def _loaded(self) -> LocalModel:
        with self._loading:
            if self._model is None:
                model = self._kind(weights=self._weights, threads=self._threads)
                if isinstance(model, E5):
                    verify_trained()
                    self._readers = {kind: kind(model) for kind in (PromptReader, CrossEncoder)}
                self._model = model
                give_back()
            return self._model

    def _reader(self, kind: type[Reader]) -> Reader:
        """Return a reader; loads its layers when it is asked for first."""
        model = self._loaded()
        assert isinstance(model, E5)
        with self._loading:
            if kind not in self._readers:
                self._readers[kind] = kind(model)
                give_back()
            reader: Reader = self._readers[kind]
            return reader

    def _vector(self, text: str, *, query: bool, prompt: bool) -> Vectors:
        model = self._loaded()
        ids = model.encode(text, query=query)
        if not prompt or not self.reads:
            return model.vector(ids, query=query)
        return self._reader(PromptReader).row(ids)
