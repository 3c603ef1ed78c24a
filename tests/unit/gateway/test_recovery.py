from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys import parse_sheet, render_sheet
from relayer.wire.sealing import RootKeys

ROOT = bytes(range(32))
SHEET = render_sheet(RootKeys(ROOT))


@given(st.binary(min_size=32, max_size=32))
def test_a_sheet_gives_its_secret_back(secret):
    assert parse_sheet(render_sheet(RootKeys(secret))) == secret


def test_a_sheet_copied_in_capitals_and_with_loose_spacing_is_read():
    assert parse_sheet(SHEET.upper().replace("   ", "  ")) == ROOT


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_slip_of_the_pen_is_found_on_its_line(number):
    lines = SHEET.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{number}   "))
    digit = "f" if lines[at][4] != "f" else "0"
    lines[at] = lines[at][:4] + digit + lines[at][5:]
    with pytest.raises(IdentityError, match=f"line {number}"):
        parse_sheet("\n".join(lines))


def test_a_missing_line_is_named():
    with pytest.raises(IdentityError, match="line 3"):
        parse_sheet("\n".join(line for line in SHEET.split("\n") if not line.startswith("3   ")))


def test_lines_of_two_sheets_do_not_pass_for_one():
    other = render_sheet(RootKeys(bytes(32))).split("\n")
    mixed = [line if not line.startswith("2   ") else other[i] for i, line in enumerate(SHEET.split("\n"))]
    with pytest.raises(IdentityError, match="last check"):
        parse_sheet("\n".join(mixed))


@given(st.text(max_size=300))
def test_anything_else_is_refused_in_words(text):
    with pytest.raises(IdentityError):
        parse_sheet(text)
