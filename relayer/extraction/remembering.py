"""Recognise sentences whose author wants them to be kept, in fifteen languages.

`asks_to_remember` looks for "remember that" and the like at the beginning of a sentence, or at its end in languages that put
the verb there; the words are in ``data/remember.toml``. `names_removed_secret` finds what `relayer.wire.redaction` leaves in place
of a secret: who tells a password wants it to be known that there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from relayer.extraction.words import is_question, read_data
from relayer.lib.n_grams import UNSPACED
from relayer.wire.redaction import CLASSES

_REMOVED: Final = re.compile(
    rf"\[(?:{'|'.join(re.escape(name.replace('_', ' ')) for name in CLASSES)}) removed\]"
)
# "Remember to" and "don't forget to" are followed by an errand, "remember when" and "remember me" by no statement.
_ERRAND: Final = re.compile(r"\s*(?:to|when|how|me)\b", re.IGNORECASE)
_FEWEST_WORDS: Final = 2
_FEWEST_DENSE_CHARACTERS: Final = 4


def _any_of(phrases: Iterable[str]) -> str:
    # A longer phrase is tried before a shorter one that it begins with.
    ordered = sorted(
        {phrase.strip() for part in phrases for phrase in part.split(",")}, key=len, reverse=True
    )
    return "|".join(map(re.escape, ordered))


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    data = read_data("remember.toml")
    polite = rf"(?:(?:{_any_of(data['please'].values())})(?![^\W\d_])[\s,，]*|(?:请|請|麻烦|拜托|帮我)+)*"  # noqa: RUF001 - a comma of Chinese
    spaced = _any_of(words for lang, words in data["begins"].items() if lang not in {"zh", "ja"})
    dense = _any_of(words for lang, words in data["begins"].items() if lang in {"zh", "ja"})
    begins = rf"\s*{polite}(?:(?:{spaced})(?![\w\u0900-\u0963])|(?:{dense}))"
    ends = rf"(?:{_any_of(data['ends'].values())})[\s.!。！]*$"  # noqa: RUF001 - marks of Chinese and Japanese
    return re.compile(begins, re.IGNORECASE), re.compile(ends, re.IGNORECASE)


def asks_to_remember(sentence: str) -> bool:
    """Return whether a sentence asks to remember something that it says.

    Example:
        >>> asks_to_remember("please remember that my sister lives in Lyon"), asks_to_remember("remember me?")
        (True, False)
    """
    if is_question(sentence):
        return False
    sentence = sentence.replace("\u2019", "'")
    begins, ends = _patterns()
    if begun := begins.match(sentence):
        rest = sentence[begun.end() :]
        return not _ERRAND.match(rest) and _says_something(rest)
    ended = ends.search(sentence[-40:])
    return ended is not None and _says_something(sentence[: -len(ended.group())])


def names_removed_secret(sentence: str) -> bool:
    """Return whether a sentence, which is no question, tells a secret that was removed from it."""
    return _REMOVED.search(sentence) is not None and not is_question(sentence)


def _says_something(text: str) -> bool:
    fewest = _FEWEST_DENSE_CHARACTERS if UNSPACED.search(text) else 0
    return len(text.strip()) >= fewest and (bool(fewest) or len(text.split()) >= _FEWEST_WORDS)
