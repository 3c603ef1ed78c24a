"""Layers of multilingual-e5-small that were trained again, and what reads with them: prompts, messages, and two texts together.

As the model was made, a query is near texts that are like it. Whether a text answers a prompt, whether a sentence is worth storing
and whether a statement replaces another is in no such vector. Layers for each of these were trained by scripts in ``bench``, and
are stored in int8 in ``models``: the last two layers in 3.6 MB, the upper half in 11 MB, which take as much memory. The layers
before them are those of the embedder. A pair of short texts takes 8 to 14 ms of one processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.e5 import (
    E5,
    INSTALL,
    LARGEST,
    MODELS,
    PARTS,
    halves,
    last_layers,
    product_of,
)
from relayer.ports import MESSAGE_LOGITS, RELATIONS

Name = Literal["cross_encoder", "message_layers", "prompt_layers", "relation_reader"]
SHA256: Final[dict[Name, str]] = {
    "cross_encoder": "106c7daa25cf0feb9e9954adec89442fdf96906220a0fe69085cdfdd304ef615",
    "message_layers": "c1ac71ec7c7f93a9b60add1ef8f23eb1a9327a6080f950b59d7387709a3fe57d",
    "prompt_layers": "3a6988fa3d334233d4e7de9bac0a6cde10a2ae0758695d9a689fba50e7f35e04",
    "relation_reader": "0d4c178511a808d0a95d9d0426aca59d10ed437b095957b6a0b7416d524e3f7f",
}
READ_TOKENS: Final = 96
"""The most tokens that are read of a message, of a prompt that is read together with a memory, and of that memory."""
LENGTH: Final = 10.0
"""The length that the vector of a message has before the linear forms."""


def trained_file(name: Name) -> Path:
    """Return the path of trained layers, which the script of the same name in ``bench`` makes."""
    return MODELS / f"{name}.npz"


def verify_trained() -> None:
    """Check the files of all trained layers.

    Raises:
        ConfigurationError: one is missing, or is not the expected one.
    """
    for name, sha256 in SHA256.items():
        runtime.verify(trained_file(name), sha256, INSTALL)


class TrainedLayers:
    """Trained layers, and what belongs to them, with the interface of `e5.LayerWeights`.

    Args:
        path: of the file, whose content is verified already.
        divided: the divisors of the columns of activations, by the name of the product.
    """

    def __init__(self, path: Path, divided: Mapping[str, runtime.Vectors]) -> None:
        with np.load(path, allow_pickle=False) as stored:
            self._stored: dict[str, NDArray[Any]] = dict(stored)
        self._divided = divided
        self.width, self.inner, self.heads = self._stored["sizes"].tolist()
        self.epsilon = float(self._stored["epsilon"])

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return a vector, or a small matrix."""
        return self._stored[name].astype(np.float32)

    def matrix(self, name: str, width: int) -> NDArray[np.float32]:  # noqa: ARG002 - its shape is stored with it
        """Return a matrix of a layer."""
        rows: NDArray[np.float32] = self._stored[name] * self._stored[f"{name}.scales"][:, None]
        return rows / self._divided.get(product_of(name), np.float32(1))


def packed(name: str, matrix: NDArray[np.float32], divided: Mapping[str, runtime.Vectors]) -> dict[str, Any]:
    """Return a matrix of a layer as `TrainedLayers.matrix` reads it: in int8, with one scale for each row."""
    matrix = matrix * divided.get(product_of(name), np.float32(1))
    scales = (np.abs(matrix).max(axis=1) / LARGEST).astype(np.float32)
    return {name: np.rint(matrix / scales[:, None]).astype(np.int8), f"{name}.scales": scales}


def layer_names(layer: int) -> tuple[list[str], list[str]]:
    """Return the names of the matrices of a layer, and of its vectors."""
    matrices = [f"l{layer}.{part}.w" for part in PARTS]
    norms = [f"l{layer}.{norm}.{kind}" for norm in ("aln", "oln") for kind in "wb"]
    return matrices, [f"l{layer}.{part}.b" for part in PARTS] + norms


class PromptReader:
    """Embeds prompts: near what answers them or bears on them. Stored vectors stay as they are.

    Args:
        model: the embedding model, which runs all layers but the last two once for both vectors.
    """

    def __init__(self, model: E5) -> None:
        weights = TrainedLayers(trained_file("prompt_layers"), model.divisors)
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


class MessageLayers:
    """Reads messages: which sentences are worth storing, and of what kind they are.

    The classifiers of `relayer.lib.n_grams` know words and not what they mean together.

    Args:
        model: the embedding model, which runs all layers but the last two.
    """

    def __init__(self, model: E5) -> None:
        weights = TrainedLayers(trained_file("message_layers"), model.divisors)
        self._model = model
        self._last = model.session_of(weights, last_layers(model.layers))
        self._weights = weights.floats("head.w").reshape(MESSAGE_LOGITS, -1)
        self._bias = weights.floats("head.b")

    def read(self, text: str) -> runtime.Vectors:
        """Return the logits of a text; shape (14,), see `relayer.ports.MessageReader`.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        states = self._model.shared_states(self._model.encode(text, query=False)[:READ_TOKENS])
        hidden = runtime.hidden_states(self._last, {"rows": states[None]})
        vector = self._model.centred(runtime.mean_row(hidden), query=False)
        logits: runtime.Vectors = self._weights @ vector + self._bias
        return logits


class _PairLayers:
    """The upper half of the layers over two texts together, with a mark for each before them and a head after them.

    Args:
        model: the embedding model.
        path: of the trained layers.
    """

    def __init__(self, model: E5, path: Path) -> None:
        weights = TrainedLayers(path, model.divisors)
        self._upper = model.session_of(weights, halves(model.layers)[1])
        self._marks = weights.floats("marks")
        self._head = [weights.floats(f"head.{number}.{kind}") for number in range(2) for kind in "wb"]

    def hidden(self, first: runtime.Vectors, second: runtime.Vectors) -> runtime.Vectors:
        """Return the hidden states of two texts, given those after the lower half of the layers; a row a token."""
        states = np.concatenate([first + self._marks[0], second + self._marks[1]])
        return runtime.hidden_states(self._upper, {"rows": states[None]})

    def logits(self, hidden: runtime.Vectors, first: slice, second: slice) -> runtime.Vectors:
        """Return what the head says of two parts of the hidden states."""
        pooled = np.concatenate([hidden[0], hidden[first].mean(axis=0), hidden[second].mean(axis=0)])
        inner, inner_bias, outer, outer_bias = self._head
        values = inner @ pooled + inner_bias
        # The Gaussian error linear unit, in its approximation by tanh.
        slope = np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3))
        logits: runtime.Vectors = outer @ (values * (1 + slope) / 2).astype(np.float32) + outer_bias
        return logits


class PairReader:
    """Reads pairs of statements: what a newer one does to an older one. Both run through all layers together.

    Args:
        model: the embedding model, whose lower layers it shares.
    """

    def __init__(self, model: E5) -> None:
        self._model = model
        self._pairs = _PairLayers(model, trained_file("relation_reader"))

    def read(self, clauses: Sequence[str], new: str) -> runtime.Vectors:
        """Return how likely the newer statement has each of `relayer.ports.RELATIONS` to an older one, and to each of its clauses.

        The clauses are read in their order, as one text, so that each is understood with the others. Shape (1 + len(clauses), 4).

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        ids, spans = self._model.encode_pair(clauses, new)
        middle = spans[0][1]
        states = self._model.lower_states(ids)
        hidden = self._pairs.hidden(states[:middle], states[middle:])
        read = np.zeros((len(spans), len(RELATIONS)), np.float32)
        read[:, RELATIONS.index("both")] = 1
        for row, (start, end) in zip(read, spans, strict=True):
            if end > start:
                logits = self._pairs.logits(hidden, slice(start, end), slice(middle, None))
                chances = np.exp(logits - logits.max())
                row[:] = chances / chances.sum()
        return read


class CrossEncoder:
    """Reads a prompt together with memories, both of which run through the lower half of the layers apart.

    A vector says what a text is about. Whether "my sister's number is …" answers "when is my sister's birthday?" is in no vector,
    so the memories that a prompt would get are read together with it.

    Args:
        model: the embedding model, whose lower layers it shares.
    """

    def __init__(self, model: E5) -> None:
        self._model = model
        self._pairs = _PairLayers(model, trained_file("cross_encoder"))

    def scores(self, prompt: str, texts: Sequence[str]) -> runtime.Vectors:
        """Return for each text the logit that it answers the prompt or bears on it; shape (len(texts),).

        Of each, only the first `READ_TOKENS` tokens are read.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        first = self._states(prompt, query=True)
        scores = []
        for text in texts:
            hidden = self._pairs.hidden(first, self._states(text, query=False))
            scores.append(self._pairs.logits(hidden, slice(len(first)), slice(len(first), None))[0])
        return np.array(scores, np.float32)

    def _states(self, text: str, *, query: bool) -> runtime.Vectors:
        return self._model.lower_states(self._model.encode(text, query=query)[:READ_TOKENS])
