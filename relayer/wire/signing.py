"""Signatures of the protocol: certificates and revocations by an account, requests by an agent, responses by a relayer.

A certificate says what an agent's key may do. It is ``lp(body, signature)`` and is sent with every request, so that a relayer
needs to know accounts only, not agents.

A request's signature covers everything that determines its meaning, including the authority of the relayer, so that a request
recorded at one relayer cannot be replayed at another. There is one signature scheme, so nothing has to be negotiated or parsed.
Signatures are verified with libsodium only, because it refuses keys of small order. `seal_body` and `open_body` encrypt bodies,
each for a single request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey
from pydantic import Field

from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.codec import Malformed, NotAccepted, Reader, UnsealError, lp
from relayer.wire.fields import Answer, Request
from relayer.wire.sealing import account_id, derive


class _Signed(Protocol):
    @property
    def account_key(self) -> bytes: ...


S = TypeVar("S", bound=_Signed)


def sign_body(body: bytes, account_identity: SigningKey) -> bytes:
    """Sign and encode a body."""
    return lp(body, account_identity.sign(body).signature)


def read_signed(encoded: bytes, parse: Callable[[bytes], S], *, malformed: str, unsigned: str) -> S:
    """Decode a signed value and check its signature. The parsed value must not be used before that check.

    Args:
        encoded: the value as it was sent.
        parse: parses the body; raises `Malformed` or `ValueError`.
        malformed: error code for a value that cannot be parsed.
        unsigned: error code for a signature that is not by the identity that the value names.

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
_CERTIFICATE_LABEL = "memrelay/v1/certificate"
_MAX_PATTERNS = 16


class Right(StrEnum):
    """A right that a certificate may grant; none implies another."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


def grants(pattern: str, target: str) -> bool:
    """Return whether a certificate's namespace pattern covers a namespace.

    ``researcher`` covers exactly itself; ``researcher/*`` covers everything below it, not itself.
    """
    if pattern.endswith("/*"):
        return target.startswith(pattern[:-1])
    return pattern == target


@dataclass(frozen=True, slots=True)
class Certificate:
    """An account's statement about an agent's key. Times are in seconds since the epoch; ``account`` is the id of the issuer."""

    account_key: bytes
    agent: str
    agent_key: bytes
    namespaces: tuple[str, ...]
    rights: tuple[Right, ...]
    not_before: int
    not_after: int
    serial: bytes
    # Computed once, because every step of every request needs it.
    account: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", account_id(self.account_key))

    def allows(self, namespace: str, right: Right) -> bool:
        """Return whether the certificate grants the right and one of its patterns covers the namespace."""
        return right in self.rights and any(grants(pattern, namespace) for pattern in self.namespaces)

    def issue(self, account_identity: SigningKey) -> bytes:
        """Sign and encode the certificate.

        Raises:
            Malformed: it is longer than 2 KiB, or the signing identity is not the one that it names.
        """
        if bytes(account_identity.verify_key) != self.account_key:
            raise Malformed("a certificate is signed by the account identity that it names")
        encoded = sign_body(self._body(), account_identity)
        if len(encoded) > MAX_CERTIFICATE:
            raise Malformed(f"a certificate has at most {MAX_CERTIFICATE} bytes")
        return encoded

    def _body(self) -> bytes:
        return lp(
            _CERTIFICATE_LABEL,
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
        """Decode a certificate and check everything that needs neither a clock nor stored state.

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
        if reader.text() != _CERTIFICATE_LABEL:
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


class RevocationsRequest(Request):
    """``PUT /v1/account/revocations``: the signed list in base64url."""

    revocations: Annotated[str, Field(max_length=128 * 1024)]


class RevocationsResponse(Answer):
    """The counter of the list that now holds."""

    counter: int


class RevocationsView(Answer):
    """``GET /v1/account/revocations``: the signed list in base64url as the account sent it, "" when there is none."""

    revocations: str = ""


@dataclass(frozen=True, slots=True)
class Revocations:
    """The revocations of an account: agent keys, and single certificates by serial."""

    account_key: bytes
    counter: int
    agent_keys: tuple[bytes, ...] = ()
    serials: tuple[bytes, ...] = ()

    @property
    def account(self) -> str:
        """Return the id of the account that issued the revocations."""
        return account_id(self.account_key)

    def issue(self, account_identity: SigningKey) -> bytes:
        """Sign and encode the revocations.

        Raises:
            Malformed: there are more than a thousand, or the signing identity is not the one that they name.
        """
        if bytes(account_identity.verify_key) != self.account_key:
            raise Malformed("revocations are signed by the account identity that they name")
        if len(self.agent_keys) + len(self.serials) > MAX_REVOCATIONS:
            raise Malformed(f"a list holds at most {MAX_REVOCATIONS} revocations")
        body = lp(_REVOCATIONS_LABEL, self.account_key, self.counter, self.agent_keys, self.serials)
        return sign_body(body, account_identity)

    @classmethod
    def verify(cls, encoded: bytes) -> Revocations:
        """Decode revocations and check their signature.

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


CERTIFICATE_HEADER = "memory-certificate"
KEY_HEADER = "memory-key"
DIGEST_HEADER = "content-digest"
SIGNATURE_HEADER = "memory-signature"
# Read by load balancers and therefore not signed: it decides which relayer answers, never what the answer is.
ROUTE_HEADER = "memory-route"

MAX_WINDOW_SECONDS = 120
SKEW_SECONDS = 60
NONCE_SIZE = 16
_REQUEST_LABEL = "memrelay/v1/request"
_DIGEST_PREFIX = "sha-256=:"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """The value of the ``memory-signature`` header. Times are in seconds since the epoch."""

    created: int
    expires: int
    nonce: bytes
    signature: bytes

    def header(self) -> str:
        """Encode the value for the header."""
        times = self.created.to_bytes(8, "big") + self.expires.to_bytes(8, "big")
        return base64url.encode(times + self.nonce + self.signature)

    @classmethod
    def parse(cls, header: str) -> RequestSignature:
        """Decode a ``memory-signature`` header.

        Raises:
            Malformed: the header is not 96 bytes in base64url.
        """
        raw = base64url.decode(header)
        if len(raw) != 96:
            raise Malformed("memory-signature holds 96 bytes")
        return cls(int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:16], "big"), raw[16:32], raw[32:])

    def check_times(self, now: int) -> None:
        """Require a validity of at most 120 s that includes ``now``, with a tolerance of 60 s.

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
    """Return the authority in the form that is signed: lower case, no trailing dot after the host, no default port."""
    text = host.strip().lower()
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and not name.endswith(":"):
        return name.rstrip(".") + (colon + port if colon + port != _DEFAULT_PORTS.get(scheme) else "")
    return text.rstrip(".")


def content_digest(body_sha256: bytes) -> str:
    """Encode the digest of a body for the ``content-digest`` header."""
    return f"{_DIGEST_PREFIX}{base64.b64encode(body_sha256).decode()}:"


def parse_content_digest(header: str) -> bytes:
    """Decode a ``content-digest`` header that contains exactly one SHA-256.

    Raises:
        Malformed: the header is anything else.
    """
    inner = header.removeprefix(_DIGEST_PREFIX).removesuffix(":")
    raw = base64url.decode(inner.replace("+", "-").replace("/", "_").rstrip("="))
    if len(raw) != 32 or content_digest(raw) != header:
        raise Malformed("content-digest holds one sha-256")
    return raw


def header_digest(header: str) -> bytes:
    """Return the SHA-256 of a header's value, which is signed in place of a long value."""
    return hashlib.sha256(header.encode()).digest()


def _message(
    target: tuple[str, str, str],
    body_sha256: bytes,
    when: tuple[int, int, bytes],
    headers: tuple[bytes, bytes],
) -> bytes:
    """Encode what is signed: (method, authority, raw target), body, (created, expires, nonce), digests of (certificate, key)."""
    return lp(_REQUEST_LABEL, *target, body_sha256, *when, *headers)


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
        body_sha256: SHA-256 of the body, 32 bytes; of the empty string if there is no body.
        created: seconds since the epoch.
        nonce: 16 random bytes, fresh for every request.
        certificate: the value of the ``memory-certificate`` header.
        memory_key: the value of the ``memory-key`` header, empty if there is none.
        window: seconds of validity, at most 120.
    """
    expires = created + window
    headers = header_digest(certificate), header_digest(memory_key)
    message = _message((method, authority, target), body_sha256, (created, expires, nonce), headers)
    return RequestSignature(created, expires, nonce, identity.sign(message).signature)


def verify(
    signature: RequestSignature,
    agent_key: bytes,
    *,
    method: str,
    authority: str,
    target: str,
    body_sha256: bytes,
    headers_sha256: tuple[bytes, bytes],
) -> None:
    """Check a request's signature over the stated digest.

    Arguments are as in `sign`, except that both headers are given as their `header_digest`.

    Raises:
        NotAccepted: ``signature``: the signature is wrong.
    """
    when = (signature.created, signature.expires, signature.nonce)
    message = _message((method, authority, target), body_sha256, when, headers_sha256)
    try:
        VerifyKey(agent_key).verify(message, signature.signature)
    except (CryptoError, ValueError) as error:
        raise NotAccepted("signature") from error


PROOF_HEADER: Final = "memory-proof"
_WHOLE: Final = "memrelay/v1/answer"
_REFUSAL: Final = "memrelay/v1/refusal"
_PART: Final = "memrelay/v1/answer-part"
_ANSWERED: Final = "memrelay/v1/answered-request"
_LINE: Final = re.compile(rb'\{"proof":"([A-Za-z0-9_-]{1,128})"\}')
_MAC_SIZE: Final = 32


def answer_key(namespace_secret: bytes) -> bytes:
    """Return the key that authenticates responses about a namespace."""
    return derive(namespace_secret, _WHOLE)


def answered_request(signature: str, *, method: str, target: str, digest: str, content_type: str) -> bytes:
    """Return the SHA-256 that binds a response to its request.

    It covers everything that determines what a request means. Suppose a proxy changes a request and keeps its signature:
    a refusal of the changed request then proves nothing about the original.

    Args:
        signature: the ``memory-signature`` header, as it is sent.
        method: upper case.
        target: path and query, as they are sent.
        digest: the ``content-digest`` header; empty if there is none.
        content_type: the ``content-type`` header. It only matters whether it says that the body is sealed.
    """
    sealed = int(content_type == SEALED_TYPE)
    return hashlib.sha256(lp(_ANSWERED, signature, method, target, digest, sealed)).digest()


class Prover:
    """Creates the proofs of the response to one request, for the whole response or for parts of a stream.

    Args:
        request: from `answered_request`.
        identity: signs the proofs, unless the request was `accepted` with an answer key.
    """

    def __init__(self, request: bytes, identity: SigningKey) -> None:
        self._request = request
        self._identity = identity
        self._key = b""
        self._label = _REFUSAL
        self._sent = hashlib.sha256()

    def accepted(self, key: bytes) -> None:
        """Record that the request was accepted: its signature and its body were checked.

        Args:
            key: the `answer_key`, which authenticates in place of the identity; empty if the request carried no secret.
        """
        self._key = key
        self._label = _WHOLE

    def refused(self) -> None:
        """Sign with the identity from now on, as for a refusal before acceptance, however far the request got."""
        self._key = b""
        self._label = _REFUSAL

    def whole(self, status: int, body: bytes) -> str:
        """Return the ``memory-proof`` header of a complete response."""
        return self._proof(lp(self._label, self._request, status, hashlib.sha256(body).digest()))

    def line(self, chunk: bytes) -> bytes:
        """Return the next lines of a stream of JSON, followed by a line that proves them and all lines before."""
        return self._sending(chunk, b'{"proof":"%s"}\n')

    def comment(self, chunk: bytes) -> bytes:
        """Return the next server-sent events, followed by a comment that proves them and all events before."""
        return self._sending(chunk, b": proof %s\n\n")

    def _sending(self, chunk: bytes, form: bytes) -> bytes:
        self._sent.update(chunk)
        proven = form % self._proof(lp(_PART, self._request, self._sent.digest())).encode()
        self._sent.update(proven)
        return chunk + proven

    def _proof(self, message: bytes) -> str:
        if self._key:
            # `hmac.digest` looks up the hash by its name each time, and takes a third longer.
            return base64url.encode(hmac.new(self._key, message, hashlib.sha256).digest())
        return base64url.encode(self._identity.sign(message).signature)


class Verifier:
    """Checks the response to one request against its proof.

    Args:
        request: from `answered_request`.
        identity: the relayer's public key, as the client trusts it.
        key: the `answer_key` of the secret that the request carried; empty if it carried none.
    """

    def __init__(self, request: bytes, identity: bytes, key: bytes = b"") -> None:
        self._request = request
        self._identity = identity
        self._key = key

    def check(self, proof: str, status: int, body: bytes) -> bool:
        """Check a complete response against its ``memory-proof`` header, which is empty if there is none.

        Returns:
            Whether the relayer accepted the request. A refusal before acceptance may be about a copy of the request whose
            headers or body a proxy changed.

        Raises:
            NotAccepted: ``answer_proof``: the proof is missing or wrong.
        """
        digest = hashlib.sha256(body).digest()
        try:
            self._check(proof, lp(_WHOLE, self._request, status, digest))
        except NotAccepted:
            # Only an accepted request is answered with success.
            if status < 300:
                raise
            self._check(proof, lp(_REFUSAL, self._request, status, digest))
            return False
        return True

    async def lines(self, chunks: AsyncIterator[bytes], *, most: int) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a streamed response, each only after its proof was checked.

        Args:
            chunks: the body, split anywhere.
            most: maximum bytes to buffer until their proof arrives.

        Raises:
            NotAccepted: ``answer_proof``: a proof is wrong, or there is none after the last line.
        """
        seen = hashlib.sha256()
        waiting: list[bytes] = []
        size, begun = 0, [b""]  # the pieces of a line that is incomplete yet, which are joined only once
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
_BODY_LABEL: Final = "memrelay/v1/body"
_NONCE: Final = bytes(12)  # constant, because each key is used once


def seal_body(namespace_secret: bytes, nonce: bytes, body: bytes) -> bytes:
    """Seal a body for the request whose signature has ``nonce``. No other request may have that nonce."""
    return AESGCM(derive(namespace_secret, _BODY_LABEL, nonce)).encrypt(_NONCE, body, None)


def open_body(namespace_secret: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Open the sealed body of a request.

    Raises:
        UnsealError: the secret or the request is another one, or a byte was changed or is missing.
    """
    try:
        return AESGCM(derive(namespace_secret, _BODY_LABEL, nonce)).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise UnsealError from error
