"""Recognition of texts that are about what a person does not want to be reminded of, by the words of their wish."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

from relayer.search.terms import terms

# The fewest characters that two forms of a word have in common, and the most that one of them has more: "Mark" is no form of
# "market". A syllable of Korean counts as up to three characters.
_COMMON, _MORE, _MORE_OF_SHORT, _MORE_KOREAN = 4, 3, 1, 9
# Of a longer text the beginning is read.
_READ = 4_000


def named_in(text: str) -> frozenset[str]:
    """Return the terms of a text, see `names_any`."""
    return frozenset(terms(text[:_READ]))


def names_any(words: Iterable[str], of_text: frozenset[str]) -> bool:
    """Return whether a text has one of the words, in any form of it, or all words of one of the phrases.

    Args:
        words: of a wish.
        of_text: the terms of the text, see `named_in`.

    Example:
        >>> text = named_in("Leyla's birthday is in May")
        >>> names_any(("leyla",), text), names_any(("leila",), text), names_any(("leyla wedding",), text)
        (True, False, False)
    """
    return any(all(_has(wanted, of_text) for wanted in phrase) for phrase in map(_parsed, words) if phrase)


@lru_cache(maxsize=1_024)
def _parsed(phrase: str) -> tuple[tuple[str, ...], ...]:
    """Return the terms of each word; without spaces between words its pairs of characters, unless it has only one."""
    every = map(terms, phrase.split())
    return tuple(tuple([term for term in found if len(term) > 1] or found) for found in every)


def _has(wanted: tuple[str, ...], of_text: frozenset[str]) -> bool:
    return not of_text.isdisjoint(wanted) or any(
        _are_forms(term, other) for term in wanted if len(term) >= _COMMON for other in of_text
    )


def _are_forms(one: str, other: str) -> bool:
    """Return whether two terms are probably forms of one word: they differ at their ends only."""
    shorter = min(len(one), len(other))
    if one.isascii() and other.isascii():
        more = _MORE_OF_SHORT if len(one) == _COMMON else _MORE
        return shorter >= _COMMON and other.startswith(one) and len(other) - len(one) <= more
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    more = _MORE_KOREAN if "\u1100" <= one[0] <= "\u11ff" else _MORE
    return common >= max(_COMMON, shorter - 1) and max(len(one), len(other)) - common <= more
