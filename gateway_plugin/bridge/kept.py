"""Requests that a host's plugin stored, sealed, while no bridge process was running.

The plugin seals each request to a public key, so that it cannot read its own files again. The private key is derived from
the gateway's secret: any later process with that secret can open the requests.

Sealed request, format 1:

    offset  size  field
    0       4     magic "MRK1"
    4       32    an X25519 public key, made for this request alone
    36      n+16  AES-256-GCM with a nonce of zeros: the key is used once

The key is HKDF-SHA256 of the X25519 agreement, with both public keys as salt, the sender's first, and the magic as info.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway_plugin.bridge.protocol import INVALID_PARAMS, UNOPENABLE, BridgeError, Call
from relayer.wire import codec as base64url
from relayer.wire.errors import Malformed

_KEY: Final = 32
_NONCE: Final = bytes(12)


class KeptRequests:
    """Opens the requests that are sealed to one gateway.

    Args:
        secret: 32 bytes derived from the gateway's secret, the same at each start.
    """

    def __init__(self, secret: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self._public = self._private.public_key().public_bytes_raw()

    @property
    def public_key(self) -> str:
        """Return the public key to which a host's plugin seals requests, in base64url."""
        return base64url.encode(self._public)

    def open(self, sealed: bytes) -> bytes:
        """Open a sealed request. Raises `BridgeError`: it was sealed for another secret, or it is damaged."""
        magic, sender, rest = sealed[:4], sealed[4 : 4 + _KEY], sealed[4 + _KEY :]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
            kdf = HKDF(algorithm=SHA256(), length=_KEY, salt=sender + self._public, info=magic)
            return AESGCM(kdf.derive(shared)).decrypt(_NONCE, rest, None)
        except (ValueError, InvalidTag) as error:
            told = "it was kept under another secret than this gateway's, or is damaged"
            raise BridgeError(UNOPENABLE, told) from error

    def call(self, call: Call) -> Call:
        """Return the request that is sealed in the parameters of a call, with the id and the deadline of that call.

        Raises:
            BridgeError: see `open`; or the content is not a request.
        """
        given = call.params.get("sealed")
        if not isinstance(given, str):
            raise BridgeError(INVALID_PARAMS, "sealed is text")
        try:
            said: Any = json.loads(self.open(_decoded(given)))
        except (ValueError, RecursionError) as error:
            raise BridgeError(INVALID_PARAMS, "what was kept is no request") from error
        method, params = (
            (said.get("method"), said.get("params")) if isinstance(said, Mapping) else (None, None)
        )
        if not isinstance(method, str) or not isinstance(params, dict):
            raise BridgeError(INVALID_PARAMS, "what was kept is no request")
        return Call(call.id, method, params, call.deadline)


def _decoded(text: str) -> bytes:
    try:
        return base64url.decode(text)
    except Malformed as error:
        raise BridgeError(INVALID_PARAMS, "sealed is base64url") from error
