"""What a memory's vector says of its worth: whether it tells something that lasts, or only answers, thanks and agrees.

Beside thousands of others every question has words in common with some reply that tells nothing. Learnt of labelled messages
in fifteen languages, for the models it was learnt for: ``python -m bench.worth`` makes the weights anew from
``bench/sets/messages`` and says how right they are.
"""

from __future__ import annotations

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
