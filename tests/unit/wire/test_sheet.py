"""The sheet of a secret: read back as it was printed or copied, and slips are found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.codec import InvalidSecret
from relayer.wire.sheet import GATEWAY_SHEET, RELAYER_SHEET, SheetKind

# BIP 39's own test vector of 32 bytes.
SECRET = bytes.fromhex("68a79eaca2324873eacc50cb9c6eca8cc68ea5d936f98787c60c7ebc74e6ce7c")
LINES = [
    "1   hamster diagram private dutch",
    "2   cause delay private meat",
    "3   slide toddler razor book",
    "4   happy fancy gospel tennis",
    "5   maple dilemma loan word",
    "6   shrug inflict delay length",
]
KINDS = pytest.mark.parametrize("kind", [GATEWAY_SHEET, RELAYER_SHEET], ids=["gateway", "relayer"])


@given(secret=st.binary(min_size=32, max_size=32))
@KINDS
def test_a_sheet_gives_its_secret_back(kind: SheetKind, secret: bytes) -> None:
    assert kind.read(kind.render(secret, [("account", "0x" + "5e" * 32)])) == secret


@KINDS
def test_a_sheet_is_numbered_lines_of_the_words_of_bip_39(kind: SheetKind) -> None:
    head, warning, *rows = kind.render(SECRET).splitlines()
    assert head.startswith("memrelay recovery sheet: ")
    assert warning.endswith(".")
    assert rows == ["", *LINES]


@KINDS
def test_a_copy_in_capitals_with_dots_and_four_letters_of_a_word_is_read(kind: SheetKind) -> None:
    copied = re.sub("(?m)^([1-6]) ", r"\1. ", kind.render(SECRET).upper().replace("TODDLER", "TODD"))
    assert kind.read("> a heading\n\n" + copied) == SECRET


@KINDS
def test_what_is_missing_or_unknown_is_named_and_not_shown(kind: SheetKind) -> None:
    sheet = kind.render(SECRET)
    for old, new, said in (
        ("3   slide", "slide", "line 3 of the sheet is missing"),
        ("toddler", "todler", "word 2 of line 3 of the sheet is not a word"),
        ("toddler ", "", "line 3 of the sheet has 3 words, not 4"),
        ("slide toddler", "toddler slide", "checksum does not match"),
    ):
        with pytest.raises(InvalidSecret, match=said) as caught:
            kind.read(sheet.replace(old, new))
        assert "tod" not in str(caught.value)


@pytest.mark.parametrize("word", ["abandon", "zoo", "river", "lamp", "orbit", "panda", "quiz", "salad"])
def test_another_word_of_the_list_does_not_match_the_checksum(word: str) -> None:
    with pytest.raises(InvalidSecret, match="checksum"):
        GATEWAY_SHEET.read(GATEWAY_SHEET.render(SECRET).replace("toddler", word))


def test_a_sheet_of_the_other_kind_is_called_by_its_name() -> None:
    with pytest.raises(InvalidSecret, match="this is a sheet of a relayer key, not of a gateway's secret"):
        GATEWAY_SHEET.read(RELAYER_SHEET.render(SECRET))
    with pytest.raises(InvalidSecret, match="this is a sheet of a gateway's secret, not of a relayer key"):
        RELAYER_SHEET.read(GATEWAY_SHEET.render(SECRET))


@given(st.text(max_size=300))
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidSecret):
        GATEWAY_SHEET.read(text)
