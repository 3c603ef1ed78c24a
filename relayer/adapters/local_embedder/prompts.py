"""The vectors of prompts: two layers of multilingual-e5-small that were trained to find what answers a prompt or bears on it.

As the model was made, a query is near texts that are like it. A plan for a meal is not like an allergy, and a question is not like
its answer. ``bench/prompt_layers.py`` trains the last two layers again, for prompts alone: stored vectors stay as they are. The
file ``models/prompt_layers.npz``, 3.6 MB in int8, also has the weights by which a prompt says whether memories concern it at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.e5 import E5, INSTALL, MODELS, last_layers
from relayer.adapters.local_embedder.relations import TrainedLayers

PROMPTS_SHA256 = "04f937ba979ed0f6c2e56ef5b0722a317245a571d9de67572f098b5973f6a4e6"


def prompts_file() -> Path:
    """Return the path of the trained layers."""
    return MODELS / "prompt_layers.npz"


class PromptReader:
    """Embeds prompts.

    Args:
        model: the embedding model, which runs all layers but the last two once for both vectors.
        path: of the trained layers; None for those of this package.

    Raises:
        ConfigurationError: the file is missing, or is not the expected one.
    """

    def __init__(self, model: E5, path: Path | None = None) -> None:
        if path is None:
            path = prompts_file()
            runtime.verify(path, PROMPTS_SHA256, INSTALL)
        weights = TrainedLayers(path, model.divisors)
        self._model = model
        self._last = model.session_of(weights, last_layers(model.layers))
        self._weights, self._bias = weights.floats("admission.w"), weights.floats("admission.b")

    def row(self, ids: Sequence[int]) -> runtime.Vectors:
        """Return the vector of an encoded query, its vector as a prompt, and its admission; shape (769,).

        `relayer.ports.QueryVectors` describes them.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        states = self._model.shared_states(ids)
        query = self._model.centred(self._model.pooled(states), query=True)
        hidden = runtime.hidden_states(self._last, {"rows": states[None]})
        prompt = self._model.centred(runtime.mean_row(hidden), query=True)
        return np.concatenate([query, prompt, prompt @ self._weights + self._bias])
