"""What the local models have in common: onnxruntime without telemetry or arena, files that are checked, pooled rows.

A text is run alone, so its vector depends on nothing but its tokens.
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

# What MiniLM was trained to see (sentence-transformers' max_seq_length); twice that costs E5 twice as much.
MAX_TOKENS = 256
# Far beyond 256 tokens of real text, which are about 1,200: what nobody reads must not be tokenised first.
MAX_CHARACTERS = 4_096


class LocalModel(Protocol):
    """A model that is loaded; its methods run on worker threads."""

    @property
    def identity(self) -> EmbeddingModel:
        """What its vectors are recorded as."""
        ...

    def encode(self, text: str, *, query: bool) -> list[int]:
        """Token ids of a text, at most 256, the model's start and end marks included."""
        ...

    def vector(self, ids: Sequence[int], *, query: bool) -> Vectors:
        """Vector of an encoded text, of length 1; shape (dimension,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        ...


def library(name: str, install: str) -> Any:
    """Import a library of the extra.

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
        ConfigurationError: it cannot be read, or is not that content.
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
    """Load a model into onnxruntime; ``as_written`` has it fuse nothing that the graph gives as single operations.

    Raises:
        ConfigurationError: onnxruntime is not installed.
    """
    runtime = library("onnxruntime", install)
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The arena keeps the memory of the largest run for ever.
    options.enable_cpu_mem_arena = False
    if as_written:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Waiting threads of the pool must not burn the cores that the event loop and the store use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    loaded = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # It keeps the file for a change of providers, which never comes here: 21 MB.
    loaded._model_bytes = None  # noqa: SLF001 - there is no other way to have it let go
    return loaded


def give_back() -> None:
    """Hand memory that was freed back to the system, as far as the C library can (glibc): what loading took, some 40 MB.

    Blocks for some milliseconds.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def clean(text: str) -> str:
    """The part of a text that is read, as Unicode; a tokenizer refuses lone surrogates."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def hidden_states(loaded: Any, inputs: dict[str, NDArray[Any]]) -> Vectors:
    """The first output of a run over one text, a row for each token.

    Raises:
        EmbedderUnavailable: the runtime failed.
    """
    try:
        hidden: Vectors = loaded.run(None, inputs)[0][0]
    except Exception as error:  # noqa: BLE001 - the runtime's errors share no base class
        # Its messages can quote what it was given, so neither they nor the chain travel on.
        raise EmbedderUnavailable(f"the embedding model failed ({type(error).__name__})") from None
    return hidden


def mean_row(hidden: Vectors) -> Vectors:
    """Mean over a text's tokens, scaled to length 1."""
    # The mean's divisor cancels in the normalisation.
    return unit(hidden.sum(axis=0))


def unit(row: Vectors) -> Vectors:
    """A row scaled to length 1."""
    scaled: Vectors = row / np.float32(np.sqrt(row @ row))
    return scaled
