"""The comparison of two texts that may say the same, so that one of them can be dropped."""

from __future__ import annotations

from collections import Counter

from relayer.extraction.gist import Gist, Slot, Token

NEAR = 0.5
"""The least cosine of two texts that say the same, of their vectors without context: see ``bench/sets.py``."""

_SHORTEST_MISSPELT = 7
_ANYWHERE = frozenset({"only", "alway", "normally"})


def says_the_same(first: Gist, second: Gist) -> bool:
    """Return whether the second text adds nothing to the first, so that it can be dropped."""
    if first.asks or second.asks or first.past != second.past or first.english != second.english:
        return False
    if not first.tokens or not second.tokens:
        return False
    if not first.english:
        return first.forms == second.forms
    ours, theirs = list(first.tokens), list(second.tokens)
    # The order of numbers counts: locker 2 of row 5 is not locker 5 of row 2.
    if _numbers(ours) != _numbers(theirs):
        return False
    if Counter(first.forms) != Counter(second.forms):
        ours = _respelt(ours, theirs)
    return _one_part_moved(_ordered(ours), _ordered(theirs))


def _numbers(tokens: list[Token]) -> list[str]:
    return [token.form for token in tokens if token.form.isdigit()]


def _ordered(tokens: list[Token]) -> list[str]:
    """Return the forms in order; words whose position does not matter come last."""
    forms = [token.form for token in tokens]
    return sorted(forms, key=_ANYWHERE.__contains__)


def _respelt(ours: list[Token], theirs: list[Token]) -> list[Token]:
    """Return our tokens with one word, which seems to be misspelt in either text, spelt as in theirs, if there is one."""
    extra, other = _left(ours, theirs), _left(theirs, ours)
    if len(extra) == len(other) == 1 and _is_misspelt(extra[0], other[0]):
        return [other[0] if token.form == extra[0].form else token for token in ours]
    return ours


def _left(ours: list[Token], theirs: list[Token]) -> list[Token]:
    known = Counter(token.form for token in theirs)
    left = []
    for token in ours:
        known[token.form] -= 1
        if known[token.form] < 0:
            left.append(token)
    return left


def _is_misspelt(one: Token, other: Token) -> bool:
    """Return whether two words differ by two letters exchanged, or by one letter in a long word; never for names."""
    if Slot.NONE not in {one.slot} & {other.slot}:
        return False
    if len(one.form) != len(other.form):
        return _lacks_a_letter(*sorted((one.form, other.form), key=len))
    places = [at for at, (a, b) in enumerate(zip(one.form, other.form, strict=True)) if a != b]
    if len(places) == 1:
        return len(one.form) >= _SHORTEST_MISSPELT and one.form.isalpha() and other.form.isalpha()
    exchanged = len(places) == 2 and places[1] == places[0] + 1
    return exchanged and one.form[places[0] : places[1] + 1] == other.form[places[0] : places[1] + 1][::-1]


def _lacks_a_letter(short: str, long: str) -> bool:
    """Return whether a long word lacks one letter; never its first, which may be a negation ("typical")."""
    if len(short) + 1 != len(long) or len(short) < _SHORTEST_MISSPELT or not long.isalpha():
        return False
    return any(long[:at] + long[at + 1 :] == short for at in range(1, len(long) - 1))


def _one_part_moved(ours: list[str], theirs: list[str]) -> bool:
    """Return whether the two orders are the same, or differ in that two neighbouring parts are exchanged.

    Moving a clause has this effect; exchanging the two sides of a word ("tabs over spaces") does not.
    """
    if len(ours) != len(theirs):
        return False
    start, end = 0, len(ours)
    while start < end and ours[start] == theirs[start]:
        start += 1
    while end > start and ours[end - 1] == theirs[end - 1]:
        end -= 1
    mine, yours = ours[start:end], theirs[start:end]
    return any(mine[cut:] + mine[:cut] == yours for cut in range(max(len(mine), 1)))
