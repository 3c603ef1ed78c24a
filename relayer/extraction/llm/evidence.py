"""Does the conversation say it? Decided without a model, and strictly: a fact that cannot be proved is dropped.

A fact passes when its evidence stands in the message it names; when every name and number of it stands in the
conversation; and when most of its other words do as well. What is rephrased freely or translated does not pass: the
verbatim turn is kept anyway, so a dropped fact loses little, and an invented one would be believed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from relayer.extraction import english as en
from relayer.extraction.llm.folding import fold, unspaced
from relayer.extraction.llm.times import MONTH_NAMES
from relayer.extraction.words import Word, word_set, words_of

__all__ = ["Doubt", "Ground", "doubt_of"]

_SUPPORTED = 0.5
_STEM = 5
_LONGEST = 1000
_GROUPED = re.compile(r"(?<=\d)[.,'\u00a0 ](?=\d{3}(?!\d))")
_DIGITS = re.compile(r"\d+")
# How a sentence about somebody without a name begins, and the roles that the prompt names.
_OPENERS = word_set(
    "the a an this that these those my our your his her their its user assistant users there if when in on at after before "
    "since for from with no not both all each some"
)
_SMALL = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18,
    "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100, "thousand": 1000, "million": 1_000_000,
}  # fmt: skip


class Doubt(StrEnum):
    """Why a fact was dropped; the values are labels of a metric."""

    EMPTY = "empty"
    NO_SUCH_MESSAGE = "no_such_message"
    NO_EVIDENCE = "no_evidence"
    NAME = "name_not_said"
    NUMBER = "number_not_said"
    WORDS = "words_not_said"


@dataclass(slots=True)
class Ground:
    """Everything that was said: words, stems, numbers, and runs of two characters for scripts without spaces."""

    words: set[str] = field(default_factory=set)
    stems: set[str] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Ground:
        """Collect from texts."""
        ground = cls()
        for text in texts:
            lowered = [part for word in words_of(text) for part in _parts(word)]
            ground.words.update(lowered)
            ground.stems.update(part[:_STEM] for part in lowered)
            ground.numbers.update(_numbers(text))
            ground.pairs.update(_pairs(text))
        return ground


def doubt_of(text: str, ground: Ground, day: datetime | None = None) -> Doubt | None:
    """Return why the conversation does not say a text; None when it does.

    Args:
        text: of a fact or a summary.
        ground: the conversation, names of speakers included.
        day: a time that was checked already; it may be spelt out.
    """
    if not text.strip() or len(text) > _LONGEST:
        return Doubt.EMPTY
    dated = set() if day is None else {day.year, day.month, day.day}
    if not _numbers(text) <= ground.numbers | dated:
        return Doubt.NUMBER
    words = words_of(text)
    month = set() if day is None else {MONTH_NAMES[day.month - 1], MONTH_NAMES[day.month - 1][:3]}
    for place, word in enumerate(words):
        if _is_name(word, first=place == 0) and not _is_said(word, ground.words | month):
            return Doubt.NAME
    return None if _support(text, words, ground) >= _SUPPORTED else Doubt.WORDS


def _parts(word: Word) -> list[str]:
    """Return the word, and what it is made of: "Ana's" is said where "Ana" is, "co-op" where "co" and "op" are."""
    plain = fold(word.lower)
    pieces = [piece for piece in re.split(r"[-'._]", plain) if piece]
    return [plain, *pieces] if len(pieces) > 1 else [plain]


def _is_name(word: Word, *, first: bool) -> bool:
    if word.lower in en.FIRST_PERSON or not any(map(str.isupper, word.shape)):
        return False
    return not (first and word.lower in _OPENERS)


def _is_said(word: Word, said: set[str]) -> bool:
    whole, *pieces = _parts(word)
    return whole in said or (bool(pieces) and all(piece in said or piece == "s" for piece in pieces))


def _numbers(text: str) -> set[int]:
    """Return the numbers of a text, in figures of any script and in English words."""
    figures = _GROUPED.sub("", unicodedata.normalize("NFKC", text))
    found = {int(digits) for digits in _DIGITS.findall(figures) if len(digits) <= 30}
    return found | {_SMALL[word.lower] for word in words_of(text) if word.lower in _SMALL}


def _pairs(text: str) -> set[str]:
    folded = fold(text)
    return {one + two for one, two in pairwise(folded) if unspaced(one) and unspaced(two)}


def _support(text: str, words: list[Word], ground: Ground) -> float:
    """Return the share of what the text says that was said: of its pairs, or of its words that carry meaning."""
    pairs = _pairs(text)
    if len(pairs) * 4 > len(text):
        return len(pairs & ground.pairs) / len(pairs)
    told = {
        piece[:_STEM]
        for word in words
        if word.lower not in en.EMPTY_WORDS and word.lower not in _OPENERS
        for piece in _parts(word)[:1]
    }
    return len(told & ground.stems) / len(told) if told else 0.0
