"""Which days a passage speaks of, worked out from its own words and the message's own day, without a model.

The model resolves "yesterday" too, but its answer counts only if this module arrives at the same days. Numbers decide
in any language ("3.5.2026", "2026年5月3日"); words are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

__all__ = ["MONTH_NAMES", "said_of"]

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
_DIGITS = re.compile(r"\d+")

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
        day is not None and any(_meet(span, other) for other in _spoken(lowered, day.date()))
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
    """Whether every part of the date stands in the passage, the year perhaps only in the message's own date."""
    numbers = {int(digits) for digits in _DIGITS.findall(passage)}
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


def _meet(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
