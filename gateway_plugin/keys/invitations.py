"""Invitations: the texts with which an account shares one namespace with an agent of another account.

An invitation contains the namespace's secret and a certificate that grants the agent's key this namespace alone. Both are
signed by the account that shares, and sealed to the agent's public key: only that agent's gateway can open the text.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from nacl.exceptions import CryptoError
from nacl.public import PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey

from gateway_plugin.errors import IdentityError
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.codec import Malformed, NotAccepted, Reader, lp
from relayer.wire.sealing import AgentKeys
from relayer.wire.signing import SERIAL_SIZE, Certificate, Right, read_signed, sign_body

_PREFIX: Final = "memrelay-invitation-1."
_LABEL: Final = "memrelay/v1/invitation"
_KEY_SIZE: Final = 32
# A relayer whose clock is a little behind must not take a fresh certificate for one of the future.
BACKDATED: Final = 300
_LATEST: Final = 253_402_300_799  # the end of the year 9999
_RENEW: Final = "ask its owner for a new one: memrelay-gateway share NAMESPACE --with-key KEY"


@dataclass(frozen=True, slots=True)
class Invitation:
    """An opened invitation: one namespace of another account, with what a request to it needs.

    Attributes:
        encoded: the certificate as it was signed.
        relayer: the identity of the relayer that stores the namespace.
    """

    certificate: Certificate
    encoded: bytes = field(repr=False)
    generation: int
    secret: bytes = field(repr=False)
    relayer: bytes

    @property
    def account_key(self) -> bytes:
        """The public key of the account that shares, which signs the invitation."""
        return self.certificate.account_key

    @property
    def namespace(self) -> str:
        """The namespace, by its normal name."""
        return self.certificate.namespaces[0]

    @property
    def writes(self) -> bool:
        """Return whether the agent may write to the namespace."""
        return Right.WRITE in self.certificate.rights

    @classmethod
    def issue(
        cls,
        account_identity: SigningKey,
        agent_key: bytes,
        namespace: str,
        *,
        secret: bytes,
        generation: int,
        relayer: bytes,
        writes: bool,
        now: int,
        seconds: int,
    ) -> Invitation:
        """Create an invitation; `sealed` returns its text."""
        certificate = Certificate(
            account_key=bytes(account_identity.verify_key),
            # A hashed name: no agent of the account that shares can have it.
            agent=names.hashed(agent_key.hex()),
            agent_key=agent_key,
            namespaces=(namespace,),
            rights=(Right.READ, Right.WRITE) if writes else (Right.READ,),
            not_before=max(now - BACKDATED, 0),
            not_after=now + seconds,
            serial=secrets.token_bytes(SERIAL_SIZE),
        )
        return cls(certificate, certificate.issue(account_identity), generation, secret, relayer)

    def sealed(self, account_identity: SigningKey) -> str:
        """Return the invitation as a text that only the invited agent's signing key opens."""
        agent_key = self.certificate.agent_key
        body = lp(_LABEL, self.encoded, self.generation, self.secret, self.relayer)
        box = SealedBox(_encryption_key(agent_key)).encrypt(sign_body(body, account_identity))
        return _PREFIX + base64url.encode(agent_key + box)

    @classmethod
    def open(cls, text: str, keys: AgentKeys) -> Invitation:
        """Open an invitation with the keys of the agent that it is for. This does not check whether it has ended.

        Raises:
            IdentityError: the text is not an invitation, was changed, or is for another agent.
        """
        mine = bytes(keys.identity.verify_key)
        raw = b""
        if text.startswith(_PREFIX):
            with suppress(Malformed):
                raw = base64url.decode(text.removeprefix(_PREFIX))
        if not raw:
            raise IdentityError(
                "not an invitation: give the whole text that memrelay-gateway share --with-key printed, or its file"
            )
        if raw[:_KEY_SIZE] != mine:
            raise IdentityError(
                f"the invitation is not for the key of this agent, {mine.hex()}: give --agent NAME with the agent whose key "
                "its owner was given (memrelay-gateway keys show --agent NAME)"
            )
        try:
            signed = SealedBox(keys.identity.to_curve25519_private_key()).decrypt(raw[_KEY_SIZE:])
            invitation = read_signed(signed, cls._parse, malformed="invitation", unsigned="invitation")
        except (CryptoError, NotAccepted, ValueError, TypeError) as error:
            raise IdentityError(f"the invitation was changed or is incomplete: {_RENEW}") from error
        if invitation.certificate.agent_key != mine:
            raise IdentityError(f"the invitation has a certificate for another key: {_RENEW}")
        return invitation

    @classmethod
    def _parse(cls, body: bytes) -> Invitation:
        reader = Reader(body)
        if reader.text() != _LABEL:
            raise Malformed("not an invitation")
        encoded, generation = reader.bytes(), reader.integer()
        secret, relayer = reader.bytes(_KEY_SIZE), reader.bytes(_KEY_SIZE)
        reader.end()
        certificate = Certificate.verify(encoded)
        if len(certificate.namespaces) != 1 or certificate.namespaces[0].endswith("/*"):
            raise Malformed("an invitation is for one namespace")
        if certificate.not_after > _LATEST:
            raise Malformed("an invitation ends within the calendar")
        return cls(certificate, encoded, generation, secret, relayer)

    def namespace_secret(self, namespace: str, generation: int) -> bytes:
        """Return the namespace's secret, the only one that an invitation has. Raises `IdentityError` for any other."""
        if namespace != self.namespace:
            raise IdentityError("the invitation is for another namespace")
        if generation != self.generation:
            raise IdentityError(f"the keys of the namespace were rotated after the invitation: {_RENEW}")
        return self.secret

    def header(self, now: int) -> str:
        """Return the ``memory-certificate`` header for a time in seconds since the epoch. Raises `IdentityError` if it ended."""
        if now > self.certificate.not_after:
            raise IdentityError(f"the invitation ended on {day_of(self.certificate.not_after)}: {_RENEW}")
        return base64url.encode(self.encoded)


def parse_agent_key(text: str) -> bytes:
    """Return the public key of an agent as `keys show` prints it. Raises `IdentityError`: the text is no such key."""
    try:
        key = bytes.fromhex(text.strip())
        _encryption_key(key)
    except (ValueError, CryptoError) as error:
        raise IdentityError(
            "not an agent's key: give the 64 hex digits that memrelay-gateway keys show --agent NAME prints as agent_key on "
            "the other gateway"
        ) from error
    return key


def day_of(seconds: int) -> str:
    """Return the day of a time in seconds since the epoch, in UTC.

    Example:
        >>> day_of(0)
        '1970-01-01'
    """
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _encryption_key(agent_key: bytes) -> PublicKey:
    return VerifyKey(agent_key).to_curve25519_public_key()
