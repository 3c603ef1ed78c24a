"""Signed requests: one scheme, no parser.

The signature covers everything that gives a request its meaning, the relayer's own authority included, so that a
request recorded at one relayer is worth nothing at another. Verified with libsodium only, because it refuses keys of
small order.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from relayer.wire import codec as base64url
from relayer.wire.codec import lp
from relayer.wire.errors import Malformed, NotAccepted

CERTIFICATE_HEADER = "memory-certificate"
KEY_HEADER = "memory-key"
DIGEST_HEADER = "content-digest"
SIGNATURE_HEADER = "memory-signature"
# For a balancer, and therefore not signed: it decides who answers and never what is answered.
ROUTE_HEADER = "memory-route"

MAX_WINDOW_SECONDS = 120
SKEW_SECONDS = 60
NONCE_SIZE = 16
_LABEL = "memrelay/v1/request"
_DIGEST_PREFIX = "sha-256=:"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """The content of the ``memory-signature`` header. Times are in seconds since the epoch."""

    created: int
    expires: int
    nonce: bytes
    signature: bytes

    def header(self) -> str:
        """Encode for the header."""
        times = self.created.to_bytes(8, "big") + self.expires.to_bytes(8, "big")
        return base64url.encode(times + self.nonce + self.signature)

    @classmethod
    def parse(cls, header: str) -> RequestSignature:
        """Decode a header.

        Raises:
            Malformed: not 96 bytes in base64url.
        """
        raw = base64url.decode(header)
        if len(raw) != 96:
            raise Malformed("memory-signature holds 96 bytes")
        return cls(int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:16], "big"), raw[16:32], raw[32:])

    def check_times(self, now: int) -> None:
        """Require a window of at most 120 s that contains ``now``, give or take 60 s.

        Raises:
            NotAccepted: ``window``, ``not_yet_valid`` or ``expired``.
        """
        if not 0 <= self.expires - self.created <= MAX_WINDOW_SECONDS:
            raise NotAccepted("window")
        if self.created > now + SKEW_SECONDS:
            raise NotAccepted("not_yet_valid")
        if self.expires < now - SKEW_SECONDS:
            raise NotAccepted("expired")


def normal_authority(host: str, scheme: str) -> str:
    """Return the authority as it is signed: lower case, no trailing dot of the host, no default port."""
    text = host.strip().lower()
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and not name.endswith(":"):
        text = name.rstrip(".") + (colon + port if colon + port != _DEFAULT_PORTS.get(scheme) else "")
    else:
        text = text.rstrip(".")
    return text


def content_digest(body_sha256: bytes) -> str:
    """Encode the digest of a body for the ``content-digest`` header."""
    return f"{_DIGEST_PREFIX}{base64.b64encode(body_sha256).decode()}:"


def parse_content_digest(header: str) -> bytes:
    """Decode a ``content-digest`` header that holds exactly one SHA-256.

    Raises:
        Malformed: anything else.
    """
    inner = header.removeprefix(_DIGEST_PREFIX).removesuffix(":")
    raw = base64url.decode(inner.replace("+", "-").replace("/", "_").rstrip("="))
    if len(raw) != 32 or content_digest(raw) != header:
        raise Malformed("content-digest holds one sha-256")
    return raw


def _message(
    target: tuple[str, str, str], body_sha256: bytes, when: tuple[int, int, bytes], headers: tuple[str, str]
) -> bytes:
    """Encode what is signed: (method, authority, raw target), body, (created, expires, nonce), (certificate, key)."""
    hashed = [hashlib.sha256(header.encode()).digest() for header in headers]
    return lp(_LABEL, *target, body_sha256, *when, *hashed)


def sign(
    identity: SigningKey,
    *,
    method: str,
    authority: str,
    target: str,
    body_sha256: bytes,
    created: int,
    nonce: bytes,
    certificate: str,
    memory_key: str = "",
    window: int = MAX_WINDOW_SECONDS,
) -> RequestSignature:
    """Sign a request.

    Args:
        identity: the agent's signing key.
        method: upper case.
        authority: from `normal_authority`.
        target: path and query exactly as sent.
        body_sha256: 32 bytes, of the empty string when there is no body.
        created: seconds since the epoch.
        nonce: 16 random bytes, fresh for every request.
        certificate: the value of the ``memory-certificate`` header.
        memory_key: the value of the ``memory-key`` header, empty when there is none.
        window: seconds of validity, at most 120.
    """
    expires = created + window
    message = _message(
        (method, authority, target), body_sha256, (created, expires, nonce), (certificate, memory_key)
    )
    return RequestSignature(created, expires, nonce, identity.sign(message).signature)


def verify(
    signature: RequestSignature,
    agent_key: bytes,
    *,
    method: str,
    authority: str,
    target: str,
    body_sha256: bytes,
    certificate: str,
    memory_key: str,
) -> None:
    """Check a signature over the stated digest; arguments as in `sign`.

    Raises:
        NotAccepted: ``signature``.
    """
    when = (signature.created, signature.expires, signature.nonce)
    message = _message((method, authority, target), body_sha256, when, (certificate, memory_key))
    try:
        VerifyKey(agent_key).verify(message, signature.signature)
    except (CryptoError, ValueError) as error:
        raise NotAccepted("signature") from error
