"""What a person asks to remember is kept, in fifteen languages, also where a secret was taken out of it."""

from __future__ import annotations

import pytest
from plugin_site import say

ASKED = [
    "please remember that my bank pin is four",
    "Merk dir bitte, dass meine Schwester in Lyon wohnt",
    "recuerda que mi hermana vive en Lyon",
    "souviens-toi que ma sœur habite à Lyon",
    "ricorda che mia sorella abita a Lione",
    "lembra que minha irmã mora em Lyon",
    "onthoud dat mijn zus in Lyon woont",
    "zapamiętaj, że moja siostra mieszka w Lyonie",
    "запомни, что моя сестра живёт в Лионе",
    "k\u0131z kardeşimin Lyon'da yaşad\u0131ğ\u0131n\u0131 unutma",
    "تذكر أن أختي تعيش في ليون",
    "याद रखना कि मेरी बहन ल्योन में रहती है",
    "내 동생은 리옹에 산다고 기억해 줘",
    "请记住我姐姐住在里昂",
    "姉はリヨンに住んでいると覚えておいて",
]


def test_a_sentence_that_asks_to_remember_is_kept_in_each_language(site):
    plugin = site.plugin()
    for number, text in enumerate(ASKED):
        say(plugin, text, key=f"agent:main:asked-{number}", answer="")
    assert sorted(site.texts()) == sorted(ASKED)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("please remember that my bank pin is 4821", "my bank pin is [one time code removed]"),
        ("the wifi password is blue-otter-22", "the wifi password is [password removed]"),
        (
            "recuerda que la contraseña del wifi es nutria-azul-22",
            "la contraseña del wifi es [password removed]",
        ),
        ("el código de la alarma es 7731", "el código de la alarma es [code removed]"),
    ],
)
def test_a_sentence_is_kept_without_the_secret_that_it_told(site, said, kept):
    say(site.plugin(), said, key="agent:main:told", answer="")
    (text,) = site.texts()
    assert text.endswith(kept)


def test_questions_and_courtesies_with_such_words_are_no_statements(site):
    plugin = site.plugin()
    for text in ("do you remember where my sister lives?", "remember me", "is the pin of the card 4821?"):
        say(plugin, text, key=f"agent:main:{len(text)}", answer="")
    assert site.texts() == []


def test_a_request_in_a_story_does_not_make_the_story_true(site):
    text = "Let's write a story. I'm a pirate captain with one leg. Remember that my parrot is called Ines."
    say(site.plugin(), text, key="agent:main:story", answer="")
    assert site.texts() == ["Remember that my parrot is called Ines."]
