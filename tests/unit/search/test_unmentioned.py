"""A text is about what a wish names if it has one of the wish's words, in a form of it."""

from __future__ import annotations

import pytest

from relayer.search.terms import named_in, names_any, subject


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("leyla", "Leyla's birthday"),
        ("leyla", "LEYLA called"),
        ("accident", "two accidents in May"),
        ("babam", "Babamdan bir mektup geldi"),
        ("лейлой", "Лейла живёт в Казани"),
        ("аварии", "Авария была в мае"),
        ("레일라", "레일라는 부산에 산다"),
        ("丽拉", "丽拉住在青岛"),
        ("父", "父は釣りが好きです"),
        ("vovó", "a Vovo faz bolo"),
        ("zeynepten", "sevgilim zeynep, 3 senedir beraberiz"),
        ("zeynep", "zeyneple tatildeyiz"),
        ("radku", "z radkiem bylam 8 lat"),
        ("radek", "z radkiem bylam 8 lat"),
        ("filipie", "filip lubi ryby"),
    ],
)
def test_a_form_of_the_word_is_found(word, text):
    assert names_any(subject((word,)), named_in(text))
    assert names_any(subject(("nothing", word)), named_in(text))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("leyla",), "Leila lives in Ulm"),
        (("father",), "She can fathom it"),
        (("ex",), "An example of an exam"),
        (("丽拉",), "我拉小提琴"),
        (("rex",), ""),
        (("mark",), "The market opens at eight"),
        (("market",), "Mark lives in Leeds"),
        (("martin",), "Marta lives in Leeds"),
        (("father baby",), "The baby sleeps at seven"),
        (("",), "Leyla"),
        ((), "Leyla"),
    ],
)
def test_another_word_is_not(words, text):
    assert not names_any(subject(words), named_in(text))
