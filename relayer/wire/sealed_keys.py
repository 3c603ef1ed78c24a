"""Sealed keys, which carry a namespace's secret to a relayer, and the signed list of fleet keys that they are sealed to.

The header consists of the eight-byte id of the fleet key and a NaCl sealed box over
``lp(version, account, agent key, namespace, generation, secret, not_after)``. An empty secret is used for a namespace of
custody ``relayer``, in requests that carry no body.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey

from relayer.wire import names
from relayer.wire.codec import Malformed, NotAccepted, Reader, lp
from relayer.wire.signing import answer_key

MAX_SEALED_KEY = 1024
MAX_LIFE_SECONDS = 15 * 60
FLEET_ID_SIZE = 8
_VERSION = 1


def fleet_key_id(public_key: bytes) -> bytes:
    """Return the eight-byte id by which a sealed key names a fleet key: the start of its SHA-256.

    Example:
        >>> len(fleet_key_id(bytes(32)))
        8
    """
    return hashlib.sha256(public_key).digest()[:FLEET_ID_SIZE]


def named_fleet_key(encoded: bytes) -> bytes:
    """Return the id of the fleet key that a sealed key was encrypted for."""
    return encoded[:FLEET_ID_SIZE]


@dataclass(frozen=True, slots=True)
class SealedKey:
    """The key material of one namespace, as a gateway sends it to a relayer. ``not_after`` is in seconds since the epoch."""

    account: str
    agent_key: bytes
    namespace: str
    generation: int
    not_after: int
    secret: bytes = field(repr=False)
    answer_key: bytes = field(init=False, repr=False, compare=False)
    """The key that authenticates responses, see `relayer.wire.signing`; empty if the secret is empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_key", answer_key(self.secret) if self.secret else b"")

    def seal(self, fleet_public_key: bytes) -> bytes:
        """Seal for the relayers that hold the fleet key's private half.

        Raises:
            Malformed: the result is longer than 1 KiB, or the fleet key is not a usable point.
        """
        plain = lp(
            _VERSION,
            self.account,
            self.agent_key,
            self.namespace,
            self.generation,
            self.secret,
            self.not_after,
        )
        try:
            box = SealedBox(PublicKey(fleet_public_key)).encrypt(plain)
        except CryptoError as error:
            raise Malformed("the fleet key is not a usable public key") from error
        encoded = fleet_key_id(fleet_public_key) + box
        if len(encoded) > MAX_SEALED_KEY:
            raise Malformed(f"a sealed key has at most {MAX_SEALED_KEY} bytes")
        return encoded

    @classmethod
    def open(cls, encoded: bytes, fleet_private_key: PrivateKey) -> SealedKey:
        """Open a sealed key. This checks its form, not whether its content is acceptable.

        Raises:
            NotAccepted: ``sealed_key``: it does not open, or has the wrong form.
        """
        if len(encoded) > MAX_SEALED_KEY:
            raise NotAccepted("sealed_key")
        try:
            reader = Reader(SealedBox(fleet_private_key).decrypt(encoded[FLEET_ID_SIZE:]))
            version, account, agent_key = reader.integer(), reader.text(), reader.bytes(32)
            namespace, generation = reader.text(), reader.integer()
            secret, not_after = reader.bytes(), reader.integer()
            reader.end()
        except (CryptoError, Malformed, ValueError, TypeError) as error:
            raise NotAccepted("sealed_key") from error
        if version != _VERSION or len(secret) not in {0, 32} or not names.is_normal_namespace(namespace):
            raise NotAccepted("sealed_key")
        return cls(account, agent_key, namespace, generation, not_after, secret)


MAX_AGE_SECONDS = 24 * 3600
_LABEL = "memrelay/v1/keys"


@dataclass(frozen=True, slots=True)
class FleetKey:
    """An X25519 public key. Sealed keys for it are accepted until ``not_after``, in seconds since the epoch."""

    day: str
    public_key: bytes
    not_after: int


@dataclass(frozen=True, slots=True)
class FleetList:
    """Fleet keys, newest first, as signed by the relayer's identity at ``issued_at`` (seconds since the epoch)."""

    identity: bytes
    issued_at: int
    keys: tuple[FleetKey, ...]
    signature: bytes

    @classmethod
    def issue(cls, identity: SigningKey, issued_at: int, keys: tuple[FleetKey, ...]) -> FleetList:
        """Sign a list of fleet keys."""
        public = bytes(identity.verify_key)
        signature = identity.sign(_message(public, issued_at, keys)).signature
        return cls(public, issued_at, keys, signature)

    def verify(self, now: int) -> None:
        """Check the signature and the age of the list.

        Raises:
            NotAccepted: ``keys_signature``, ``keys_stale`` (older than 24 h) or ``keys_future``.
        """
        try:
            VerifyKey(self.identity).verify(
                _message(self.identity, self.issued_at, self.keys), self.signature
            )
        except (CryptoError, ValueError) as error:
            raise NotAccepted("keys_signature") from error
        if self.issued_at < now - MAX_AGE_SECONDS:
            raise NotAccepted("keys_stale")
        if self.issued_at > now + MAX_AGE_SECONDS:
            raise NotAccepted("keys_future")


def _message(identity: bytes, issued_at: int, keys: tuple[FleetKey, ...]) -> bytes:
    rows = [lp(key.day, key.public_key, key.not_after) for key in keys]
    return lp(_LABEL, identity, issued_at, rows)
