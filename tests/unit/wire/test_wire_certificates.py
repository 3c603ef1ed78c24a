from __future__ import annotations

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from wire_vectors import vectors

from relayer.wire.codec import Malformed, NotAccepted, Reader
from relayer.wire.signing import Certificate, Right

FROZEN = vectors("certificates")
GOOD = bytes.fromhex(FROZEN["verifies"][0]["encoded"])


@pytest.mark.vectors("certificates", "verifies")
def test_a_certificate_of_this_format_verifies_for_ever(row):
    certificate = Certificate.verify(bytes.fromhex(row["encoded"]))
    assert certificate.account == FROZEN["account"]
    assert list(certificate.namespaces) == row["namespaces"]
    assert list(certificate.rights) == row["rights"]
    for name in ("agent", "not_before", "not_after"):
        assert getattr(certificate, name) == row[name]


@pytest.mark.vectors("certificates", "certificate_malformed")
def test_a_certificate_out_of_form_is_not_accepted(row):
    with pytest.raises(NotAccepted) as raised:
        Certificate.verify(bytes.fromhex(row["encoded"]))
    assert raised.value.rule == "certificate_malformed"


@pytest.mark.vectors("certificates", "certificate_signature")
def test_a_certificate_that_the_account_did_not_sign_is_not_accepted(row):
    with pytest.raises(NotAccepted) as raised:
        Certificate.verify(bytes.fromhex(row["encoded"]))
    assert raised.value.rule == "certificate_signature"


def test_the_forgery_among_the_vectors_is_one_that_a_lax_verifier_takes():
    (row,) = [row for row in FROZEN["certificate_signature"] if row["why"] == "account key: neutral element"]
    reader = Reader(bytes.fromhex(row["encoded"]))
    body, signature = reader.bytes(), reader.bytes(64)
    inner = Reader(body)
    inner.text()
    Ed25519PublicKey.from_public_bytes(inner.bytes(32)).verify(signature, body)


@given(st.integers(0, len(GOOD) * 8 - 1))
def test_no_bit_can_be_flipped(bit):
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(NotAccepted):
        Certificate.verify(bytes(changed))


@given(st.binary(max_size=2100))
def test_bytes_from_anywhere_are_not_accepted(data):
    with pytest.raises(NotAccepted):
        Certificate.verify(data)


def test_a_right_implies_no_other_and_a_pattern_no_other_namespace():
    certificate = Certificate.verify(GOOD)
    assert certificate.allows("researcher", Right.READ)
    assert certificate.allows("researcher/x", Right.WRITE)
    assert not certificate.allows("researcher", Right.ADMIN)
    assert not certificate.allows("coder", Right.READ)


def test_a_certificate_is_signed_by_the_account_that_it_names():
    with pytest.raises(Malformed):
        Certificate.verify(GOOD).issue(SigningKey.generate())


def test_a_certificate_that_would_not_fit_its_header_is_refused():
    identity = SigningKey(bytes(32))
    long = dataclasses.replace(
        Certificate.verify(GOOD),
        account_key=bytes(identity.verify_key),
        namespaces=("a" * 64 + "/" + "b" * 64,) * 16,
    )
    with pytest.raises(Malformed):
        long.issue(identity)
