"""Reading a text for search: its terms, which are its words normalised and stemmed, the names in it, and the times.

`indexed_text` puts speaker and day before a memory's text, and `terms` splits a text into the terms that the lexical index
uses. `told` and `variety` measure how much a text states and how often it repeats itself; `names` finds the names in a query.

`named_times` reads months, days, years and phrases of past times in fifteen languages from the names of `relayer.lib.times`,
and `named_days` reads only the days, by which a memory tells what is coming, also from numbers such as 3/12 and from words
such as "tomorrow". A time never filters: `TIME_WEIGHT` times the
`nearness` of a memory is added to its score, because people err about times, and because a memory may tell of another time
than the one at which it was said. All times are in UTC.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import Final, NamedTuple

from relayer.lib.n_grams import UNSPACED
from relayer.lib.times import time_names
from relayer.wire.accents import typed, without_accents
from relayer.wire.fields import DAY_MS, stream_safe

# Runs of letters and digits; an apostrophe inside a word ends it ("Maria's" is about Maria).
WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
LONGEST = 40
# The maximum number of terms of a text, and of characters read for each of them, before and after compatibility forms are
# normalised, so the first 6,144 characters. A text may be ten times as long, and is indexed in one step of the event loop.
MOST_TERMS = 512
CHARACTERS = 12
_MOST_STEMS = 4_096

# How many characters longer the compatibility form of a character is, for all that have a longer one: up to seventeen.
GROWTH = {
    char: length - 1
    for first, last in (
        *((0xA8, 0x385), (0x587, 0x678), (0x958, 0xB5D), (0xE33, 0xFB9), (0x1E9A, 0x2230), (0x2469, 0x24B5)),
        *((0x2A0C, 0x2ADC), (0x309B, 0x33FF), (0xFB00, 0xFFE3), (0x1D15E, 0x1D1C0), (0x1F100, 0x1F248)),
    )
    for char in map(chr, range(first, last + 1))
    if (length := len(unicodedata.normalize("NFKC", char))) > 1
}
GROWING = re.compile(f"[{''.join(map(re.escape, GROWTH))}]")

# A decimal digit of another script, which is read as 0 to 9: people write one number in both.
_FOREIGN_DIGIT = re.compile("[^\\D0-9]")

# Words without a topic: a match on them alone means nothing.
TOPICLESS = """
a about after all also am an and any are as at be because been before being but by can could did do does
doing done for from had has have having he her hers him his how i if in into is it its just me mine more
most must my no nor not now of off on once only or other our ours out over own s shall she should so
some such t than that the their theirs them then there these they this those to too under until up us
very was we were what when where which while who whom whose why will with would you your yours
"""
FUNCTION_WORDS = frozenset(TOPICLESS.split())
# Indexed texts abbreviate months to three letters (see `indexed_text`), and questions spell them out.
_MONTH_WORDS = {
    month: month[:3]
    for month in (
        *("january", "february", "march", "april", "june", "july", "august"),
        *("sept", "september", "october", "november", "december"),
    )
}


class Stems(dict[str, str | None]):
    """A cache of terms by word: most words of a text occurred in earlier ones.

    The words are contents of memories, so a cache belongs to one namespace, and is cleared when a memory is removed.
    """

    def __missing__(self, word: str) -> str | None:
        if len(self) >= _MOST_STEMS:
            self.clear()
        stem = self[word] = _stem(word)
        return stem


def terms(text: str, most: int = MOST_TERMS, stems: Stems | None = None) -> list[str]:
    """Return the terms of a text's beginning, in order, with repetitions; at most ``most``, from twelve characters each.

    Example:
        >>> terms("The harbour office moved to Ulm")
        ['harbour', 'offic', 'mov', 'ulm']
    """
    folded = _folded(text, most * CHARACTERS)
    stems = Stems() if stems is None else stems
    if folded.isascii():  # most are: no word of theirs is without spaces
        return [stem for word in WORD.findall(folded) if (stem := stems[word[:LONGEST]]) is not None][:most]
    found: list[str] = []
    for match in WORD.finditer(folded):
        if len(found) >= most:
            break
        word = match.group()[:LONGEST]
        # In scripts without spaces every character is a term, and so is every pair of neighbours.
        if UNSPACED.search(word):
            found += list(word)
            found += [word[at : at + 2] for at in range(len(word) - 1)]
        elif (stem := stems[word]) is not None:
            found.append(stem)
    return found[:most]


def _folded(text: str, characters: int) -> str:
    """Return the casefolded compatibility form of a text's beginning; a shorter beginning if the form is much longer."""
    text = text[:characters]
    if text.isascii():
        return text.casefold()
    room = characters // 4
    for found in GROWING.finditer(text):
        room -= GROWTH[found.group()]
        if room < 0:
            text = text[: found.start()]
            break
    return _with_plain_digits(unicodedata.normalize("NFKC", stream_safe(text))[:characters].casefold())


def _with_plain_digits(text: str) -> str:
    if text.isascii():
        return text
    return _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


def _stem(word: str) -> str | None:
    word = re.split("['\u2019]", word)[0]
    if not word or word in FUNCTION_WORDS:
        return None
    if word in _MONTH_WORDS:
        return _MONTH_WORDS[word]
    if not word.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c)) or word
    else:
        plain = word
    return _without_ending(plain) if plain.isascii() and plain.isalpha() else plain


def _without_ending(word: str) -> str:
    """Return a light English stem: plural, past and progressive endings, and a final e or y, are normalised."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2 and any(vowel in stem for vowel in "aeiouy"):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if len(word) > 2 and word.endswith("y") else word


# English and independent of the machine's locale, because the text must be the same on every replica.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# About 100 tokens: an embedding model that reads 256 still sees what follows.
CONTEXT_CHARACTERS = 400


def indexed_text(speaker: str | None, occurred_at: int | None, text: str) -> str:
    """Return the text that is embedded and indexed for a memory: ``"Speaker (8 May 2023): text"``.

    Args:
        speaker: the speaker's name, if known.
        occurred_at: the time in ms since the epoch, if known; the day is that of UTC. A time outside of the calendar
            counts as unknown.
        text: the memory's text.

    Example:
        >>> indexed_text("Ana", 1_683_504_000_000, "I moved to Ulm.")
        'Ana (8 May 2023): I moved to Ulm.'
    """
    day = _day(occurred_at)
    if speaker and day:
        return f"{speaker} ({day}): {text}"
    if speaker:
        return f"{speaker}: {text}"
    return f"({day}) {text}" if day else text


def context_text(previous: str, own: str) -> str:
    """Return a memory's indexed text after the previous turn's, whose end counts more than its start."""
    return f"{previous[-CONTEXT_CHARACTERS:]}\n{own}"


def _day(occurred_at: int | None) -> str | None:
    if occurred_at is None:
        return None
    try:
        date = EPOCH + timedelta(milliseconds=occurred_at)
    except OverflowError:
        return None
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


# The header that `indexed_text` puts before a text with a day.
_HEADER = re.compile(r"[^\n]{0,80}?\(\d{1,2} [A-Z][a-z]{2} \d{4}\):? ")
_SENTENCE = re.compile("[^.!?\u061f\u3002\uff01\uff1f\n]+[.!?\u061f\u3002\uff01\uff1f]*")
_QUESTION = re.compile("[?\u061f\uff1f]")
# A statement has one or two question words; a text that is written to be similar to every question has many.
_QUESTION_WORD = re.compile(
    r"\b(?:what|where|when|who|whose|whom|which|why|how|was|wo|wann|wer|wie|warum|welche[rs]?|wessen|qué|quién|cuándo|dónde|cuál|cómo"
    r"|quoi|qui|quand|où|quel(?:le)?|comment|pourquoi|cosa|chi|quando|dove|quale|perché)\b|什么|哪里|哪儿|谁|什么时候|为什么|怎么|多少",
    re.IGNORECASE,
)
_MANY_QUESTION_WORDS = 5
_MANY_QUESTIONS = 4
# The least share of question words among the characters: a story contains many of them, too, among other words.
_QUESTION_SHARE = 0.1
# A text of at least this many terms counts as repetitive if fewer than this share of them are distinct; ordinary texts have half.
_REPETITIVE_TERMS = 256
_LEAST_DISTINCT = 0.15
# A turn with this many terms states as much as any: a higher number would rank short facts below long turns (docs/adr/0025).
# The next two are how many terms are read, and in how many characters questions are looked for.
TOLD_TERMS = 4
_TOLD_READ = 16
_TOLD_CHARACTERS = 1_000


def told(indexed: str, stems: Stems | None = None) -> int:
    """Return the number of terms of an indexed text without header and questions, at most `TOLD_TERMS`; -1 if it only lists them."""
    header = _HEADER.match(indexed)
    start = header.end() if header else 0
    statements = indexed[start : start + _TOLD_CHARACTERS]
    asked = [word.casefold() for word in _QUESTION_WORD.findall(statements)]
    if len(set(asked)) >= _MANY_QUESTION_WORDS and sum(map(len, asked)) >= _QUESTION_SHARE * len(statements):
        return -1
    if _QUESTION.search(statements):
        sentences = _SENTENCE.findall(statements)
        told_ones = [one for one in sentences if not _QUESTION.search(one)]
        statements = " ".join(told_ones)
        if len(sentences) - len(told_ones) >= _MANY_QUESTIONS and not terms(statements, 1, stems):
            return -1
    return min(TOLD_TERMS, len(terms(statements, _TOLD_READ, stems)))


def variety(counts: Mapping[str, float]) -> float:
    """Return the share of distinct terms, by the counts of terms, if a text repeats itself; otherwise 1."""
    total = sum(counts.values())
    distinct = len(counts) / total if total >= _REPETITIVE_TERMS else 1.0
    return distinct if distinct < _LEAST_DISTINCT else 1.0


APOSTROPHE = re.compile("['\u2019]")
# Ends of sentences, and characters that may open one: the first word after them is capitalised for that reason alone.
STARTS = re.compile(r"(?:^|[.?!:;\n])[\s\"'\u201c\u2018(\[*-]*$")
# English function words that are also German do not show that a query is English.
ENGLISH = FUNCTION_WORDS - frozenset(
    ["am", "also", "an", "do", "has", "her", "in", "me", "no", "on", "s", "so", "t", "was", "will"]
)
# Titles and headlines capitalise nearly every word.
MOST_CAPITALISED = 0.5
# Times are matched as terms; that a day occurs in no memory does not mean that the subject is unknown.
CALENDAR = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "christmas",
        "easter",
    ]
)
LONGEST_QUERY = 2_000


def names(query: str) -> tuple[str, ...]:
    """Return the words of an English query that are spelt like names, as written there; none for any other query."""
    found: list[str] = []
    words = 0
    english = False
    text = query[:LONGEST_QUERY]
    for match in WORD.finditer(text):
        # "Maria's" is about Maria, and "I'm" is no name.
        word = APOSTROPHE.split(match.group())[0]
        words += 1
        english = english or word.casefold() in ENGLISH
        if (
            word[0].isupper()
            and len(word) > 1
            and not STARTS.search(text[max(0, match.start() - 8) : match.start()])
        ):
            found.append(word)
    if not english or len(found) > MOST_CAPITALISED * words:
        return ()
    return tuple(
        name for name in found if name.casefold() not in CALENDAR and name.casefold() not in FUNCTION_WORDS
    )


# The fewest characters that two forms of a word have in common, and the most that one of them has more: "Mark" is no form of
# "market". A syllable of Korean counts as up to three characters.
_COMMON, _MORE, _MORE_OF_SHORT, _MORE_KOREAN = 4, 3, 1, 9
# Of a longer text the beginning is read.
_READ = 4_000


def named_in(text: str) -> frozenset[str]:
    """Return the terms of a text, see `names_any`."""
    return frozenset(terms(text[:_READ]))


Subject = list[list[list[str]]]
"""The subject of a wish: phrases of words, each word as its terms, see `subject`."""


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


# Endings of Slavic cases of names as `terms` leaves them. A vowel of the first form is absent from others: "radek", "radkiem".
_CASES = frozenset(["", "a", "u", "i", "owi", "iem", "em", "om", "ami", "ach"])
_FLEETING = re.compile("(?<=[^aeiou])e(?=k$)")


def _are_forms(one: str, other: str) -> bool:
    """Return whether two terms are probably forms of one word: they differ at their ends only."""
    if one[:2] != other[:2]:
        return False
    one, other = _FLEETING.sub("", one), _FLEETING.sub("", other)
    shorter = min(len(one), len(other))
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    if one.isascii() and other.isascii():
        more = _MORE_OF_SHORT if shorter == _COMMON else _MORE
        prolonged = common == shorter and max(len(one), len(other)) - common <= more
        return common >= _COMMON and (prolonged or {one[common:], other[common:]} <= _CASES)
    more = _MORE_KOREAN if "\u1100" <= one[0] <= "\u11ff" else _MORE
    return common >= max(_COMMON, shorter - 1) and max(len(one), len(other)) - common <= more


TIME_WEIGHT: Final = 0.2
"""Addition to the score of a memory of a time that the query names, in units of cosine; see docs/adr/0037."""
NEAR_DAYS: Final = 5.0
"""The number of days before or after a time at which a memory is no longer near it."""

_FIRST_YEAR: Final = 1970
_WITHOUT_SPACES: Final = frozenset({"zh", "ja", "ko"})
_HAN_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"], 1
    )
}
_PHRASES: Final[Mapping[str, tuple[str, int]]] = {
    "yesterday": ("day", 1),
    "day_before": ("day", 2),
    "last_week": ("week", 1),
    "last_month": ("month", 1),
    "last_year": ("year", 1),
}
_YEAR: Final = r"(?:19|20)\d\d"
_IN_UNSPACED: Final = re.compile(
    rf"(?:(?P<year>{_YEAR})[年년]\s?)?(?P<month>1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])[月월](?!间)(?:份)?(?:\s?(?P<day>\d{{1,2}})[日号號일])?"
)
_NUMERIC: Final = re.compile(
    rf"(?<![\w.-])(?P<year>{_YEAR})-(?P<month>0[1-9]|1[0-2])(?:-(?P<day>\d\d))?(?![\w-])"
    rf"|(?<![\w.-])(?P<day_first>\d{{1,2}})\.(?P<month_second>\d{{1,2}})\.(?P<year_last>{_YEAR})?(?![\w-])"
)
_WORD: Final = re.compile(r"\w+")
_DIGIT: Final = re.compile(r"\d")
# A number, or a character of a script in which words are not separated by spaces, or of Korean.
_MAY_NAME: Final = re.compile(r"[\d\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_ONLY_YEAR: Final = re.compile(rf"(?<![\w.:/-])(?P<year>{_YEAR})(?:[年년]|(?![\w:/-]|\.\d))")


class NamedTime(NamedTuple):
    """A year, a month or a day; a month or a day without a year is that of every year."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def first_day(self, said: date) -> date | None:
        """Return the day on which the time begins; without a year it is the first such day since ``said``, when it was named."""
        return next((day for day in _dates(self, said) if self.year is not None or day >= said), None)

    def interval(self, year: int) -> tuple[datetime, datetime] | None:
        """Return the beginning of the time in a year and its end, which is excluded, in UTC.

        Args:
            year: the year that the month or day is in.

        Returns:
            The two times; None if that year does not have the day, such as 29 February.
        """
        if self.month is None:
            return datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        days = monthrange(year, self.month)[1]
        if self.day is None:
            begin = datetime(year, self.month, 1, tzinfo=UTC)
            return begin, begin + timedelta(days=days)
        if not 1 <= self.day <= days:
            return None
        begin = datetime(year, self.month, self.day, tzinfo=UTC)
        return begin, begin + timedelta(days=1)

    def days_from(self, at: datetime) -> float:
        """Return the distance of an instant from the time in days; 0 within it, infinite if there is no such time."""
        years = (at.year - 1, at.year, at.year + 1) if self.year is None else (self.year,)
        found = [interval for year in years if (interval := self.interval(year)) is not None]
        return min((_days_outside(at, *interval) for interval in found), default=float("inf"))


class Interval(NamedTuple):
    """A time by its beginning and its end, such as the last week."""

    begin: datetime
    end: datetime

    def days_from(self, at: datetime) -> float:
        """Return the distance of an instant from the time in days; 0 within it."""
        return _days_outside(at, self.begin, self.end)


Times = tuple[NamedTime | Interval, ...]


def named_times(query: str, now_ms: int) -> Times:
    """Return the times that a query names.

    Args:
        query: the query's text.
        now_ms: the time from which "last week" is counted, in ms since the epoch.

    Example:
        >>> named_times("Where did we go in March 2024?", 1_760_000_000_000)
        (NamedTime(year=2024, month=3, day=None),)
        >>> named_times("Was machten wir am 3. Mai?", 1_760_000_000_000)
        (NamedTime(year=None, month=5, day=3),)
        >>> named_times("March on, and may it rain!", 1_760_000_000_000)
        ()
    """
    text = unicodedata.normalize("NFKC", query).casefold()
    patterns = _patterns()
    # Most queries name no time, and looking for words of times takes a hundredth of the time of the patterns.
    if not _MAY_NAME.search(text) and patterns.words.isdisjoint(_WORD.findall(text)):
        return ()
    found: dict[NamedTime | Interval, None] = {}
    for pattern, read in patterns.readers:
        at, rest = 0, []
        for match in pattern.finditer(text):
            time = read(match, now_ms)
            if time is not None:
                found[time] = None
                rest.append(text[at : match.start()])
                at = match.end()
        # A part of a time that was read is not read again: "May 2024" is not the whole year.
        text = "\n".join([*rest, text[at:]])
    return tuple(found)


def named_days(text: str, now_ms: int, said: date) -> tuple[NamedTime, ...]:
    """Return the days that a text names, with or without a year.

    A day that is told by its distance, such as tomorrow or a weekday with a time of day, is read only in a text of the last
    weeks. The numbers of a day and a month are read only where a word or a time of day next to them tells that they are a date.

    Args:
        text: the text of a memory.
        now_ms: the present time in ms since the epoch; later years than the next one are no times.
        said: the day on which the text was said, from which "tomorrow" is counted.

    Example:
        >>> named_days("The rent is due on 1 December; we talked in May.", 1_760_000_000_000, date(2025, 10, 9))
        (NamedTime(year=None, month=12, day=1),)
        >>> named_days("turno el jueves 16/10 a las 15:30", 1_760_000_000_000, date(2025, 10, 9))
        (NamedTime(year=None, month=10, day=16),)
    """
    plain = _with_plain_digits(unicodedata.normalize("NFKC", text).casefold())
    days: dict[NamedTime, None] = {}
    if _DIGIT.search(plain):
        dated = (
            not _patterns().words.isdisjoint(_WORD.findall(plain))
            or _NUMERIC.search(plain)
            or _IN_UNSPACED.search(plain)
        )
        # Most memories name no day, and to find that out takes a hundredth of the time of reading times.
        times = named_times(text, now_ms) if dated else ()
        days.update((time, None) for time in times if isinstance(time, NamedTime) and time.day is not None)
        if _SLASHED.search(plain):
            days.update((day, None) for day in _numeric_days(plain, now_ms, said))
    if (EPOCH + timedelta(milliseconds=now_ms)).date() - said <= _RECENT:
        days.update(
            (NamedTime(day.year, day.month, day.day), None)
            for day in _days_from(plain, said, dated=bool(days))
        )
    return tuple(days)


def nearness(times: Times, at_ms: int) -> float:
    """Return how near an instant, in ms since the epoch, is to the nearest of some times: 1 within it, 0 from `NEAR_DAYS` on.

    Example:
        >>> nearness((NamedTime(2024, 3),), 1_710_000_000_000)
        1.0
        >>> nearness((NamedTime(2024, 3),), 1_700_000_000_000)
        0.0
    """
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        away = min((time.days_from(at) for time in times), default=float("inf"))
    except (ValueError, OverflowError, OSError):  # a year that the calendar does not have
        return 0.0
    return max(0.0, 1.0 - away / NEAR_DAYS)


def _days_outside(at: datetime, begin: datetime, end: datetime) -> float:
    if begin <= at < end:
        return 0.0
    return min(abs(at - begin), abs(at - end)) / timedelta(days=1)


_Read = Callable[[re.Match[str], int], NamedTime | Interval | None]


class _Patterns(NamedTuple):
    """Patterns of times with the functions that read a match, earlier ones first, and the words of one of which each has one."""

    readers: tuple[tuple[re.Pattern[str], _Read], ...]
    words: frozenset[str]


@cache
def _patterns() -> _Patterns:
    languages = time_names()
    months, unaccented = _months()
    phrases: dict[str, tuple[str, int]] = {}
    units: dict[str, str] = {}
    ago: list[str] = []
    for code, names in languages.items():
        for key, meaning in _PHRASES.items():
            phrases.update(dict.fromkeys((phrase.casefold() for phrase in names.get(key, ())), meaning))
        for line in names["units"]:
            form, _, unit = line.rpartition(" ")
            name = f"u{len(units)}"
            units[name] = unit
            pattern = names["ago"].format(r"(?P<n" + name + r">\d{1,3})", unit=rf"(?P<{name}>{form})")
            pattern = pattern.replace(" ", r"\s+" if code not in _WITHOUT_SPACES else r"\s*")
            ago.append(pattern if code in _WITHOUT_SPACES else rf"(?<!\w){pattern}(?!\w)")
    english = languages["en"]
    ambiguous, before = set(english["ambiguous"]), set(english["before"])

    def read_phrase(match: re.Match[str], now_ms: int) -> Interval:
        return _past(*phrases[re.sub(r"\s+", " ", match.group())], now_ms)

    def read_ago(match: re.Match[str], now_ms: int) -> Interval:
        name = next(name for name, form in match.groupdict().items() if form and name in units)
        return _past(units[name], int(match[f"n{name}"]), now_ms)

    def read_month(match: re.Match[str], now_ms: int) -> NamedTime | None:
        day, year = match["first"] or match["after"], match["year"]
        if match["month"] in unaccented and not match["first"]:
            return None
        if match["month"] in ambiguous and not day and not year:
            words = re.findall(r"\w+", match.string[: match.start()])
            if not words or words[-1] not in before:
                return None
        return _named(year, months[match["month"]], day, now_ms)

    spaced = [
        phrase for phrase in phrases if phrase[0].isascii() or unicodedata.name(phrase[0])[:3] not in _SCRIPTS
    ]
    unspaced = [phrase for phrase in phrases if phrase not in spaced]
    named = "|".join(sorted(map(re.escape, months), key=len, reverse=True))
    # The longest word of a phrase is the rarest.
    words = {max(_WORD.findall(one), key=len) for one in (*months, *spaced)}
    readers: tuple[tuple[re.Pattern[str], _Read], ...] = (
        (re.compile("|".join(ago)), read_ago),
        (re.compile(rf"(?<!\w)(?:{_any_of(spaced)})(?!\w)|{_any_of(unspaced)}"), read_phrase),
        (_NUMERIC, _read_numeric),
        (_IN_UNSPACED, _read_unspaced),
        (
            re.compile(
                rf"(?<![\w.])(?:(?P<first>\d{{1,2}})(?:\.|st|nd|rd|th|er|º|ª)?\s+(?:of\s+|de\s+|di\s+)?)?(?P<month>{named})(?!\w)"
                rf"(?:\s+(?P<after>\d{{1,2}})(?:st|nd|rd|th)?(?![\w:]))?(?:,?\s+(?:of\s+|del?\s+)?(?P<year>{_YEAR})(?!\w))?"
            ),
            read_month,
        ),
        (_ONLY_YEAR, lambda match, now_ms: _named(match["year"], None, None, now_ms)),
    )
    return _Patterns(readers, frozenset(words))


# A text that counts days from the one on which it was said tells of no coming day after so long.
_RECENT: Final = timedelta(days=15)
# Of two readings of the numbers of a day and a month, the one within this time after the text was said is meant.
_SOON: Final = timedelta(weeks=8)
# In so many characters before and after a day, words about it are looked for, and a time of day after the numbers of one.
_NEAR_BEFORE, _NEAR_CLOCK, _NEAR_AFTER = 14, 16, 24
_CLOCK: Final = re.compile(
    r"(?<![\d.,/:])\d{1,2}[:.]\d{2}(?!\d)|(?<![\d.,/:])\d{1,2}\s?(?:am\b|pm\b|a\.m|p\.m|h\b|uhr|час|時|时|點|点|시|बजे)"
    r"|(?:\bat|\bum|\bas|\bàs|\ba las|\bà|\balle|\bore|\bo|\bom|\bв|\bsaat|الساعة|الساعه)\s+\d{1,2}(?![\d.,/])"
    r"|(?<![\d.,/:])\d{1,2}['\u2019](?:d[ae]|t[ae])\b|\b(?:godz\.?|g\.)\s?\d{1,2}"
)
_WORD_ENDS: Final = r"(?![\w\u0900-\u0963])"
_UNITS: Final = r"(?!\s*(?:[%€$£¥₽₺°]|(?:eur|euro?s?|usd|dollars?|zł|zl|pln|tl|\u0440\u0443\u0431\w*|kg|g(?!\.)|km|m|cm|ml|l|h|uhr|cups?|tsp|tbsp|mio|million\w*)\b))"
_SLASHED: Final = re.compile(
    r"(?<![a-z0-9_.,/:$€£¥+-])(?P<first>\d{1,2})(?P<mark>[./])(?P<second>\d{1,2})(?:(?P=mark)(?P<year>(?:20)?\d\d))?"
    r"(?![a-z0-9_/%-]|[.,:]\d)" + _UNITS
)
# What is written behind a date without a space in Japanese, Chinese and Korean.
_PARTICLE: Final = re.compile(r"\s?(?:[にのはがへ]|まで|から|에|까지|부터|[号日])")
_LEADS: Final = re.compile(r"(?:[はがに]|까지|은|는|在|是|于)\s?$")
_EAST: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def _numeric_days(plain: str, now_ms: int, said: date) -> Iterator[NamedTime]:
    """Yield the days of pairs of numbers such as 3/12 and 3.12; in English and East Asian texts the month may be first."""
    near = _near()
    east = _EAST.search(plain) is not None
    english = not east and plain.isascii() and not _ONLY_ENGLISH.isdisjoint(_WORD.findall(plain))
    for found in _SLASHED.finditer(plain):
        before = plain[max(0, found.start() - _NEAR_BEFORE) : found.start()]
        after = plain[found.end() : found.end() + _NEAR_AFTER]
        slashed, year = found["mark"] == "/", found["year"]
        if not year and not (
            near.leads.search(before)
            or _CLOCK.search(after[:_NEAR_CLOCK])
            or near.weekday.search(after[:_NEAR_CLOCK])
            or (east and slashed and (_LEADS.search(before) or _PARTICLE.match(after)))
        ):
            continue
        if english and not slashed:  # a version or a price
            continue
        first, second = int(found["first"]), int(found["second"])
        if (first, second) == (24, 7):
            continue
        pairs = [(second, first)] if not slashed or not (east or english) else [(first, second)]
        if english and slashed:
            pairs.append((second, first))
        full = None if year is None else f"20{year[-2:]}"
        days = [day for month, number in pairs if (day := _named(full, month, str(number), now_ms))]
        soon = [day for day in days if any(said <= one <= said + _SOON for one in _dates(day, said))]
        if len(set(days)) == 1:
            yield days[0]
        elif soon:
            yield soon[0]


def _dates(day: NamedTime, said: date) -> list[date]:
    years = (said.year, said.year + 1) if day.year is None else (day.year,)
    return [interval[0].date() for year in years if (interval := day.interval(year)) is not None]


def _days_from(plain: str, said: date, *, dated: bool) -> Iterator[date]:
    """Yield the days that a text counts from the one on which it was said; no weekday if it has a date, too."""
    near = _near()
    for found in (one for pattern in near.relative(plain) for one in pattern.finditer(plain)):
        name = found.lastgroup or ""
        if name in _DISTANCES:
            yield said + timedelta(days=_DISTANCES[name])
            continue
        before = plain[max(0, found.start() - _NEAR_BEFORE) : found.start()]
        after = plain[found.end() : found.end() + _NEAR_AFTER]
        close = f"{before}\n{after[:_NEAR_BEFORE]}"
        if dated or near.apart.search(close):
            continue
        weekday = int(name[1:])
        if near.next_week.search(f"{before}\n{after}"):
            yield said + timedelta(days=7 + weekday - said.weekday())
        elif near.coming.search(close) or _CLOCK.search(after):
            yield said + timedelta(days=(weekday - said.weekday() - 1) % 7 + 1)


_DISTANCES: Final = {"day_after": 2, "tomorrow": 1}


class _Near(NamedTuple):
    """Patterns of days that are counted from the one on which a text was said, and of the words next to such days.

    The groups of ``spaced`` and ``dense`` are `_DISTANCES`, and ``w0`` to ``w6`` for the weekdays from Monday on.
    """

    spaced: re.Pattern[str]
    dense: re.Pattern[str]
    next_week: re.Pattern[str]
    coming: re.Pattern[str]
    apart: re.Pattern[str]
    leads: re.Pattern[str]
    weekday: re.Pattern[str]

    def relative(self, plain: str) -> tuple[re.Pattern[str], ...]:
        return (self.spaced, self.dense) if _EAST.search(plain) else (self.spaced,)


# Function words of English that hardly another of the languages has.
_ONLY_ENGLISH: Final = frozenset(
    ["and", "at", "are", "been", "before", "by", "for", "from", "have", "his", "i", "into", "it", "its", "my", "on", "our", "she", "should", "the",
     "their", "they", "this", "to", "until", "we", "will", "with", "your"]
)  # fmt: skip


@cache
def _near() -> _Near:
    spaced, dense = [
        {
            key: "|".join(typed(pattern) for names in languages if (pattern := names.get(key)))
            for key in (
                *_DISTANCES,
                *(f"w{number}" for number in range(7)),
                "next_week",
                "coming",
                "apart",
                "before_days",
            )
        }
        for languages in (
            [
                names | {f"w{number}": one for number, one in enumerate(names["weekdays"])}
                for code, names in time_names().items()
                if (code in _WITHOUT_SPACES) is unspaced
            ]
            for unspaced in (False, True)
        )
    ]

    def of_both(*keys: str) -> str:
        return "|".join(
            [
                rf"(?<!\w)(?:{'|'.join(spaced[key] for key in keys)}){_WORD_ENDS}",
                *(dense[key] for key in keys if dense[key]),
            ]
        )

    weekdays = [f"w{number}" for number in range(7)]
    days = [*_DISTANCES, *weekdays]
    return _Near(
        spaced=re.compile(rf"(?<!\w)(?:{'|'.join(f'(?P<{key}>{spaced[key]})' for key in days)}){_WORD_ENDS}"),
        dense=re.compile("|".join(f"(?P<{key}>{dense[key]})" for key in days)),
        next_week=re.compile(of_both("next_week")),
        coming=re.compile(of_both("coming")),
        apart=re.compile(of_both("apart")),
        leads=re.compile(rf"(?:{of_both(*weekdays, 'before_days')})[ ,.]{{0,2}}$"),
        weekday=re.compile(of_both(*weekdays)),
    )


def _months() -> tuple[dict[str, int], set[str]]:
    """Return the number of each form of a month, and the forms that only lack accents.

    Those may be other words, such as the name Marco, so they count only after the number of a day.
    """
    months = {
        form: number
        for names in time_names().values()
        for number, forms in enumerate(names.get("months", ()), 1)
        for form in forms.casefold().split()
    }
    unaccented = {
        plain: number for month, number in months.items() if (plain := without_accents(month)) not in months
    }
    return months | unaccented, set(unaccented)


# The beginnings of the Unicode names of the characters of scripts without spaces between words, and of Korean.
_SCRIPTS: Final = frozenset({"CJK", "HIR", "KAT", "HAN"})


def _any_of(phrases: Sequence[str]) -> str:
    return "|".join(re.escape(one).replace(r"\ ", r"\s+") for one in sorted(phrases, key=len, reverse=True))


def _read_numeric(match: re.Match[str], now_ms: int) -> NamedTime | None:
    return _named(
        match["year"] or match["year_last"],
        int(match["month"] or match["month_second"]),
        match["day"] or match["day_first"],
        now_ms,
    )


def _read_unspaced(match: re.Match[str], now_ms: int) -> NamedTime | None:
    month = match["month"]
    return _named(match["year"], _HAN_MONTHS.get(month) or int(month), match["day"], now_ms)


def _named(year: str | None, month: int | None, day: str | None, now_ms: int) -> NamedTime | None:
    """Return a time; None for a number that is no month or day, or for a year that no memory can be of."""
    latest = datetime.fromtimestamp(now_ms / 1000, UTC).year + 1
    if year is not None and not _FIRST_YEAR <= int(year) <= latest:
        return None
    if (month is not None and not 1 <= month <= 12) or (day is not None and not 1 <= int(day) <= 31):
        return None
    return NamedTime(int(year) if year else None, month, int(day) if day else None)


def _past(unit: str, count: int, now_ms: int) -> Interval:
    """Return the day, calendar week, month or year that lies ``count`` of them back."""
    today = datetime.fromtimestamp(now_ms // DAY_MS * DAY_MS / 1000, UTC)
    match unit:
        case "day":
            begin, end = today - timedelta(days=count), today - timedelta(days=count - 1)
        case "week":
            monday = today - timedelta(days=today.weekday())
            begin, end = monday - timedelta(weeks=count), monday - timedelta(weeks=count - 1)
        case "month":
            begin, end = _months_before(today, count), _months_before(today, count - 1)
        case _:
            begin = datetime(max(today.year - count, _FIRST_YEAR), 1, 1, tzinfo=UTC)
            end = datetime(max(today.year - count, _FIRST_YEAR) + 1, 1, 1, tzinfo=UTC)
    return Interval(begin, end)


def _months_before(day: datetime, count: int) -> datetime:
    months = day.year * 12 + day.month - 1 - count
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
