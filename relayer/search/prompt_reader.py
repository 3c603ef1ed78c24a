"""What a text tells by its form alone: the language that it is in, and whether it asks for something only a memory knows.

Two linear classifiers over the same hashed n-grams of characters and words, learnt from labelled prompts in fifteen
languages: ``python -m bench.prompt_reader`` makes the weights anew from ``bench/sets/prompts`` and says how right they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from relayer.search.terms import UNSPACED
from relayer.wire.fields import stream_safe

LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
"""Those that are told apart, by their ISO 639-1 codes."""
PURPOSES = ("none", "plan", "ask")
"""What a prompt wants of memory: nothing; nothing, but what is known of the person may matter; to be told."""
BUCKETS = 1 << 17
LANGUAGE_BUCKETS = 1 << 14

# Of a long text its beginning and its end: what is wanted stands before or after what was pasted.
_HEAD, _TAIL = 240, 120
_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|\d+|[^\w\s]|_")
_LONGEST_WORD = 24
_LENGTHS = (8, 16, 32, 64, 128, 256)
_ASKING = ("?", "\uff1f", "\u061f")
_NAME = re.compile(r"(?<=[\w,;] )[A-Z\u00c0-\u00de\u0410-\u042f][a-z\u00df-\u00ff\u0430-\u044f]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a prompt.

    Attributes:
        language: the likeliest of `LANGUAGES`.
        asks: how much likelier than not it is, in logits, that the prompt asks for a memory.
        concerns: the same of asking for one, or touching what a memory may say.
    """

    language: str
    asks: float
    concerns: float


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


def vector(text: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The features as buckets and signed values of unit length, by hashing (Weinberger et al., 2009)."""
    hashes = np.fromiter((crc32(gram.encode()) for gram in set(n_grams(text))), np.uint32)
    signs = np.where(hashes >> 31, 1.0, -1.0)
    return (hashes % BUCKETS).astype(np.int64), (signs / max(len(hashes), 1) ** 0.5).astype(np.float32)


@cache
def _stored() -> dict[str, NDArray[np.float32]]:
    """The arrays that ``bench/prompt_reader.py`` wrote: weights as bytes, with a scale and a bias for each class."""
    data = (files("relayer.search") / "data" / "prompt_reader.npz").read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        return dict(stored)


def _logits(head: str, buckets: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
    stored = _stored()
    weights = stored[head]
    found = values @ weights[buckets % len(weights)].astype(np.float32)
    return np.asarray(found * stored[f"{head}_scale"] + stored[f"{head}_bias"], np.float32)


def read_prompt(text: str, query: NDArray[np.float32] | None = None, model: str = "") -> Reading:
    """Read a prompt; never fails, whatever the text is.

    Args:
        text: the prompt.
        query: its vector, if there is one: a model that knows languages knows better what is asked than n-grams do.
        model: the SHA-256 of that model; of most nothing has been learnt, and then the n-grams decide.
    """
    buckets, values = vector(text)
    purpose = _logits("purpose", buckets, values)
    by_model = _stored().get(f"purpose_{model}")
    if by_model is not None and query is not None:
        # Its rows: the logits of the n-grams, the vector, and one.
        purpose = np.concatenate([purpose, query, [1.0]], dtype=np.float32) @ by_model
    none, plan, ask = purpose.tolist()
    return Reading(
        language=LANGUAGES[int(_logits("language", buckets, values).argmax())],
        asks=ask - float(np.logaddexp(none, plan)),
        concerns=float(np.logaddexp(ask, plan)) - none,
    )
