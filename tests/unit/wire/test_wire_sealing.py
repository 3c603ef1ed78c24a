from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.codec import Malformed, UnsealError
from relayer.wire.sealing import OVERHEAD, ObjectType, SealingKey, context, key_id_of, seal, unseal

KEY = SealingKey(bytes(range(16)), bytes(range(32)))
PLACE = context(ObjectType.RECORD, "0xaccount", b"incarnation", b"object")
SEALED = seal(KEY, ObjectType.RECORD, PLACE, b"a memory of some length", salt=bytes(32))


def open_row(row):
    key = SealingKey(bytes.fromhex(row["key_id"]), bytes.fromhex(row["key"]))
    return unseal(key, ObjectType(row["type"]), bytes.fromhex(row["place"]), bytes.fromhex(row["sealed"]))


@pytest.mark.vectors("sealing", "opens")
def test_what_was_sealed_in_this_format_opens_for_ever(row):
    assert open_row(row).hex() == row["plaintext"]


@pytest.mark.vectors("sealing", "does_not_open")
def test_every_failure_is_one_error(row):
    with pytest.raises(UnsealError) as raised:
        open_row(row)
    assert str(raised.value) == str(UnsealError())


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_sealing_gives_back_what_it_was_given(plaintext, secret, salt):
    key = SealingKey(bytes(16), secret)
    sealed = seal(key, ObjectType.ENTRY, PLACE, plaintext, salt=salt)
    assert len(sealed) == len(plaintext) + OVERHEAD
    assert unseal(key, ObjectType.ENTRY, PLACE, sealed) == plaintext


@given(st.integers(0, len(SEALED) * 8 - 1))
def test_no_bit_can_be_flipped(bit):
    changed = bytearray(SEALED)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UnsealError):
        unseal(KEY, ObjectType.RECORD, PLACE, bytes(changed))


@given(st.integers(0, len(SEALED) - 1))
def test_no_byte_can_be_cut_off(size):
    with pytest.raises(UnsealError):
        unseal(KEY, ObjectType.RECORD, PLACE, SEALED[:size])


@given(st.binary(max_size=300))
def test_bytes_from_anywhere_do_not_open(data):
    with pytest.raises(UnsealError):
        unseal(KEY, ObjectType.RECORD, PLACE, data)


@given(st.binary(min_size=32, max_size=32))
def test_no_other_key_opens(secret):
    if secret != KEY.secret:
        with pytest.raises(UnsealError):
            unseal(SealingKey(KEY.key_id, secret), ObjectType.RECORD, PLACE, SEALED)


@pytest.mark.parametrize(
    ("kind", "account", "incarnation", "object_id"),
    [
        *[
            (kind, "0xaccount", b"incarnation", b"object")
            for kind in ObjectType
            if kind is not ObjectType.RECORD
        ],
        *[(ObjectType.RECORD, account, b"incarnation", b"object") for account in ("0xother", "")],
        *[(ObjectType.RECORD, "0xaccount", incarnation, b"object") for incarnation in (b"incarnatio", b"")],
        *[(ObjectType.RECORD, "0xaccount", b"incarnation", object_id) for object_id in (b"nobject", b"")],
    ],
)
def test_an_object_opens_in_its_own_place_only(kind, account, incarnation, object_id):
    with pytest.raises(UnsealError):
        unseal(KEY, ObjectType.RECORD, context(kind, account, incarnation, object_id), SEALED)


def test_the_same_text_sealed_twice_shows_nothing_in_common():
    other = seal(KEY, ObjectType.RECORD, PLACE, b"a memory of some length", salt=b"\1" * 32)
    assert SEALED[88:] != other[88:]
    assert SEALED[56:88] != other[56:88]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_salt_of_another_size_is_refused(size):
    with pytest.raises(Malformed):
        seal(KEY, ObjectType.RECORD, PLACE, b"", salt=bytes(size))


def test_an_object_that_is_too_long_is_refused():
    with pytest.raises(Malformed):
        seal(KEY, ObjectType.RECORD, PLACE, bytes(16 * 1024 * 1024 + 1), salt=bytes(32))


def test_an_object_names_its_key():
    assert key_id_of(SEALED) == KEY.key_id
    with pytest.raises(UnsealError):
        key_id_of(SEALED[:100])


def test_no_repr_shows_a_key():
    assert repr(KEY.secret) not in repr(KEY)
