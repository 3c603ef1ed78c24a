"""The form of a statement tells whether it begins with another person, in fifteen languages."""

from __future__ import annotations

import pytest

from relayer.extraction.persons import other_person

OTHERS = [
    "My aunt Ingrid lives in Bergen with her partner Ole.", "Ben lives in Glasgow and is an anaesthetist.", "ma belle-sœur est infirmière à Nantes",
    "Maya is allergic to cashews, Leo is scared of dogs.", "Mum comes too, she's vegetarian.",
    "By the way, my son has asthma.", "Meine Tante Ingrid wohnt in Bergen.", "Ronja isst vegan.", "Mi hija es alérgica a las nueces.",
    "Ma fille est allergique aux noix.", "Mia moglie non può mangiare gamberi.", "O meu filho tem asma.", "Mijn zoon heeft astma.",
    "Moja siostra jest uczulona na orzechy.", "\u0423 дочки аллергия на орехи.", "Kar\u0131m uçmay\u0131 sevmez.",
    "ابني مصاب بالربو، ممنوع التدخين قربه", "मेरी बेटी को मेवों से एलर्जी है।", "我女儿对坚果过敏。", "妻は甲殻類が食べられません。",
    "아내는 해산물을 못 먹어요.", "Mój szwagier mieszka w Gdyni.", "enişteme ceviz yasak", "우리 형부는 기장이야", "Meine Schwägerin ist Hebamme.",
    "Fátima no come cerdo, así que el vino lo pruebo yo.", "Vega se ha hecho vegetariana.", "Luca non beve alcolici.",
]  # fmt: skip
SPEAKERS = [
    "My wife and I are allergic to nuts.", "I live in Bergen with my aunt.", "Dogs give me panic attacks.",
    "The user lives in Lyon.", "Meine Frau und ich sind allergisch gegen Nüsse.", "Ich wohne bei meiner Tante.", "Mein Blutdruck ist zu hoch.",
    "Vivo con mi mujer en Madrid.", "Je travaille comme infirmière.", "Sono allergica alle noci.", "Sou diabética desde criança.",
    "Ik woon bij mijn tante.", "Jestem uczulona na kiwi.", "Я живу \u0441 сестрой.", "Eşimle Ankara'da ya\u015f\u0131yorum.", "أنا مصاب بمرض السكري.",
    "मैं अपनी पत्नी के साथ दिल्ली में रहता हूँ।", "我和老婆住在上海。", "妻と大阪に住んでいます。", "아내와 서울에 살아요.",
    "이모지는 절대 쓰지 마", "",
]  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_a_statement_that_begins_with_another_person_is_about_them(text):
    assert other_person(text)


@pytest.mark.parametrize("text", SPEAKERS)
def test_a_statement_of_the_speaker_is_not(text):
    assert other_person(text) == ""
