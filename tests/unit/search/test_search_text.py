import unicodedata

import pytest

from relayer.search.terms import CONTEXT_CHARACTERS, GROWTH, context_text, indexed_text, terms

MAY_8 = 1_683_504_000_000


@pytest.mark.parametrize(
    ("speaker", "occurred_at", "expected"),
    [
        ("Mara", MAY_8, "Mara (8 May 2023): hello"),
        ("Mara", None, "Mara: hello"),
        (None, MAY_8, "(8 May 2023) hello"),
        (None, None, "hello"),
        ("", MAY_8, "(8 May 2023) hello"),
        ("Mara", -1, "Mara (31 Dec 1969): hello"),
        ("Mara", 10**18, "Mara: hello"),
    ],
)
def test_a_memory_is_indexed_with_what_is_known_of_speaker_and_day(speaker, occurred_at, expected):
    assert indexed_text(speaker, occurred_at, "hello") == expected


def test_the_day_changes_at_midnight_utc():
    assert indexed_text("M", MAY_8 - 1, "x") == "M (7 May 2023): x"
    assert indexed_text("M", MAY_8 + 86_400_000 - 1, "x") == "M (8 May 2023): x"


def test_context_precedes_the_memory_and_keeps_its_end():
    text = context_text("a" * 1000 + "END", "own")
    assert text.endswith("END\nown")
    assert len(text) == CONTEXT_CHARACTERS + len("\nown")


@pytest.mark.parametrize(
    "number",
    [
        "\u0660\u0661\u0662\u0663",
        "\u06f0\u06f1\u06f2\u06f3",
        "\u0966\u0967\u0968\u0969",
        "\uff10\uff11\uff12\uff13",
    ],
)
def test_a_number_is_one_term_in_the_digits_of_any_script(number):
    assert terms(f"call {number}") == terms("call 0123")


def test_every_character_that_a_compatibility_form_makes_longer_is_known_to():
    """Else a text made of one that is not would grow without bound; a newer Unicode may bring more of them."""
    longer = {char for char in map(chr, range(0x110000)) if len(unicodedata.normalize("NFKC", char)) > 1}
    assert set(GROWTH) == longer
