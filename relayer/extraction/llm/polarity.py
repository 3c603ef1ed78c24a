"""Compare what a fact denies with what a message denies, clause by clause.

Both texts are cut into clauses. The words of each clause of the fact choose the clauses of the message that say it, and both
sides must have as many negations there, as many words that restrict (`only`, `stopped`, `unless`), and each of them before
words that follow it in the message:

    message = Polarity.from_text("I never want you to pay without asking me.", "en")
    Polarity.from_text("The user never wants you to pay without asking.", "en").agrees(message)    # True
    Polarity.from_text("The user wants you to pay without asking.", "en").agrees(message)          # False: one of two negations

The lists of words are in ``data/negations.toml``. Exchanged roles ("Ana lent Kim money") are not detected.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from relayer.extraction.gist import Slot, tokens_of
from relayer.extraction.words import read_data

_SENTENCE = r"[.;:!?\n。！？；]"  # noqa: RUF001 - full-width marks are the point
_CONJUNCTION = (
    r"\b(?:but|because|although|though|while|whereas|however|yet|aber|sondern|weil|obwohl|mais|pero|sino|porque|aunque|ma)\b"
    r"|但是?|可是|不过|然而|因为|所以|，"  # noqa: RUF001 - the full-width comma is the point
)
_PRONOUN = r"(?:i|we|he|she|they|it|you|ich|wir|er|sie|es|je|nous|il|elle|yo|io)(?:['’]\w+)?"  # noqa: RUF001 - typographic apostrophe
_AUXILIARY = r"do|does|did|is|was|are|were|will|would|can|could|has|have|had|ha|han|hat|haben|ist|war"
_CONTRACTED = r"\b(?:\w+n['’]t|cannot)\b"  # noqa: RUF001 - typographic apostrophe
_SEPARATED = ",，"  # noqa: RUF001 - the full-width comma is the point
_ANSWER = rf"(?:^|(?<=[.!?\n。！？] )|(?<=[。！？\n]))(?:no|nein|non|não|nej|nee|nie|нет|不是?|没有)\s*[{_SEPARATED}]"  # noqa: RUF001 - likewise
_TAG = rf",\s*(?:¿\s*no|{_CONTRACTED}\s+\w+|nicht wahr|n['’]est-ce pas)\s*\?"  # noqa: RUF001 - likewise
# Content words after a marker that it can be about: "I do not drink any coffee", "instead of meat I cook lentils".
_DENIED = 3
_RESTRICTED = 2
# Characters between a denial and the "without" that it denies.
_LONGEST_DENIED = 60
# Characters in which two forms of a word may differ, at their ends.
_LONGEST_ENDING = 3
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u2e80-\u9fff\U00020000-\U0003ffff]")


class Marker(NamedTuple):
    """A word that denies, or (``limits``) restricts, and the content words that follow it."""

    limits: bool
    scope: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: its place in the text, the number of its sentence, its content words, its names, and its markers."""

    start: int
    end: int
    sentence: int
    words: tuple[str, ...]
    names: frozenset[str]
    markers: tuple[Marker, ...]

    def count(self, *, limits: bool) -> int:
        """Return the number of markers of one sort."""
        return sum(marker.limits is limits for marker in self.markers)


@dataclass(frozen=True, slots=True)
class Polarity:
    """The clauses of a text."""

    clauses: tuple[Clause, ...]

    @classmethod
    def from_text(cls, text: str, language: str, grammar: Collection[str] = ()) -> Polarity:
        """Read a text.

        Args:
            text: of a message or a fact.
            language: of the message.
            grammar: words that mean nothing of their own, and characters of scripts without spaces.
        """
        patterns = _patterns(language)
        plain = patterns.ignored.sub(lambda found: " " * len(found.group()), text)
        clauses = (
            _clause(plain, *span, patterns=patterns, grammar=grammar) for span in _spans(plain, patterns)
        )
        return cls(tuple(clauses))

    def agrees(self, message: Polarity, span: tuple[int, int] | None = None) -> bool:
        """Return whether each clause denies and restricts what the message does.

        Args:
            message: what was said.
            span: the evidence, in characters of the message; of clauses that fit alike, those in it count.
        """
        return all(_agrees(clause, message.clauses, span) for clause in self.clauses)


def same_word(one: str, other: str, shortest: int = 3) -> bool:
    """Return whether two words are alike or differ in their ending alone: "trinke" and "trinkt", "confío" and "confía".

    Args:
        one: a form.
        other: a form.
        shortest: characters that both have to begin with.

    Example:
        >>> same_word("trinke", "trinkt"), same_word("tea", "coffee")
        (True, False)
    """
    if one == other:
        return True
    if one[0] != other[0] or _UNSPACED.match(one) or one.isdecimal():
        return False
    one, other = _bare(one), _bare(other)
    longer = max(len(one), len(other))
    return one[: max(shortest, longer - _LONGEST_ENDING)] == other[: max(shortest, longer - _LONGEST_ENDING)]


@lru_cache(maxsize=4096)
def _bare(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


def is_negation(form: str) -> bool:
    """Return whether a form is a negation.

    Example:
        >>> is_negation("not"), is_negation("house")
        (True, False)
    """
    found = _patterns("").marker.fullmatch(form)
    return found is not None and found.lastgroup != "limit"


class _Patterns(NamedTuple):
    """The regular expressions for texts of one language."""

    ignored: re.Pattern[str]
    marker: re.Pattern[str]
    boundary: re.Pattern[str]
    limit: re.Pattern[str]


@cache
def _patterns(language: str) -> _Patterns:
    """Return the patterns of a text of a language."""
    lists = read_data("negations.toml")
    limits = [*lists["limit"].values(), lists["language"].get(language, "")]
    denial = f"{_CONTRACTED}|{_words(lists['not'].values())}|{_dense(lists['not_dense']['all'])}"
    concord = _words(lists["concord"].values())
    limit = f"{_words(limits)}|{_dense(lists['limit_dense']['all'])}"
    groups = {
        "limit": limit,
        "not": denial,
        "without": _words(lists["without"].values()),
        "concord": concord,
    }
    before = rf"(?:(?:{_AUXILIARY})\s+)?(?:{denial}|{concord})"
    return _Patterns(
        re.compile(
            f"{_ANSWER}|{_TAG}|{_words([lists['none']['words']])}|{_dense(lists['none']['dense'])}",
            re.IGNORECASE,
        ),
        re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in groups.items()), re.IGNORECASE),
        re.compile(
            rf"{_CONJUNCTION}|(?:,|\b(?:and|so|und|et|y|e)\b)\s*(?=(?:{_PRONOUN}\b|{before}))",
            re.IGNORECASE,
        ),
        re.compile(limit, re.IGNORECASE),
    )


def insists(text: str) -> bool:
    """Return whether a text denies that something is left out, and so asks for it.

    Example:
        >>> insists("Never release without the smoke tests."), insists("We release without smoke tests now.")
        (True, False)
    """
    markers = pairwise(_patterns("").marker.finditer(text))
    return any(
        denial.lastgroup in {"not", "concord"}
        and left_out.lastgroup == "without"
        and left_out.start() - denial.end() <= _LONGEST_DENIED
        for denial, left_out in markers
    )


def _words(listings: Iterable[str]) -> str:
    """Return a pattern of listed words and phrases; a star matches the rest of a word."""
    phrases = sorted(
        (phrase.strip() for listing in listings for phrase in listing.split(",")), key=len, reverse=True
    )
    patterns = (phrase.replace(" ", r"\s+").replace("*", r"[^\W_]*") for phrase in phrases if phrase)
    return rf"(?<![^\W_])(?:{'|'.join(patterns)})(?![^\W_])"


def _dense(listing: str) -> str:
    return "|".join(sorted((part.strip() for part in listing.split(",")), key=len, reverse=True))


def _spans(text: str, patterns: _Patterns) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and sentence of each clause; what depends on a condition or a restriction is not parted from it."""
    sentence, start = 0, 0
    for boundary in re.finditer(rf"{_SENTENCE}|\Z", text):
        whole, inner = (start, boundary.start()), start
        if patterns.limit.search(text, *whole) is None:
            for part in patterns.boundary.finditer(text, *whole):
                yield inner, part.start(), sentence
                inner = (
                    part.end() if part.group().strip() and not part.group().startswith(",") else part.start()
                )
        yield inner, boundary.start(), sentence
        start, sentence = boundary.end(), sentence + 1


def _clause(
    text: str, start: int, end: int, sentence: int, *, patterns: _Patterns, grammar: Collection[str]
) -> Clause:
    """Read one clause of a text."""
    words: list[str] = []
    names: set[str] = set()
    found: list[tuple[str, int]] = []
    at = start
    for marker in (*patterns.marker.finditer(text, start, end), None):
        for word, is_name in _content(text[at : end if marker is None else marker.start()], grammar):
            words.append(word)
            names.update([word] if is_name else [])
        if marker is not None:
            found.append((str(marker.lastgroup), len(words)))
            at = marker.end()
    kinds = [kind for kind, _ in found]
    if "not" in kinds:
        found = [(kind, place) for kind, place in found if kind != "concord"]
    elif kinds.count("concord") > 1:
        first = kinds.index("concord")
        found = [one for number, one in enumerate(found) if one[0] != "concord" or number == first]
    markers = tuple(
        Marker(limits, tuple(words[at : at + (_RESTRICTED if limits else _DENIED)]) or tuple(words[-1:]))
        for limits, at in ((kind == "limit", place) for kind, place in found)
    )
    return Clause(start, end, sentence, tuple(words), frozenset(names), markers)


def _content(text: str, grammar: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the words of a part of a clause that mean something, each with whether it is a name."""
    for run in re.findall(f"{_UNSPACED.pattern}+|(?:(?!{_UNSPACED.pattern}).)+", text):
        if _UNSPACED.match(run):
            yield from ((char, False) for char in run if char not in grammar)
        else:
            yield from (
                (token.form, token.slot is Slot.NAME) for token in tokens_of(run) if token.form not in grammar
            )


def _agrees(clause: Clause, said: Sequence[Clause], span: tuple[int, int] | None) -> bool:
    if not clause.words:
        return all(marker.limits for marker in clause.markers)
    used = _covering(clause, said, span)
    for limits in (False, True):
        if clause.count(limits=limits) != sum(one.count(limits=limits) for one in used):
            return False
    left = [marker for one in used for marker in one.markers]
    known = [word for one in used for word in one.words]
    for marker in clause.markers:
        focus = marker.scope[0] if marker.scope else ""
        if not any(same_word(focus, word) for word in known):
            continue  # said in another word
        fitting = [
            one
            for one in left
            if one.limits is marker.limits and any(same_word(focus, word) for word in one.scope)
        ]
        if not fitting:
            return False
        left.remove(fitting[0])
    return True


def _covering(clause: Clause, said: Sequence[Clause], span: tuple[int, int] | None) -> list[Clause]:
    """Return the fewest clauses of a message that together have the words of a clause, found greedily.

    A clause of another sentence that shares a name alone says only who is meant.
    """
    shared: list[set[str]] = [
        {word for word in set(clause.words) if any(same_word(word, other) for other in one.words)}
        for one in said
    ]
    left, used = set().union(*shared), list[Clause]()
    while left:
        best = max(range(len(said)), key=lambda at: (len(shared[at] & left), _meets(said[at], span), -at))
        found = shared[best] & left
        left -= found
        if not used or said[best].sentence in {one.sentence for one in used} or not found <= said[best].names:
            used.append(said[best])
    return used


def _meets(clause: Clause, span: tuple[int, int] | None) -> bool:
    return span is not None and clause.start < span[1] and span[0] < clause.end
