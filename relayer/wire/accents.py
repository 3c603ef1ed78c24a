"""Words of Latin letters as people type them: with their accents or without."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ACCENTED: Final = re.compile("[à-öø-ž]")
# These letters have no decomposition.
_PLAIN: Final = {"ł": "l", "ı": "i", "ø": "o", "đ": "d"}  # noqa: RUF001 - letters of Turkish and Polish


def plain_letter(letter: str) -> str:
    """Return a small Latin letter without its accent."""
    return _PLAIN.get(letter) or unicodedata.normalize("NFD", letter)[0]


def without_accents(word: str) -> str:
    """Return a word of small letters without the accents of its Latin letters.

    Example:
        >>> without_accents("październik")
        'pazdziernik'
    """
    return _ACCENTED.sub(lambda found: plain_letter(found.group()), word)


def typed(pattern: str) -> str:
    """Return a pattern that matches words also without the accents of their Latin letters.

    Args:
        pattern: a regular expression without accented letters in its sets of characters.

    Example:
        >>> typed("hasło|senha")
        'has[łl]o|senha'
    """
    return _ACCENTED.sub(lambda found: f"[{found.group()}{plain_letter(found.group())}]", pattern)
