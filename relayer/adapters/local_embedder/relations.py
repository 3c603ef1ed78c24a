"""A reader of pairs of statements on the upper layers of multilingual-e5-small: what a newer one does to an older one.

The lower half of the layers is that of the embedder. The upper half and a head were trained by ``bench/relation_reader.py``,
and are stored in int8 in ``models/relation_reader.npz``, 11 MB, which take as much memory. A pair of short statements takes
about 14 ms of one processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.e5 import E5, INSTALL, LARGEST, MODELS, PARTS, halves, product_of

READER_SHA256 = "f078aa854c7ee9fdec8b964cd6791f716e83bf4f0c9b39f2b76747803f9f391d"


def reader_file() -> Path:
    """Return the path of the trained layers, made by bench/relation_reader.py."""
    return MODELS / "relation_reader.npz"


class TrainedLayers:
    """The trained layers, marks and head, with the interface of `e5.Weights`.

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


def verify_reader() -> None:
    """Check the file of the trained layers, which are loaded later, if at all.

    Raises:
        ConfigurationError: it is missing, or is not the expected one.
    """
    runtime.verify(reader_file(), READER_SHA256, INSTALL)


class PairReader:
    """Reads pairs of statements; loads its layers, whose file is verified already, when it is created.

    Args:
        model: the embedding model, whose lower layers it shares.
    """

    def __init__(self, model: E5) -> None:
        weights = TrainedLayers(reader_file(), model.divisors)
        self._model = model
        self._upper = model.session_of(weights, halves(model.layers)[1])
        self._marks = weights.floats("marks")
        self._head = [weights.floats(f"head.{number}.{kind}") for number in range(2) for kind in "wb"]

    def read(self, old: str, new: str) -> runtime.Vectors:
        """Return how likely the newer statement has each of `relayer.ports.RELATIONS` to the older one; shape (4,).

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        ids, first = self._model.encode_pair(old, new)
        states = self._model.lower_states(ids)
        states[:first] += self._marks[0]
        states[first:] += self._marks[1]
        hidden = runtime.hidden_states(self._upper, {"rows": states[None]})
        pooled = np.concatenate([hidden[0], hidden[:first].mean(axis=0), hidden[first:].mean(axis=0)])
        inner, inner_bias, outer, outer_bias = self._head
        logits = outer @ gelu(inner @ pooled + inner_bias) + outer_bias
        chances: runtime.Vectors = np.exp(logits - logits.max())
        chances /= chances.sum()
        return chances


def gelu(values: runtime.Vectors) -> runtime.Vectors:
    """Return the Gaussian error linear unit of values, in its approximation by tanh."""
    inner = np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)
    result: runtime.Vectors = (values * (1 + np.tanh(inner)) / 2).astype(np.float32)
    return result
