"""What an account's identity signs: certificates, which say what an agent's key may do, and revocations of them.

A certificate is ``lp(body, signature)``; it rides on every request, so that a relayer knows accounts, not agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol, TypeVar

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey
from pydantic import BaseModel, ConfigDict, Field

from relayer.wire import names
from relayer.wire.codec import Reader, lp
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.keys import account_id


class _Signed(Protocol):
    @property
    def account_key(self) -> bytes: ...


S = TypeVar("S", bound=_Signed)


def sign_body(body: bytes, account_identity: SigningKey) -> bytes:
    """Sign and encode a body."""
    return lp(body, account_identity.sign(body).signature)


def read_signed(encoded: bytes, parse: Callable[[bytes], S], *, malformed: str, unsigned: str) -> S:
    """Decode what was signed and check the signature; nothing of it counts before that.

    Args:
        encoded: as it was sent.
        parse: of the body; raises `Malformed` or `ValueError`.
        malformed: the code of what cannot be read.
        unsigned: the code of what the identity that it names did not sign.

    Raises:
        NotAccepted: with one of these codes.
    """
    try:
        outer = Reader(encoded)
        body, signature = outer.bytes(), outer.bytes(64)
        outer.end()
        said = parse(body)
    except (Malformed, ValueError) as error:
        raise NotAccepted(malformed) from error
    try:
        VerifyKey(said.account_key).verify(body, signature)
    except CryptoError as error:
        raise NotAccepted(unsigned) from error
    return said


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


MAX_REVOCATIONS = 1000
_REVOCATIONS_LABEL = "memrelay/v1/revocations"
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
        body = lp(_REVOCATIONS_LABEL, self.account_key, self.counter, self.agent_keys, self.serials)
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
        if reader.text() != _REVOCATIONS_LABEL:
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
