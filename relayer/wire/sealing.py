"""Sealed object, format 1: the one shape in which anything is stored.

    offset  size  field
    0       4     magic "MRL1"
    4       1     version 1
    5       1     type, see `ObjectType`
    6       2     suite 1: HKDF-SHA512, AES-256-GCM, 32-byte commitment
    8       16    key id
    24      32    random salt
    56      32    commitment
    88      n+16  ciphertext and tag

Each object has a key of its own, derived with its salt, its header and its context (who owns it and where it belongs),
so that no nonce is ever reused and an object moved elsewhere does not open. The second half of the derived bytes is
published as a commitment: a ciphertext opens under one key and one context only.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from relayer.wire.codec import lp
from relayer.wire.errors import Malformed, UnsealError
from relayer.wire.keys import derive

_MAGIC = b"MRL1"
_VERSION = 1
_SUITE = 1
_NONCE = bytes(12)  # the key is used once
KEY_ID_SIZE = 16
SALT_SIZE = 32
_HEADER_SIZE = 24
_BODY = 88
OVERHEAD = _BODY + 16
MAX_PLAINTEXT = 16 * 1024 * 1024


class ObjectType(IntEnum):
    """What a sealed object is; a number is never given a second meaning."""

    RECORD = 1
    VECTOR = 2
    ENTRY = 3
    SEGMENT_DIRECTORY = 4
    INDEX = 5
    MANIFEST = 6
    POINTER = 7
    ACCOUNT = 8
    FLEET = 9
    CONSTANT = 10
    KEYRING = 11
    OUTBOX = 12
    ERASURE = 13


@dataclass(frozen=True, slots=True)
class SealingKey:
    """A 32-byte key and the random id under which objects name it."""

    key_id: bytes
    secret: bytes = field(repr=False)


def context(object_type: ObjectType, account: str, incarnation: bytes, object_id: bytes | str) -> bytes:
    """Say where an object belongs; opening it anywhere else fails."""
    return lp(int(object_type), account, incarnation, object_id)


def seal(key: SealingKey, object_type: ObjectType, place: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
    """Seal ``plaintext`` for the place that `context` describes.

    Args:
        key: the key of the layer.
        object_type: what the plaintext is.
        place: from `context`.
        plaintext: at most 16 MiB.
        salt: 32 random bytes, fresh for every call.

    Raises:
        Malformed: the plaintext is too long or the salt has the wrong size.
    """
    if len(plaintext) > MAX_PLAINTEXT:
        raise Malformed("a sealed object holds at most 16 MiB")
    if len(salt) != SALT_SIZE:
        raise Malformed("a salt has 32 bytes")
    header = _MAGIC + bytes((_VERSION, object_type)) + _SUITE.to_bytes(2, "big") + key.key_id
    content_key, commitment = _keys(key, header, salt, place)
    return header + salt + commitment + AESGCM(content_key).encrypt(_NONCE, plaintext, None)


def unseal(key: SealingKey, object_type: ObjectType, place: bytes, sealed: bytes | memoryview) -> bytes:
    """Open a sealed object.

    Raises:
        UnsealError: whatever is wrong: version, suite, type, key, place, a changed or missing byte.
    """
    view = memoryview(sealed)  # what is sealed may be large: none of it is copied
    header = bytes(view[:_HEADER_SIZE])
    expected = _MAGIC + bytes((_VERSION, object_type)) + _SUITE.to_bytes(2, "big") + key.key_id
    # Refused before any cryptography: what this version does not know, it does not touch.
    if len(sealed) < OVERHEAD or header != expected:
        raise UnsealError
    content_key, commitment = _keys(key, header, bytes(view[_HEADER_SIZE:56]), place)
    if not hmac.compare_digest(commitment, view[56:_BODY]):
        raise UnsealError
    try:
        return AESGCM(content_key).decrypt(_NONCE, view[_BODY:], None)
    except InvalidTag as error:
        raise UnsealError from error


def key_id_of(sealed: bytes) -> bytes:
    """Return the id of the key that an object says it was sealed with.

    Raises:
        UnsealError: too short to say.
    """
    if len(sealed) < OVERHEAD or sealed[:4] != _MAGIC:
        raise UnsealError
    return sealed[8:_HEADER_SIZE]


def _keys(key: SealingKey, header: bytes, salt: bytes, place: bytes) -> tuple[bytes, bytes]:
    okm = derive(key.secret, "memrelay/v1/seal", header, place, salt=salt, length=64)
    return okm[:32], okm[32:]
