"""The words with meaning of an English text, in forms in which spelling and inflection make no difference.

`tokens_of` leaves out articles, fillers and auxiliaries, and undoes contractions and spelling variants; names, numbers, negations, and
words that reverse a statement ("before", "without", "only") stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from relayer.extraction.words import Phrases, Word, word_set, words_of


class Slot(Enum):
    """The kind of value of a token; two values of one kind can replace each other."""

    NONE = "none"
    NUMBER = "number"
    WEEKDAY = "weekday"
    MONTH = "month"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class GistToken:
    """A word with meaning: its normalised form, and the kind of value it is."""

    form: str
    slot: Slot = Slot.NONE


_FILLERS = Phrases(
    """by the way, btw, just so you know, fyi, for your information, for the record, i think, i guess, i believe, i mean,
    you know, of course, please remember, please note, remember that, remember this, remember, note that, don't forget,
    keep in mind, as i said, as mentioned, to be honest, i would say, i'd say, at the moment, too, also, actually, basically,
    really, honestly, currently, simply, just, well, so, ok, okay, oh, please, then, now, right now, still, quite, very, hey,
    hi, thanks, personally, again, anyway, these days, nowadays, kind of, sort of, definitely, certainly"""
)
_DROPPED = word_set(
    """a an the this that these those there am is are was were be been being do does did have has had having will would shall i me you
    my mine we us our ours myself and of in on at for as by it its got gets get goes go live's s t d ll m
    re ve what's who's that's there's located"""
)
_NEGATIVE = word_set(
    "cannot can't cant won't don't doesn't didn't isn't aren't wasn't weren't shouldn't mustn't couldn't"
)
_SPELLINGS = {
    "grey": "gray", "centre": "center", "licence": "license", "programme": "program", "tyre": "tire", "judgement": "judgment",
    "bicycle": "bike", "coworker": "colleague", "co-worker": "colleague", "teammate": "colleague", "boss": "manager",
    "children": "kid", "child": "kid", "kids": "kid", "documentation": "docs", "doc": "docs", "db": "database", "big": "large",
    "huge": "large", "little": "small", "tiny": "small", "usually": "normally", "generally": "normally", "love": "like",
    "enjoy": "like", "loves": "like", "enjoys": "like", "based": "live", "reside": "live", "resides": "live",
    "lives": "live", "living": "live", "named": "name", "called": "name", "repo": "repository", "prod": "production",
    "config": "configuration", "info": "information", "app": "application", "mom": "mother", "mum": "mother", "dad": "father",
    "begin": "start", "begins": "start", "beginning": "start", "purchase": "buy", "purchased": "bought", "each": "every",
    "film": "movie", "holiday": "vacation", "flat": "apartment", "quick": "fast", "speedy": "fast", "mail": "email",
    "e-mail": "email", "kept": "keep", "held": "keep", "stored": "keep", "favourite": "favorite", "approx": "about",
    "approximately": "about", "roughly": "about", "wed": "wednesday", "thu": "thursday", "thurs": "thursday", "fri": "friday",
    "mon": "monday", "tue": "tuesday", "tues": "tuesday", "rather": "prefer", "biggest": "largest", "doctor": "dr",
    "automobile": "car", "physician": "dr", "firm": "company", "attorney": "lawyer", "directory": "folder", "kilometers": "km",
    "kilometres": "km", "kilometer": "km", "mins": "minute", "min": "minute", "hrs": "hour", "hr": "hour", "secs": "second",
    "sec": "second", "usd": "dollar", "eur": "euro", "supper": "dinner", "loathe": "hate", "detest": "hate", "reply": "answer",
    "replies": "answer", "responses": "answer", "response": "answer", "respond": "answer", "utilise": "use",
    "utilize": "use", "commence": "start", "finish": "complete", "finished": "completed", "cellphone": "phone",
    "mobile": "phone", "favor": "prefer", "favour": "prefer", "require": "need", "requires": "need", "required": "needed",
    "whilst": "while", "television": "tv", "telephone": "phone", "photo": "picture", "pic": "picture",
}  # fmt: skip
_NUMBERS = {
    name: str(value)
    for value, name in enumerate(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], start=2
    )
} | {
    "twenty": "20",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "ninety": "90",
    "hundred": "100",
}
_LASTS = frozenset({"tak", "need", "last"})  # before a number they say the same
_WEEKDAYS = word_set("monday tuesday wednesday thursday friday saturday sunday")
_MONTHS = {
    "jan": "january", "feb": "february", "mar": "march", "apr": "april", "jun": "june", "jul": "july", "aug": "august",
    "sep": "september", "sept": "september", "oct": "october", "nov": "november", "dec": "december",
}  # fmt: skip
_MONTH_NAMES = frozenset(_MONTHS.values()) | {"may"}
_GROUPED = re.compile(r"(?<=\d)[,' ](?=\d{3}(?!\d))")
_INSIDE = re.compile(r"(?<=\w)(?:[.:]|@)(?=\w)")
_TITLE = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St)\.(?= )")
_UNIT = re.compile(r"(?<=\d)(?=[A-Za-z]{1,3}\b)")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_CHANNEL = re.compile(r"#(?=\w)")


def tokens_of(text: str) -> list[GistToken]:
    """Return the tokens of an English text, or of a part of one."""
    plain = _UNIT.sub(" ", _ORDINAL.sub("", joined(text)))
    words = [part for word in words_of(plain.replace("’", "'")) for part in _parts(word)]  # noqa: RUF001 - typographic
    found: list[GistToken] = []
    at = 0
    while at < len(words):
        skipped = _FILLERS.length_at(words, at)
        if skipped:
            at += skipped
            continue
        known = len(found)
        found += _token(words[at], first=at == 0)
        if len(found) > known > 0 and found[-1].slot is Slot.NUMBER and found[-2].form in _LASTS:
            found[-2] = GistToken("last")
        at += 1
    return found


def forms_in(text: str) -> set[str]:
    """Return the forms of all words of a text and of their parts at apostrophes, with fillers; names also as ordinary words."""
    plain = joined(text).replace("’", "'")  # noqa: RUF001 - typographic
    whole = [part for word in words_of(plain) for part in _parts(word)]
    words = [*whole, *(words_of(plain.replace("'", " ")) if "'" in plain else ())]
    return {token.form for word in words for first in (False, True) for token in _token(word, first=first)}


def joined(text: str) -> str:
    """Return the text with times, versions, addresses and channels as one word each, so that no punctuation splits them."""
    return _TITLE.sub(r"\1", _INSIDE.sub("_", _CHANNEL.sub("channel_", _GROUPED.sub("", text))))


def _parts(word: Word) -> list[Word]:
    """Split a word at hyphens, unless it is an identifier, and expand contractions."""
    if word.lower in _SPELLINGS:
        return [word]
    if word.lower in _NEGATIVE:
        verb = [Word("can", "can")] if word.lower.startswith(("can", "could")) else []
        return [*verb, Word("not", "not")]
    shape, _, ending = word.shape.partition("'")
    if ending and ending.lower() in {"s", "m", "re", "ve", "ll", "d", ""}:
        word = Word(shape.lower(), shape)
    return [Word(part.lower(), part) for part in word.shape.split("-") if part]


def _token(word: Word, *, first: bool) -> list[GistToken]:
    lower = _SPELLINGS.get(word.lower, word.lower)
    if lower in _DROPPED:
        return []
    if lower in _NUMBERS or lower[0].isdigit():
        return [GistToken(_NUMBERS.get(lower, lower), Slot.NUMBER)]
    day = lower.removesuffix("s")
    if day in _WEEKDAYS:
        return [GistToken(day, Slot.WEEKDAY)]
    if _MONTHS.get(lower, lower) in _MONTH_NAMES and word.shape[0].isupper():
        return [GistToken(_MONTHS.get(lower, lower), Slot.MONTH)]
    if "_" in lower or (not first and word.shape[0].isupper()):
        return [GistToken(lower, Slot.NAME)]
    return [GistToken(_stem(lower))]


def _stem(word: str) -> str:
    """Return a stem that is the same for plural, past and progressive forms, and for British and American spelling."""
    if "_" in word or not word.isascii() or not word.isalpha():
        return word
    if len(word) > 5 and word.endswith("our"):
        word = word[:-3] + "or"
    word = re.sub(r"is(e|ed|es|ing)$", r"iz\1", word) if len(word) > 6 else word
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2 and any(vowel in stem for vowel in "aeiouy"):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
