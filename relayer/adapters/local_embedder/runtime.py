"""The common parts of the local models: onnxruntime without telemetry and memory arena, verified files, and mean pooling.

Each text is run alone, not in a batch, so its vector depends only on its tokens.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relayer.errors import ConfigurationError, EmbedderUnavailable
from relayer.ports import EmbeddingModel

Vectors = NDArray[np.float32]

# The length that MiniLM was trained with (max_seq_length of sentence-transformers). E5 would take twice as long for twice that.
MAX_TOKENS = 256
# Far more than 256 tokens of real text, which have about 1,200 characters. Text that is not read must not be tokenised.
MAX_CHARACTERS = 4_096


class LocalModel(Protocol):
    """A loaded model, whose methods run on worker threads."""

    @property
    def identity(self) -> EmbeddingModel:
        """The identity of the model, which is stored with its vectors."""
        ...

    def encode(self, text: str, *, query: bool) -> list[int]:
        """Return the token ids of a text, at most 256, including the model's start and end tokens."""
        ...

    def vector(self, ids: Sequence[int], *, query: bool) -> Vectors:
        """Return the vector of an encoded text, of length 1; shape (dimension,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        ...


def library(name: str, install: str) -> Any:
    """Import and return an optional library.

    Raises:
        ConfigurationError: it is not installed.
    """
    # onnxruntime's telemetry starts with the import, before `disable_telemetry_events` can be called.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is not installed: {install}") from error


def packaged_file(package: str, name: str, missing: str) -> Path:
    """Return the path of a file of an installed package, which is not imported.

    Raises:
        ConfigurationError: with the text ``missing``: the package is not installed.
    """
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was put in place without one
        spec = None
    if spec is None or spec.origin is None:
        raise ConfigurationError(missing)
    return Path(spec.origin).parent / name


def verify(path: Path, sha256: str, install: str) -> None:
    """Check a file whose content is known in advance.

    Raises:
        ConfigurationError: the file cannot be read, or has another content.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"{path.name} of the local embedding model is missing: {install}") from error
    if digest != sha256:
        raise ConfigurationError(
            f"{path.name} of the local embedding model is not the expected file: {install}"
        )


def session(content: bytes, threads: int, install: str, *, as_written: bool = False) -> Any:
    """Load a model into onnxruntime; with ``as_written``, it does not fuse the operations of the graph.

    Raises:
        ConfigurationError: onnxruntime is not installed.
    """
    runtime = library("onnxruntime", install)
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The arena would never release the memory of the largest run.
    options.enable_cpu_mem_arena = False
    if as_written:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Waiting threads of the pool must not burn the cores that the event loop and the store use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    loaded = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # The session keeps the 21 MB of the model for a change of providers, which never happens here.
    loaded._model_bytes = None  # noqa: SLF001 - there is no other way to release it
    return loaded


def give_back() -> None:
    """Return freed memory to the system, about 40 MB after loading a model, if the C library can do that (glibc).

    This blocks for some milliseconds.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def clean(text: str) -> str:
    """Return the part of a text that is read, without lone surrogates, which a tokenizer rejects."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def hidden_states(loaded: Any, inputs: dict[str, NDArray[Any]]) -> Vectors:
    """Run the model on one text, and return its first output, a row for each token.

    Raises:
        EmbedderUnavailable: the runtime failed.
    """
    try:
        hidden: Vectors = loaded.run(None, inputs)[0][0]
    except Exception as error:  # noqa: BLE001 - the runtime's errors share no base class
        # The runtime's messages can quote its input, so neither they nor the exception itself are passed on.
        raise EmbedderUnavailable(f"the embedding model failed ({type(error).__name__})") from None
    return hidden


def mean_row(hidden: Vectors) -> Vectors:
    """Return the mean over a text's tokens, scaled to length 1."""
    # The number of tokens cancels out when the sum is scaled.
    return unit(hidden.sum(axis=0))


def unit(row: Vectors) -> Vectors:
    """Return a row scaled to length 1."""
    scaled: Vectors = row / np.float32(np.sqrt(row @ row))
    return scaled
