"""Requests as MemWal's clients sign them, with every field to be made wrong."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx
from nacl.signing import SigningKey

from relayer.fronts.memwal.contract import address_of
from relayer.testing.local_relayer import LocalRelayer

SEAL_SESSION = "c2Vzc2lvbi1zZWNyZXQtY2FuYXJ5"


@dataclass
class MemWalCaller:
    """Calls a relayer as one key of one account; the account is the key's own, if none is given."""

    relayer: LocalRelayer
    key: SigningKey = field(default_factory=SigningKey.generate)
    account: str = ""

    def __post_init__(self) -> None:
        self.account = self.account or address_of(bytes(self.key.verify_key))

    def headers(
        self, method: str, target: str, raw: bytes, *, signed: dict[str, str] | None = None, ahead: int = 0
    ) -> dict[str, str]:
        """Sign; ``signed`` says what is signed instead of what is sent, ``ahead`` how many seconds the clock is."""
        stamp = str(self.relayer.relayer.context.clock.now_ms() // 1000 + ahead)
        nonce = str(uuid.uuid4())
        fields = {
            "stamp": stamp,
            "method": method,
            "target": target,
            "digest": hashlib.sha256(raw).hexdigest(),
            "nonce": nonce,
            "account": self.account,
        } | (signed or {})
        message = ".".join(fields.values())
        return {
            "content-type": "application/json",
            "x-public-key": bytes(self.key.verify_key).hex(),
            "x-signature": self.key.sign(message.encode()).signature.hex(),
            "x-timestamp": stamp,
            "x-nonce": nonce,
            "x-account-id": self.account,
            "x-seal-session": SEAL_SESSION,
        }

    def legacy_headers(self, method: str, target: str, raw: bytes) -> dict[str, str]:
        """Sign the four fields that clients of before nonces do, who send their private key along."""
        stamp = str(self.relayer.relayer.context.clock.now_ms() // 1000)
        message = f"{stamp}.{method}.{target}.{hashlib.sha256(raw).hexdigest()}"
        return {
            "content-type": "application/json",
            "x-public-key": bytes(self.key.verify_key).hex(),
            "x-signature": self.key.sign(message.encode()).signature.hex(),
            "x-timestamp": stamp,
            "x-delegate-key": bytes(self.key).hex(),
            "x-account-id": self.account,
        }

    async def send(self, method: str, target: str, raw: bytes, headers: dict[str, str]) -> httpx.Response:
        """Send a request as it is."""
        url = self.relayer.url + target
        return await self.relayer.http.request(method, url, content=raw, headers=headers)

    async def post(self, target: str, body: Any = None, **wrong: Any) -> httpx.Response:
        """Send a signed POST."""
        raw = json.dumps(body if body is not None else {}).encode()
        return await self.send("POST", target, raw, self.headers("POST", target, raw, **wrong))

    async def get(self, target: str, **wrong: Any) -> httpx.Response:
        """Send a signed GET."""
        return await self.send("GET", target, b"", self.headers("GET", target, b"", **wrong))

    async def remember(self, text: str, **more: Any) -> str:
        """Remember a text; returns its job."""
        answer = await self.post("/api/remember", {"text": text, **more})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    async def recalled(self, query: str, **more: Any) -> list[str]:
        """Return the texts that a recall finds."""
        answer = await self.post("/api/recall", {"query": query, **more})
        assert answer.status_code == 200, answer.text
        return [one["text"] for one in answer.json()["results"]]
