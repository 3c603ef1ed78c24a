"""What always matters is told by its form in fifteen languages, and nothing that is said makes it fail."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from relayer.lib.n_grams import ESSENTIALS
from relayer.search.essentials import LONGEST, essential_of

STATEMENTS = Path(__file__).parents[3] / "bench" / "sets" / "standing"
LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_shipped_weights_know_colloquial_statements(language):
    told = defaultdict(list)
    for line in (STATEMENTS / f"{language}_colloquial.tsv").read_text("utf-8").splitlines():
        label, _, text = line.partition("\t")
        told[label].append((essential_of(text) or "none") == label)
    assert set(told) == {"none", "harm", "style"}
    assert sum(told["none"]) / len(told["none"]) >= 0.85
    assert all(sum(right) / len(right) >= 0.7 for right in told.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_shipped_weights_know_what_they_were_made_from(language):
    told = defaultdict(list)
    for line in (STATEMENTS / f"{language}.tsv").read_text("utf-8").splitlines():
        label, _, text = line.partition("\t")
        told[label].append((essential_of(text) or "none") == label)
    assert set(told) == set(ESSENTIALS)
    assert sum(told["none"]) / len(told["none"]) >= 0.97
    assert all(sum(right) / len(right) >= 0.7 for right in told.values())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I'm allergic to walnuts", "harm"),
        ("Ich bin allergisch gegen Walnüsse", "harm"),
        ("Je suis allergique aux kiwis.", "harm"),
        ("我对芒果过敏", "harm"),
        ("Please always answer in short sentences.", "style"),
        ("Ich heiße Walburga.", "identity"),
        ("We parked on level 7.", None),
        ("Such a gorgeous song, it really fits you", None),
        ("Der Zug fährt um neun von Gleis 2.", None),
        ("I have a heart condition and must not drink grapefruit juice.", "harm"),
        ("I'm pregnant, due in April.", "harm"),
        ("나 허리디스크 있어서 L5 그쪽. 데드리프트 금지래 의사가", "harm"),
    ],
)
def test_what_was_not_learnt_is_told_too(text, kind):
    assert essential_of(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("えびかにアレルギーあるからほんまに気ぃつけてな。", "harm"),
        ("えびアレルギー持ってる", "harm"),
        ("息子の蓮は卵アレルギーがある", "harm"),
        ("今妊娠中やねん、生もの控えてる", "harm"),
        ("ابني يوسف عنده حساسية من اللبن", "harm"),
        ("I've been taking 50 micrograms of levothyroxine since spring", "harm"),
        ("i cant have gluten, coeliac", "harm"),
        ("tengo celiaquia", "harm"),
        ("fistik alerjim var ciddi", "harm"),
        ("ياريت دايما ترد عليا باختصار وبالعامية ومن غير ايموجي", "style"),
        ("Duz mich bitte.", "style"),
        ("my cousin studies allergies", None),
        ("the dog is allergic to the vet", None),
        ("keep the receipt short", None),
        ("駅前の店はあかんらしい", None),
        ("السكر خلص من البيت", None),
        ("I took 50 photos of the lake since spring", None),
    ],
)
def test_colloquial_statements_are_told_too(text, kind):
    assert essential_of(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "a",
        "\U0001f600" * 20,
        "\u202eallergic",
        "\ud800",
        "\x00",
        "x" * 100_000,
        "allergic " * 40,
        "ä\u0308" * 50,
    ],
)
def test_nothing_that_is_said_makes_it_fail(text):
    assert essential_of(text) in {None, *ESSENTIALS}


def test_what_is_long_tells_a_story():
    assert essential_of("I'm allergic to peanuts. " + "Then we went home. " * (LONGEST // 19)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Sie verträgt kein Penicillin, da bekommt sie Ausschlag am ganzen Körper.",
        "Außerdem verträgt sie kein Penicillin.",
        "She's allergic to penicillin and gets a rash.",
        "He has diabetes.",
        "It needs insulin twice a day.",
        "Es alérgica a la penicilina.",
        "Ella es alérgica a la penicilina.",
        "Elle est allergique à la pénicilline.",
        "Il est allergique aux arachides.",
        "È allergica alla penicillina.",
        "Ela é alérgica à penicilina.",
        "É alérgico a amendoim.",
        "Zij is allergisch voor noten.",
        "Ona jest uczulona na penicylinę.",
        "Jest uczulona na penicylinę.",
        "Ma cukrzycę.",
        "\u0423 неё аллергия на пенициллин.",
        "O penisiline alerjik, döküntü oluyor.",
        "لديها حساسية من البنسلين.",
        "उसे पेनिसिलिन से एलर्जी है।",
        "彼女はペニシリンアレルギーです。",
        "그녀는 페니실린 알레르기가 있어요.",
        "她对青霉素过敏。",
    ],
)
def test_a_statement_about_a_pronoun_is_of_somebody_else(text):
    assert essential_of(text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Meine Mutter verträgt kein Penicillin, da bekommt sie Ausschlag.", "harm"),
        ("My daughter is allergic to nuts, she gets a rash.", "harm"),
        ("She is allergic to nuts. I'm allergic to latex.", "harm"),
        ("It makes me panic when I'm in lifts, I'm claustrophobic.", "harm"),
        ("Es bringt mich um, wenn ich Nüsse esse, ich bin allergisch.", "harm"),
        ("Il glutine mi fa male, sono celiaca.", "harm"),
        ("O glúten me faz mal, sou celíaca.", "harm"),
        ("Nie jem glutenu, mam celiakię.", "harm"),
        ("Ma fille est allergique aux noix.", "harm"),
        ("Sie können mich in Ihren Antworten gerne duzen.", "style"),
        ("Es ist mir wichtig, dass du immer kurz antwortest.", "style"),
        ("Il faut toujours me répondre en français.", "style"),
        ("Es importante que siempre me respondas corto.", "style"),
    ],
)
def test_a_statement_that_says_whose_it_is_stays(text, kind):
    assert essential_of(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "我对花生过敏 老公阿杰做装修的 房东姓曾",
        "asthma, kortisonspray früh und abends, rauch is gift",
        "minha vó tem pressão alta, come sem sal. remédio dela é às 8 e às 20",
    ],
)
def test_a_danger_that_is_one_of_several_statements_counts(text):
    assert essential_of(text) == "harm"


@pytest.mark.parametrize(
    ("text", "read", "kind"),
    [
        ("nuts close my throat", "harm", "harm"),
        ("I'm allergic to walnuts", "none", "harm"),
        ("My name is Walburga", "none", None),
        ("Walburga here", "identity", "identity"),
        ("she takes insulin", "harm", None),
        ("it makes me faint", "harm", "harm"),
        ("She takes insulin. I'm allergic to penicillin.", "harm", "harm"),
        ("He is my boss. Please always answer in short sentences.", "style", "style"),
        ("I'm Ana Ruiz. I'm allergic to penicillin.", "identity", "harm"),
        ("nuts close my throat " * (LONGEST // 20), "harm", None),
    ],
)
def test_what_a_model_read_decides(text, read, kind):
    assert essential_of(text, read) == kind
