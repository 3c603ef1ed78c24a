"""Whether a new statement says the same as an older one, takes its place, contradicts it, or has nothing to do with it.

Without a model, only explicit cues count ("switched from X to Y", "no longer", "moved to"), and only where they name what
the older statement says: same subject, same attribute, another value. Two statements that cannot both hold, without a
cue which of them does, are a conflict: both are kept, and the reader is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from relayer.extraction.changes import LINKED, SURE, Statement, likelihood, statement_of, tells_a_change
from relayer.extraction.gist import LONGEST, Gist, Slot, Token, gist_of, joined, tokens_of
from relayer.extraction.words import split_sentences, word_set


class Relation(StrEnum):
    """What a new statement does to an older one."""

    NONE = "none"
    REPLACES = "replaces"
    CONFLICTS = "conflicts"


_LONGEST_NEW = 600
_END = r"[^,;.:!?\n]{1,120}"
# What may stand before a cue, in the same clause: it is looked at backwards, from where a cue was found.
_BEFORE = re.compile(r"[^,;.:!?\n]{0,120}\Z")
_SUBJECT_CHARACTERS = 120
_SHIFTS = (
    r"(?:switch|mov|migrat|chang|upgrad|downgrad|renam|rais|lower|reduc|increas|extend|shift|transition|shorten|"
    r"reschedul|postpon|push|brought|bump|convert|cut|grew|rose|fell|drop|went|gone|go)(?:e?d|es|e|ing|s|ped|ped)?"
)
# The older value is named: what stands in `old` must be what the older statement says.
_NAMES_OLD = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_SHIFTS}\b[^,;.:!?\n]{{0,60}}?\bfrom\s+(?P<old>{_END}?)(?:\s+to\b|[,;.:!?\n]|$)",
        rf"\b(?:replac|swapp?|trad|ditch|dropp?)(?:e?d|es|s|ing)?\s+(?P<old>{_END}?)\s+(?:with|by|for|as|in favou?r of)\b",
        rf"\b(?:took|takes|taking|has taken) over\b[^,;.:!?\n]{{0,60}}?\bfrom\s+(?P<old>{_END}?)(?:\s+as\b|[,;.:!?\n]|$)",
        rf"\b(?:instead|in place) of\s+(?P<old>{_END}?)(?:\s+from now on\b|\s+now\b|[,;.:!?\n]|$)",
    )
)
# A clause that ends what the older statement says.
_ENDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<clause>[^,;.:!?\n]{{0,60}}\bused to{_END})",
        rf"(?P<clause>[^,;.:!?\n]{{0,120}}\bno longer\b{_END})",
        r"(?P<clause>[^,;.:!?\n]{1,120}\b(?:not|n't|n’t)\b[^,;.:!?\n]{1,80}\bany ?more\b)",  # noqa: RUF001 - typographic
        rf"(?P<clause>[^,;.:!?\n]{{0,60}}\b(?:stopped|gave up|given up|cancelled|canceled|quit|dropped|abandoned)\b{_END})",
    )
)
# The subject goes on, with another value.
_GOES_ON = re.compile(
    r"(?P<subject>[^,;.:!?\n]{1,100}?)\b(?:(?:has|have|had|is|are|was|were|got|been|be)\s+)*"
    r"(?:moved|changed|postponed|rescheduled|extended|shortened|raised|lowered|increased|reduced|renamed|pushed|brought forward|"
    r"switched|upgraded|downgraded|replaced|now)\b(?P<rest>.{0,160})",
    re.IGNORECASE | re.DOTALL,
)
_PLACED = re.compile(r"\s*(in|at|on|with|under|for|by|near)\b", re.IGNORECASE)
_PLACES = re.compile(r"\b(?:in|at|with|under|near)\b")
_INSTEAD = re.compile(r"(?:instead|place) of", re.IGNORECASE)
_CORRECTS = re.compile(
    r"\b(?:correction|i was wrong|i was mistaken|my mistake|scratch that|changed (?:my|our) minds?|actually|from now on|"
    r"as of (?:now|today)|(?:i|we) reversed that|after all|back to|not any ?more|no longer|now)\b[:,]?",
    re.IGNORECASE,
)
_MOVED_HOME = re.compile(
    r"^\W*(?:[\w']+ ){0,3}?(?:i|we)(?:'ve|\u2019ve| have)?(?: just| recently| finally)? (?:moved|relocated) (?:back )?to (?P<place>[A-Z]\w+)",
    re.IGNORECASE,
)
_ENDING_WORDS = word_set(
    "no longer stop stopp gave give up cancell cancel quit drop dropp abandon any more anymor not so can do"
)
_NEGATIONS = frozenset({"not", "never"})
_TURNING = _NEGATIONS | {"no", "without", "only"}
_OPPOSITES = tuple(
    frozenset(pair.split("/"))
    for pair in [
        "long/short",
        "enabl/disabl",
        "open/closed",
        "open/clos",
        "on/off",
        "allow/forbid",
        "public/privat",
        "sync/async",
        "manual/automatic",
        "light/dark",
        "required/optional",
        "like/hate",
        "early/late",
        "left/right",
        "always/never",
        "hot/cold",
        "drop/keep",
        "add/remov",
        "start/stop",
    ]
)
# Who holds such a part holds it alone: another name there is a conflict. "Plays the cello" is no such part.
_HELD_ALONE = word_set("lead head own manag sign chair run maintain")
_LIVES = "liv"
_NOT_A_STATE = word_set("went visit saw attend bought met travel flew")


class Older:
    """An older text: each part of it is read when it is first asked for, and once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def gist(self) -> Gist:
        """What it comes down to."""
        return gist_of(self.text)

    @cached_property
    def statement(self) -> Statement:
        """What it comes down to in any language."""
        return statement_of(self.text)

    @cached_property
    def forms(self) -> frozenset[str]:
        """The forms of its tokens."""
        return frozenset(self.gist.forms)

    @cached_property
    def is_one_sentence(self) -> bool:
        """Whether it is: of a longer one, more would go than was taken back."""
        return len(split_sentences(self.text)) == 1

    @cached_property
    def places(self) -> list[str]:
        """How often it says "in", "at" and such."""
        return _places(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words as they are written, in lower case."""
        return frozenset(self.text.lower().split())


class _Cue(NamedTuple):
    """A cue that names the older value: what it names, what stands before it, and whether it says "instead of"."""

    named: tuple[Token, ...]
    subject: frozenset[str]
    instead: bool


class _Change(NamedTuple):
    """A sentence whose subject goes on with another value."""

    placed: str
    subject: frozenset[str]
    value: tuple[Token, ...]


class Newer:
    """A newer text, read like `Older`, once for all that it is compared with; to find cues takes longer than to compare them."""

    def __init__(self, text: str) -> None:
        self.whole = text
        self.text = joined(text[:_LONGEST_NEW])

    @cached_property
    def gist(self) -> Gist:
        """What it comes down to."""
        return gist_of(self.text)

    @cached_property
    def statement(self) -> Statement:
        """What it comes down to in any language."""
        return statement_of(self.whole)

    @cached_property
    def forms(self) -> frozenset[str]:
        """The forms of its tokens."""
        return frozenset(token.form for token in tokens_of(self.text))

    @cached_property
    def cues(self) -> list[_Cue]:
        """Where it names an older value."""
        return [_cue(before, match) for pattern in _NAMES_OLD for before, match in _cues(pattern, self.text)]

    @cached_property
    def endings(self) -> list[set[str]]:
        """What its clauses say, but for the cue, that end something."""
        clauses = (match["clause"] for pattern in _ENDS for match in pattern.finditer(self.text))
        said = ({token.form for token in tokens_of(clause)} - _ENDING_WORDS for clause in clauses)
        return [forms for forms in said if forms]

    @cached_property
    def changes(self) -> list[_Change]:
        """Its sentences whose subject goes on with another value."""
        matches = map(_GOES_ON.match, _sentences(self.text))
        return [_change(match) for match in matches if match is not None]

    @cached_property
    def corrects(self) -> bool:
        """Whether it says that it corrects something."""
        return _CORRECTS.search(self.text) is not None

    @cached_property
    def parts(self) -> list[tuple[Gist, list[str]]]:
        """What it comes down to without such words, whole and sentence by sentence, and where each says "in" and such."""
        corrected = _CORRECTS.sub(" ", self.text)
        return [(gist_of(part), _places(part)) for part in (corrected, *_sentences(corrected))]

    @cached_property
    def home(self) -> str:
        """Where it says that somebody moved to; empty when it does not."""
        match = _MOVED_HOME.match(self.text)
        return match["place"].lower() if match is not None and match["place"][0].isupper() else ""


def relation_of(old: str, new: str) -> Relation:
    """Return what ``new`` does to ``old``.

    Only an old text of one English sentence can be replaced: of a longer one, more would go than was taken back.
    """
    return _relation(Older(old), Newer(new))


def _relation(old: Older, new: Newer) -> Relation:
    if not old.is_one_sentence:
        return Relation.NONE
    before, after = old.gist, new.gist
    compared = before.english and after.english and not (before.asks or after.asks)
    if not compared or not before.tokens:
        return Relation.NONE
    shared = not old.forms.isdisjoint(after.forms)
    if _moved_home(before, new) or (shared and _is_replaced(old, new)):
        return Relation.REPLACES
    if not any(_excludes(before, part) and old.places == places for part, places in new.parts):
        return Relation.NONE
    return Relation.REPLACES if new.corrects else Relation.CONFLICTS


def judged(old: Older, new: Newer, cosine: float) -> tuple[Relation, float]:
    """Return what a new statement does to an older one, in any language, and how likely that is.

    Args:
        old: the older text.
        new: the newer one.
        cosine: of their vectors.
    """
    relation = _relation(old, new)
    if relation is not Relation.NONE or len(old.text) > LONGEST:
        return relation, float(relation is not Relation.NONE)
    likely = likelihood(old.statement, new.statement, cosine)
    if likely >= SURE and tells_a_change(old.statement, new.statement) and old.is_one_sentence:
        return Relation.REPLACES, likely
    return (Relation.CONFLICTS if likely >= LINKED else Relation.NONE), likely


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def _places(text: str) -> list[str]:
    """Return each "in", "at" and such in a text: "is Petra" and "is in Rome" can both hold."""
    return sorted(_PLACES.findall(text.lower()))


def _is_replaced(old: Older, new: Newer) -> bool:
    """Whether an explicit cue of ``new`` is about what ``old`` says."""
    return (
        any(_names_old(old.forms, cue, new) for cue in new.cues)
        or any(_ends(old.gist, said) for said in new.endings)
        or any(_goes_on(old, change) for change in new.changes)
    )


def _cues(pattern: re.Pattern[str], new: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield what stands before each cue in its clause, and the cue."""
    end = 0
    for match in pattern.finditer(new):
        before = _BEFORE.search(new[max(end, match.start() - _SUBJECT_CHARACTERS) : match.start()])
        yield before.group() if before is not None else "", match
        end = match.end()


def _cue(before: str, match: re.Match[str]) -> _Cue:
    return _Cue(
        tuple(tokens_of(f"x {match['old']}")[1:]),
        frozenset(token.form for token in _about(before)),
        _INSTEAD.search(before + match.group()) is not None,
    )


def _names_old(known: frozenset[str], cue: _Cue, new: Newer) -> bool:
    forms = {token.form for token in cue.named}
    if not forms or not forms <= known:
        return False
    if cue.instead:
        # "Use poetry instead of pip in the backend": the part before names the new value, and must share something
        # with the old statement unless the old value alone is unmistakable.
        return (
            any(token.slot is Slot.NAME for token in cue.named) or bool(cue.subject & known) or len(forms) > 1
        )
    if not cue.subject <= known:
        return False
    if all(token.slot is Slot.NUMBER for token in cue.named):
        return bool(new.forms & known - forms)
    return True


def _about(text: str) -> list[Token]:
    """Return the tokens of a clause's beginning, without what only marks the change."""
    marks = {"decid", "agre", "final", "finally", "recently", "just", "switch", "chang"}
    return [token for token in tokens_of(text) if token.form not in marks]


def _ends(old: Gist, said: set[str]) -> bool:
    """Whether a clause ends the old statement: everything it says, but the cue itself, is in the old one."""
    if not said <= set(old.forms) or not _TURNING.isdisjoint(old.forms):
        return False
    # Of "I use Redis for sessions", "no longer use" alone is not enough: what makes it particular must be named.
    telling = [token for token in old.tokens if token.slot is not Slot.NONE]
    return not telling or any(token.form in said for token in telling) or len(said) * 2 >= len(old.tokens)


def _change(match: re.Match[str]) -> _Change:
    placed = _PLACED.match(match["rest"])
    return _Change(
        placed[1].lower() if placed is not None else "",
        frozenset(token.form for token in tokens_of(match["subject"])),
        tuple(tokens_of(f"x {match['rest']}")[1:]),
    )


def _goes_on(old: Older, change: _Change) -> bool:
    if change.placed and change.placed not in old.words:
        return False  # "My manager is Petra" goes on where "my manager is now in Rome"
    if not change.subject or not change.subject <= old.forms:
        return False
    return _other_value(old.gist.tokens, change.value, change.subject)


def _other_value(old: Sequence[Token], new: Sequence[Token], subject: Iterable[str]) -> bool:
    """Whether a value of the old statement, outside its subject, has another one of its sort in the new."""
    held = [token for token in old if token.slot is not Slot.NONE and token.form not in set(subject)]
    given = {token for token in new if token.slot is not Slot.NONE}
    return any(
        token not in given and any(other.slot is token.slot and other not in held for other in given)
        for token in held
    )


def _moved_home(old: Gist, new: Newer) -> bool:
    if not new.home or _LIVES not in old.forms:
        return False
    names = [token for token in old.tokens if token.slot is Slot.NAME]
    return len(names) >= 1 and len(old.tokens) <= len(names) + 1 and new.home not in old.forms


def _excludes(old: Gist, new: Gist) -> bool:
    """Whether both cannot hold: the same but for one value, its negation, or its opposite."""
    if new.asks:
        return False
    ours, theirs = set(old.tokens), set(new.tokens)
    gone, come = ours - theirs, theirs - ours
    if ours.isdisjoint(theirs):
        return False
    if not gone and not come:
        # The same words round a word of preference, exchanged.
        return old.forms != new.forms and "over" in old.forms
    changed = {token.form for token in gone | come}
    if changed <= _NEGATIONS | {"can"} or changed in _OPPOSITES:
        return True
    if old.past != new.past or len(gone) != 1 or len(come) != 1:
        return False
    (lost,), (won,) = gone, come
    return _one_excludes(lost, won, old, new)


def _one_excludes(lost: Token, won: Token, old: Gist, new: Gist) -> bool:
    if not _NOT_A_STATE.isdisjoint(old.forms):
        return False
    begins = old.tokens[0] == lost and new.tokens[0] == won
    if begins:
        return any(token.form in _HELD_ALONE for token in old.tokens[1:2])
    at_end = old.tokens[-1] == lost and new.tokens[-1] == won
    if "favorit" in old.forms or "favorite" in old.forms:
        return at_end
    return lost.slot is not Slot.NONE and lost.slot is won.slot


NEAR = 0.5
"""The least cosine of two texts that say the same, of their vectors without context: see ``bench/sets.py``."""

_SHORTEST_MISSPELT = 7
_ANYWHERE = frozenset({"only", "alway", "normally"})


def says_the_same(first: Gist, second: Gist) -> bool:
    """Whether nothing is lost when the second text is dropped because the first is known."""
    if first.asks or second.asks or first.past != second.past or first.english != second.english:
        return False
    if not first.tokens or not second.tokens:
        return False
    if not first.english:
        return first.forms == second.forms
    ours, theirs = list(first.tokens), list(second.tokens)
    # Locker 2 of row 5 is not locker 5 of row 2.
    if _numbers(ours) != _numbers(theirs):
        return False
    if Counter(first.forms) != Counter(second.forms):
        ours = _respelt(ours, theirs)
    return _one_part_moved(_ordered(ours), _ordered(theirs))


def _numbers(tokens: list[Token]) -> list[str]:
    return [token.form for token in tokens if token.form.isdigit()]


def _ordered(tokens: list[Token]) -> list[str]:
    """Return the forms in order, the words that may stand anywhere at the end."""
    forms = [token.form for token in tokens]
    return sorted(forms, key=_ANYWHERE.__contains__)


def _respelt(ours: list[Token], theirs: list[Token]) -> list[Token]:
    """Return ours with the one word that seems to be misspelt in either text spelt as theirs, if there is one."""
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
    """Whether two words differ by two letters exchanged, or by one letter in a long word; names never are."""
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
    """Whether a long word was written with one letter too few; never its first, which may negate ("typical")."""
    if len(short) + 1 != len(long) or len(short) < _SHORTEST_MISSPELT or not long.isalpha():
        return False
    return any(long[:at] + long[at + 1 :] == short for at in range(1, len(long) - 1))


def _one_part_moved(ours: list[str], theirs: list[str]) -> bool:
    """Whether the two orders are the same, or differ in that two neighbouring parts have changed places.

    That is what moving a clause does; exchanging what stands on the two sides of a word ("tabs over spaces") is not.
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
