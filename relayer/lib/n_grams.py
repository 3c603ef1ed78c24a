"""Text classification by n-grams: hashed features of characters and words, and small classifiers on them.

`read_prompt` classifies a prompt: its language, and whether it asks for something that only a memory knows; `asks_for_former`
says whether it asks how something was before it changed. `read_message` classifies a message: whether it is worth storing, or why not. The classifiers were trained on labelled texts in fifteen
languages. ``python -m bench.prompt_reader`` and ``bench.message_reader`` train them again from ``bench/sets`` and report
their accuracy.
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

from relayer.wire.fields import Role, stream_safe

UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""The characters of scripts that are written without spaces between words."""
BUCKETS = 1 << 15
LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
"""The languages of the training texts, by their ISO 639-1 codes."""

# Of a long text, only its beginning and end are read: the request itself comes before or after pasted text.
_HEAD, _TAIL = 240, 120
_LONGEST_FOLDED = 1_000
_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|\d+|[^\w\s]|_")
_LONGEST_WORD = 24
_LENGTHS = (8, 16, 32, 64, 128, 256)
_ASKING = ("?", "\uff1f", "\u061f")
_NAME = re.compile(r"(?<=[\w,;] )[A-Z\u00c0-\u00de\u0410-\u042f][a-z\u00df-\u00ff\u0430-\u044f]+")


def n_grams(text: str) -> Iterator[str]:
    """Yield the features of a text: parts of its words, its words and pairs of them, its beginning and end, its shape."""
    text = beginning_and_end(text)
    # NFKC makes up to eighteen characters of one.
    folded = unicodedata.normalize("NFKC", stream_safe(text)).casefold()[:_LONGEST_FOLDED]
    before = "^"
    last = ""
    for number, token in enumerate(_TOKEN.findall(folded)):
        if UNSPACED.search(token):
            for size in (1, 2, 3):
                for at in range(len(token) - size + 1):
                    yield f"u{token[at : at + size]}"
            for size in (1, 2, 3):
                yield f"${token[-size:]}"
                if not number:
                    yield f"^{token[:size]}"
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


def beginning_and_end(text: str) -> str:
    """Return the part of a text that is read: a long text's beginning and end."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} \n {text[-_TAIL:]}"


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
"""A sparse feature vector: buckets, and a value for each of them."""


def vector(text: str, count: int = BUCKETS) -> Vector:
    """Return a text's features by feature hashing (Weinberger et al., 2009): buckets, and signed values of unit length.

    ``count`` is the number of different buckets.
    """
    hashes = np.fromiter((crc32(gram.encode()) for gram in set(n_grams(text))), np.uint32)
    signs = np.where(hashes >> 31, 1.0, -1.0)
    return (hashes % count).astype(np.int64), (signs / max(len(hashes), 1) ** 0.5).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """A linear classifier: weights of each bucket (rows) for each class (columns), and a bias for each class."""

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, grams: Vector) -> NDArray[np.float32]:
        """Return the logit of each class; the number of buckets of ``grams`` is that of this classifier or a multiple of it."""
        buckets, values = grams
        return np.asarray(values @ self.weights[buckets % len(self.weights)] + self.bias, np.float32)


def _stored(name: str) -> bytes:
    return (files("relayer.lib") / "data" / name).read_bytes()


@cache
def heads_of(reader: str) -> dict[str, Classifier]:
    """Load the classifiers of a file, by name. Their weights are stored as bytes with one scale for each class."""
    stored = np.load(BytesIO(_stored(reader)), allow_pickle=False)
    names = [name for name in stored.files if f"{name}_scale" in stored.files]
    return {
        name: Classifier(stored[name].astype(np.float32) * stored[f"{name}_scale"], stored[f"{name}_bias"])
        for name in names
    }


# Two linear classifiers; small networks that combine the logits of the second one with the prompt's vector, and linear forms of it.
PROMPT_READER = "prompt_reader.npz"
PURPOSES = ("none", "plan", "ask")
"""The classes of prompts: they need no memory; do not ask for one, but it may matter ("plan"); ask for one."""
# Chosen by folds: of a hundred prompts that ask for a former value 80 are recognised, of a hundred that sound like it six are.
_FORMER_FROM = 0.5
PROMPT_BUCKETS = 1 << 17
LANGUAGE_BUCKETS = 1 << 14


@dataclass(frozen=True, slots=True)
class PromptReading:
    """The classification of a prompt.

    Attributes:
        language: the most likely one of `LANGUAGES`.
        asks: the logit that the prompt asks for a memory.
        concerns: the logit that it asks for one or touches what memories are about.
    """

    language: str
    asks: float
    concerns: float


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network with one hidden layer of rectified linear units.

    Attributes:
        inner: the weights of the hidden layer. Its inputs are the logits of the n-grams, the vector of a model, and 1.
        outer: the weights of the output layer, one column for each class.
        bias: the bias of each class.
    """

    inner: NDArray[np.float32]
    outer: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, read: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logit of each class, for one input or for each row of several."""
        return np.asarray(np.maximum(read @ self.inner, 0) @ self.outer + self.bias, np.float32)


@cache
def _by_model() -> dict[str, Network]:
    """Load the networks, by the SHA-256 of the embedding model's weights."""
    with np.load(BytesIO(_stored(PROMPT_READER)), allow_pickle=False) as stored:
        models = {name.split("_")[1] for name in stored.files if name.endswith("_inner")}
        return {model: _network(stored, f"model_{model}") for model in models}


def _network(stored: Mapping[str, NDArray[Any]], name: str) -> Network:
    inner, outer = (stored[f"{name}_{part}"].astype(np.float32) for part in ("inner", "outer"))
    return Network(inner * stored[f"{name}_scale"], outer, stored[f"{name}_bias"])


@dataclass(frozen=True, slots=True, eq=False)
class PromptForm:
    """The classification of a prompt by its n-grams alone, which is available before its vector.

    Attributes:
        language: the most likely one of `LANGUAGES`.
        purpose: the logit of each of `PURPOSES`.
    """

    language: str
    purpose: NDArray[np.float32]

    def reading(self, query: NDArray[np.float32] | None = None, model: str = "") -> PromptReading:
        """Return the classification of the prompt.

        Args:
            query: the vector of the prompt, of shape (dimension,), None if there is none. With it the result is better than
                from n-grams alone.
            model: the SHA-256 of the model of that vector. If there is no network for the model, the n-grams decide.
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
    """Classify a prompt by its n-grams; accepts any text."""
    heads, grams = heads_of(PROMPT_READER), vector(text, PROMPT_BUCKETS)
    language = LANGUAGES[int(heads["language"].logits(grams).argmax())]
    return PromptForm(language, heads["purpose"].logits(grams))


def asks_for_former(query: NDArray[np.float32], model: str) -> bool:
    """Return whether a prompt asks how something was before it changed, such as "where did I live before?".

    N-grams do not tell that from "what should I pack before the flight?", so it is never so for a model without a linear form.

    Args:
        query: the vector of the prompt, of shape (dimension,).
        model: the SHA-256 of the model of that vector.
    """
    learnt = former_by_model().get(model)
    return learnt is not None and float(query @ learnt[:-1] + learnt[-1]) >= _FORMER_FROM


@cache
def former_by_model() -> dict[str, NDArray[np.float32]]:
    """Load the weights of linear forms and their biases, by the SHA-256 of the embedding model's weights."""
    with np.load(BytesIO(_stored(PROMPT_READER)), allow_pickle=False) as stored:
        return {name.split("_")[1]: stored[name] for name in stored.files if name.startswith("former_")}


# Two linear classifiers, one for messages of users and one for messages of assistants.
MESSAGE_READER = "message_reader.npz"
MESSAGE_CLASSES = {
    "user": ("keep", "one_off", "hedge", "courtesy", "question", "unreal"),
    "assistant": ("result", "reply"),
}
"""The classes of messages by the role of the speaker. Messages of the first class are worth storing."""


UNREAL = -0.5
"""The value of `MessageReading.unreal` from which a message is taken for a hypothesis, a quotation or fiction."""


@dataclass(frozen=True, slots=True)
class MessageReading:
    """The classification of a message.

    Attributes:
        worth: the logit that the message is worth storing.
        otherwise: the most likely reason not to store it.
        unreal: the logit that it is not meant in earnest, against that it is worth storing; of an assistant's no logit.
        by_model: whether a model read it, too.
        only_asks: whether that model is sure that it only asks for something.
    """

    worth: float
    otherwise: str
    unreal: float = float("-inf")
    by_model: bool = False
    only_asks: bool = False


KINDS = ("fact", "preference", "decision", "event", "task", "statement")
"""The kinds of statements, by the names of `relayer.domain.operations.Kind`."""


ESSENTIALS = ("none", "harm", "style", "identity")
"""The classes of statements by what must always be known, see `relayer.search.essentials`."""


MESSAGE_BUCKETS = 1 << 16
_DIGIT = re.compile(r"\d")


def fold_digits(text: str) -> str:
    """Return a user's message with a zero for each digit: which digits a number has does not tell whether it is worth storing.

    Example:
        >>> fold_digits("berth 12: ship 902")
        'berth 00: ship 000'
    """
    return _DIGIT.sub("0", text)


def _message_vector(text: str, role: Role) -> Vector:
    text = beginning_and_end(text)
    # A result of an assistant's is often a number.
    return vector(fold_digits(text), MESSAGE_BUCKETS) if role is Role.USER else vector(text)


def read_kind(text: str) -> str:
    """Classify a statement by its n-grams as one of `KINDS`; accepts any text."""
    return KINDS[int(heads_of(MESSAGE_READER)["kind"].logits(_message_vector(text, Role.USER)).argmax())]


def message_logits(text: str, role: Role) -> NDArray[np.float32]:
    """Return the logits of the classes of a role's messages, by the n-grams of a message or a part of one; accepts any text."""
    return heads_of(MESSAGE_READER)[classes_of(role)].logits(_message_vector(text, role))


def classes_of(role: Role) -> str:
    """Return the name in `MESSAGE_CLASSES` of the classes of a role's messages."""
    return "user" if role is Role.USER else "assistant"


def reading_of(logits: NDArray[np.float32], role: Role) -> MessageReading:
    """Return what the logits of the classes of a role's messages say."""
    keep, *others = logits.tolist()
    return MessageReading(
        worth=keep - float(np.logaddexp.reduce(others)),
        otherwise=MESSAGE_CLASSES[classes_of(role)][1 + int(np.argmax(others))],
        unreal=others[-1] - keep if role is Role.USER else float("-inf"),
    )


def read_message(text: str, role: Role) -> MessageReading:
    """Classify a message or a part of one by its n-grams; accepts any text."""
    return reading_of(message_logits(text, role), role)
