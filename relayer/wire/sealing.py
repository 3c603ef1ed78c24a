"""Derivation of all keys of a gateway from one secret, and the sealed object, the one format in which everything is stored.

root secret ─ account identity (Ed25519)
            ├ agent secret ─ agent identity (Ed25519), outbox key, backup key, namespace secrets
            └ shared secrets, for namespaces that agents share

Keys are derived with HKDF-SHA512; the labels are part of the format and frozen in ``tests/vectors``.

Sealed object, format 1:

    offset  size  field
    0       4     magic "MRL1"
    4       1     version 1
    5       1     type, see `ObjectType`
    6       2     suite 1: HKDF-SHA512, AES-256-GCM, 32-byte commitment
    8       16    key id
    24      32    random salt
    56      32    commitment
    88      n+16  ciphertext and tag

Each object has its own key, derived from its salt, its header and its context (which account owns it and where it belongs).
So no nonce is ever reused, and an object that was moved elsewhere does not open. The second half of the derived bytes is
published as a commitment, so that a ciphertext opens under one key and one context only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.signing import SigningKey

from relayer.wire.codec import Field, InvalidSecret, Malformed, UnsealError, lp

SECRET_SIZE = 32
FIRST_GENERATION = 1
_ROUTE_SIZE = 16
_HEX = re.compile(r"[0-9a-fA-F]{64}\Z")
_ACCOUNT_ID = re.compile(r"0x[0-9a-f]{64}\Z")


def derive(secret: bytes, *label: Field, salt: bytes = b"", length: int = SECRET_SIZE) -> bytes:
    """Return HKDF-SHA512(secret, salt, lp(label)) of ``length`` bytes (RFC 5869).

    Example:
        >>> derive(bytes(32), "example").hex()[:16]
        'a5586e56250fe009'
    """
    return HKDF(algorithm=SHA512(), length=length, salt=salt or None, info=lp(*label)).derive(secret)


def route(namespace_secret: bytes) -> str:
    """Return the ``memory-route`` header of a namespace: 32 hex digits, the same wherever its secret is held.

    A load balancer hashes it, so that few relayers have the namespace open. It does not reveal the name, because it is
    derived from the namespace's secret.

    Example:
        >>> route(bytes(32))
        'd2a70cfc161cb2d916619bef694d1a57'
    """
    return derive(namespace_secret, "memrelay/v1/route", length=_ROUTE_SIZE).hex()


def parse_secret(text: str, *, source: str = "the secret") -> bytes:
    """Parse 32 bytes given as 64 hex digits or base64 (either alphabet, padded or not).

    Raises:
        InvalidSecret: the text is no such secret. The message names ``source`` and never shows the value.

    Example:
        >>> parse_secret("00" * 32) == bytes(32)
        True
        >>> parse_secret("abc", source="MEMRELAY_SECRET")
        Traceback (most recent call last):
            ...
        relayer.wire.codec.InvalidSecret: MEMRELAY_SECRET must be 32 bytes: 64 hex digits or base64
    """
    cleaned = text.strip()
    if _HEX.match(cleaned):
        return bytes.fromhex(cleaned)
    standard = cleaned.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidSecret(f"{source} must be 32 bytes: 64 hex digits or base64") from error
    if len(raw) != SECRET_SIZE:
        raise InvalidSecret(f"{source} must be 32 bytes: 64 hex digits or base64")
    return raw


@lru_cache(maxsize=4096)
def account_id(public_key: bytes) -> str:
    """Return ``0x`` + hex of BLAKE2b-256(0x00 || public key).

    Example:
        >>> account_id(bytes(32))
        '0xd8908c165dee785924e7421a0fd0418a19d5daeec395fd505a92a0fd3117e428'
    """
    return "0x" + hashlib.blake2b(b"\x00" + public_key, digest_size=32).hexdigest()


def is_account_id(text: str) -> bool:
    """Return whether a text has the form of an account id.

    Example:
        >>> is_account_id(account_id(bytes(32))), is_account_id("0x12")
        (True, False)
    """
    return bool(_ACCOUNT_ID.match(text))


@dataclass(frozen=True)
class AgentKeys:
    """All keys of one agent; contains no key of the account."""

    agent: str
    secret: bytes = field(repr=False)

    @cached_property
    def identity(self) -> SigningKey:
        """Return the key that signs this agent's requests. It is cached, because every request needs it."""
        return SigningKey(derive(self.secret, "identity"))

    @property
    def outbox_key(self) -> bytes:
        """Return the key that seals this agent's outbox items on the gateway's disk."""
        return derive(self.secret, "outbox")

    @property
    def backup_key(self) -> bytes:
        """Return the key that authenticates the exports that this agent wrote itself."""
        return derive(self.secret, "backup")

    def namespace_secret(self, namespace: str, generation: int) -> bytes:
        """Return the secret of one namespace of this agent.

        Example:
            >>> keys = RootKeys(bytes(32)).agent("coder")
            >>> keys.namespace_secret("coder", 0) == keys.namespace_secret("coder", 1)
            False
        """
        return derive(self.secret, "namespace", namespace, generation)


@dataclass(frozen=True, slots=True)
class RootKeys:
    """All keys of one gateway's root secret.

    Example:
        >>> RootKeys(bytes(32)).account[:10]
        '0x5a351147'
    """

    root: bytes = field(repr=False)

    @property
    def account_identity(self) -> SigningKey:
        """Return the account's Ed25519 key, which signs the certificates of its agents."""
        return SigningKey(derive(self.root, "memrelay/v1/account"))

    @property
    def account(self) -> str:
        """Return the account's id."""
        return account_id(bytes(self.account_identity.verify_key))

    def agent(self, agent: str) -> AgentKeys:
        """Return the keys of an agent, by its normal name.

        Example:
            >>> RootKeys(bytes(32)).agent("coder").identity.verify_key.encode().hex()[:16]
            'fb6c635fb253bfaf'
        """
        return AgentKeys(agent, derive(self.root, "memrelay/v1/agent", agent))

    def shared_secret(self, scope: str, generation: int) -> bytes:
        """Return the secret of a namespace that agents of this account share, 32 bytes.

        Example:
            >>> len(RootKeys(bytes(32)).shared_secret("shared/team", 0))
            32
        """
        return derive(self.root, "memrelay/v1/shared", scope, generation)


_MAGIC = b"MRL1"
_VERSION = 1
_SUITE = 1
_NONCE = bytes(12)  # constant, because each key is used once
KEY_ID_SIZE = 16
SALT_SIZE = 32
_HEADER_SIZE = 24
_BODY = 88
OVERHEAD = _BODY + 16
MAX_PLAINTEXT = 16 * 1024 * 1024


class ObjectType(IntEnum):
    """The type of a sealed object. A number is never reused for another type."""

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
    """A 32-byte key, with the random id by which sealed objects refer to it."""

    key_id: bytes
    secret: bytes = field(repr=False)


def context(object_type: ObjectType, account: str, incarnation: bytes, object_id: bytes | str) -> bytes:
    """Encode where an object belongs; opening it with any other context fails."""
    return lp(int(object_type), account, incarnation, object_id)


def seal(key: SealingKey, object_type: ObjectType, place: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
    """Seal ``plaintext`` for one context.

    Args:
        key: the key of the layer.
        object_type: the type of the plaintext.
        place: the context, from `context`.
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
        UnsealError: anything is wrong: version, suite, type, key, context, or a changed or missing byte.
    """
    view = memoryview(sealed)  # sealed objects may be large, so no part of them is copied
    header = bytes(view[:_HEADER_SIZE])
    expected = _MAGIC + bytes((_VERSION, object_type)) + _SUITE.to_bytes(2, "big") + key.key_id
    # Unknown versions are refused before any cryptography.
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
    """Return the id of the key that an object names as the one it was sealed with.

    Raises:
        UnsealError: the object is too short to contain one.
    """
    if len(sealed) < OVERHEAD or sealed[:4] != _MAGIC:
        raise UnsealError
    return sealed[8:_HEADER_SIZE]


def _keys(key: SealingKey, header: bytes, salt: bytes, place: bytes) -> tuple[bytes, bytes]:
    okm = derive(key.secret, "memrelay/v1/seal", header, place, salt=salt, length=64)
    return okm[:32], okm[32:]
