"""A rule or a procedure is told from a fact in fifteen languages, and its words are compared by their stems."""

from __future__ import annotations

import pytest

from gateway_plugin.text.word_lists import is_procedure, tokens_of


@pytest.mark.parametrize(
    ("rule", "fact"),
    [
        ("Before every release, run the smoke tests.", "The release is called heron."),
        ("Vor jedem Release die Tests laufen lassen.", "Ich wohne in Kiel."),
        ("Avant chaque mise en production, lance les tests.", "J'habite à Lyon."),
        ("Antes de cada lanzamiento hay que ejecutar las pruebas.", "Vivo en Sevilla."),
        ("Prima di ogni rilascio esegui sempre i test.", "Abito a Torino."),
        ("Antes de cada lançamento, executa sempre os testes.", "Moro em Lisboa."),
        ("Voer voor elke release altijd de tests uit.", "Ik woon in Gent."),
        ("Przed każdym wydaniem zawsze uruchom testy.", "Mieszkam w Łodzi."),
        ("Her sürümden önce testleri dene.", "İzmir'de oturuyorum."),
        ("Перед каждым релизом сначала запускай тесты.", "Я живу в Казани."),
        ("شغّل الاختبارات دائما قبل كل إصدار.", "أسكن في عمان."),
        ("हर रिलीज़ से पहले हमेशा टेस्ट चलाओ।", "मैं पुणे में रहता हूँ।"),
        ("リリース前に必ずテストを実行してください。", "大阪に住んでいます。"),
        ("릴리스 전에 반드시 테스트를 실행하세요.", "저는 부산에 살아요."),
        ("每次发布之前一定要先跑测试。", "我住在成都。"),
    ],
)
def test_a_rule_is_told_from_a_fact(rule: str, fact: str) -> None:
    assert (is_procedure(rule), is_procedure(fact)) == (True, False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("release", "releases"),
        ("deploying", "deploys"),
        ("Rechnung", "Rechnungen"),
        ("релиза", "релизом"),
        ("冒烟", "冒烟"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert [token.stem for token in tokens_of(one)] == [token.stem for token in tokens_of(other)] != []


def test_common_words_and_numbers_tell_nothing() -> None:
    assert tokens_of("Always do this first, and never before 10 of these, immer zuerst, sempre.") == []
