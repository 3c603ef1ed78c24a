"""Spans and sizes are read as people write them, and written as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.amounts import parse_bytes, parse_seconds, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30", 30), ("0.2", 0.2), (".5", 0.5), ("30s", 30), ("10m", 600), ("1.5h", 5400), ("7d", 604_800), ("2w", 1_209_600), (" 10 m ", 600)],
)  # fmt: skip
def test_a_span_is_read(written: str, seconds: float) -> None:
    assert parse_seconds(written) == seconds


def test_a_number_alone_is_of_the_unit_that_was_meant() -> None:
    assert (parse_seconds("30", "d"), parse_seconds("12h", "d")) == (30 * 86_400, 12 * 3600)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("0", 0), ("512", 512), ("512b", 512), ("64K", 65_536), ("512M", 512 * 1024**2), ("2GiB", 2 * 1024**3),
        ("2 gib", 2 * 1024**3), ("1TB", 10**12), ("5kB", 5000),
    ],
)  # fmt: skip
def test_a_size_is_read(written: str, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize("written", ["", "-1", "soon", "1y", "1e9", "inf", "nan", "M", "5 5", "\u0663s"])
def test_what_is_neither_is_refused_with_how_to_write_it(written: str) -> None:
    with pytest.raises(ValueError, match="give a number"):
        parse_seconds(written)
    with pytest.raises(ValueError, match="give a number"):
        parse_bytes(written)


@given(st.integers(0, 10**11))
def test_what_is_shown_is_read_again(number: int) -> None:
    assert parse_bytes(show_bytes(number)) == number
    assert parse_seconds(show_seconds(number)) == number


def test_the_largest_unit_is_shown() -> None:
    assert [show_seconds(one) for one in (0, 0.5, 30, 90, 3600, 86_400)] == [
        "0",
        "0.5",
        "30s",
        "90s",
        "1h",
        "1d",
    ]
    assert [show_bytes(one) for one in (0, 1000, 4096, 512 * 1024**2)] == ["0", "1000", "4K", "512M"]
