"""Wishes not to be reminded are recognised in fifteen languages, similar sentences are not, and "her" is who was named before."""

from __future__ import annotations

import json

import pytest

from bench import wishes
from relayer.extraction.statements import ConversationTurn, StatementExtractor
from relayer.extraction.wishes import LONGEST, is_wish, subject_of, wish_in
from relayer.lib.n_grams import LANGUAGES
from relayer.wire.fields import Kind, Role


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("held", [False, True])
def test_most_wishes_of_each_language_are_recognised_and_few_similar_sentences(lang, held):
    said = [text for one, text in wishes.written("hush", held=held) if one == lang]
    other = [text for one, text in wishes.written("other", held=held) if one == lang]
    assert len(said) == len(other) == 8
    assert sum(map(wishes.has_wish, said)) >= 7
    assert sum(map(wishes.has_wish, other)) <= 1


def test_at_most_one_of_a_hundred_ordinary_sentences_is_taken_for_a_wish():
    lines = (wishes.SETS / "ordinary_speech.jsonl").read_text("utf-8").splitlines()
    said = [json.loads(line)["text"] for line in lines] + [text for _, text in wishes.ordinary()[::10]]
    assert sum(map(wishes.has_wish, said)) <= len(said) / 100


@pytest.mark.parametrize(
    "sentence",
    [
        "remind me to call her",
        "don't mention it",
        "he never mentions his father",
        "please don't mention prices in the mail to Bob",
        'she wrote "please never mention my father"',
        "",
        "please don't mention her " + "and then we went on and on " * 20,
    ],
)
def test_other_sentences_are_no_wish(sentence):
    assert not is_wish(sentence)
    assert wish_in(sentence) == ()


@pytest.mark.parametrize(
    ("wish", "before", "words"),
    [
        ("please dont mention her", "Leyla and me broke up.", ("leyla",)),
        ("Please don\u2019t mention her!", "My sister died last week.", ("sister",)),
        ("please never bring up my father", "Ben called.", ("father",)),
        ("don't remind me of the accident", "", ("accident",)),
        ("erwähn sie bitte nicht mehr", "Leyla und ich haben uns getrennt.", ("leyla",)),
        ("bitte sprich nie wieder von meinem Vater", "", ("vater",)),
        ("Bitte erwähne den Geburtstag meiner Mutter nicht mehr.", "", ("geburtstag mutter",)),
        ("stop talking about the father of the baby", "", ("father baby",)),
        ("no lo saques más a relucir", "Tobías me dejó.", ("tobías",)),
        ("plus un mot sur mamie s'il te plaît", "", ("mamie",)),
        ("не упоминай её", "Мы \u0441 Лейлой расстались.", ("лейлой",)),
        ("请别再提她", "我和丽拉分手了。", ("丽拉",)),
        ("事故のことを思い出させないで", "", ("事故",)),
        ("재판 얘기는 이제 절대 하지 말자", "", ("재판",)),
        ("لا تذكرني بالحادث", "", ("حادث",)),
        ("मुझे दुर्घटना की याद मत दिलाओ", "", ("दुर्घटना",)),
        ("please dont mention him", "", ()),
        ("Please never mention Emil\u2019s accident again", "", ("emil accident",)),
        ("Please never mention the accident of Emil again", "", ("accident emil",)),
        ("please don't mention Emil's accident or Leyla", "", ("emil accident", "leyla")),
        ("Bitte erwähne den Unfall von Emil nie wieder.", "", ("unfall emil",)),
        ("Por favor, no me hables nunca más del accidente de Emil.", "", ("accidente emil",)),
        ("S'il te plaît, ne me parle plus jamais de l'accident d'Emil.", "", ("accident emil",)),
        ("Per favore, non parlarmi mai più dell'incidente di Emil.", "", ("incidente emil",)),
        ("Por favor, não fale mais do acidente do Emil", "", ("acidente emil",)),
        ("Praat alsjeblieft nooit meer over Emil's ongeluk", "", ("emil ongeluk",)),
        ("proszę nie wspominaj nigdy o wypadku Emila", "", ("wypadku emila",)),
        ("Пожалуйста, не упоминай больше аварию Эмиля", "", ("аварию эмиля",)),
        ("lütfen Emil'in kazas\u0131ndan bir daha bahsetme", "", ("emil kazas\u0131ndan",)),
        ("请别再提埃米尔的事故", "", ("埃米尔 事故",)),
        ("エミールの事故の話はもうしないで", "", ("エミール 事故",)),
        ("에밀의 사고 얘기는 이제 절대 하지 말자", "", ("에밀 사고",)),
        ("لا تذكرني بحادث إميل", "", ("بحادث إميل",)),
        ("मुझे एमिल की दुर्घटना की याद मत दिलाओ", "", ("एमिल दुर्घटना",)),
        ("please never mention my friend Leyla", "", ("leyla",)),
        ("no more memories of Leyla please, don't mention her", "", ("leyla",)),
        ("proszę nie wspominaj o mojej siostrze Leyli", "", ("leyli",)),
        ("не упоминай мою сестру Лейлу", "", ("лейлу",)),
        ("please dont mention her", "Leyla's birthday was great.", ("leyla",)),
    ],
)
def test_a_wish_is_about_what_it_names_or_else_what_was_named_before(wish, before, words):
    assert is_wish(wish)
    assert subject_of(wish, before) == words
    assert wish_in(wish, before) == words


def test_a_wish_is_kept_whatever_else_would_be_said_of_it():
    turn = ConversationTurn(Role.USER, "What a day. please dont mention her. Thanks!")
    (found,) = [one for one in StatementExtractor().extract([turn]) if one.wish]
    assert "dont mention her" in found.text
    assert found.kind is Kind.PREFERENCE


def test_an_assistant_has_no_such_wishes():
    turn = ConversationTurn(Role.ASSISTANT, "The result is 12. Please don't mention Leyla any more.")
    assert not any(one.wish for one in StatementExtractor().extract([turn]))


def test_a_text_of_any_length_is_read_in_time():
    assert wish_in("don't " * 100_000) == ()
    assert not is_wish("a" * (LONGEST + 1))
