"""The times that a query names, such as "in March" or "last week", and how near a memory is to them.

`named_times` reads months, days, years and phrases of past times in fifteen languages from the names in ``data/times.toml``, and
`named_days` reads only the days, by which a memory tells what is coming. A time never filters: `TIME_WEIGHT` times the `nearness` of a memory is added to its score, because people err about times, and
because a memory may tell of another time than the one at which it was said. All times are in UTC.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

TIME_WEIGHT: Final = 0.2
"""Addition to the score of a memory of a time that the query names, in units of cosine; see docs/adr/0037."""
NEAR_DAYS: Final = 5.0
"""The number of days before or after a time at which a memory is no longer near it."""

_DAY_MS: Final = 86_400_000
_FIRST_YEAR: Final = 1970
_UNSPACED: Final = frozenset({"zh", "ja", "ko"})
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


def named_days(text: str, now_ms: int) -> tuple[NamedTime, ...]:
    """Return the days of a month that a text names, with or without a year.

    Args:
        text: the text of a memory.
        now_ms: the present time in ms since the epoch; later years than the next one are no times.

    Example:
        >>> named_days("The rent is due on 1 December; we talked in May.", 1_760_000_000_000)
        (NamedTime(year=None, month=12, day=1),)
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    dated = _DIGIT.search(plain) and (
        not _patterns().words.isdisjoint(_WORD.findall(plain))
        or _NUMERIC.search(plain)
        or _IN_UNSPACED.search(plain)
    )
    # Most memories name no day, and to find that out takes a hundredth of the time of reading times.
    times = named_times(text, now_ms) if dated else ()
    return tuple(time for time in times if isinstance(time, NamedTime) and time.day is not None)


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
    languages: dict[str, Any] = tomllib.loads(
        (files("relayer.search") / "data" / "times.toml").read_text("utf-8")
    )
    months: dict[str, int] = {}
    phrases: dict[str, tuple[str, int]] = {}
    units: dict[str, str] = {}
    ago: list[str] = []
    for code, names in languages.items():
        for number, forms in enumerate(names.get("months", ()), 1):
            months.update(dict.fromkeys(forms.casefold().split(), number))
        for key, meaning in _PHRASES.items():
            phrases.update(dict.fromkeys((phrase.casefold() for phrase in names.get(key, ())), meaning))
        for line in names["units"]:
            form, _, unit = line.rpartition(" ")
            name = f"u{len(units)}"
            units[name] = unit
            pattern = names["ago"].format(r"(?P<n" + name + r">\d{1,3})", unit=rf"(?P<{name}>{form})")
            pattern = pattern.replace(" ", r"\s+" if code not in _UNSPACED else r"\s*")
            ago.append(pattern if code in _UNSPACED else rf"(?<!\w){pattern}(?!\w)")
    english = languages["en"]
    ambiguous, before = set(english["ambiguous"]), set(english["before"])

    def read_phrase(match: re.Match[str], now_ms: int) -> Interval:
        return _past(*phrases[re.sub(r"\s+", " ", match.group())], now_ms)

    def read_ago(match: re.Match[str], now_ms: int) -> Interval:
        name = next(name for name, form in match.groupdict().items() if form and name in units)
        return _past(units[name], int(match[f"n{name}"]), now_ms)

    def read_month(match: re.Match[str], now_ms: int) -> NamedTime | None:
        day, year = match["first"] or match["after"], match["year"]
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
    today = datetime.fromtimestamp(now_ms // _DAY_MS * _DAY_MS / 1000, UTC)
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
