from __future__ import annotations

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_vectors import vectors

from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.codec import Malformed, NotAccepted
from relayer.wire.signing import RequestSignature

FROZEN = vectors("signatures")
REQUEST = FROZEN["request"]


def verify(row):
    request = {**REQUEST, "header": FROZEN["header"], **row}
    signing.verify(
        RequestSignature.parse(request["header"]),
        bytes.fromhex(request["agent_key"]),
        method=request["method"],
        authority=request["authority"],
        target=request["target"],
        body_sha256=hashlib.sha256(bytes.fromhex(request["body"])).digest(),
        headers_sha256=(
            signing.header_digest(request["certificate"]),
            signing.header_digest(request["memory_key"]),
        ),
    )


def test_a_signature_of_this_format_verifies_for_ever():
    verify({})


@pytest.mark.vectors("signatures", "refused")
def test_everything_that_gives_a_request_its_meaning_is_signed(row):
    with pytest.raises(NotAccepted) as raised:
        verify(row)
    assert raised.value.rule == "signature"


@pytest.mark.vectors("signatures", "times")
def test_a_signature_is_valid_for_two_minutes_give_or_take_one(row):
    parsed = RequestSignature.parse(FROZEN["header"])
    signature = RequestSignature(
        parsed.created, row.get("expires", parsed.expires), parsed.nonce, parsed.signature
    )
    if row["rule"] is None:
        signature.check_times(row["now"])
        return
    with pytest.raises(NotAccepted) as raised:
        signature.check_times(row["now"])
    assert raised.value.rule == row["rule"]


@pytest.mark.vectors("signatures", "malformed")
def test_a_header_out_of_form_is_malformed(row):
    with pytest.raises(Malformed):
        RequestSignature.parse(row)


@pytest.mark.vectors("signatures", "authorities")
def test_an_authority_has_one_spelling(row):
    assert signing.normal_authority(row["host"], row["scheme"]) == row["authority"]
    assert signing.normal_authority(row["authority"], row["scheme"]) == row["authority"]


def test_a_header_survives():
    assert RequestSignature.parse(FROZEN["header"]).header() == FROZEN["header"]


@given(st.one_of(st.text(max_size=140), st.text(alphabet="AQgw-_09az=", min_size=120, max_size=136)))
def test_any_header_is_parsed_or_malformed(text):
    with contextlib.suppress(Malformed):
        assert RequestSignature.parse(text).header() == text


@given(st.binary(min_size=96, max_size=96), st.integers(0, 2**40))
def test_any_times_are_judged_without_another_error(raw, now):
    with contextlib.suppress(NotAccepted):
        RequestSignature.parse(base64url.encode(raw)).check_times(now)


@given(st.binary(max_size=40), st.binary(max_size=70))
def test_any_key_and_signature_are_judged_without_another_error(key, signature):
    with pytest.raises(NotAccepted):
        signing.verify(
            RequestSignature(0, 1, bytes(16), signature),
            key,
            method="GET",
            authority="a",
            target="/",
            body_sha256=bytes(32),
            headers_sha256=(bytes(32), bytes(32)),
        )


def test_a_digest_survives():
    assert signing.parse_content_digest(FROZEN["digests"]["good"]) == hashlib.sha256(b"").digest()


@pytest.mark.parametrize("header", FROZEN["digests"]["malformed"])
def test_a_digest_out_of_form_is_malformed(header):
    with pytest.raises(Malformed):
        signing.parse_content_digest(header)


@given(st.text(max_size=70))
def test_any_digest_is_parsed_or_malformed(text):
    with contextlib.suppress(Malformed):
        signing.parse_content_digest(text)


@given(st.binary(max_size=60))
def test_base64url_has_one_spelling_for_each_value(data):
    text = base64url.encode(data)
    assert base64url.decode(text) == data
    assert text == base64.urlsafe_b64encode(data).decode().rstrip("=")


@given(st.text(max_size=20))
def test_another_spelling_of_base64url_is_malformed(text):
    with contextlib.suppress(Malformed):
        assert base64url.encode(base64url.decode(text)) == text


@pytest.mark.parametrize("text", ["QQ==", "QR", "Q", "QQ\n", "Q+", "Q/", " QQ", "\u0391Q"])
def test_a_value_written_in_a_second_way_is_malformed(text):
    assert base64url.decode("QQ") == b"A"
    with pytest.raises(Malformed):
        base64url.decode(text)
