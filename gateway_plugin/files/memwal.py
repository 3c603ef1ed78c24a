"""Import memories from a MemWal service through its public API, for users who move to memrelay.

The service has no call that lists texts. ``recall`` returns the hundred memories nearest to a query, so one query suffices for
a namespace of at most a hundred. A larger one is explored: the texts of hits become the next queries, the farthest hit first.
``stats`` returns the number of memories, and so tells whether all were found. Memories that the service itself cannot decrypt, or
that are missing from its index, cannot be moved; its own ``restore`` may add the latter to the index first. Nothing is changed or
deleted there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.calls.clock import Clock
from gateway_plugin.errors import GatewayError
from gateway_plugin.files.exports import doubted, time_of
from relayer.wire.fields import SourceInfo, cut
from relayer.wire.service import ImportItem

PAGE: Final = 100
"""Maximum number of hits of a recall."""

_SEEDS: Final = (
    "the user", "preferences and habits", "a decision about the project", "work, tools and code", "family and friends",
    "where and when", "health and food", "plans and appointments",
)  # fmt: skip
# Stop after this many recalls in a row without a new memory: the remaining ones are not reachable in this way.
_IN_VAIN: Final = 60
_QUERY_CHARS: Final = 200
_MOST_BYTES: Final = 2_000
_SECONDS: Final = 30.0
_TRIES: Final = 8
_MOST_PAGES: Final = 100
_LONGEST_WAIT: Final = 300.0
_SESSION_MINUTES: Final = 5
_SESSION_SECONDS: Final = 240.0
_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

_Answer = TypeVar("_Answer", bound=BaseModel)


class MemWalProblem(GatewayError):
    """Raised when a MemWal service does not respond, refuses, or returns an invalid response. The message names the fix."""


class _NoRoute(MemWalProblem):
    """Raised when a service is too old to have a route."""


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Config(_Read):
    packageId: str = ""  # noqa: N815 - the name on the wire


class _Stats(_Read):
    memory_count: int
    owner: str = ""


class _Namespace(_Read):
    name: str


class _Namespaces(_Read):
    namespaces: tuple[_Namespace, ...]
    next_cursor: str | None = None
    has_more: bool = False


class _Hit(_Read):
    blob_id: str
    text: str
    created_at: str | None = None


class _Recall(_Read):
    results: list[_Hit]


@dataclass(frozen=True, slots=True)
class MemWalAccess:
    """A service, and the key to read from it.

    Attributes:
        url: URL of the service; a path after the host name is not signed.
        key: the delegate's private key, 64 hex digits.
    """

    url: str
    key: str = field(repr=False)
    account: str


@dataclass(frozen=True, slots=True)
class Walked:
    """The memories read from a namespace: ``items`` are the memories, ``known`` is the number that the service reports."""

    items: tuple[ImportItem, ...]
    found: int
    known: int

    @property
    def complete(self) -> bool:
        """Return whether every memory of the namespace was found."""
        return self.found >= self.known


async def list_memwal(
    access: MemWalAccess,
    *,
    clock: Clock,
    http: httpx.AsyncClient,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """Return the names of an account's namespaces that have memories; only ``default`` if the service cannot list them.

    The arguments and errors are those of `import_memwal`.
    """
    service = _Service(access, clock, http, say)
    owner = (await service.ask("/api/stats", {"namespace": "default"}, _Stats)).owner or access.account
    found: list[str] = []
    after = ""
    for _ in range(_MOST_PAGES):
        page = await service.read(f"/v1/owners/{owner}/namespaces?limit=500{after}", _Namespaces)
        if page is None:
            break
        found += [one.name for one in page.namespaces]
        if not page.has_more or not page.next_cursor:
            break
        after = f"&updated_after={quote(page.next_cursor)}"
    return tuple(dict.fromkeys(found)) or ("default",)


async def import_memwal(
    access: MemWalAccess,
    namespace: str,
    *,
    clock: Clock,
    http: httpx.AsyncClient,
    say: Callable[[str], None] = lambda _: None,
) -> Walked:
    """Read the memories of a namespace as imported ones. Raises `MemWalProblem` if the service fails, or refuses the key."""
    service = _Service(access, clock, http, say)
    known = (await service.ask("/api/stats", {"namespace": namespace}, _Stats)).memory_count
    seen: dict[str, _Hit] = {}
    queries = list(reversed(_SEEDS))
    in_vain = 0
    while known and queries and len(seen) < known and in_vain < _IN_VAIN:
        body = {"query": queries.pop(), "limit": PAGE, "namespace": namespace}
        hits = (await service.ask("/api/recall", body, _Recall)).results
        new = [hit for hit in hits if hit.blob_id not in seen]
        seen.update((hit.blob_id, hit) for hit in new)
        in_vain = 0 if new else in_vain + 1
        # Queries are taken from the end of the list, so the farthest hit is the next query.
        queries += [hit.text[:_QUERY_CHARS] for hit in new if hit.text.strip()]
    items = tuple(item for hit in seen.values() for item in _items(hit))
    return Walked(items, len(seen), known)


def _items(hit: _Hit) -> list[ImportItem]:
    return [
        doubted(
            ImportItem(
                text=part,
                kind="imported",
                trust="imported",
                occurred_at=time_of(hit.created_at),
                source=SourceInfo(reference=f"memwal:{hit.blob_id[:400]}"),
            )
        )
        for start, end in cut(hit.text.strip(), _MOST_BYTES)
        if (part := hit.text.strip()[start:end].strip())
    ]


class _Service:
    """Sends signed requests, one after the other, and waits if the service asks for it."""

    def __init__(
        self, access: MemWalAccess, clock: Clock, http: httpx.AsyncClient, say: Callable[[str], None]
    ) -> None:
        self._access = access
        self._key = SigningKey(bytes.fromhex(access.key))
        self._clock = clock
        self._http = http
        self._say = say
        self._package: str | None = None
        self._session = ("", -_SESSION_SECONDS)

    async def ask(self, path: str, body: dict[str, Any], shape: type[_Answer]) -> _Answer:
        if self._package is None:
            self._package = (await self._sent("GET", "/config", b"", _Config, signed=False)).packageId
        return await self._sent("POST", path, json.dumps(body).encode(), shape)

    async def read(self, path: str, shape: type[_Answer]) -> _Answer | None:
        """Return a list from the service; None if it has no such route."""
        try:
            return await self._sent("GET", path, b"", shape)
        except _NoRoute:
            return None

    async def _sent(
        self, method: str, path: str, body: bytes, shape: type[_Answer], *, signed: bool = True
    ) -> _Answer:
        for _ in range(_TRIES):
            headers = self._headers(method, path, body) if signed else {}
            try:
                answer = await self._http.request(
                    method, self._access.url + path, content=body, headers=headers, timeout=_SECONDS
                )
            except httpx.HTTPError as error:
                raise MemWalProblem(
                    f"no MemWal service answers at {self._access.url} ({type(error).__name__}); check serverUrl"
                ) from None
            if answer.status_code not in {429, 503}:
                return _parsed(answer, path, shape)
            told = answer.headers.get("retry-after", "")
            seconds = min(float(told) if told.isdigit() else 5.0, _LONGEST_WAIT)
            self._say(f"MemWal's service asks to wait {seconds:.0f} s")
            await self._clock.sleep(seconds)
        raise MemWalProblem(f"MemWal's service is too busy for {path}; try again later")

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        stamp, nonce = str(int(self._clock.now())), str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        digest = hashlib.sha256(body).hexdigest()
        message = f"{stamp}.{method}.{path}.{digest}.{nonce}.{self._access.account}"
        headers = {
            "content-type": "application/json",
            "x-public-key": self._key.verify_key.encode().hex(),
            "x-signature": self._key.sign(message.encode()).signature.hex(),
            "x-timestamp": stamp,
            "x-nonce": nonce,
            "x-account-id": self._access.account,
        }
        if self._package:
            # A token lets the service decrypt sealed memories for five minutes. Each token has its own key.
            token, made = self._session
            if self._clock.monotonic() - made >= _SESSION_SECONDS:
                token = seal_session(self._key, self._package, self._clock.now())
                self._session = (token, self._clock.monotonic())
            headers["x-seal-session"] = token
        return headers


def _parsed(answer: httpx.Response, path: str, shape: type[_Answer]) -> _Answer:
    if answer.status_code in {401, 403, 426}:
        raise MemWalProblem(
            f"MemWal's service refuses this key ({answer.status_code}); check privateKey, accountId and this machine's clock"
        )
    if answer.status_code == 404 and path == "/config":
        return shape.model_validate({})  # the service is older than SEAL sessions
    if answer.status_code == 404:
        raise _NoRoute(f"MemWal's service has no {path.partition('?')[0]}")
    if answer.status_code != 200:
        raise MemWalProblem(f"MemWal's service answers {path} with {answer.status_code}; try again later")
    try:
        return shape.model_validate_json(answer.content)
    except ValidationError:
        raise MemWalProblem(
            f"the server that answers {path} is not a MemWal service: its answer has an unknown format"
        ) from None


def seal_session(key: SigningKey, package: str, now: float) -> str:
    """Return MemWal's ``x-seal-session``: a fresh key, and the delegate's signature of it as a personal message of Sui."""
    fresh = SigningKey.generate()
    public = key.verify_key.encode()
    begins = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    fresh_public = base64.b64encode(fresh.verify_key.encode()).decode()
    message = f"Accessing keys of package {package} for {_SESSION_MINUTES} mins from {begins}, session key {fresh_public}".encode()
    intent = b"\x03\x00\x00" + _uleb128(len(message)) + message
    signature = key.sign(hashlib.blake2b(intent, digest_size=32).digest()).signature
    session = {
        "address": "0x" + hashlib.blake2b(b"\x00" + public, digest_size=32).hexdigest(),
        "packageId": package,
        "mvrName": None,
        "creationTimeMs": int(now) * 1000,
        "ttlMin": _SESSION_MINUTES,
        "personalMessageSignature": base64.b64encode(b"\x00" + signature + public).decode(),
        "sessionKey": _bech32("suiprivkey", b"\x00" + fresh.encode()),
    }
    return base64.b64encode(json.dumps(session, separators=(",", ":")).encode()).decode()


def _uleb128(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _bech32(prefix: str, data: bytes) -> str:
    """Encode data in Bech32 (BIP 173)."""
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    words = [int(bits[at : at + 5], 2) for at in range(0, len(bits), 5)]
    spread = [*(ord(char) >> 5 for char in prefix), 0, *(ord(char) & 31 for char in prefix)]
    # The checksum is BIP 173's polymod of the prefix, the data and six zeros.
    check = 1
    for word in (*spread, *words, 0, 0, 0, 0, 0, 0):
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ word
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= generator if top >> bit & 1 else 0
    check ^= 1
    words += [check >> 5 * (5 - at) & 31 for at in range(6)]
    return f"{prefix}1{''.join(_BECH32[word] for word in words)}"
