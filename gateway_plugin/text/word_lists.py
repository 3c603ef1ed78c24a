"""Lists of words in fifteen languages, which recognise ways of working and everyday acts that are over.

A way of working is recognised by words such as "always", "before every" or "first" (``data/ways_of_working.toml``), a trifle
by words such as "had" and "soup" (``data/trifles.toml``). No model is needed, and not every match is a rule: what counts is
told several times (`gateway_plugin.files.skills`).
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_CJK: Final = "\u3400-\u9fff\uf900-\ufaff"
# Letters with their marks, which other scripts need; katakana and Han characters are words without spaces between them.
_WORD: Final = re.compile(
    rf"[{_CJK}]+|[\u30a1-\u30ff]+|[^\W_\u3041-\u30ff{_CJK}][\w\u0300-\u036f\u064b-\u0652\u0900-\u0dff]*"
)
_HAN: Final = re.compile(rf"[{_CJK}]")
_BOUNDARY: Final = r"\b"
_SPACED: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "ru")
# The letters of a stem: without an ending, four remain at least.
_STEM: Final = 6


class Token(NamedTuple):
    """A word, or two Han characters, by its place in a text; ``stem`` is the same for most forms of a word."""

    stem: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Data:
    """The lists of all languages: the marks of rules and procedures, common words, and endings of words."""

    marks: re.Pattern[str]
    common: frozenset[str]
    ending: re.Pattern[str]


@cache
def _data() -> _Data:
    lists = tomllib.loads((files("gateway_plugin.text") / "data" / "ways_of_working.toml").read_text("utf-8"))
    endings = "|".join(lists.pop("endings").split())
    patterns = [
        f"{_BOUNDARY if lang in _SPACED else ''}(?:{one['marks']})".replace("\n", "")
        for lang, one in lists.items()
    ]
    return _Data(
        re.compile("|".join(patterns), re.IGNORECASE),
        frozenset(word for one in lists.values() for word in one["common"].split()),
        re.compile(rf"(?<=\w{{4}})(?:{endings})$"),
    )


def is_procedure(text: str) -> bool:
    """Return whether a text may say how something is done.

    Example:
        >>> is_procedure("Before every release, run the smoke tests."), is_procedure("I live in Porto.")
        (True, False)
    """
    return _data().marks.search(text) is not None


def tokens_of(text: str) -> list[Token]:
    """Return the words of a text that may tell what it is about, in order.

    Example:
        >>> [token.stem for token in tokens_of("Never release without the smoke tests.")]
        ['releas', 'smok', 'test']
    """
    data, found = _data(), list[Token]()
    for match in _WORD.finditer(text):
        if _HAN.match(match[0]):
            found += [
                Token(match[0][place : place + 2], match.start() + place, match.start() + place + 2)
                for place in range(len(match[0]) - 1)
                if match[0][place : place + 2] not in data.common
            ]
            continue
        word = match[0].casefold()
        if word not in data.common and len(word) > 1 and not word.isdecimal():
            found.append(Token(data.ending.sub("", word)[:_STEM], match.start(), match.end()))
    return found


def is_trifle(text: str) -> bool:
    """Return whether a text tells of a meal, of sleep or of another everyday act, in the past tense.

    Example:
        >>> [is_trifle(text) for text in ("I had soup.", "I had surgery.", "Wir haben Suppe gegessen.", "Ana eats no meat.")]
        [True, False, True, False]
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return any(all(pattern.search(plain) for pattern in both) for both in _patterns())


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], ...], ...]:
    """Return patterns of which a trifle matches all of one tuple."""
    languages = tomllib.loads((files("gateway_plugin.text") / "data" / "trifles.toml").read_text("utf-8"))
    found: list[tuple[re.Pattern[str], ...]] = []
    for code, words in languages.items():
        acts, had, meals = (_any_of(words[name], code) for name in ("acts", "had", "meals"))
        found += [(acts,), (had, meals)]
    return tuple(found)


def _any_of(words: str, code: str) -> re.Pattern[str]:
    named = "|".join(map(re.escape, unicodedata.normalize("NFKC", words).casefold().split()))
    return re.compile(named if code in {"zh", "ja", "ko"} else rf"(?<!\w)(?:{named})(?!\w)")
