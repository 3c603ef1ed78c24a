"""A gateway in a few lines, for tests of the relayer's border: signs for real, and can be told to do it wrong."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from relayer.wire import base64url, signing
from relayer.wire.certificates import Certificate, Right
from relayer.wire.keys import FIRST_GENERATION, RootKeys
from relayer.wire.sealed_keys import SealedKey

AGENT = "researcher"


@dataclass(frozen=True)
class Gateway:
    """One agent of one account, and how it signs; ``made`` and ``now`` are in seconds since the epoch."""

    root: RootKeys = field(default_factory=lambda: RootKeys(secrets.token_bytes(32)))
    agent: str = AGENT
    namespaces: tuple[str, ...] = (AGENT, f"{AGENT}/*")
    rights: tuple[Right, ...] = (Right.READ, Right.WRITE)
    made: int = field(default_factory=lambda: int(time.time()))
    serial: bytes = bytes(16)

    @property
    def now(self) -> int:
        """The time of signing: a gateway of a whole module is older than any signature may be."""
        return int(time.time())

    @property
    def identity(self):
        return self.root.agent(self.agent).identity

    def certificate(self, **changes: Any) -> str:
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
        identity: Any = None,
        digest_of: bytes | None = None,
    ) -> dict[str, str]:
        """Headers of a signed request; every argument after ``body`` can be used to break a rule."""
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
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@dataclass(frozen=True)
class Line:
    """The way to one relayer: requests as a gateway signs them, and the same bytes once more."""

    http: httpx.Client
    url: str

    @property
    def fleet_key(self) -> bytes:
        keys = self.http.get(f"{self.url}/v1/keys").json()["keys"]
        return base64url.decode(keys[0]["public_key"])

    def sign(self, gateway: Gateway, method: str, target: str, body: Any = None, **given: Any) -> Sent:
        raw = encode(body)
        given.setdefault("memory_key", gateway.memory_key(self.fleet_key))
        authority = self.url.removeprefix("http://")
        return Sent(method, target, raw, gateway.headers(method, authority, target, raw, **given))

    def repeat(self, sent: Sent) -> httpx.Response:
        return self.http.request(sent.method, self.url + sent.target, content=sent.raw, headers=sent.headers)

    def send(
        self, gateway: Gateway, method: str, target: str, body: Any = None, **given: Any
    ) -> httpx.Response:
        return self.repeat(self.sign(gateway, method, target, body, **given))


@dataclass(frozen=True)
class Sent:
    """A signed request, as somebody on the way could record it."""

    method: str
    target: str
    raw: bytes
    headers: dict[str, str]
