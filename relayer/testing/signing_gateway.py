"""A minimal gateway for tests. It signs requests like a real one, and can break each rule on request."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nacl.signing import SigningKey

from relayer.adapters.system import SystemClock
from relayer.ports import Clock
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.sealed_keys import SealedKey
from relayer.wire.sealing import FIRST_GENERATION, RootKeys
from relayer.wire.signing import Certificate, Right

AGENT = "researcher"


@dataclass(frozen=True)
class SigningGateway:
    """One agent of an account, with the keys to sign its requests.

    Args:
        made: start of the certificate's validity, in seconds since the epoch; 0 takes the current time.
    """

    root: RootKeys = field(default_factory=lambda: RootKeys(secrets.token_bytes(32)))
    agent: str = AGENT
    namespaces: tuple[str, ...] = (AGENT, f"{AGENT}/*")
    rights: tuple[Right, ...] = (Right.READ, Right.WRITE)
    clock: Clock = field(default_factory=SystemClock)
    made: int = 0
    serial: bytes = bytes(16)

    def __post_init__(self) -> None:
        # All requests use the same certificate, so that the relayer can cache it.
        object.__setattr__(self, "made", self.made or self.now)

    @property
    def now(self) -> int:
        """The time of signing, in seconds since the epoch; read again for each request, because signatures expire."""
        return self.clock.now_ms() // 1000

    @property
    def identity(self) -> SigningKey:
        """The agent's signing key."""
        return self.root.agent(self.agent).identity

    def certificate(self, **changes: Any) -> str:
        """Return the certificate as a header value; ``changes`` are fields of `Certificate`."""
        certificate = Certificate(
            account_key=bytes(self.root.account_identity.verify_key),
            agent=self.agent,
            agent_key=bytes(self.identity.verify_key),
            namespaces=self.namespaces,
            rights=self.rights,
            not_before=self.made - 60,
            not_after=self.made + 24 * 3600,
            serial=self.serial,
        )
        return base64url.encode(replace(certificate, **changes).issue(self.root.account_identity))

    def memory_key(self, fleet_key: bytes, **changes: Any) -> str:
        """Return a sealed key as a header value; ``changes`` are fields of `SealedKey`."""
        namespace = changes.get("namespace", self.agent)
        sealed = SealedKey(
            account=self.root.account,
            agent_key=bytes(self.identity.verify_key),
            namespace=namespace,
            generation=FIRST_GENERATION,
            not_after=self.now + 600,
            secret=self.root.agent(self.agent).namespace_secret(namespace, FIRST_GENERATION),
        )
        return base64url.encode(replace(sealed, **changes).seal(fleet_key))

    def headers(
        self,
        method: str,
        authority: str,
        target: str,
        body: bytes = b"",
        *,
        memory_key: str = "",
        certificate: str | None = None,
        created: int | None = None,
        window: int = 120,
        nonce: bytes | None = None,
        identity: SigningKey | None = None,
        digest_of: bytes | None = None,
    ) -> dict[str, str]:
        """Return the headers of a signed request. Every argument after ``memory_key`` can be used to break a rule."""
        certificate = self.certificate() if certificate is None else certificate
        digest = hashlib.sha256(body if digest_of is None else digest_of).digest()
        signature = signing.sign(
            identity or self.identity,
            method=method,
            authority=authority,
            target=target,
            body_sha256=digest,
            created=self.now if created is None else created,
            nonce=nonce or secrets.token_bytes(16),
            certificate=certificate,
            memory_key=memory_key,
            window=window,
        )
        headers = {
            signing.CERTIFICATE_HEADER: certificate,
            signing.SIGNATURE_HEADER: signature.header(),
            signing.DIGEST_HEADER: signing.content_digest(digest),
        }
        if memory_key:
            headers[signing.KEY_HEADER] = memory_key
        if body:
            headers["content-type"] = "application/json"
        return headers


def encode(body: Mapping[str, Any] | bytes | None) -> bytes:
    """Return a body as the bytes that are signed and sent."""
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()
