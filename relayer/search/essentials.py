"""Which memories say what always matters: what could harm the person, how they want to be answered, who they are.

A linear classifier over the hashed n-grams of `relayer.search.prompt_reader`, learnt from statements in fifteen languages, and
words that mark a class: what is chosen stands in every prompt of a session, so both must say so, or the first very clearly.
``python -m bench.standing`` makes the weights anew from ``bench/sets/standing`` and says how right they are.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from relayer.search.prompt_reader import vector
from relayer.search.terms import UNSPACED

Essential = Literal["harm", "style", "identity"]
_ESSENTIALS: Final[tuple[Essential, ...]] = ("harm", "style", "identity")
CLASSES: Final = ("none", *_ESSENTIALS)
"""In the order of their weight after the first."""
LONGEST: Final = 240
"""Characters of a statement; what is longer tells a story."""
# Logits above all the others together, by folds: of twenty that are chosen, nineteen are right. Where no word marks the class,
# a statement must stand out by far.
_MARKED: Final = {"harm": -1.5, "style": -1.5, "identity": -1.0}
_BARE: Final = {"harm": 1.5, "style": 1.5, "identity": 2.0}


@cache
def _marks() -> dict[str, re.Pattern[str]]:
    """What marks each class: beginnings of words, or parts of a text whose script has no spaces."""
    lines = (files("relayer.search") / "data" / "essentials.txt").read_text("utf-8").splitlines()
    stems: dict[str, set[str]] = {kind: set() for kind in CLASSES[1:]}
    for kind, _, said in (line.partition(" ") for line in lines if not line.startswith("#")):
        stems[kind].update(said.split())
    return {
        kind: re.compile(
            "|".join(
                re.escape(one) if UNSPACED.search(one) else rf"\b{re.escape(one)}" for one in sorted(ones)
            )
        )
        for kind, ones in stems.items()
    }


@cache
def _weights() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights of the classes by bucket, stored as bytes with one scale for each class, and their biases."""
    data = (files("relayer.search") / "data" / "essentials.npz").read_bytes()
    stored = np.load(BytesIO(data), allow_pickle=False)
    return stored["weights"].astype(np.float32) * stored["scale"], stored["bias"]


def decide(text: str, logits: NDArray[np.float32]) -> Essential | None:
    """Return the class that stands out of the logits of `CLASSES`, if one does."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    place = 1 + int(logits[1:].argmax())
    kind = _ESSENTIALS[place - 1]
    margin = logits[place] - np.logaddexp.reduce(np.delete(logits, place))
    return kind if margin > (_MARKED if _marks()[kind].search(folded) else _BARE)[kind] else None


def essential_of(text: str) -> Essential | None:
    """Tell what a statement says of what always matters; None for most. Never fails, whatever the text is."""
    if not text.strip() or len(text) > LONGEST:
        return None
    weights, bias = _weights()
    buckets, values = vector(text)
    return decide(text, values @ weights[buckets] + bias)
