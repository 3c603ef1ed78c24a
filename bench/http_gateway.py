"""One agent that signs in advance: the plugin's own client for setting up, prepared bytes for measuring."""

from __future__ import annotations

import base64
import json
import secrets
import time
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from bench.bare_handler import SIGNATURE
from bench.http_load import http_request
from bench.http_servers import Server
from gateway_plugin.calls.calling import signed_headers
from gateway_plugin.calls.trust import RelayerAddress, SealedKeyCache, TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import FIRST_GENERATION, Identity, RootHolder
from relayer.wire import schemas
from relayer.wire.sealed_keys import FleetList
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import NONCE_SIZE, SEALED_TYPE, seal_body

__all__ = ["AGENT", "BenchGateway", "bare_request"]

AGENT = "bench"
ITEMS_AT_ONCE = 100
_PATIENCE = 120.0


class BenchGateway:
    """An agent of a fresh account, talking to one relayer.

    Args:
        server: a ``memrelay serve``.
        work: where its pin is kept.
    """

    def __init__(self, server: Server, work: Path) -> None:
        self._endpoint = RelayerAddress.parse(server.url)
        self._holder = RootHolder(RootKeys(secrets.token_bytes(32)))
        self._sealed = SealedKeyCache()
        self._fleet: FleetList | None = None
        self.client = RelayerClient(server.url, trust=TrustStore(work / "trust.json"))

    @property
    def signing_key(self) -> SigningKey:
        """The agent's identity."""
        return self._holder.agent(AGENT).identity

    def identity(self, namespace: str) -> Identity:
        """Return who asks in the agent's namespace of that name."""
        return Identity(
            agent=AGENT,
            account=self._holder.account,
            namespace=f"{AGENT}/{namespace}",
            generation=FIRST_GENERATION,
            keys=self._holder.agent(AGENT),
            credential=self._holder.credential(AGENT),
        )

    async def request(
        self,
        identity: Identity,
        target: str,
        body: dict[str, Any] | None,
        method: str = "POST",
        *,
        sealed: bool = False,
    ) -> bytes:
        """Return a signed request, good for two minutes and for one use; with its body ``sealed`` as the plugin does over http."""
        if self._fleet is None:
            self._fleet = await self.client.fleet()
        now, raw = int(time.time()), b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        memory_key = self._sealed.header(identity, self._fleet.keys[0], now)
        nonce, typed = secrets.token_bytes(NONCE_SIZE), {}
        if sealed:
            secret = self._sealed.keys(identity, self._fleet.keys[0], now).secret
            raw, typed = seal_body(secret, nonce, raw), {"Content-Type": SEALED_TYPE}
        headers = signed_headers(
            identity,
            self._endpoint,
            method=method,
            target=target,
            body=raw,
            memory_key=memory_key,
            now=now,
            nonce=nonce,
        )
        return http_request(self._endpoint.authority, target, headers | typed, raw, method)

    async def fill(self, identity: Identity, items: list[dict[str, Any]]) -> list[str]:
        """Remember items, a hundred a request; returns their ids in order."""
        ids: list[str] = []
        for start in range(0, len(items), ITEMS_AT_ONCE):
            wanted = schemas.RememberRequest.model_validate({"items": items[start : start + ITEMS_AT_ONCE]})
            answer = await self.client.remember(identity, wanted, deadline=_PATIENCE)
            ids += [memory.id for memory in answer.memories]
        return ids


def bare_request(server: Server, key: SigningKey, target: str, body: dict[str, Any]) -> bytes:
    """Return a request to the bare handler, with the signature that it checks."""
    raw = json.dumps(body).encode()
    signature = base64.b64encode(key.sign(raw).signature).decode()
    return http_request(server.authority, target, {SIGNATURE: signature}, raw)
