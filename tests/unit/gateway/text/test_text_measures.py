from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.text.measures import clip, clip_middle, effective_length, estimate_tokens, one_line


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("hello", 5),
        ("  a \n\n b ", 3),
        ("\u200b\u200d\ufeff", 0),
        ("我对花生过敏", 12),
        ("e\u0301a", 3),
        ("", 0),
    ],
)
def test_the_effective_length_counts_what_is_seen_and_wide_characters_twice(text, length):
    assert effective_length(text) == length


@given(st.text(), st.integers(1, 300))
def test_no_cut_is_longer_than_its_limit(text, limit):
    assert len(clip(text, limit)) <= limit
    assert len(clip_middle(text, limit)) <= limit


def test_a_cut_ends_at_a_word_and_a_middle_cut_keeps_both_ends():
    assert clip("alpha beta gamma", 12) == "alpha beta"
    assert clip("alpha beta gamma", 10) == "alpha beta"
    cut = clip_middle("First question? " + "filler " * 200 + "last question?", 100)
    assert cut.startswith("First question?")
    assert cut.endswith("last question?")


@given(st.text())
def test_one_line_has_neither_breaks_nor_control_characters(text):
    line = one_line(text)
    assert line.split() == line.split(" ") or line == ""
    assert all(char.isprintable() or char.isspace() or ord(char) > 127 for char in line)
    assert "\n" not in line


def test_tokens_are_estimated_by_alphabet():
    assert estimate_tokens("abcdefgh") == 2
    assert estimate_tokens("привет") == 3
    assert estimate_tokens("花生") == 2
    assert estimate_tokens("") == 0
