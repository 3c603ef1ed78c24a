"""A MemWal service on loopback as its clients know it: signatures, nonces, sealed sessions, nearest memories first, a hundred at most."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from uuid import UUID

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

PACKAGE = "0x" + "5e" * 32
ACCOUNT = "0x" + "3c" * 32
_PAGE = 100


class MemWalServer:
    """The service; use as a context manager.

    Args:
        key: the delegate's private key, 64 hex digits.
        memories: texts by namespace.
        busy: how many requests are answered with 429 first.
    """

    def __init__(self, key: str, memories: dict[str, list[str]], *, busy: int = 0) -> None:
        self.memories = memories
        self.recalls: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self._public = SigningKey(bytes.fromhex(key)).verify_key.encode()
        self._nonces: set[str] = set()
        self._busy = busy
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        texts = self.memories.get(body.get("namespace", "default"), [])
        if path == "/api/stats":
            counted = {"memory_count": len(texts), "storage_bytes": sum(map(len, texts))}
            return 200, counted | {"namespace": body.get("namespace"), "owner": ACCOUNT}
        if path == "/api/recall":
            self.recalls.append(body)
            asked = set(body["query"].lower().split())
            # No two vectors are as far from a third: what shares as many words is in another order for each query.
            ranked = sorted(
                texts,
                key=lambda text: (
                    -len(asked & set(text.lower().split())),
                    hashlib.sha256(f"{body['query']}\n{text}".encode()).digest(),
                ),
            )
            hits = [
                {
                    "blob_id": hashlib.sha256(text.encode()).hexdigest(),
                    "text": text,
                    "distance": 0.4,
                    "created_at": "2026-05-01T10:00:00Z",
                }
                for text in ranked[: min(body.get("limit", 10), _PAGE)]
            ]
            return 200, {"results": hits, "total": len(hits)}
        return 404, {"error": "not found"}

    def objection(self, method: str, target: str, body: bytes, headers: Any) -> tuple[int, str]:
        """Say why a request is refused; (0, "") if it is not."""
        if not headers.get("x-nonce"):
            return 426, "no nonce"
        UUID(headers["x-nonce"], version=4)
        if abs(time.time() - int(headers["x-timestamp"])) > 300:
            return 401, "time"
        if bytes.fromhex(headers["x-public-key"]) != self._public or headers["x-account-id"] != ACCOUNT:
            return 401, "key or account"
        said = f"{headers['x-timestamp']}.{method}.{target}.{hashlib.sha256(body).hexdigest()}.{headers['x-nonce']}.{ACCOUNT}"
        try:
            VerifyKey(self._public).verify(said.encode(), bytes.fromhex(headers["x-signature"]))
        except BadSignatureError:
            return 401, "signature"
        if headers["x-nonce"] in self._nonces:
            return 401, "replay"
        self._nonces.add(headers["x-nonce"])
        return (0, "") if self._opens(headers.get("x-seal-session", "")) else (401, "sealed session")

    def _opens(self, header: str) -> bool:
        """Tell whether a sealed session would let the service open memories: its key was signed by the delegate, for this package."""
        session = json.loads(base64.b64decode(header))
        signature = base64.b64decode(session["personalMessageSignature"])
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(session["creationTimeMs"] // 1000))
        fresh = SigningKey(_unbech32(session["sessionKey"])[1:33])
        public = base64.b64encode(fresh.verify_key.encode()).decode()
        message = (
            f"Accessing keys of package {PACKAGE} for 5 mins from {made} UTC, session key {public}".encode()
        )
        length = bytes((len(message) & 0x7F | 0x80, len(message) >> 7))
        digest = hashlib.blake2b(b"\x03\x00\x00" + length + message, digest_size=32).digest()
        VerifyKey(self._public).verify(digest, signature[1:65])
        address = "0x" + hashlib.blake2b(b"\x00" + self._public, digest_size=32).hexdigest()
        return signature[65:] == self._public and session["address"] == address and session["ttlMin"] == 5

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(
                    200, {"packageId": PACKAGE, "network": "localnet", "suiRpcUrl": f"{service.url}/sui"}
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, why = service.objection("POST", self.path, body, self.headers)
                if status:
                    service.refusals.append(why)
                    self._send(status, {})
                elif service._busy:
                    service._busy -= 1
                    self._send(429, {"error": "Rate limit exceeded"}, retry_after="1")
                else:
                    self._send(*service.answer(self.path, json.loads(body)))

            def _send(self, status: int, body: dict[str, Any], *, retry_after: str = "") -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                if retry_after:
                    self.send_header("retry-after", retry_after)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _unbech32(text: str) -> bytes:
    words = ["qpzry9x8gf2tvdw0s3jn54khce6mua7l".index(char) for char in text.rpartition("1")[2][:-6]]
    bits = "".join(f"{word:05b}" for word in words)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))
