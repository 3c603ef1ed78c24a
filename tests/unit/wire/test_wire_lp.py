from __future__ import annotations

import contextlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.codec import Malformed, Reader, lp


@pytest.mark.vectors("derivation", "lp")
def test_the_encoding_is_frozen(row):
    assert lp(*row["fields"]).hex() == row["encoded"]


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.binary(max_size=20), max_size=6))
def test_different_sequences_never_encode_alike(one, other):
    assert (lp(*one) == lp(*other)) == (one == other)


@given(
    st.lists(st.lists(st.text(max_size=6), max_size=4), max_size=4),
    st.lists(st.lists(st.text(max_size=6), max_size=4), max_size=4),
)
def test_lists_of_lists_never_encode_alike(one, other):
    def nfc(value):
        return [[unicodedata.normalize("NFC", text) for text in inner] for inner in value]

    try:
        same = lp(*one) == lp(*other)
    except Malformed:  # half a surrogate pair
        return
    assert same == (nfc(one) == nfc(other))


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_a_reader_gives_back_what_was_written(values):
    reader = Reader(lp(*values))
    assert [reader.bytes() for _ in values] == values
    reader.end()


@given(st.text(max_size=30), st.integers(0, 2**64 - 1), st.lists(st.text(max_size=5), max_size=5))
def test_texts_integers_and_lists_survive(text, number, texts):
    try:
        encoded = lp(text, number, texts)
    except Malformed:
        return
    reader = Reader(encoded)
    assert reader.text() == unicodedata.normalize("NFC", text)
    assert reader.integer() == number
    assert list(reader.texts()) == [unicodedata.normalize("NFC", item) for item in texts]
    reader.end()


@given(
    st.binary(max_size=80),
    st.lists(st.sampled_from(["bytes", "text", "integer", "texts", "end"]), max_size=6),
)
def test_a_reader_of_anything_raises_malformed_and_nothing_else(data, calls):
    reader = Reader(data)
    with contextlib.suppress(Malformed):
        for call in calls:
            getattr(reader, call)()


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=4), st.data())
def test_a_truncated_value_is_malformed(values, data):
    encoded = lp(*values)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(Malformed):
        _read_all(cut, len(values))


def test_two_spellings_of_one_text_encode_alike():
    assert lp("e\u0301") == lp("\u00e9")


@pytest.mark.parametrize("bad", [-1, 2**64, "\ud800"])
def test_what_has_no_canonical_form_is_refused(bad):
    with pytest.raises(Malformed):
        lp(bad)


@pytest.mark.parametrize(
    "encoded",
    [lp("e\u0301".encode()), lp(b"\xff"), lp(b"\xed\xa0\x80")],
    ids=["not NFC", "not UTF-8", "surrogate"],
)
def test_a_text_in_another_form_is_not_read(encoded):
    with pytest.raises(Malformed):
        Reader(encoded).text()


def test_a_length_beyond_memory_is_refused_before_anything_is_allocated():
    with pytest.raises(Malformed):
        Reader(b"\xff" * 8 + b"x").bytes()


def _read_all(encoded, count):
    reader = Reader(encoded)
    for _ in range(count):
        reader.bytes()
