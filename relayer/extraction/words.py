"""Words of a sentence, and sets of phrases to find among them.

Rules look words up in sets instead of running regular expressions over the text: the work is one dictionary lookup per
word, so no text can make it slow.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

__all__ = ["Phrases", "Word", "read_data", "read_text", "word_set", "words_of"]

# Vowel signs and accents that Unicode counts as marks belong to the letter before them; `\w` leaves them out.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
_LETTERS = rf"(?:[^\W_]|[{_MARKS}])++"
_WORD = re.compile(rf"{_LETTERS}(?:['’_.-]{_LETTERS})*+")  # noqa: RUF001 - the typographic apostrophe is the point
_APOSTROPHES = str.maketrans("’", "'")  # noqa: RUF001 - the typographic apostrophe is the point


@dataclass(frozen=True, slots=True)
class Word:
    """One word: ``lower`` with a plain apostrophe for lookups, ``shape`` as written."""

    lower: str
    shape: str


def words_of(sentence: str) -> list[Word]:
    """Return the words of ``sentence``; inner apostrophes, hyphens, dots and underscores do not split a word."""
    return [Word(found.translate(_APOSTROPHES).lower(), found) for found in _WORD.findall(sentence)]


def read_text(name: str) -> str:
    """Return a list that stands beside the code, in ``data``."""
    return (files("relayer.extraction") / "data" / name).read_text("utf-8")


def read_data(name: str) -> dict[str, Any]:
    """Return lists by their names, from a file of TOML in ``data``."""
    return tomllib.loads(read_text(name))


def word_set(listing: str) -> frozenset[str]:
    """Return the words of a listing separated by whitespace."""
    return frozenset(listing.split())


class Phrases:
    """A set of phrases of one or more lower-case words, found by their first one or two words."""

    def __init__(self, lines: str, *more: Iterable[str]) -> None:
        """Take phrases separated by ``,`` or line ends, and further ones as iterables."""
        self._words: set[str] = set()
        self._longer: dict[str, dict[str, list[tuple[str, ...]]]] = {}
        phrases = [part for line in lines.splitlines() for part in line.split(",")]
        for phrase in (*phrases, *(one for group in more for one in group)):
            first, *rest = phrase.split() or [""]
            if rest:
                by_second = self._longer.setdefault(first, {})
                by_second.setdefault(rest[0], []).append(tuple(rest))
            elif first:
                self._words.add(first)
        for by_second in self._longer.values():
            for known in by_second.values():
                known.sort(key=len, reverse=True)

    def at(self, words: Sequence[Word], position: int) -> int:
        """Return how many words the longest phrase starting at ``position`` has; 0 when none does."""
        if position >= len(words):
            return 0
        first = words[position].lower
        by_second = self._longer.get(first)
        # Most first words begin many phrases, and most second words none of them.
        if by_second is not None and position + 1 < len(words):
            for rest in by_second.get(words[position + 1].lower, ()):
                if position + len(rest) < len(words) and all(
                    words[position + offset].lower == part for offset, part in enumerate(rest, 1)
                ):
                    return 1 + len(rest)
        return 1 if first in self._words else 0

    def found_in(self, words: Sequence[Word]) -> bool:
        """Whether any phrase occurs in ``words``."""
        return any(self.at(words, position) for position in range(len(words)))

    def covers(self, words: Sequence[Word]) -> int:
        """Return how many leading words phrases of this set cover, one after the other."""
        position = 0
        while taken := self.at(words, position):
            position += taken
        return position
