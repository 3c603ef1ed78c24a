"""Texts of any language as hashed n-grams of their characters and words: what small linear classifiers read of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from relayer.wire.fields import stream_safe

UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts that are written without spaces between words."""
BUCKETS = 1 << 15
LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
"""Those that the texts to learn from are in, by their ISO 639-1 codes."""

# Of a long text its beginning and its end: what is wanted stands before or after what was pasted.
_HEAD, _TAIL = 240, 120
_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|\d+|[^\w\s]|_")
_LONGEST_WORD = 24
_LENGTHS = (8, 16, 32, 64, 128, 256)
_ASKING = ("?", "\uff1f", "\u061f")
_NAME = re.compile(r"(?<=[\w,;] )[A-Z\u00c0-\u00de\u0410-\u042f][a-z\u00df-\u00ff\u0430-\u044f]+")


def n_grams(text: str) -> Iterator[str]:
    """The features of a text: pieces of its words, its words, pairs of them, how it begins and ends, its shape."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]} \n {text[-_TAIL:]}"
    folded = unicodedata.normalize("NFKC", stream_safe(text)).casefold()
    before = "^"
    last = ""
    for number, token in enumerate(_TOKEN.findall(folded)):
        if UNSPACED.search(token):
            yield from _of_unspaced(token, first=not number)
        else:
            word = token[:_LONGEST_WORD]
            yield f"w{word}"
            yield f"p{before} {word}"
            marked = f"<{word}>"
            for size in (2, 3, 4):
                for at in range(len(marked) - size + 1):
                    yield marked[at : at + size]
            if number < 3:
                yield f"{number}{word}"
        before, last = token[-_LONGEST_WORD:], token
    yield f"${last[-3:]}"
    yield from _shape(text)


def _of_unspaced(run: str, *, first: bool) -> Iterator[str]:
    for size in (1, 2, 3):
        for at in range(len(run) - size + 1):
            yield f"u{run[at : at + size]}"
    for size in (1, 2, 3):
        yield f"${run[-size:]}"
        if first:
            yield f"^{run[:size]}"


def _shape(text: str) -> Iterator[str]:
    stripped = text.strip()
    yield f"#length {sum(len(stripped) >= length for length in _LENGTHS)}"
    yield f"#asks {stripped.endswith(_ASKING)}"
    yield f"#lines {min(stripped.count(chr(10)), 3)}"
    if _NAME.search(stripped):
        yield "#name"
    if any(mark in stripped for mark in ("```", "()", "{", "=", "</", "::", "->")):
        yield "#code"
    if any(mark in stripped for mark in ('"', "\u201c", "\u00ab", "\u300c", "\u201e")):
        yield "#quote"


Vector = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Buckets, and a value for each of them."""


def vector(text: str, count: int = BUCKETS) -> Vector:
    """The features as buckets, ``count`` of them, and signed values of unit length, by hashing (Weinberger et al., 2009)."""
    hashes = np.fromiter((crc32(gram.encode()) for gram in set(n_grams(text))), np.uint32)
    signs = np.where(hashes >> 31, 1.0, -1.0)
    return (hashes % count).astype(np.int64), (signs / max(len(hashes), 1) ** 0.5).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """One linear classifier: weights of each bucket (rows) for each class (columns), and a bias for each class."""

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, grams: Vector) -> NDArray[np.float32]:
        """How likely each class is, in logits; the buckets are a multiple of the head's, or as many."""
        buckets, values = grams
        return np.asarray(values @ self.weights[buckets % len(self.weights)] + self.bias, np.float32)


def stored_heads(data: bytes) -> dict[str, Head]:
    """Classifiers by name out of a file: weights as bytes with one scale a class, biases as they are."""
    stored = np.load(BytesIO(data), allow_pickle=False)
    names = [name for name in stored.files if f"{name}_scale" in stored.files]
    return {
        name: Head(stored[name].astype(np.float32) * stored[f"{name}_scale"], stored[f"{name}_bias"])
        for name in names
    }
