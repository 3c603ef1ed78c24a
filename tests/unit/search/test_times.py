# ruff: noqa: RUF001 - fifteen languages are the point
from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.search.terms import NEAR_DAYS, Interval, NamedTime, named_days, named_times, nearness

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


SAID = date(2026, 11, 30)  # a Monday


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (date(2026, 12, 3), "w czwartek 3.12 o 16:20"),
        (date(2026, 12, 3), "turno el jueves 3/12 a las 15:30"),
        (date(2026, 12, 3), "donderdag 3/12 om 15u"),
        (date(2026, 12, 3), "jeudi 3/12 à 15h"),
        (date(2026, 12, 3), "गुरुवार 3/12"),
        (date(2026, 12, 3), "يوم الخميس ٣/١٢ الساعة ٧"),
        (date(2026, 12, 3), "歯医者は12/3の15時"),
        (date(2026, 12, 3), "appointment on 12/3"),
        (date(2026, 12, 3), "dentist this thursday at 3pm"),
        (date(2026, 12, 3), "cita el jueves que viene"),
        (date(2026, 12, 3), "в четверг в 16:20 врач"),
        (date(2026, 12, 3), "giovedi alle 15 dentista"),
        (date(2026, 12, 3), "3/12/26 passport appointment"),
        (date(2026, 12, 1), "yarın 9'da dişçi var"),
        (date(2026, 12, 1), "yarin 9'da disci var"),
        (date(2026, 12, 1), "dentist tomorrow at 9"),
        (date(2026, 12, 1), "Zahnarzt morgen um 9"),
        (date(2026, 12, 1), "turno mañana a las 9"),
        (date(2026, 12, 1), "rendez-vous demain à 9h"),
        (date(2026, 12, 1), "dentista domani alle 9"),
        (date(2026, 12, 1), "dentista amanhã às 9"),
        (date(2026, 12, 1), "tandarts morgen om 9"),
        (date(2026, 12, 1), "jutro o 9 dentysta"),
        (date(2026, 12, 1), "завтра в 9 стоматолог"),
        (date(2026, 12, 1), "بكرة الساعة ٧ معاد الدكتور"),
        (date(2026, 12, 1), "कल सुबह 9 बजे डॉक्टर है"),
        (date(2026, 12, 1), "明天9点看牙"),
        (date(2026, 12, 1), "明日10時に面接"),
        (date(2026, 12, 1), "내일 9시 치과"),
        (date(2026, 12, 1), "terça às 15h dentista"),
        (date(2026, 12, 2), "Zahnarzt übermorgen"),
        (date(2026, 12, 2), "pasado mañana a las 9"),
        (date(2026, 12, 2), "后天体检"),
        (date(2026, 12, 9), "下周三15点看牙"),
        (date(2026, 12, 9), "다음 주 수요일 3시 치과"),
        (date(2026, 12, 9), "来週の水曜15時に歯医者"),
        (date(2026, 12, 9), "turno el martes 9/12 a las 15"),
        (date(2026, 12, 12), "dogum gunu 12 aralik"),
        (date(2026, 12, 12), "cena 12/12 w sobote"),
        (date(2026, 12, 12), "randevu 12.12 11:00"),
        (date(2026, 12, 15), "締切は12/15"),
        (date(2026, 12, 20), "salimos el 20/12 a la noche"),
    ],
)
def test_a_coming_day_is_read_as_people_write_it(day: date, text: str) -> None:
    (found,) = named_days(text, ms(datetime(2026, 11, 30, 9, tzinfo=UTC)), SAID)
    assert found in (NamedTime(None, day.month, day.day), NamedTime(day.year, day.month, day.day))


@pytest.mark.parametrize(
    "text",
    [
        "add 3/4 cup of flour at 15:00",
        "open 24/7",
        "on 24/7 support",
        "1/2 a tablet in the morning",
        "python 3.12 and node 20.10",
        "runs on 3.12",
        "tem 12/8 de pressão",
        "the beer costs 3.12 €",
        "kosztuje 3.12 zł o 9:00",
        "juego al padel los lunes a las 15",
        "every monday at 9",
        "on mondays at 9",
        "last thursday at 3pm",
        "el jueves pasado a las 15",
        "w każdy czwartek o 16:20",
        "毎週水曜15時にピアノ",
        "先週の水曜15時",
        "me despierto por la mañana a las 7",
        "am morgen um 9 joggt er",
        "jeden morgen um 9",
        "what did marco do",
        "Marco 12 years old",
        "कल मैं डॉक्टर के पास गया था",
        "I rate it 8/10",
        "the score was 4/5",
        "明日香は友達",
        "8/10 people at 9:30",
        "bmi 23.5, weight 70.5 kg",
        "iphone 12.4 at 3pm",
        "cut the price by 1/2",
    ],
)
def test_what_is_no_coming_day_is_not_read(text: str) -> None:
    assert named_days(text, ms(datetime(2026, 11, 30, 9, tzinfo=UTC)), SAID) == ()


def test_tomorrow_is_not_read_in_an_old_text() -> None:
    assert named_days("dentist tomorrow at 9", ms(datetime(2027, 3, 1, tzinfo=UTC)), SAID) == ()


@given(st.text(max_size=60), st.dates())
def test_no_text_and_no_day_break_the_reading_of_days(text: str, said: date) -> None:
    named_days(text, ms(NOW), said)


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
