"""What a text tells by its form alone: hashed n-grams of its characters and words, and small classifiers that read these.

They were learnt from labelled texts in fifteen languages. Of a prompt: its language, and whether it asks for something only a
memory knows. Of a message: whether it says something that lasts, or why it does not. ``python -m bench.prompt_reader`` and
``bench.message_reader`` make the weights anew from ``bench/sets``, and say how right they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from relayer.domain.operations import Role
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
class Classifier:
    """One linear classifier: weights of each bucket (rows) for each class (columns), and a bias for each class."""

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, grams: Vector) -> NDArray[np.float32]:
        """How likely each class is, in logits; the buckets are a multiple of the head's, or as many."""
        buckets, values = grams
        return np.asarray(values @ self.weights[buckets % len(self.weights)] + self.bias, np.float32)


def _stored(name: str) -> bytes:
    return (files("relayer.lib") / "data" / name).read_bytes()


@cache
def heads_of(reader: str) -> dict[str, Classifier]:
    """Classifiers by name out of a reader's file: weights as bytes with one scale a class, biases as they are."""
    stored = np.load(BytesIO(_stored(reader)), allow_pickle=False)
    names = [name for name in stored.files if f"{name}_scale" in stored.files]
    return {
        name: Classifier(stored[name].astype(np.float32) * stored[f"{name}_scale"], stored[f"{name}_bias"])
        for name in names
    }


# Two linear classifiers, and a small network over what they say and the prompt's vector.
PROMPT_READER = "prompt_reader.npz"
PURPOSES = ("none", "plan", "ask")
"""What a prompt wants of memory: nothing; nothing, but what is known of the person may matter; to be told."""
PROMPT_BUCKETS = 1 << 17
LANGUAGE_BUCKETS = 1 << 14


@dataclass(frozen=True, slots=True)
class PromptReading:
    """What was read of a prompt.

    Attributes:
        language: the likeliest of `LANGUAGES`.
        asks: how much likelier than not it is, in logits, that the prompt asks for a memory.
        concerns: the same of asking for one, or touching what a memory may say.
    """

    language: str
    asks: float
    concerns: float


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """One layer of rectified sums of the n-grams' logits, a model's vector and 1, and a weighted sum of these for each class."""

    inner: NDArray[np.float32]
    outer: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, read: NDArray[np.float32]) -> NDArray[np.float32]:
        """How likely each class is, in logits; one row a row."""
        return np.asarray(np.maximum(read @ self.inner, 0) @ self.outer + self.bias, np.float32)


@cache
def _by_model() -> dict[str, Network]:
    """The networks by the SHA-256 of a model."""
    with np.load(BytesIO(_stored(PROMPT_READER)), allow_pickle=False) as stored:
        models = {name.split("_")[1] for name in stored.files if name.endswith("_inner")}
        return {model: _network(stored, f"model_{model}") for model in models}


def _network(stored: Mapping[str, NDArray[Any]], name: str) -> Network:
    inner, outer = (stored[f"{name}_{part}"].astype(np.float32) for part in ("inner", "outer"))
    return Network(inner * stored[f"{name}_scale"], outer, stored[f"{name}_bias"])


@dataclass(frozen=True, slots=True, eq=False)
class PromptForm:
    """What n-grams alone say of a prompt, which can be read before there is a vector of it.

    Attributes:
        language: the likeliest of `LANGUAGES`.
        purpose: how likely each of `PURPOSES` is, in logits.
    """

    language: str
    purpose: NDArray[np.float32]

    def reading(self, query: NDArray[np.float32] | None = None, model: str = "") -> PromptReading:
        """Return what was read of the prompt.

        Args:
            query: its vector, if there is one: a model that knows languages knows better what is asked than n-grams do.
            model: the SHA-256 of that model; of most nothing has been learnt, and then the n-grams decide.
        """
        purpose, learnt = self.purpose, _by_model().get(model)
        if learnt is not None and query is not None:
            purpose = learnt.logits(np.concatenate([purpose, query, [1.0]], dtype=np.float32))
        none, plan, ask = purpose.tolist()
        return PromptReading(
            language=self.language,
            asks=ask - float(np.logaddexp(none, plan)),
            concerns=float(np.logaddexp(ask, plan)) - none,
        )


def read_prompt(text: str) -> PromptForm:
    """Read a prompt; never fails, whatever the text is."""
    heads, grams = heads_of(PROMPT_READER), vector(text, PROMPT_BUCKETS)
    language = LANGUAGES[int(heads["language"].logits(grams).argmax())]
    return PromptForm(language, heads["purpose"].logits(grams))


# Two linear classifiers, one for what people say and one for what assistants answer.
MESSAGE_READER = "message_reader.npz"
MESSAGE_CLASSES = {
    "user": ("keep", "one_off", "hedge", "courtesy"),
    "assistant": ("result", "reply"),
}
"""What a message is, by who said it; the first is worth keeping."""


@dataclass(frozen=True, slots=True)
class MessageReading:
    """What was read of a message.

    Attributes:
        worth: how much likelier than not it is, in logits, that the message is worth keeping.
        otherwise: the likeliest reason not to keep it.
    """

    worth: float
    otherwise: str


def read_message(text: str, role: Role) -> MessageReading:
    """Read a message or a part of one; never fails, whatever the text is."""
    name = "user" if role is Role.USER else "assistant"
    keep, *others = heads_of(MESSAGE_READER)[name].logits(vector(text)).tolist()
    return MessageReading(
        worth=keep - float(np.logaddexp.reduce(others)),
        otherwise=MESSAGE_CLASSES[name][1 + int(np.argmax(others))],
    )
