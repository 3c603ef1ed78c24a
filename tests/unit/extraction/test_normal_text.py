"""The normal form is frozen: stored MACs are taken over it."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.extraction.normal_text import normal_text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("  Hello,\t World! \n", "hello, world"),
        ("Straße", "strasse"),
        ("ﬁne print", "fine print"),
        ("Ｆｕｌｌ　Ｗｉｄｔｈ", "full width"),  # noqa: RUF001 - full-width letters are the point
        ("cafe\u0301", "caf\u00e9"),
        ("a\u200bb\u00adc\ufeff\u2060", "abc"),
        ("\u202eabc\u202c", "abc"),
        ("☕\ufe0f", "☕"),
        ("bell\x07", "bell"),
        ("İzmir", "i\u0307zmir"),
        ("Ὀδυσσεύς", "ὀδυσσεύσ"),
        ("I like tea.", "i like tea"),
        ("I like tea...!!", "i like tea"),
        ("I like tea;", "i like tea"),
        ("我喜欢茶。", "我喜欢茶"),
        ("I like tea?", "i like tea?"),
        ("I like tea?!?", "i like tea?"),
        ("你喜欢茶吗？", "你喜欢茶吗?"),  # noqa: RUF001 - full-width marks are the point
        ("version 1.2", "version 1.2"),
        ("...", "..."),
        ("\u200b", ""),
        ("", ""),
        ("my key is A-1 (new)", "my key is a-1 (new)"),
    ],
)
def test_the_form_is_frozen(text, form):
    assert normal_text(text) == form


def test_other_words_are_other_memories():
    assert normal_text("I like tea") != normal_text("I liked tea")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_applying_it_twice_changes_nothing(text):
    assert normal_text(normal_text(text)) == normal_text(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_composition_of_a_text_makes_no_difference(text):
    assert normal_text(unicodedata.normalize("NFD", text)) == normal_text(unicodedata.normalize("NFC", text))


def test_a_long_run_of_combining_marks_takes_linear_time():
    text = "a" + "\u0316\u0301" * 32_768
    started = time.process_time()
    normal_text(text)
    assert time.process_time() - started < 2
