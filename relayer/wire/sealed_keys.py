"""Sealed keys: a namespace's secret on its way to a relayer, readable by the fleet key of the day only.

Layout of the header's bytes: eight bytes that name the fleet key, then a NaCl sealed box over
``lp(version, account, agent key, namespace, generation, secret, not_after)``. An empty secret names a namespace of
custody ``relayer``, for requests that carry no body.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

from relayer.wire import names
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.lp import Reader, lp
from relayer.wire.proofs import answer_key

__all__ = ["MAX_LIFE_SECONDS", "MAX_SEALED_KEY", "SealedKey", "fleet_key_id", "named_fleet_key"]

MAX_SEALED_KEY = 1024
MAX_LIFE_SECONDS = 15 * 60
FLEET_ID_SIZE = 8
_VERSION = 1


def fleet_key_id(public_key: bytes) -> bytes:
    """Return the eight bytes by which a sealed key names a fleet key: the start of its SHA-256."""
    return hashlib.sha256(public_key).digest()[:FLEET_ID_SIZE]


def named_fleet_key(encoded: bytes) -> bytes:
    """Return the id of the fleet key that a sealed key was made for."""
    return encoded[:FLEET_ID_SIZE]


@dataclass(frozen=True, slots=True)
class SealedKey:
    """What a gateway tells a relayer about one namespace. ``not_after`` is in seconds since the epoch."""

    account: str
    agent_key: bytes
    namespace: str
    generation: int
    not_after: int
    secret: bytes = field(repr=False)
    answer_key: bytes = field(init=False, repr=False, compare=False)
    """Proves answers, see `relayer.wire.proofs`; empty as the secret is."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_key", answer_key(self.secret) if self.secret else b"")

    def seal(self, fleet_public_key: bytes) -> bytes:
        """Seal for the relayers that hold the private half.

        Raises:
            Malformed: longer than 1 KiB, or the fleet key is not a usable point.
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
        """Open; checks form, not meaning.

        Raises:
            NotAccepted: ``sealed_key``: it does not open, or is not in form.
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
