"""Which memories say what always matters: what could harm the person, how they want to be answered, who they are.

A linear classifier over the hashed n-grams of `relayer.search.prompt_reader`, learnt from statements in fifteen languages:
``python -m bench.standing`` makes the weights anew from ``bench/sets/standing`` and says how right they are. What is chosen stands
in every prompt of a session, so it is chosen only where little else comes into question.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from relayer.search.prompt_reader import vector

Essential = Literal["harm", "style", "identity"]
CLASSES: Final = ("none", "harm", "style", "identity")
LONGEST: Final = 240
"""Characters of a statement; what is longer tells a story."""
# Logits above all the others together, by folds: where one line in thirty of the chosen is wrong.
MARGIN: Final = {"harm": 0.5, "style": 0.5, "identity": 0.5}


@cache
def _weights() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights of the classes by bucket, stored as bytes with one scale for each class, and their biases."""
    data = (files("relayer.search") / "data" / "essentials.npz").read_bytes()
    stored = np.load(BytesIO(data), allow_pickle=False)
    return stored["weights"].astype(np.float32) * stored["scale"], stored["bias"]


def decide(logits: NDArray[np.float32]) -> Essential | None:
    """Return the class that stands out of the logits of `CLASSES`, if one does."""
    for kind in ("harm", "style", "identity"):
        place = CLASSES.index(kind)
        others = np.logaddexp.reduce(np.delete(logits, place))
        if logits[place] - others > MARGIN[kind]:
            return kind
    return None


def essential_of(text: str) -> Essential | None:
    """Tell what a statement says of what always matters; None for most. Never fails, whatever the text is."""
    if not text.strip() or len(text) > LONGEST:
        return None
    weights, bias = _weights()
    buckets, values = vector(text)
    return decide(values @ weights[buckets] + bias)
