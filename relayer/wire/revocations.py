"""Revocations: the account identity takes back certificates before they end.

A list is ``lp(body, signature)``, always the whole list, under a counter: a relayer keeps the one with the highest
counter, so that an old list cannot bring a revoked key back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field

from relayer.wire.certificates import SERIAL_SIZE, Certificate
from relayer.wire.errors import Malformed
from relayer.wire.keys import account_id
from relayer.wire.lp import Reader, lp
from relayer.wire.signed_bodies import read_signed, sign_body

__all__ = [
    "MAX_REVOCATIONS",
    "Revocations",
    "RevocationsRequest",
    "RevocationsResponse",
    "RevocationsView",
]

MAX_REVOCATIONS = 1000
_LABEL = "memrelay/v1/revocations"
_KEY_SIZE = 32


class RevocationsRequest(BaseModel):
    """``PUT /v1/account/revocations``: the signed list in base64url."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    revocations: Annotated[str, Field(max_length=128 * 1024)]


class RevocationsResponse(BaseModel):
    """The counter of the list that now holds."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    counter: int


class RevocationsView(BaseModel):
    """``GET /v1/account/revocations``: the signed list in base64url as the account sent it, "" when there is none."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    revocations: str = ""


@dataclass(frozen=True, slots=True)
class Revocations:
    """What an account no longer vouches for: agent keys, and single certificates by serial."""

    account_key: bytes
    counter: int
    agent_keys: tuple[bytes, ...] = ()
    serials: tuple[bytes, ...] = ()

    @property
    def account(self) -> str:
        """The id of the account that speaks."""
        return account_id(self.account_key)

    def cover(self, certificate: Certificate) -> bool:
        """Whether a certificate of the account is taken back."""
        return certificate.agent_key in self.agent_keys or certificate.serial in self.serials

    def issue(self, account_identity: SigningKey) -> bytes:
        """Sign and encode.

        Raises:
            Malformed: more than a thousand, or signed by another identity than the one it names.
        """
        if bytes(account_identity.verify_key) != self.account_key:
            raise Malformed("revocations are signed by the account identity that they name")
        if len(self.agent_keys) + len(self.serials) > MAX_REVOCATIONS:
            raise Malformed(f"a list holds at most {MAX_REVOCATIONS} revocations")
        body = lp(_LABEL, self.account_key, self.counter, self.agent_keys, self.serials)
        return sign_body(body, account_identity)

    @classmethod
    def verify(cls, encoded: bytes) -> Revocations:
        """Decode and check the signature.

        Raises:
            NotAccepted: ``revocations_malformed`` or ``revocations_signature``.
        """
        return read_signed(
            encoded, cls._parse, malformed="revocations_malformed", unsigned="revocations_signature"
        )

    @classmethod
    def _parse(cls, body: bytes) -> Revocations:
        reader = Reader(body)
        if reader.text() != _LABEL:
            raise Malformed("not a list of revocations")
        account_key, counter = reader.bytes(_KEY_SIZE), reader.integer()
        agent_keys = _items(reader.bytes(), _KEY_SIZE)
        serials = _items(reader.bytes(), SERIAL_SIZE)
        reader.end()
        if len(agent_keys) + len(serials) > MAX_REVOCATIONS:
            raise Malformed(f"a list holds at most {MAX_REVOCATIONS} revocations")
        return cls(account_key, counter, agent_keys, serials)


def _items(encoded: bytes, size: int) -> tuple[bytes, ...]:
    reader = Reader(encoded)
    items = []
    while not reader.done:
        items.append(reader.bytes(size))
    return tuple(items)
