"""The gateway of `relayer.testing` that signs, under the names that tests know it by."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import httpx

from relayer.testing.local_relayer import AGENT, encode
from relayer.testing.local_relayer import SigningGateway as Gateway
from relayer.wire import codec as base64url
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Right

__all__ = ["AGENT", "Gateway", "Line", "Sent", "begun", "certificate_of", "encode"]


def certificate_of(
    root: RootKeys,
    agent: str,
    *namespaces: str,
    rights: tuple[Right, ...] = tuple(Right),
    serial: bytes = bytes(16),
) -> Certificate:
    """Return an agent's certificate that is always valid, for these namespaces or its own."""
    account, key = root.account_identity.verify_key, root.agent(agent).identity.verify_key
    return Certificate(bytes(account), agent, bytes(key), namespaces or (agent,), rights, 0, 2**40, serial)


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


def begun(url: str, sent: Sent) -> socket.socket:
    """Open a connection and send the head of a request, whose body the relayer then waits for."""
    authority = url.removeprefix("http://")
    fields = sent.headers | {
        "host": authority,
        "content-length": str(len(sent.raw)),
        "expect": "100-continue",
    }
    lines = [f"{sent.method} {sent.target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    host, _, port = authority.rpartition(":")
    line = socket.create_connection((host, int(port)), 30)
    line.sendall("\r\n".join([*lines, "", ""]).encode())
    assert line.recv(4096).startswith(b"HTTP/1.1 100 ")
    return line


@dataclass(frozen=True)
class Sent:
    """A signed request, as somebody on the way could record it."""

    method: str
    target: str
    raw: bytes
    headers: dict[str, str]
