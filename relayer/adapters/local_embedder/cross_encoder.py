"""The cross-encoder: the upper layers of multilingual-e5-small, trained to read a prompt together with a memory.

A vector says what a text is about. Whether "my sister's number is …" answers "when is my sister's birthday?" is in no vector, so
the memories that a prompt would get are read together with it. The lower half of the layers, which the embedder has anyway, runs
over both apart, and the upper half over both together. ``bench/cross_encoder.py`` trains it; the file
``models/cross_encoder.npz`` has 11 MB in int8, which take as much memory. A short memory takes about 8 ms of one processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.e5 import E5, INSTALL, MODELS, halves
from relayer.adapters.local_embedder.relations import TrainedLayers, gelu

CROSS_ENCODER_SHA256 = "6c1038337e77e88c88c8521a5c8010e84714e8530775ab586eb9b9a59cbb1795"
READ_TOKENS = 96
"""The most tokens of a prompt, and of a memory, that are read."""


def cross_encoder_file() -> Path:
    """Return the path of the trained layers."""
    return MODELS / "cross_encoder.npz"


class CrossEncoder:
    """Reads a prompt together with memories.

    Args:
        model: the embedding model, whose lower layers it shares.
        path: of the trained layers; None for those of this package.

    Raises:
        ConfigurationError: the file is missing, or is not the expected one.
    """

    def __init__(self, model: E5, path: Path | None = None) -> None:
        if path is None:
            path = cross_encoder_file()
            runtime.verify(path, CROSS_ENCODER_SHA256, INSTALL)
        weights = TrainedLayers(path, model.divisors)
        self._model = model
        self._upper = model.session_of(weights, halves(model.layers)[1])
        self._marks = weights.floats("marks")
        self._head = [weights.floats(f"head.{number}.{kind}") for number in range(2) for kind in "wb"]

    def scores(self, prompt: str, texts: Sequence[str]) -> runtime.Vectors:
        """Return for each text the logit that it answers the prompt or bears on it; shape (len(texts),).

        Of each, only the first `READ_TOKENS` tokens are read.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        first = self._states(prompt, query=True)
        return np.array([self._score(first, self._states(text, query=False)) for text in texts], np.float32)

    def _states(self, text: str, *, query: bool) -> runtime.Vectors:
        states = self._model.lower_states(self._model.encode(text, query=query)[:READ_TOKENS])
        states += self._marks[0 if query else 1]
        return states

    def _score(self, prompt: runtime.Vectors, memory: runtime.Vectors) -> float:
        hidden = runtime.hidden_states(self._upper, {"rows": np.concatenate([prompt, memory])[None]})
        middle = len(prompt)
        pooled = np.concatenate([hidden[0], hidden[:middle].mean(axis=0), hidden[middle:].mean(axis=0)])
        inner, inner_bias, outer, outer_bias = self._head
        return float(outer[0] @ gelu(inner @ pooled + inner_bias) + outer_bias[0])
