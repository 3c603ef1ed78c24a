"""The sheet of a secret: read back as it was printed or copied, and every slip is found on its line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.errors import InvalidSecret
from relayer.wire.sheet import GATEWAY_SHEET, RELAYER_SHEET, SheetKind

SECRET = bytes(range(32))
# What `memrelay keys recovery` printed before both sheets were laid out alike.
FORMER_RELAYER_SHEET = """memrelay relayer key: keep it where the store is not. Compare with --verify.
  1  0001 0203 0405 0607   bc57
  2  0809 0a0b 0c0d 0e0f   5140
  3  1011 1213 1415 1617   93fa
  4  1819 1a1b 1c1d 1e1f   c385
  checksum 5fd5e220
"""
KINDS = pytest.mark.parametrize("kind", [GATEWAY_SHEET, RELAYER_SHEET], ids=["gateway", "relayer"])


@given(secret=st.binary(min_size=32, max_size=32))
@KINDS
def test_a_sheet_gives_its_secret_back(kind: SheetKind, secret: bytes) -> None:
    assert kind.read(kind.render(secret, [("account", "0x" + "5e" * 32)])) == secret


@KINDS
def test_both_are_laid_out_alike(kind: SheetKind) -> None:
    head, warning, *rows = kind.render(SECRET).splitlines()
    assert head.startswith("memrelay recovery sheet: ")
    assert warning.endswith(".")
    assert [row[:24] for row in rows] == [
        "",
        "1   0001 0203 0405 0607 ",
        "2   0809 0a0b 0c0d 0e0f ",
        "3   1011 1213 1415 1617 ",
        "4   1819 1a1b 1c1d 1e1f ",
        "",
        rows[-1],
    ]
    assert len(rows[-1]) == len("check   01234567")


@KINDS
def test_a_sheet_copied_in_capitals_without_spaces_and_with_dots_is_read(kind: SheetKind) -> None:
    copied = re.sub("(?m)^([1-4]) ", r"\1. ", kind.render(SECRET).upper().replace("01 02", "0102"))
    assert kind.read("> a heading\n\n" + copied) == SECRET


@KINDS
@pytest.mark.parametrize("digit", range(0, 64, 3))
def test_every_slip_of_the_pen_is_told_by_its_line(kind: SheetKind, digit: int) -> None:
    lines = kind.render(SECRET).splitlines()
    number, place = digit // 16 + 1, digit % 16
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{number}   "))
    column = 4 + place + place // 4
    slip = "f" if lines[at][column] != "f" else "0"
    lines[at] = lines[at][:column] + slip + lines[at][column + 1 :]
    with pytest.raises(InvalidSecret, match=f"line {number} of the sheet does not fit its check"):
        kind.read("\n".join(lines))


@KINDS
def test_what_is_missing_or_no_digit_is_named(kind: SheetKind) -> None:
    sheet = kind.render(SECRET)
    for old, new, said in (
        ("3   1011", "1011", "line 3 of the sheet is missing"),
        ("1011", "lOll", "line 3 of the sheet holds something else than hex digits"),
        ("1011 ", "", "line 3 of the sheet has 16 hex digits, not 20"),
        ("check ", "checked ", "the last line of the sheet is missing"),
    ):
        with pytest.raises(InvalidSecret, match=said):
            kind.read(sheet.replace(old, new))


@KINDS
def test_lines_of_two_sheets_do_not_pass_for_one(kind: SheetKind) -> None:
    one, two = kind.render(SECRET).splitlines(), kind.render(bytes(32)).splitlines()
    with pytest.raises(InvalidSecret, match="different sheets"):
        kind.read("\n".join([*one[:4], *two[4:]]))


def test_a_sheet_of_the_other_kind_is_called_by_its_name() -> None:
    with pytest.raises(InvalidSecret, match="this is a sheet of a relayer key, not of a gateway's secret"):
        GATEWAY_SHEET.read(RELAYER_SHEET.render(SECRET))
    with pytest.raises(InvalidSecret, match="this is a sheet of a gateway's secret, not of a relayer key"):
        RELAYER_SHEET.read(GATEWAY_SHEET.render(SECRET))


def test_a_sheet_that_was_printed_before_is_still_read() -> None:
    assert RELAYER_SHEET.read(FORMER_RELAYER_SHEET) == SECRET


@given(st.text(max_size=300))
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidSecret):
        GATEWAY_SHEET.read(text)
