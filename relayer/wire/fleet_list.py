"""The list of fleet keys that a relayer publishes at ``GET /v1/keys``, signed by the relayer identity."""

from __future__ import annotations

from dataclasses import dataclass

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from relayer.wire.errors import NotAccepted
from relayer.wire.lp import lp

__all__ = ["MAX_AGE_SECONDS", "FleetKey", "FleetList"]

MAX_AGE_SECONDS = 24 * 3600
_LABEL = "memrelay/v1/keys"


@dataclass(frozen=True, slots=True)
class FleetKey:
    """One X25519 public key; sealed keys for it are accepted until ``not_after`` (seconds since the epoch)."""

    day: str
    public_key: bytes
    not_after: int


@dataclass(frozen=True, slots=True)
class FleetList:
    """Fleet keys, newest first, as the relayer identity stated them at ``issued_at`` (seconds since the epoch)."""

    identity: bytes
    issued_at: int
    keys: tuple[FleetKey, ...]
    signature: bytes

    @classmethod
    def issue(cls, identity: SigningKey, issued_at: int, keys: tuple[FleetKey, ...]) -> FleetList:
        """Sign a list."""
        public = bytes(identity.verify_key)
        signature = identity.sign(_message(public, issued_at, keys)).signature
        return cls(public, issued_at, keys, signature)

    def verify(self, now: int) -> None:
        """Check signature and age.

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
