# ruff: noqa: RUF001 - fifteen languages are the point
"""Numbered things, told one after the other: every line of a series is true, and none of them disappears behind the next.

All of it is said to a plugin at default settings, and looked for in listings.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_site import PluginSite, say

# By language: a series with a value for each number, and one in which every number has the same value.
SERIES = {
    "en": ("Locker {n} belongs to employee {v}", "Sensor {n} was replaced in March"),
    "de": ("Der Spind {n} gehört dem Mitarbeiter {v}", "Anlage {n} wurde im März gewartet"),
    "fr": ("Le casier {n} appartient au numéro {v}", "La pompe {n} a été révisée en mars"),
    "es": ("La taquilla {n} es del empleado {v}", "La bomba {n} se revisó en marzo"),
    "it": ("L'armadietto {n} è del dipendente {v}", "La pompa {n} è stata revisionata a marzo"),
    "pt": ("O armário {n} é do funcionário {v}", "A bomba {n} foi revista em março"),
    "nl": ("Kluisje {n} is van medewerker {v}", "Pomp {n} is in maart nagekeken"),
    "pl": ("Szafka {n} należy do pracownika {v}", "Pompa {n} była sprawdzana w marcu"),
    "ru": ("Шкафчик {n} принадлежит сотруднику {v}", "Насос {n} проверяли в марте"),
    "tr": ("{n} numaralı dolap {v} numaralı çalışanın", "{n} numaralı pompa martta onarıldı"),
    "ar": ("الحافلة {n} تقف عند المحطة {v}", "المضخة {n} فُحصت في مارس"),
    "hi": ("लॉकर {n} कर्मचारी {v} का है", "पंप {n} मार्च में ठीक हुआ"),
    "zh": ("{n}号柜子是{v}号员工的", "{n}号泵三月修过"),
    "ja": ("{n}番のロッカーは社員{v}のものです", "{n}号機は三月に点検した"),
    "ko": ("{n}번 사물함은 직원 {v}의 것입니다", "{n}번 펌프는 3월에 점검했다"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("language", SERIES)
def test_every_line_of_a_series_is_kept(language, shared_relayer: str, secret: str, tmp_path: Path):
    with_values, with_one_value = SERIES[language]
    said = [with_values.format(n=number, v=31 * number) for number in range(2, 6)]
    said += [with_one_value.format(n=number) for number in range(2, 5)]
    assert_all_are_kept(said, shared_relayer, secret, tmp_path)


def test_every_ship_keeps_its_berth(shared_relayer: str, secret: str, tmp_path: Path):
    text = "Berth {n} of the harbour belongs to the ship number {v}"
    said = [text.format(n=number, v=7919 * number) for number in range(8, 18)]
    assert_all_are_kept(said, shared_relayer, secret, tmp_path)


def assert_all_are_kept(said: list[str], relayer: str, secret: str, folder: Path) -> None:
    """Say each text in a chat of its own; every one of them is listed then."""
    with PluginSite(folder, relayer, secret) as site:
        plugin = site.plugin()
        for number, text in enumerate(said):
            assert say(plugin, text, key=f"agent:main:chat-{number}", answer="").queued == 1
        assert sorted(site.texts()) == sorted(said)
