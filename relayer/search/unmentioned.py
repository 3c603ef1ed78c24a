"""Recognition of texts that are about what a person does not want to be reminded of, by the words of their wish."""

from __future__ import annotations

from collections.abc import Iterable
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


Subject = list[list[list[str]]]
"""What a wish is about: phrases of words, each word as its terms, see `subject`."""


def subject(words: Iterable[str]) -> Subject:
    """Return the terms of the words of a wish; of a word without spaces its pairs of characters, unless it has only one."""
    found = ([terms(word) for word in phrase.split()] for phrase in words)
    return [
        [[term for term in word if len(term) > 1] or word for word in phrase] for phrase in found if phrase
    ]


def names_any(wanted: Subject, of_text: frozenset[str]) -> bool:
    """Return whether a text mentions the subject of a wish.

    It does if it has all words of at least one of the subject's phrases, each in any form of the word.

    Args:
        wanted: the subject, see `subject`.
        of_text: the terms of the text, see `named_in`.

    Example:
        >>> text = named_in("Leyla's birthday is in May")
        >>> [names_any(subject([words]), text) for words in ("leyla", "leila", "leyla wedding")]
        [True, False, False]
    """
    return any(all(_has(word, of_text) for word in phrase) for phrase in wanted)


def _has(wanted: list[str], of_text: frozenset[str]) -> bool:
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
