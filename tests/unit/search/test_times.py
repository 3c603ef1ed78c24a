# ruff: noqa: RUF001 - fifteen languages are the point
from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.search.terms import NEAR_DAYS, Interval, NamedTime, named_times, nearness

NOW = datetime(2026, 9, 21, 13, 30, tzinfo=UTC)  # a Monday
MARCH = NamedTime(month=3)


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def times(query: str) -> list[NamedTime | Interval]:
    return list(named_times(query, ms(NOW)))


@pytest.mark.parametrize(
    "query",
    [
        "What did we decide in March?", "mid-March", "Was war im März?", "¿Qué pasó en marzo?", "Qu'avons-nous fait en mars ?",
        "Cosa è successo a marzo?", "O que fizemos em março?", "Wat deden we in maart?", "Co robiliśmy w marcu?",
        "Что было в марте?", "Martta ne yaptık?", "ماذا فعلنا في مارس؟", "मार्च में क्या हुआ?", "我们在3月做了什么？",
        "三月份我们去了哪里？", "3月に何をした？", "3월에 뭐 했어?",
    ],
)  # fmt: skip
def test_a_month_is_read_in_fifteen_languages(query: str) -> None:
    assert times(query) == [MARCH]


@pytest.mark.parametrize(
    ("query", "time"),
    [
        ("on March 14", NamedTime(month=3, day=14)),
        ("the 14th of March 2025", NamedTime(2025, 3, 14)),
        ("am 14. März 2025", NamedTime(2025, 3, 14)),
        ("el 14 de marzo de 2025", NamedTime(2025, 3, 14)),
        ("2025-03-14", NamedTime(2025, 3, 14)),
        ("14.3.2025", NamedTime(2025, 3, 14)),
        ("2025年3月14日", NamedTime(2025, 3, 14)),
        ("2025년 3월 14일", NamedTime(2025, 3, 14)),
        ("in May 2025", NamedTime(2025, 5)),
        ("what happened in 2025?", NamedTime(2025)),
    ],
)
def test_days_and_years_are_read(query: str, time: NamedTime) -> None:
    assert times(query) == [time]


@pytest.mark.parametrize(
    ("queries", "begin", "days"),
    [
        (("yesterday", "gestern", "ayer", "hier", "вчера", "昨天", "昨日", "어제"), datetime(2026, 9, 20, tzinfo=UTC), 1),
        (("3 days ago", "vor 3 Tagen", "hace 3 días", "3天前", "3日前", "3일 전"), datetime(2026, 9, 18, tzinfo=UTC), 1),
        (("last week", "letzte Woche", "la semaine dernière", "上周", "先週", "지난주", "geçen hafta"), datetime(2026, 9, 14, tzinfo=UTC), 7),
        (("last month", "letzten Monat", "в прошлом месяце", "上个月", "الشهر الماضي"), datetime(2026, 8, 1, tzinfo=UTC), 31),
        (("last year", "voriges Jahr", "去年", "w zeszłym roku"), datetime(2025, 1, 1, tzinfo=UTC), 365),
    ],
)  # fmt: skip
def test_phrases_of_past_times_are_counted_from_now(
    queries: tuple[str, ...], begin: datetime, days: int
) -> None:
    for query in queries:
        assert times(f"{query}?") == [Interval(begin, begin + timedelta(days=days))]


@pytest.mark.parametrize(
    "query",
    [
        "May I ask who owns the billing code?", "march on", "The server listens on port 2024-x.", "version 1.2024.3",
        "room 214", "It takes 7時間", "postgres:2024", "in 1066", "month", "Der Maibaum", "The 45th of March madness", "",
    ],
)  # fmt: skip
def test_what_names_no_time_is_not_read(query: str) -> None:
    assert times(query) == []


def test_a_memory_of_the_time_is_nearest_and_one_of_another_month_is_not_near() -> None:
    inside, outside = datetime(2025, 3, 31, 23, tzinfo=UTC), datetime(2025, 4, 20, tzinfo=UTC)
    assert nearness((MARCH,), ms(inside)) == 1.0
    assert nearness((MARCH,), ms(outside)) == 0.0
    assert 0 < nearness((MARCH,), ms(datetime(2025, 4, 2, tzinfo=UTC))) < 1
    assert nearness((NamedTime(2024, 3),), ms(inside)) == 0.0
    assert nearness((NamedTime(2024, 3), MARCH), ms(inside)) == 1.0


@given(st.text(max_size=60), st.integers(-(2**53), 2**53))
def test_no_text_and_no_instant_raise(query: str, at: int) -> None:
    assert 0.0 <= nearness(named_times(query, ms(NOW)), at) <= 1.0


@given(st.dates(date(1971, 1, 8), date(2026, 12, 20)), st.floats(0.1, 30))
def test_nearness_falls_with_the_days_between(day: date, away: float) -> None:
    named = (NamedTime(day.year, day.month, day.day),)
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert nearness(named, ms(begin)) == 1.0
    found = nearness(named, ms(begin - timedelta(days=away)))
    assert found == pytest.approx(max(0.0, 1 - away / NEAR_DAYS), abs=1e-6)
