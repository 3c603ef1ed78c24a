"""Bodies of requests that only who can open their sealed key reads: over plain http, anybody may hold the relayer's port.

A body is AES-256-GCM under a key of its own, ``HKDF(namespace secret, lp("memrelay/v1/body", nonce))`` with the 16 random
bytes of the request's signature; digest and signature cover what is sent. One key seals one body, so its nonce is zero.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from relayer.wire.errors import UnsealError
from relayer.wire.keys import derive

__all__ = ["BODY_OVERHEAD", "SEALED_TYPE", "open_body", "seal_body"]

SEALED_TYPE: Final = "application/memrelay-sealed"
BODY_OVERHEAD: Final = 16
_LABEL: Final = "memrelay/v1/body"
_NONCE: Final = bytes(12)  # the key is used once


def seal_body(namespace_secret: bytes, nonce: bytes, body: bytes) -> bytes:
    """Seal a body for the request whose signature has ``nonce``, which no other request may have."""
    return AESGCM(derive(namespace_secret, _LABEL, nonce)).encrypt(_NONCE, body, None)


def open_body(namespace_secret: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Open a body.

    Raises:
        UnsealError: another secret or request, or a changed or missing byte.
    """
    try:
        return AESGCM(derive(namespace_secret, _LABEL, nonce)).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise UnsealError from error
