"""From one secret to every key of a gateway.

root secret ─ account identity (Ed25519)
            ├ agent secret ─ agent identity (Ed25519), outbox key, backup key, namespace secrets
            └ shared secrets, for namespaces that agents share

HKDF-SHA512 everywhere; the labels are part of the format and frozen in ``tests/vectors``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.signing import SigningKey

from relayer.wire.codec import Field, lp
from relayer.wire.errors import InvalidSecret

SECRET_SIZE = 32
FIRST_GENERATION = 1
_ROUTE_SIZE = 16
_HEX = re.compile(r"[0-9a-fA-F]{64}\Z")
_ACCOUNT_ID = re.compile(r"0x[0-9a-f]{64}\Z")


def derive(secret: bytes, *label: Field, salt: bytes = b"", length: int = SECRET_SIZE) -> bytes:
    """Return HKDF-SHA512(secret, salt, lp(label)) of ``length`` bytes (RFC 5869)."""
    return HKDF(algorithm=SHA512(), length=length, salt=salt or None, info=lp(*label)).derive(secret)


def route(namespace_secret: bytes) -> str:
    """Return the ``memory-route`` header of a namespace: 32 hex digits, the same wherever its secret is held.

    A balancer hashes on it, so that a namespace stays open at few relayers. It tells nobody the name, because the name
    went through the secret before.
    """
    return derive(namespace_secret, "memrelay/v1/route", length=_ROUTE_SIZE).hex()


def parse_secret(text: str, *, source: str = "the secret") -> bytes:
    """Parse 32 bytes given as 64 hex digits or base64 (either alphabet, padded or not).

    Raises:
        InvalidSecret: naming ``source``, never the value.
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


def mask(public: str) -> str:
    """Shorten an id for a log: ``e21d...ed9b``. Meant for public values; secrets are not logged at all."""
    bare = public.removeprefix("0x")
    return f"{bare[:4]}...{bare[-4:]}"


@lru_cache(maxsize=4096)
def account_id(public_key: bytes) -> str:
    """Return ``0x`` + hex of BLAKE2b-256(0x00 || public key)."""
    return "0x" + hashlib.blake2b(b"\x00" + public_key, digest_size=32).hexdigest()


def is_account_id(text: str) -> bool:
    """Whether a text has the form of an account id."""
    return bool(_ACCOUNT_ID.match(text))


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """All keys of one agent; holds nothing of the account above it."""

    agent: str
    secret: bytes = field(repr=False)

    @property
    def identity(self) -> SigningKey:
        """The key that signs this agent's requests."""
        return SigningKey(derive(self.secret, "identity"))

    @property
    def outbox_key(self) -> bytes:
        """The key that seals this agent's items waiting on the gateway's disk."""
        return derive(self.secret, "outbox")

    @property
    def backup_key(self) -> bytes:
        """The key under which this agent knows the exports that it wrote itself."""
        return derive(self.secret, "backup")

    def namespace_secret(self, namespace: str, generation: int) -> bytes:
        """The secret that opens one namespace of this agent."""
        return derive(self.secret, "namespace", namespace, generation)


@dataclass(frozen=True, slots=True)
class RootKeys:
    """All keys of one gateway's root secret."""

    root: bytes = field(repr=False)

    @property
    def account_identity(self) -> SigningKey:
        """The key that signs certificates."""
        return SigningKey(derive(self.root, "memrelay/v1/account"))

    @property
    def account(self) -> str:
        """The account's id."""
        return account_id(bytes(self.account_identity.verify_key))

    def agent(self, agent: str) -> AgentKeys:
        """The keys of an agent, by its normal name."""
        return AgentKeys(agent, derive(self.root, "memrelay/v1/agent", agent))

    def shared_secret(self, scope: str, generation: int) -> bytes:
        """The secret of a namespace that agents of this account share."""
        return derive(self.root, "memrelay/v1/shared", scope, generation)
