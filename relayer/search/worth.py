"""What a memory's vector says of its worth: whether it tells something that lasts, or only answers, thanks and agrees.

Beside thousands of others every question has words in common with some reply that tells nothing. Learnt of labelled messages
in fifteen languages, for the models it was learnt for: ``python -m bench.worth`` makes the weights anew from
``bench/sets/messages`` and says how right they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import Vector


@dataclass(frozen=True, slots=True, eq=False)
class WorthReader:
    """What was learnt for the vectors of one model.

    Attributes:
        direction: of length 1; the further a memory lies in it, the likelier it tells something that lasts.
        steepness: logits for each unit of that.
        bias: in logits.
    """

    direction: Vector
    steepness: float
    bias: float

    def read(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """How likely each memory tells something that lasts, 0..1; 0 of one without a vector.

        Args:
            along: the inner products of the memories' rows with the direction; NaN without a row.
        """
        logits = self.steepness * along + self.bias
        likely: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return np.nan_to_num(likely, nan=0.0)


@cache
def _readers() -> dict[str, WorthReader]:
    data = (files("relayer.search") / "data" / "worth.npz").read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        return {model: _reader(stored[model]) for model in stored.files}


def _reader(weights: NDArray[np.float32]) -> WorthReader:
    """Return the reader of a model's weights, the bias last."""
    steepness = float(np.linalg.norm(weights[:-1]))
    return WorthReader((weights[:-1] / steepness).astype(np.float32), steepness, float(weights[-1]))


def worth_reader(model: str) -> WorthReader | None:
    """Return what was learnt for a model, by its SHA-256; None for one that nothing was learnt for."""
    return _readers().get(model)


_FEWEST = 64
Along = Callable[[Vector, Sequence[int]], NDArray[np.float64]]


class Worths:
    """What the memories of one namespace are worth, by key: each is looked at once, since its vector stays; 4 bytes a key."""

    def __init__(self) -> None:
        # How far each lies in the direction; NaN where nobody looked, or nothing is.
        self._known = np.full(0, np.nan, np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self._known.nbytes

    def of(self, keys: Sequence[int], reader: WorthReader, along: Along) -> NDArray[np.float64]:
        """What memories are worth, see `WorthReader.read`.

        Args:
            keys: of the memories, rising.
            reader: of the model whose vectors they have.
            along: gives the inner products of a direction and the rows of keys, NaN without a row.
        """
        missing = keys[-1] + 1 - len(self._known) if keys else 0
        if missing > 0:
            more = np.full(max(missing, _FEWEST, len(self._known) // 4), np.nan, np.float32)
            self._known = np.concatenate((self._known, more))
        places = np.array(keys, np.int64)
        found = self._known[places]
        unknown = np.isnan(found)
        if unknown.any():
            found[unknown] = along(reader.direction, places[unknown].tolist())
            self._known[places] = found
        return reader.read(found.astype(np.float64))

    def forget(self, key: int) -> None:
        """Look at a memory anew: it has another vector, or none."""
        if key < len(self._known):
            self._known[key] = np.nan

    def clear(self) -> None:
        """Look at all of them anew: they have vectors of another model."""
        self._known = np.full(0, np.nan, np.float32)
