from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.public import PrivateKey
from wire_vectors import vectors

from relayer.wire.codec import Malformed, NotAccepted
from relayer.wire.sealed_keys import MAX_SEALED_KEY, SealedKey, fleet_key_id, named_fleet_key

FROZEN = vectors("sealed_keys")
FLEET = PrivateKey(bytes.fromhex(FROZEN["fleet_private_key"]))
GOOD = bytes.fromhex(FROZEN["opens"][0]["sealed"])


@pytest.mark.vectors("sealed_keys", "opens")
def test_what_was_sealed_in_this_format_opens_for_ever(row):
    key = SealedKey.open(bytes.fromhex(row["sealed"]), FLEET)
    assert key.secret.hex() == row["secret"]
    assert key.agent_key.hex() == row["agent_key"]
    for name in ("account", "namespace", "generation", "not_after"):
        assert getattr(key, name) == row[name]


@pytest.mark.vectors("sealed_keys", "does_not_open")
def test_whatever_is_wrong_looks_alike(row):
    with pytest.raises(NotAccepted) as raised:
        SealedKey.open(bytes.fromhex(row["sealed"]), FLEET)
    assert raised.value.rule == "sealed_key"


@pytest.mark.vectors("sealed_keys", "unusable_fleet_keys")
def test_nothing_is_sealed_to_a_point_that_anybody_can_open(row):
    key = SealedKey.open(GOOD, FLEET)
    with pytest.raises(Malformed):
        key.seal(bytes.fromhex(row["key"]))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_fleet_key_of_another_size_is_refused(size):
    with pytest.raises(Malformed):
        SealedKey.open(GOOD, FLEET).seal(bytes(size))


@given(
    st.text(alphabet="abc-_9", min_size=1, max_size=64), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
)
def test_a_sealed_key_says_what_was_sealed(namespace, generation, not_after):
    key = SealedKey("0x" + "1" * 64, bytes(32), namespace, generation, not_after, b"s" * 32)
    sealed = key.seal(bytes(FLEET.public_key))
    assert len(sealed) <= MAX_SEALED_KEY
    assert SealedKey.open(sealed, FLEET) == key


@given(st.integers(0, (len(GOOD) - 8) * 8 - 1))
def test_no_bit_can_be_flipped(bit):
    changed = bytearray(GOOD)
    changed[8 + bit // 8] ^= 1 << bit % 8
    with pytest.raises(NotAccepted):
        SealedKey.open(bytes(changed), FLEET)


@given(st.integers(0, len(GOOD) - 1))
def test_no_byte_can_be_cut_off(size):
    with pytest.raises(NotAccepted):
        SealedKey.open(GOOD[:size], FLEET)


@given(st.binary(max_size=1200))
def test_bytes_from_anywhere_are_not_accepted(data):
    with pytest.raises(NotAccepted):
        SealedKey.open(data, FLEET)


@given(st.binary(max_size=200))
def test_a_plain_text_in_another_form_is_not_accepted(data):
    from nacl.public import SealedBox

    sealed = bytes(8) + SealedBox(FLEET.public_key).encrypt(data)
    with contextlib.suppress(NotAccepted):
        SealedKey.open(sealed, FLEET)
        raise AssertionError("random bytes are no sealed key")


def test_a_key_that_would_not_fit_its_header_is_refused():
    with pytest.raises(Malformed):
        SealedKey("0x" + "1" * 900, bytes(32), "a", 1, 1, bytes(32)).seal(bytes(FLEET.public_key))


def test_the_fleet_key_is_named_by_its_own_hash():
    assert named_fleet_key(GOOD) == fleet_key_id(bytes(FLEET.public_key))


def test_no_repr_shows_the_secret():
    key = SealedKey.open(GOOD, FLEET)
    assert repr(key.secret) not in repr(key)
