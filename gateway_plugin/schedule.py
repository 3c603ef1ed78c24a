"""When something is due by itself: the five fields of a cron line, in this machine's own time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

_RANGES: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
# No day of a calendar is further away: 29 February of a leap year, over a century that is none.
_DAYS_AHEAD: Final = 366 * 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a cron line says; a day counts that fits the day of the month or the weekday, where both are named.

    Attributes:
        minutes: of an hour, ascending.
        hours: of a day, ascending.
        days: of a month, from 1 on.
        months: from 1 on.
        weekdays: Sunday is 0.
        either: both kinds of days are named, and one of them is enough.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    def parse(cls, line: str) -> Schedule:
        """Read ``minute hour day month weekday``: numbers, ``*``, ``1,3``, ``1-5``, ``*/15``, ``1-31/2``.

        Raises:
            ValueError: it is none, or fits no day; the message names the field.
        """
        fields = line.split()
        if len(fields) != len(_RANGES):
            raise ValueError("a schedule has five fields, such as 0 3 * * * (every night at three)")
        minutes, hours, days, months, weekdays = (
            _numbers(text, *known) for text, known in zip(fields, _RANGES, strict=True)
        )
        either = not (fields[2].startswith("*") or fields[4].startswith("*"))
        found = cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            days,
            months,
            frozenset(day % 7 for day in weekdays),
            either,
        )
        if not any(found._fits(date(2024, 1, 1) + timedelta(days=ahead)) for ahead in range(366)):
            raise ValueError("a schedule must fit some day of a year")
        return found

    def after(self, moment: float) -> float:
        """Return the first time that fits behind a moment; both in seconds since the epoch."""
        local = datetime.fromtimestamp(moment, UTC).astimezone().replace(tzinfo=None)
        for ahead in range(_DAYS_AHEAD):
            day = local.date() + timedelta(days=ahead)
            if not self._fits(day):
                continue
            for hour in self.hours:
                for minute in self.minutes:
                    # A time that a clock skips is the one that it shows instead; one that it shows twice counts once.
                    at = datetime(day.year, day.month, day.day, hour, minute).astimezone().timestamp()
                    if at > moment:
                        return at
        raise AssertionError("a schedule that was parsed fits some day")

    def _fits(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and ((of_month or of_week) if self.either else (of_month and of_week))


def _numbers(text: str, name: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{least}-{most}" if span == "*" else span).partition("-")
        numbers = (first, last or (str(most) if step else first), step or "1")
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise ValueError(f"the schedule's {name} is made of numbers, * , - and /")
        begin, end, every = map(int, numbers)
        if not (least <= begin <= end <= most and every):
            raise ValueError(f"the schedule's {name} is from {least} to {most}")
        found.update(range(begin, end + 1, every))
    return frozenset(found)
