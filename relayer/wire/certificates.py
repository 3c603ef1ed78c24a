"""Certificates: the account identity says what an agent's key may do.

A certificate is ``lp(body, signature)``; it rides on every request, so that a relayer knows accounts, not agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nacl.signing import SigningKey

from relayer.wire import names
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.keys import account_id
from relayer.wire.lp import Reader, lp
from relayer.wire.signed_bodies import read_signed, sign_body

__all__ = ["MAX_CERTIFICATE", "Certificate", "Right"]

MAX_CERTIFICATE = 2048
SERIAL_SIZE = 16
_LABEL = "memrelay/v1/certificate"
_MAX_PATTERNS = 16


class Right(StrEnum):
    """What a certificate may allow; none implies another."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the account says of an agent's key. Times are in seconds since the epoch."""

    account_key: bytes
    agent: str
    agent_key: bytes
    namespaces: tuple[str, ...]
    rights: tuple[Right, ...]
    not_before: int
    not_after: int
    serial: bytes

    @property
    def account(self) -> str:
        """The id of the account that speaks."""
        return account_id(self.account_key)

    def allows(self, namespace: str, right: Right) -> bool:
        """Whether a pattern covers the namespace and the right is granted."""
        return right in self.rights and any(names.grants(pattern, namespace) for pattern in self.namespaces)

    def issue(self, account_identity: SigningKey) -> bytes:
        """Sign and encode.

        Raises:
            Malformed: longer than 2 KiB, or signed by another identity than the one it names.
        """
        if bytes(account_identity.verify_key) != self.account_key:
            raise Malformed("a certificate is signed by the account identity that it names")
        encoded = sign_body(self._body(), account_identity)
        if len(encoded) > MAX_CERTIFICATE:
            raise Malformed(f"a certificate has at most {MAX_CERTIFICATE} bytes")
        return encoded

    def _body(self) -> bytes:
        return lp(
            _LABEL,
            self.account_key,
            self.agent,
            self.agent_key,
            self.namespaces,
            tuple(right.value for right in self.rights),
            self.not_before,
            self.not_after,
            self.serial,
        )

    @classmethod
    def verify(cls, encoded: bytes) -> Certificate:
        """Decode and check everything that needs no clock and no state.

        Raises:
            NotAccepted: ``certificate_malformed`` or ``certificate_signature``.
        """
        if len(encoded) > MAX_CERTIFICATE:
            raise NotAccepted("certificate_malformed")
        return read_signed(
            encoded, cls._parse, malformed="certificate_malformed", unsigned="certificate_signature"
        )

    @classmethod
    def _parse(cls, body: bytes) -> Certificate:
        reader = Reader(body)
        if reader.text() != _LABEL:
            raise Malformed("not a certificate")
        certificate = cls(
            account_key=reader.bytes(32),
            agent=reader.text(),
            agent_key=reader.bytes(32),
            namespaces=reader.texts(),
            rights=tuple(Right(text) for text in reader.texts()),
            not_before=reader.integer(),
            not_after=reader.integer(),
            serial=reader.bytes(SERIAL_SIZE),
        )
        reader.end()
        if not names.is_normal(certificate.agent):
            raise Malformed("the agent's name is not in normal form")
        if not 1 <= len(certificate.namespaces) <= _MAX_PATTERNS:
            raise Malformed("a certificate has 1 to 16 namespace patterns")
        if not all(
            names.is_normal_namespace(pattern.removesuffix("/*")) for pattern in certificate.namespaces
        ):
            raise Malformed("a namespace pattern is not in normal form")
        return certificate
