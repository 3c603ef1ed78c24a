"""Which memories say what always matters: what could harm the person, how they want to be answered, who they are.

A linear classifier over the hashed n-grams of `relayer.lib.n_grams`, learnt from statements in fifteen languages, and
words that mark a class: what is chosen stands in every prompt of a session, so both must say so.
``python -m bench.standing`` makes the weights anew from ``bench/sets/standing`` and says how right they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from relayer.lib.n_grams import UNSPACED, vector
from relayer.wire.fields import stream_safe

Essential = Literal["harm", "style", "identity"]
_ESSENTIALS: Final[tuple[Essential, ...]] = ("harm", "style", "identity")
CLASSES: Final = ("none", *_ESSENTIALS)
"""In the order of their weight after the first."""
LONGEST: Final = 240
"""Characters of a statement; what is longer tells a story."""
# Logits above all the others together, by folds: of twenty that are chosen, nineteen are right.
_MARGIN: Final = {"harm": -1.5, "style": -1.5, "identity": -1.0}

# Where a mark may begin: at a word, and anywhere where words are not set apart or carry what stands before them.
_BEGINNING: Final = re.compile(rf"\b\w|{UNSPACED.pattern}|[\u0600-\u06ff]")


@cache
def _marks() -> dict[str, dict[Essential, tuple[str, ...]]]:
    """What marks each class, by its first character."""
    lines = (files("relayer.search") / "data" / "essentials.txt").read_text("utf-8").splitlines()
    marks: dict[str, dict[Essential, tuple[str, ...]]] = defaultdict(lambda: dict.fromkeys(_ESSENTIALS, ()))
    for kind in _ESSENTIALS:
        for line in lines:
            for mark in _folded(line.removeprefix(kind)).split() if line.startswith(f"{kind} ") else ():
                marks[mark[0]][kind] += (mark.replace("_", " "),)
    return dict(marks)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", stream_safe(text)).casefold()


@cache
def _weights() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights of the classes by bucket, stored as bytes with one scale for each class, and their biases."""
    data = (files("relayer.search") / "data" / "essentials.npz").read_bytes()
    stored = np.load(BytesIO(data), allow_pickle=False)
    return stored["weights"].astype(np.float32) * stored["scale"], stored["bias"]


def marked(text: str) -> frozenset[Essential]:
    """Return the classes of which a word stands in a text."""
    folded, found = _folded(text), set[Essential]()
    for match in _BEGINNING.finditer(folded):
        for kind, marks in _marks().get(match[0][0], {}).items():
            if folded.startswith(marks, match.start()):
                found.add(kind)
    return frozenset(found)


def decide(marks: frozenset[Essential], logits: NDArray[np.float32]) -> Essential | None:
    """Return the class that stands out of the logits of `CLASSES`, if one does that is marked."""
    place = 1 + int(logits[1:].argmax())
    kind = _ESSENTIALS[place - 1]
    margin = logits[place] - np.logaddexp.reduce(np.delete(logits, place))
    return kind if kind in marks and margin > _MARGIN[kind] else None


def load() -> None:
    """Read words and weights now."""
    _marks()
    _weights()


def essential_of(text: str) -> Essential | None:
    """Tell what a statement says of what always matters; None for most. Never fails, whatever the text is."""
    marks = marked(text) if len(text) <= LONGEST else frozenset()
    # A look for words takes a twentieth of the time of a reading, and few have one.
    if not marks:
        return None
    weights, bias = _weights()
    buckets, values = vector(text)
    return decide(marks, values @ weights[buckets] + bias)
