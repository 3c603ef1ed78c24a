"""Recognition of texts that are about what a person does not want to be reminded of, by the words of their wish."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from relayer.search.terms import terms

# The fewest characters that two forms of a word have in common, and the most that one of them has more. A syllable of
# Korean counts as up to three characters.
_COMMON, _MORE, _MORE_KOREAN = 4, 3, 9


def names_any(words: Iterable[str], text: str) -> bool:
    """Return whether a text has one of the words, in any form of it, or all words of one of the phrases.

    Example:
        >>> names_any(("leyla",), "Leyla's birthday is in May"), names_any(("leyla",), "Leila lives in Ulm")
        (True, False)
        >>> names_any(("father baby",), "The baby sleeps at seven"), names_any(("father baby",), "My baby's father left")
        (False, True)
    """
    of_text = frozenset(terms(text))
    return any(all(_has(word, of_text) for word in phrase.split()) for phrase in words if phrase.strip())


def _has(word: str, of_text: frozenset[str]) -> bool:
    wanted = _terms_of(word)
    return not of_text.isdisjoint(wanted) or any(
        _are_forms(term, other) for term in wanted if len(term) >= _COMMON for other in of_text
    )


def _terms_of(word: str) -> list[str]:
    """Return the terms of a word; without spaces between words its pairs of characters, unless it has only one."""
    found = terms(word)
    pairs = [term for term in found if len(term) > 1]
    return pairs or found


def _are_forms(one: str, other: str) -> bool:
    """Return whether two terms are probably forms of one word: they differ at their ends only."""
    shorter = min(len(one), len(other))
    if one.isascii() and other.isascii():
        return shorter >= _COMMON and other.startswith(one) and len(other) - len(one) <= _MORE
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    more = _MORE_KOREAN if "\u1100" <= one[0] <= "\u11ff" else _MORE
    return common >= max(_COMMON, shorter - 1) and max(len(one), len(other)) - common <= more
