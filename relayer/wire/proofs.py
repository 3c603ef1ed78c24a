"""Answers that prove who gave them, and bodies that only who opens the request's key can read."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from relayer.wire import codec as base64url
from relayer.wire.codec import lp
from relayer.wire.errors import Malformed, NotAccepted, UnsealError
from relayer.wire.keys import derive

PROOF_HEADER: Final = "memory-proof"
_WHOLE: Final = "memrelay/v1/answer"
_PART: Final = "memrelay/v1/answer-part"
_LINE: Final = re.compile(rb'\{"proof":"([A-Za-z0-9_-]{1,128})"\}')
_MAC_SIZE: Final = 32


def answer_key(namespace_secret: bytes) -> bytes:
    """Return the key under which answers about a namespace are authenticated."""
    return derive(namespace_secret, _WHOLE)


class Prover:
    """Proves the answer to one request: whole, or in parts.

    Args:
        request: the request's ``memory-signature`` header, as it was sent.
        identity: signs, until a sealed key was `opened`.
    """

    def __init__(self, request: str, identity: SigningKey) -> None:
        self._request = hashlib.sha256(request.encode()).digest()
        self._identity = identity
        self._key = b""
        self._sent = hashlib.sha256()

    def opened(self, key: bytes) -> None:
        """Prove with an `answer_key` from now on, or by the identity again with none."""
        self._key = key

    def whole(self, status: int, body: bytes) -> str:
        """Return the ``memory-proof`` header of an answer."""
        return self._proof(lp(_WHOLE, self._request, status, hashlib.sha256(body).digest()))

    def line(self, chunk: bytes) -> bytes:
        """Return the next lines of a stream of JSON, with the line that proves them and all before."""
        return self._sending(chunk, b'{"proof":"%s"}\n')

    def comment(self, chunk: bytes) -> bytes:
        """Return the next server-sent events, with the comment that proves them and all before."""
        return self._sending(chunk, b": proof %s\n\n")

    def _sending(self, chunk: bytes, form: bytes) -> bytes:
        self._sent.update(chunk)
        proven = form % self._proof(lp(_PART, self._request, self._sent.digest())).encode()
        self._sent.update(proven)
        return chunk + proven

    def _proof(self, message: bytes) -> str:
        if self._key:
            return base64url.encode(hmac.digest(self._key, message, "sha256"))
        return base64url.encode(self._identity.sign(message).signature)


class Verifier:
    """Holds the answer to one request against its proof.

    Args:
        request: the request's ``memory-signature`` header, as it was sent.
        identity: the relayer's public key, as it is trusted.
        key: the `answer_key` of the secret that the request carried, empty where it carried none.
    """

    def __init__(self, request: str, identity: bytes, key: bytes = b"") -> None:
        self._request = hashlib.sha256(request.encode()).digest()
        self._identity = identity
        self._key = key

    def check(self, proof: str, status: int, body: bytes) -> None:
        """Require that a whole answer is proven by a ``memory-proof`` header, empty for none.

        Raises:
            NotAccepted: ``answer_proof``.
        """
        self._check(proof, lp(_WHOLE, self._request, status, hashlib.sha256(body).digest()))

    async def lines(self, chunks: AsyncIterator[bytes], *, most: int) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a streamed answer, each only after its proof.

        Args:
            chunks: of the body, in any cut.
            most: bytes that may wait for a proof.

        Raises:
            NotAccepted: ``answer_proof``: a proof is wrong, or what came last has none.
        """
        seen = hashlib.sha256()
        waiting: list[bytes] = []
        size, begun = 0, [b""]  # a line that has not ended yet: joined once, in however small pieces it comes
        async for chunk in chunks:
            size += len(chunk)
            ended, newline, rest = chunk.rpartition(b"\n")
            if newline:
                lines, begun = b"".join((*begun, ended)).split(b"\n"), [rest]
            else:
                lines = []
                begun.append(chunk)
            for line in lines:
                proof = _LINE.fullmatch(line)
                if proof is None:
                    waiting.append(line)
                else:
                    self._check(proof[1].decode(), lp(_PART, self._request, seen.digest()))
                    for proven in waiting:
                        yield proven
                    waiting.clear()
                    size = len(rest)
                seen.update(line + b"\n")
            if size > most:
                raise NotAccepted("answer_proof")
        if waiting or any(begun):
            raise NotAccepted("answer_proof")

    def _check(self, proof: str, message: bytes) -> None:
        try:
            given = base64url.decode(proof)
            if self._key and len(given) == _MAC_SIZE:
                if hmac.compare_digest(given, hmac.digest(self._key, message, "sha256")):
                    return
            else:
                VerifyKey(self._identity).verify(message, given)
                return
        except (CryptoError, Malformed, ValueError, TypeError) as error:
            raise NotAccepted("answer_proof") from error
        raise NotAccepted("answer_proof")


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
