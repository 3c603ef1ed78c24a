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
from typing import Literal, TypeVar

import numpy as np

from relayer.adapters.local_embedder import e5, minilm
from relayer.adapters.local_embedder.cross_encoder import CrossEncoder
from relayer.adapters.local_embedder.e5 import E5
from relayer.adapters.local_embedder.messages import MessageLayers, verify_layers
from relayer.adapters.local_embedder.minilm import MiniLm
from relayer.adapters.local_embedder.prompts import PromptReader
from relayer.adapters.local_embedder.relations import PairReader, verify_reader
from relayer.adapters.local_embedder.runtime import LocalModel, Vectors, give_back
from relayer.errors import ConfigurationError, EmbedderUnavailable, QueueFull
from relayer.ports import MESSAGE_LOGITS, RELATIONS, EmbeddingModel

Kind = Literal["local", "multilingual"]
_MODELS: dict[Kind, type[MiniLm | E5]] = {"local": MiniLm, "multilingual": E5}
_FILES: dict[Kind, Callable[[], Path]] = {"local": minilm.model_file, "multilingual": e5.model_file}

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
        at_once: maximum number of texts that are embedded concurrently.
        waiting_limit: maximum number of calls that run or wait.
        weights: the model's file; None for that of the installed package.
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
        self._reader: PairReader | None = None
        self._messages: MessageLayers | None = None
        self._prompts: PromptReader | None = None
        self._cross: CrossEncoder | None = None
        self._bulk = asyncio.Lock()
        self._loading = threading.Lock()
        self._executor = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="embedder")
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
            rows: list[Vectors] = []
            for text in texts:
                async with self._bulk:
                    rows.append(await self._on_thread(partial(embed, text)))
            return np.stack(rows)

    async def scores(self, prompt: str, texts: Sequence[str]) -> Vectors:
        """Read a prompt together with memories as `relayer.ports.CrossEncoder` defines; only the multilingual model can.

        Raises:
            QueueFull: too many calls run or wait already.
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        with self._one_more():
            return await self._on_thread(partial(self._scores, prompt, texts))

    @property
    def reads(self) -> bool:
        """Return whether `relations`, `scores` and `messages` can be called: their layers are those of the multilingual model."""
        return self._kind is E5

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Read pairs as `relayer.ports.RelationReader` defines, after queries and in turn with other bulk work.

        The layers of the reader are loaded by the first call.

        Raises:
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        read = np.empty((len(pairs), len(RELATIONS)), dtype=np.float32)
        for row, (old, new) in enumerate(pairs):
            async with self._bulk:
                read[row] = await self._on_thread(partial(self._relation, old, new))
        return read

    async def messages(self, texts: Sequence[str]) -> Vectors:
        """Read messages as `relayer.ports.MessageReader` defines, after queries and in turn with other bulk work.

        The layers of the reader are loaded by the first call.

        Raises:
            EmbedderUnavailable: the embedder is closed, or the runtime failed.
            ConfigurationError: the model could not be loaded.
        """
        read = np.empty((len(texts), MESSAGE_LOGITS), dtype=np.float32)
        for row, text in enumerate(texts):
            async with self._bulk:
                read[row] = await self._on_thread(partial(self._message, text))
        return read

    async def close(self) -> None:
        """Finish the texts that are being embedded, reject the others, and release threads and memory."""
        self._closed.set()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        self._model = self._reader = self._prompts = self._cross = self._messages = None

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._waiting >= self._waiting_limit:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

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
                model = self._kind(weights=self._weights, threads=self._threads)
                if isinstance(model, E5):
                    verify_reader()
                    verify_layers()
                    self._prompts, self._cross = PromptReader(model), CrossEncoder(model)
                self._model = model
                give_back()
            return self._model

    def _relation(self, old: str, new: str) -> Vectors:
        model = self._loaded()
        assert isinstance(model, E5)
        with self._loading:
            if self._reader is None:
                self._reader = PairReader(model)
                give_back()
        return self._reader.read(old, new)

    def _scores(self, prompt: str, texts: Sequence[str]) -> Vectors:
        self._loaded()
        assert self._cross is not None
        return self._cross.scores(prompt, texts)

    def _message(self, text: str) -> Vectors:
        model = self._loaded()
        assert isinstance(model, E5)
        with self._loading:
            if self._messages is None:
                self._messages = MessageLayers(model)
                give_back()
        return self._messages.read(text)

    def _vector(self, text: str, *, query: bool, prompt: bool) -> Vectors:
        model = self._loaded()
        ids = model.encode(text, query=query)
        if not prompt or self._prompts is None:
            return model.vector(ids, query=query)
        return self._prompts.row(ids)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
