"""One document, one meaning."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.http.accept import parse_json
from relayer.http.problems import HttpProblem


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b'{"a": 1, "a": 2}', "same key twice"),
        (b'{"a": {"b": 1, "b": 1}}', "same key twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "NaN"),
        (b"[" * 10_000 + b"]" * 10_000, "nested"),
        (b'{"a":' * 10_000, "nested"),
        (b'"\xff"', "UTF-8"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\uDFFF": 1}', "surrogate"),
        (b"{} {}", "one JSON document"),
        (b"", "one JSON document"),
        (b"\xef\xbb\xbf{}", "one JSON document"),
        (b"{'a': 1}", "one JSON document"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "one JSON document"),
    ],
)
def test_what_has_no_single_meaning_is_refused_by_its_rule(body: bytes, rule: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        parse_json(body)
    assert caught.value.code == "invalid_json"
    assert caught.value.status == 400
    assert rule in caught.value.detail


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@given(st.binary(max_size=200))
def test_random_bytes_are_parsed_or_refused_and_nothing_else(body: bytes) -> None:
    with contextlib.suppress(HttpProblem):
        parse_json(body)
