"""The proof of facts: decides without a model, and strictly, whether the conversation says a proposed fact.

A fact passes when its evidence occurs in the message it names; when every name and number of it occurs in the conversation; when
every other word with meaning occurs in that message, with any ending; and when it negates what the message negates and nothing
else. A free paraphrase or a translation does not pass: the verbatim turn is stored anyway, so a dropped fact loses little, and
an invented one would be believed. In summaries and answers, which use words of their own, most words must have been said.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from relayer.extraction import english as en
from relayer.extraction.gist import Slot, forms_in, tokens_of
from relayer.extraction.llm.polarity import Polarity, is_negation, same_word
from relayer.extraction.words import Word, function_words, guess_language, split_sentences, word_set, words_of

_PLAIN = str.maketrans("‘’‚‛“”„‟–—‐‑", "''''\"\"\"\"----")  # noqa: RUF001 - the typographic forms are the point
_SHORTEST = 2


def find_passage(text: str, passage: str) -> tuple[int, int] | None:
    """Return start and end of the passage in the characters of ``text``; None when it does not occur.

    Words must be whole: "Ann" does not occur in "annual". A passage of one character is none.
    """
    folded, places = _placed(text)
    wanted = fold(passage).strip("\"' .…")
    if len(wanted) < _SHORTEST:
        return None
    start = folded.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _cuts(folded, start) and not _cuts(folded, end):
            return places[start], places[end - 1] + 1
        start = folded.find(wanted, start + 1)
    return None


def fold(text: str) -> str:
    """Return the normalised text, without differences that do not count."""
    return _placed(text)[0].strip()


def _placed(text: str) -> tuple[str, list[int]]:
    """Return the folded text, and for each of its characters where it comes from."""
    folded: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        if char.isspace():
            if folded and folded[-1] != " ":
                folded.append(" ")
                places.append(place)
            continue
        if unicodedata.category(char) in {"Cf", "Cc"}:
            continue
        for part in unicodedata.normalize("NFKC", char).casefold().translate(_PLAIN):
            folded.append(part)
            places.append(place)
    return "".join(folded), places


def _cuts(text: str, at: int) -> bool:
    """Return whether a word of a script with spaces continues across this offset."""
    return 0 < at < len(text) and _spaced_letter(text[at - 1]) and _spaced_letter(text[at])


def _spaced_letter(char: str) -> bool:
    return char.isalnum() and not unspaced(char)


def unspaced(char: str) -> bool:
    """Return whether the character belongs to a script that is written without spaces: Chinese, Japanese, Thai and such."""
    code = ord(char)
    return 0x0E00 <= code <= 0x0EFF or 0x1000 <= code <= 0x109F or 0x2E80 <= code <= 0x9FFF or code >= 0x20000


MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
           "eight": 8, "nine": 9, "ten": 10, "couple": 2, "few": 3}  # fmt: skip
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_NEAR = {
    "today": (0, 0), "tonight": (0, 0), "this morning": (0, 0), "this afternoon": (0, 0), "this evening": (0, 0),
    "just now": (0, 0), "yesterday": (-1, -1), "last night": (-1, 0), "tomorrow": (1, 1),
    "day before yesterday": (-2, -2), "day after tomorrow": (2, 2), "the other day": (-14, -1),
    "last week": (-13, -1), "this week": (-6, 6), "next week": (1, 14), "last weekend": (-9, -1),
    "this weekend": (-1, 6), "next weekend": (1, 13), "last month": (-62, -1), "this month": (-31, 31),
    "next month": (1, 62), "last year": (-730, -1), "this year": (-366, 366), "next year": (1, 730),
    "last spring": (-730, -1), "last summer": (-730, -1), "last autumn": (-730, -1), "last fall": (-730, -1),
    "last winter": (-730, -1), "recently": (-62, 0),
}  # fmt: skip
_AGO = re.compile(r"\b(\d{1,3}|[a-z]+)(?: of)? (day|week|month|year)s? (ago|earlier|from now|later)\b")
_IN = re.compile(r"\bin (\d{1,3}|[a-z]+)(?: of)? (day|week|month|year)s?\b")
_WEEKDAY = re.compile(r"\b(?:(last|next|this|on) )?(" + "|".join(_WEEKDAYS) + r")\b")
_STATED = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")
_NUMERALS = re.compile(r"\d+")

Span = tuple[date, date]


def said_of(stated: str, passage: str, day: datetime | None) -> datetime | None:
    """Return the first day of a stated time if the passage, said on ``day``, speaks of it; None if not.

    Args:
        stated: ``YYYY``, ``YYYY-MM`` or ``YYYY-MM-DD``.
        passage: in its own words.
        day: of the message; without one, only dates in numbers can be checked.
    """
    span = _stated(stated)
    if span is None:
        return None
    lowered = " ".join(passage.casefold().split())
    spoken = _spells_out(stated, lowered, day) or (
        day is not None
        and any(first <= span[1] and span[0] <= last for first, last in _spoken(lowered, day.date()))
    )
    return datetime(span[0].year, span[0].month, span[0].day, tzinfo=UTC) if spoken else None


def _stated(stated: str) -> Span | None:
    match = _STATED.fullmatch(stated.strip())
    if match is None:
        return None
    year, month, day = (int(part) if part else 0 for part in match.groups())
    try:
        first = date(year, month or 1, day or 1)
        if day:
            return first, first
        last = date(year + (month in {0, 12}), 1 if month in {0, 12} else month + 1, 1) - timedelta(days=1)
    except ValueError:
        return None
    return first, last


def _spells_out(stated: str, passage: str, day: datetime | None) -> bool:
    """Return whether the passage contains every part of the date; the year may be that of the message's own date."""
    numbers = {int(digits) for digits in _NUMERALS.findall(passage)}
    parts = [int(part) for part in stated.strip().split("-")]
    year_known = parts[0] in numbers or (len(parts) > 1 and day is not None and abs(parts[0] - day.year) <= 1)
    months = {number for number, name in enumerate(MONTH_NAMES, 1) if re.search(rf"\b{name[:3]}", passage)}
    rest_known = all(
        part in numbers or (place == 0 and part in months) for place, part in enumerate(parts[1:])
    )
    return year_known and rest_known


def _spoken(passage: str, day: date) -> Iterator[Span]:
    for words, (first, last) in _NEAR.items():
        if re.search(rf"\b{words}\b", passage):
            yield _around(day, first, last)
    for match in _AGO.finditer(passage):
        back = match[3] in {"ago", "earlier"}
        yield from _counted(match[1], match[2], day, -1 if back else 1)
    for match in _IN.finditer(passage):
        yield from _counted(match[1], match[2], day, 1)
    for match in _WEEKDAY.finditer(passage):
        ahead = (_WEEKDAYS.index(match[2]) - day.weekday()) % 7
        # Without a word before it, the last or the coming one may be meant; "next Friday" may be this week's or not.
        weeks = {"last": (-14, -7), "next": (0, 7), "this": (-7, 0)}.get(match[1] or "", (-7, 0))
        for week in range(weeks[0], weeks[1] + 1, 7):
            yield _around(day, ahead + week, ahead + week)


def _counted(word: str, unit: str, day: date, sign: int) -> Iterator[Span]:
    count = int(word) if word.isdecimal() else _COUNTS.get(word, 0)
    if count:
        middle, slack = sign * count * _UNITS[unit], _UNITS[unit] // 2 + (count if unit != "day" else 0)
        yield _around(day, middle - slack, middle + slack)


def _around(day: date, first: int, last: int) -> Span:
    try:
        return day + timedelta(days=first), day + timedelta(days=last)
    except OverflowError:
        return day, day


_SUPPORTED = 0.5
_STEM = 5
_SHORT_STEM = 3
# German capitalises every noun like a name.
_NOUN_ENDINGS = ("s", "es", "e", "n", "en", "er")
_LONGEST = 1000
_GROUPED = re.compile(r"(?<=\d)[.,'\u00a0 ](?=\d{3}(?!\d))")
# How a sentence about a person without a name begins, and the roles that the prompt names.
_OPENERS = word_set(
    "the a an this that these those my our your his her their its user assistant users there if when in on at after before "
    "since for from with no not both all each some"
)
_SMALL = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18,
    "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100, "thousand": 1000, "million": 1_000_000,
}  # fmt: skip


# What a model may add without saying anything: who is spoken of, and what holds a sentence together.
_GRAMMAR = frozenset(
    form
    for word in (
        *_OPENERS,
        *word_set(
            "he she him her hers his they them their theirs it its you your who whom whose which that this these those there "
            "here when while where if then than as so or and to from into about with for by some any also too can could may "
            "might say says said mention mentions mentioned tell tells told state states stated note notes noted explain "
            "explained name named called own owns"
        ),
        *(
            word
            for lang in ("de", "fr", "es", "it", "pt", "nl", "sv", "pl", "tr")
            for word in function_words(lang)
        ),
    )
    for form in forms_in(word) | {word}
)
# The same of Chinese, and what Japanese is written with between the words that carry meaning.
_DENSE_GRAMMAR = frozenset("用户的了是在有和他她它们們也就都使") | frozenset(map(chr, range(0x3040, 0x30A0)))
_WITHOUT_MEANING = _GRAMMAR | _DENSE_GRAMMAR


class Doubt(StrEnum):
    """The reason why a fact was dropped; the values are labels of a metric."""

    EMPTY = "empty"
    NO_SUCH_MESSAGE = "no_such_message"
    NO_EVIDENCE = "no_evidence"
    NAME = "name_not_said"
    NUMBER = "number_not_said"
    WORDS = "words_not_said"
    NEGATION = "negation_differs"


@dataclass(slots=True)
class Ground:
    """The contents of all messages: words, stems, numbers, and pairs of characters for scripts without spaces."""

    words: set[str] = field(default_factory=set)
    stems: set[str] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Ground:
        """Return the contents of texts."""
        ground = cls()
        for text in texts:
            lowered = [part for word in words_of(text) for part in _parts(word)]
            ground.words.update(lowered)
            ground.stems.update(part[:_STEM] for part in lowered)
            ground.numbers.update(_numbers(text))
            ground.pairs.update(_pairs(text))
        return ground


def doubt_of(text: str, ground: Ground, day: datetime | None = None) -> Doubt | None:
    """Return why the conversation does not say a text; None when it does.

    Args:
        text: of a fact or a summary.
        ground: the conversation, names of speakers included.
        day: a time that was checked already; it may be spelt out.
    """
    if not text.strip() or len(text) > _LONGEST:
        return Doubt.EMPTY
    dated = set() if day is None else {day.year, day.month, day.day}
    if not _numbers(text) <= ground.numbers | dated:
        return Doubt.NUMBER
    words = words_of(text)
    month = set() if day is None else {MONTH_NAMES[day.month - 1], MONTH_NAMES[day.month - 1][:3]}
    endings = _NOUN_ENDINGS if guess_language(text, words) == "de" else ("s",)
    for place, word in enumerate(words):
        if _is_name(word, first=place == 0) and not _is_said(word, ground.words | month, endings):
            return Doubt.NAME
    return None if _support(text, words, ground) >= _SUPPORTED else Doubt.WORDS


@dataclass(frozen=True, slots=True)
class MessageWords:
    """One message: its language, all forms of its words, forms that are not names, unspaced characters, and its negations."""

    language: str
    forms: frozenset[str]
    plain: frozenset[str]
    dense: frozenset[str]
    polarity: Polarity

    @classmethod
    def from_message(cls, text: str, speaker: str) -> MessageWords:
        """Read a message."""
        words = words_of(text)
        language = guess_language(text, words)
        firsts = {
            first[0].shape for start, end in split_sentences(text) if (first := words_of(text[start:end]))
        }
        lower = forms_in(
            " ".join(word.lower for word in words if word.shape.islower() or word.shape in firsts)
        )
        return cls(
            language,
            frozenset(forms_in(text) | forms_in(speaker)),
            frozenset(lower),
            frozenset(filter(unspaced, text)),
            Polarity.from_text(text, language, _WITHOUT_MEANING),
        )


def doubt_of_fact(
    text: str, ground: Ground, said: MessageWords, span: tuple[int, int], day: datetime | None = None
) -> Doubt | None:
    """Return why a message does not say a fact; None when it does.

    Args:
        text: of the fact.
        ground: the conversation, names of speakers included: who is meant may be named in another message.
        said: the message.
        span: the evidence, in characters of the message.
        day: a time that was checked already; it may be spelt out.
    """
    doubt = doubt_of(text, ground, day)
    if doubt is not None:
        return doubt
    named = {form for word in words_of(text) if _is_name(word, first=False) for form in forms_in(word.shape)}
    told = {
        token.form
        for token in tokens_of(text)
        if token.slot is not Slot.NUMBER and token.form not in _GRAMMAR and not is_negation(token.form)
    }
    dated = set() if day is None else forms_in(f"{day:%B} {day:%A}")
    if any(form not in named and form not in dated and not _stands(form, said) for form in told):
        return Doubt.WORDS
    if not {char for char in text if unspaced(char)} - said.dense <= _DENSE_GRAMMAR:
        return Doubt.WORDS
    fact = Polarity.from_text(text, said.language, _WITHOUT_MEANING)
    return None if fact.agrees(said.polarity, span) else Doubt.NEGATION


def _stands(form: str, said: MessageWords) -> bool:
    """Return whether a message has a form, or one of a word that is not a name and differs only in its ending."""
    if form in said.forms or (form and all(map(unspaced, form))):
        return True
    shortest = _STEM if said.language == "en" else _SHORT_STEM
    return len(form) >= shortest and any(same_word(form, other, shortest) for other in said.plain)


def _parts(word: Word) -> list[str]:
    """Return the word, and what it is made of: "Ana's" is said where "Ana" is, "co-op" where "co" and "op" are."""
    plain = fold(word.lower)
    pieces = [piece for piece in re.split(r"[-'._]", plain) if piece]
    return [plain, *pieces] if len(pieces) > 1 else [plain]


def _is_name(word: Word, *, first: bool) -> bool:
    if word.lower in en.FIRST_PERSON or not any(map(str.isupper, word.shape)):
        return False
    return not (first and word.lower in _GRAMMAR)


def _is_said(word: Word, said: set[str], endings: tuple[str, ...]) -> bool:
    whole, *pieces = _parts(word)
    if pieces:
        return whole in said or all(piece in said or piece == "s" for piece in pieces)
    shorter = {whole.removesuffix(ending) for ending in endings if len(whole) > len(ending) + 2}
    return not said.isdisjoint({whole} | shorter | {whole + ending for ending in endings})


def _numbers(text: str) -> set[int]:
    """Return the numbers of a text, in figures of any script and in English words."""
    figures = _GROUPED.sub("", unicodedata.normalize("NFKC", text))
    found = {int(digits) for digits in _NUMERALS.findall(figures) if len(digits) <= 30}
    return found | {_SMALL[word.lower] for word in words_of(text) if word.lower in _SMALL}


def _pairs(text: str) -> set[str]:
    folded = fold(text)
    return {one + two for one, two in pairwise(folded) if unspaced(one) and unspaced(two)}


def _support(text: str, words: list[Word], ground: Ground) -> float:
    """Return the share of what the text says that was said: of its pairs, or of its words that carry meaning."""
    pairs = _pairs(text)
    if len(pairs) * 4 > len(text):
        return len(pairs & ground.pairs) / len(pairs)
    told = {
        piece[:_STEM]
        for word in words
        if word.lower not in en.EMPTY_WORDS and word.lower not in _OPENERS
        for piece in _parts(word)[:1]
    }
    return len(told & ground.stems) / len(told) if told else 0.0
