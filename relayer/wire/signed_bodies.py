"""What an account states: ``lp(body, signature)``, signed by the account identity that the body names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.lp import Reader, lp

__all__ = ["read_signed", "sign_body"]


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
