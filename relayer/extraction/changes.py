"""The relation of two statements: whether a newer one tells a new state of what an older one says, in any of fifteen languages.

`statement_of` reads a text, and a small linear classifier weighs the `features` of two of them: the cosine of their vectors,
shared words, shared topics (such as a home or a date), and whether the newer one says that something has changed. The latter is
recognised by the words of ``data/changes.toml``, and by its vector if it is of a model that a `Reader` was learnt for. The
weights are in ``data/change_weights.toml``, and for vectors in ``data/change_reader.npz``; ``python -m bench.changes`` learns
them from ``bench/sets/changes``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from io import BytesIO
from math import exp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.extraction.words import read_data, split_sentences
from relayer.wire.fields import stream_safe

LONGEST = 600
"""The number of characters of a text that are read."""

# Devanagari writes vowels as combining marks, which are in no class of letters.
_WORD = re.compile(r"(?:[^\W_]|[\u0900-\u0963])+(?:['.:/-](?:[^\W_]|[\u0900-\u0963])+)*")
_MARKS = re.compile(r"[\u0300-\u036f\u0640\u064b-\u0652]")
# The typographic apostrophe, letters that do not decompose into a plain one and a mark, and interchangeable Arabic letters.
_SPELLINGS = str.maketrans("\u2019\u0131\u0142\u0649\u0629\u0451", "'il\u064a\u0647\u0435")
# Scripts in which a listed word may be inside of a longer one, and one in which it may only begin it.
_INSIDE = re.compile(r"[\u0600-\u06ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]")
_BEGINS = re.compile(r"[\u0900-\u097f]")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ARTICLE = re.compile(r"^(?:[وبفل]?ال|لل)")
# A text with more words is more than one statement.
_MOST_WORDS = 30
_LONGEST_PHRASE = 4
_LONGEST_PART = 10
_SHORTEST_BEGINNING = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """The features that the classifier reads of one text.

    Attributes:
        cues: the kinds of words of change in it.
        about: the topics in it.
        kin: the words for relatives and the like in it.
        words: the stems of its other words.
        numbers: its numbers.
        labels: its words of letters and digits, such as ``db-01`` and ``4c``.
    """

    cues: frozenset[str]
    about: frozenset[str]
    kin: frozenset[str]
    words: frozenset[str]
    numbers: frozenset[str]
    labels: frozenset[str]


def statement_of(text: str) -> Statement:
    """Return the features of a text; never fails, whatever the text is."""
    folded = _folded(text[:LONGEST])
    words = _WORD.findall(folded)
    meanings = {*_of_words(words), *_of_parts(folded)}
    common = _lists()["common"]
    plain = {word for word in words if word not in common}
    digital = {word for word in plain if any(map(str.isdigit, word))}
    labels = {word for word in digital if any(map(str.isalpha, word))}
    stems = {stem for word in plain - digital for stem in _stems(word)}
    return Statement(
        cues=frozenset(what for sort, what in meanings if sort == "cues"),
        about=frozenset(what for sort, what in meanings if sort == "attributes"),
        kin=frozenset(what for sort, what in meanings if sort == "kin"),
        words=frozenset(stems),
        numbers=frozenset(digital - labels),
        labels=frozenset(labels),
    )


def _folded(text: str) -> str:
    composed = unicodedata.normalize("NFKC", stream_safe(text)).casefold()
    if composed.isascii():
        return composed
    plain = _MARKS.sub("", unicodedata.normalize("NFD", composed.translate(_SPELLINGS)))
    return unicodedata.normalize("NFC", plain)


def _of_words(words: list[str]) -> Iterator[tuple[str, str]]:
    whole, beginnings = _lists()["whole"], _lists()["beginnings"]
    for at, word in enumerate(words):
        for end in range(at + 1, min(at + _LONGEST_PHRASE, len(words)) + 1):
            yield from whole.get(" ".join(words[at:end]), ())
        for length in range(_SHORTEST_BEGINNING, len(word) + 1):
            yield from beginnings.get(word[:length], ())


def _of_parts(text: str) -> Iterator[tuple[str, str]]:
    parts = _lists()["parts"]
    for found in _INSIDE.finditer(text):
        at = found.start()
        for end in range(at + 1, min(at + _LONGEST_PART, len(text)) + 1):
            yield from parts.get(text[at:end], ())


def _stems(word: str) -> Iterator[str]:
    """Yield the parts of a word that are compared: its beginning, since endings vary; without spaces, pairs of characters."""
    common = _lists()["common"]
    for run in _UNSPACED.findall(word):
        pairs = (run[at : at + 2] for at in range(len(run) - 1))
        yield from (pair for pair in pairs if common.isdisjoint(pair))
    if _UNSPACED.search(word):
        return
    if _INSIDE.match(word):
        word = _ARTICLE.sub("", word)
        yield word[: 2 if word[:1] >= "\uac00" else 4]
    elif len(word) > 2:
        yield word[: min(max(len(word) - 1, 3), 5)]


@cache
def _lists() -> dict[str, Any]:
    """Return the words of the lists: whole words and phrases, beginnings, parts of words, and common words."""
    data = read_data("changes.toml")
    whole: dict[str, list[tuple[str, str]]] = {}
    beginnings: dict[str, list[tuple[str, str]]] = {}
    parts: dict[str, list[tuple[str, str]]] = {}
    for sort in ("cues", "attributes"):
        for what, listing in data[sort].items():
            for word in _entries(listing):
                _place(word, whole, beginnings, parts).append((sort, what))
    for word in _entries(data["kin"]):
        _place(word, whole, beginnings, parts).append(("kin", word))
    common = frozenset(_entries(data["common"])) | frozenset("".join(_entries({"": data["common"]["han"]})))
    return {
        "whole": whole,
        "beginnings": beginnings,
        "parts": parts,
        "common": common,
        "topics": tuple(data["attributes"]),
    }


def _entries(listing: dict[str, str]) -> list[str]:
    return [_folded(word.strip()) for words in listing.values() for word in words.split(",") if word.strip()]


def _place(
    word: str,
    whole: dict[str, list[tuple[str, str]]],
    beginnings: dict[str, list[tuple[str, str]]],
    parts: dict[str, list[tuple[str, str]]],
) -> list[tuple[str, str]]:
    if _INSIDE.match(word):
        return parts.setdefault(word, [])
    if word.endswith("~") or (_BEGINS.match(word) and " " not in word):
        return beginnings.setdefault(word.removesuffix("~"), [])
    return whole.setdefault(word, [])


CUES = ("now", "ended", "changed", "fixed", "other")


@cache
def _of_cues_and_topics() -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the names of the features of each cue and each topic; they are cached because a recall needs them thirty times."""
    topics = _lists()["topics"]
    return tuple((f"cue {cue}", cue) for cue in CUES), tuple((f"cued {topic}", topic) for topic in topics)


def features(old: Statement, new: Statement, cosine: float) -> dict[str, float]:
    """Return the features of a pair that the classifier weighs, by name; all between -1 and 1."""
    shared = old.words & new.words
    topics = old.about & new.about
    cued = not new.cues.isdisjoint(CUES[:-1])
    near = max(cosine, 0.0)
    of_cues, of_topics = _of_cues_and_topics()
    found = {name: float(cue in new.cues) for name, cue in of_cues}
    numbers = bool(old.numbers and new.numbers and old.numbers != new.numbers)
    found |= {
        "cues": min(len(new.cues - {"other"}), 3) / 3,
        "cosine": near,
        "cosine, high": max(near - 0.5, 0.0),
        "shared": min(len(shared), 3) / 3,
        "shared any": float(bool(shared)),
        "of old": len(shared) / max(len(old.words), 1),
        "of new": len(shared) / max(len(new.words), 1),
        "topic": float(bool(topics)),
        "topics": min(len(topics), 3) / 3,
        "other topic": float(bool(old.about and new.about) and not topics),
        "other numbers": float(numbers),
        "same numbers": float(not old.numbers.isdisjoint(new.numbers)),
        "other labels": float(bool(old.labels and new.labels) and old.labels.isdisjoint(new.labels)),
        "other kin": float(old.kin.isdisjoint(new.kin) and bool(old.kin or new.kin)),
        "same kin": float(not old.kin.isdisjoint(new.kin)),
        "cued shared": float(cued and bool(shared)),
        "cued topic": float(cued and bool(topics)),
        "cued cosine": near if cued else 0.0,
        "other shared": float("other" in new.cues and bool(shared)),
        "shared topic": float(bool(shared and topics)),
        "plain": float(not cued),
        "plain, both more": float(not cued and bool(old.words - shared) and bool(new.words - shared)),
        "long": min(len(old.words), 20) / 20,
    }
    found |= {name: float(cued and topic in topics) for name, topic in of_topics}
    return found


def tells_a_change(old: Statement, new: Statement) -> bool:
    """Return whether the newer statement has a cue of change and none for another subject, and names what it changes."""
    cued = not new.cues.isdisjoint(CUES[:-1]) and "other" not in new.cues
    return cued and not (old.words.isdisjoint(new.words) and old.about.isdisjoint(new.about))


def _says_otherwise(old: Statement, new: Statement) -> bool:
    """Return whether the newer statement is more than a repetition of the older one, or a more detailed one.

    A change may name the old value and so repeat all of the older statement: "Lisbon now instead of Porto". Then it must be
    about the same people.
    """
    before, after = (one.words | one.numbers | one.labels for one in (old, new))
    if "ended" in new.cues:
        return True
    if before <= after:
        return not new.cues.isdisjoint(CUES[:-1]) and new.kin <= old.kin
    return not after <= before


def _of_another(old: Statement, new: Statement) -> bool:
    """Return whether two statements without a word of change are about differently numbered things: rack 7 and rack 49."""
    if not new.cues.isdisjoint(CUES[:-1]) or not old.about.isdisjoint(new.about):
        return False
    numbers = bool(old.numbers and new.numbers and old.numbers != new.numbers)
    return numbers or bool(old.labels and new.labels and old.labels.isdisjoint(new.labels))


@cache
def _weights() -> dict[str, float]:
    weights: dict[str, float] = read_data("change_weights.toml")["weights"]
    return weights


class Reader(NamedTuple):
    """The classifier for the vectors of one model.

    Attributes:
        weights: of each of the `features`, in their order.
        bias: in logits.
        direction: the component of a newer statement's vector that tells a change.
    """

    weights: tuple[float, ...]
    bias: float
    direction: NDArray[np.float32]


@cache
def _readers() -> dict[str, Reader]:
    """Return the classifiers by the SHA-256 of a model."""
    data = (files("relayer.extraction") / "data" / "change_reader.npz").read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        models = {name.split("_")[1] for name in stored.files}
        return {
            model: _reader(stored[f"model_{model}_weights"], stored[f"model_{model}_direction"])
            for model in models
        }


def _reader(weights: NDArray[np.float32], direction: NDArray[np.float32]) -> Reader:
    """Return the classifier with a model's weights, the bias last."""
    *of_features, bias = weights.tolist()
    return Reader(tuple(of_features), bias, direction)


class Told(NamedTuple):
    """The evidence of change in the vector of a newer statement, and the classifier that read it."""

    logit: float
    reader: Reader


def told_by(vector: NDArray[np.float32] | None, model: str) -> Told | None:
    """Return the evidence in the vector of a newer statement, with or without context; None for a model without a classifier.

    Args:
        vector: of any length but 0.
        model: the SHA-256 of the model that made it.
    """
    reader = _readers().get(model)
    if vector is None or reader is None:
        return None
    return Told(float(vector @ reader.direction) / float(np.linalg.norm(vector)), reader)


def likelihood(old: Statement, new: Statement, cosine: float) -> float:
    """Return how likely the newer statement tells a new state of what the older one says, 0..1; 0 for long texts."""
    if not is_comparable(old, new):
        return 0.0
    weights = _weights()
    found = features(old, new, cosine)
    return _chance(weights["bias"] + sum(weights[name] * value for name, value in found.items()))


def is_comparable(old: Statement, new: Statement) -> bool:
    """Return whether two statements may be about the same thing: both are short, they differ, and no number tells them apart."""
    is_short = max(len(old.words), len(new.words)) <= _MOST_WORDS
    return is_short and _says_otherwise(old, new) and not _of_another(old, new)


def _chance(logit: float) -> float:
    return 1 / (1 + exp(-logit))


_POSSIBLE = 0.15
_TOLD = 0.5
# In logits: eight of ten statements without a change are below it, and one in three changes.
_TELLS = -1.0


def may_follow(old: Statement, new: Statement, cosine: float, told: Told | None = None) -> bool:
    """Return whether the newer statement may tell a later state of the older one, so that it is ranked before it in results.

    Words and vector are tested separately, and either is enough, because the lists of words are never complete.
    """
    if not is_comparable(old, new):
        return False
    if told is not None and told.logit >= _TELLS:
        found = zip(told.reader.weights, features(old, new, cosine).values(), strict=True)
        if _chance(told.logit + told.reader.bias + sum(weight * value for weight, value in found)) >= _TOLD:
            return True
    on_topic = not old.about.isdisjoint(new.about)
    return on_topic and tells_a_change(old, new) and likelihood(old, new, cosine) >= _POSSIBLE


LINKED = 0.35
"""The likelihood from which the newer statement is ranked before the older one."""
SURE = 0.8
"""The likelihood from which the newer statement replaces the older one."""


class Relation(StrEnum):
    """The relation of a newer statement to an older one."""

    NONE = "none"
    REPLACES = "replaces"
    CONFLICTS = "conflicts"


def relation_of(old: str, new: Statement, cosine: float) -> tuple[Relation, float]:
    """Return the relation of a newer statement to an older text, and how likely it tells a change.

    Only an old text of one sentence can be replaced: of a longer text, more would be lost than the change is about.

    Args:
        old: the older text.
        new: the newer statement.
        cosine: of their vectors.
    """
    if len(old) > LONGEST:
        return Relation.NONE, 0.0
    before = statement_of(old)
    likely = likelihood(before, new, cosine)
    if likely >= SURE and tells_a_change(before, new) and len(split_sentences(old)) == 1:
        return Relation.REPLACES, likely
    return (Relation.CONFLICTS if likely >= LINKED else Relation.NONE), likely
