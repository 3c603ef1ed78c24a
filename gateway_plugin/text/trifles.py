"""Texts that tell of everyday acts that are over, such as "I had soup for lunch", in fifteen languages."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Final

_UNSPACED: Final = frozenset({"zh", "ja", "ko"})


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
    return re.compile(named if code in _UNSPACED else rf"(?<!\w)(?:{named})(?!\w)")
