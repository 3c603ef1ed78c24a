# ruff: noqa: RUF001 - fifteen languages are the point
"""What is said to stay as it is ends nothing, and what is said of today is no rule."""

from __future__ import annotations

import pytest

from relayer.extraction.requests import is_for_today
from relayer.writing.merging import without_unchanged


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("standup moved to 11, retro stays", "standup moved to 11,"),
        ("piano is thursdays now, football hasn't changed", "piano is thursdays now,"),
        ("schwimmen ist jetzt mittwochs, gleiche uhrzeit. flöte bleibt", "schwimmen ist jetzt mittwochs,"),
        ("he dejado Torras, ahora me lo trae Cartolina Sur, mismo dia de pedido", "he dejado Torras, ahora me lo trae Cartolina Sur,"),
        ("la danse passe au lundi, le yoga ne change pas", "la danse passe au lundi,"),
        ("高数换到五教110了,英语没变", "高数换到五教110了,"),
        ("ヨガはそのまま", ""),
        ("Мы переехали, школа та же", "Мы переехали,"),
    ],
)  # fmt: skip
def test_clauses_that_say_that_something_stays_are_left_out(said, rest):
    assert without_unchanged(said) == rest


@pytest.mark.parametrize(
    "said",
    [
        "it's not the same anymore", "Mia stays with dad now", "same day at nine", "Tom bleibt nicht in Ulm", "alles bleibt außer Flöte",
        "wir ziehen gleich um", "ahora mismo vivo en Bilbao", "ana ya no sigue allí", "il n'a pas d'allergie", "je ne fume même plus",
        "офис не остаётся", "это жена Пети", "أدرس علم النفس الآن", "अब हम वहीं रहते हैं", "Ayşe artık bizde kalıyor", "夫と同じ会社に転職した",
        "같은 회사로 이직했어", "时间不一样了",
    ],
)  # fmt: skip
def test_a_change_is_not_taken_for_what_stays(said):
    assert without_unchanged(said) == said


def test_a_wish_for_today_is_told_from_one_from_today_on():
    for said in ("keep answers short today", "bitte heute nur kurz", "今天回答简单点", "hoy responde corto", "сегодня отвечай коротко"):  # fmt: skip
        assert is_for_today(said)
    for said in ("From today on, answer in German", "Ab heute bitte kurz", "A partir de hoy corto", "今日から短く", "Always start with today's date"):  # fmt: skip
        assert not is_for_today(said)
