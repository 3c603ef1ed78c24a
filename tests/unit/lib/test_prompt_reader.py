"""What is read of a prompt: its language, and whether it asks for a memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.lib.n_grams import LANGUAGES, read_prompt

ASKS = (
    ("en", "where did I leave my bike keys again?"),
    ("de", "wie heißt nochmal der Zahnarzt, zu dem ich gehe?"),
    ("es", "¿cómo se llamaba el médico de mi madre?"),
    ("fr", "c'était quoi déjà le code de mon immeuble ?"),
    ("zh", "我的护照放在哪里来着"),
    ("ja", "私の血液型って何だっけ"),
    ("ru", "где я оставил ключи от гаража?"),
)
DOES_NOT = (
    ("en", "write a python function that reverses a linked list"),
    ("de", "übersetze diesen Satz bitte ins Englische: Der Zug fährt um acht."),
    ("es", "explica cómo funciona un motor diésel"),
    ("fr", "écris un poème sur la mer"),
    ("zh", "请解释一下什么是量子计算"),
    ("ja", "円周率を十桁まで教えて"),
    ("ru", "напиши стихотворение про осень"),
)


@pytest.mark.parametrize(("language", "prompt"), ASKS)
def test_a_prompt_that_asks_for_memory_is_read_so(language, prompt):
    reading = read_prompt(prompt).reading()
    assert reading.language == language
    assert reading.asks > 0


@pytest.mark.parametrize(("language", "prompt"), DOES_NOT)
def test_a_prompt_that_memory_cannot_help_is_read_so(language, prompt):
    reading = read_prompt(prompt).reading()
    assert reading.language == language
    assert reading.asks < -1


@given(st.text(max_size=800))
def test_any_text_has_a_reading(text):
    reading = read_prompt(text).reading()
    assert reading.language in LANGUAGES
    assert np.isfinite([reading.asks, reading.concerns]).all()


@pytest.mark.parametrize("text", ["", " ", "😀" * 50, "x" * 100_000, "\u202eabc", "?", "مرحبا hello 你好"])
def test_odd_texts_have_a_reading(text):
    assert read_prompt(text).language in LANGUAGES
