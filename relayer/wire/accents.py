"""Words of Latin letters as people type them: with their accents or without."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ACCENTED: Final = re.compile("[À-ÖØ-öø-ž]")
# These letters have no decomposition.
_PLAIN: Final = {"ł": "l", "Ł": "L", "ı": "i", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D"}  # noqa: RUF001 - letters of Turkish and Polish


def plain_letter(letter: str) -> str:
    """Return a Latin letter without its accent."""
    return _PLAIN.get(letter) or unicodedata.normalize("NFD", letter)[0]


def without_accents(word: str) -> str:
    """Return a word without the accents of its Latin letters; each letter stays one.

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
