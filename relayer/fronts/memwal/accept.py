"""Authenticate requests of MemWal's clients, and charge them.

`CompatAcceptance` checks, in the order of the contract, the headers, the signature and its time window, the account, the
rate limits (`Points`) and the nonce, and returns a `Caller`. A signature covers the raw target and the raw bytes of the
body, exactly as received. MCP clients sign nothing: they send the private key itself, of which only the public half is
kept. No header's value is ever logged or quoted; ``x-seal-session`` and ``x-delegate-key`` hold private keys and are not
even read.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import unquote

from aiohttp.web import BaseRequest
from cachetools import LRUCache
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from relayer.access.accounts import Access, Accounts, Principal
from relayer.crypto import RelayerKeys
from relayer.errors import AccountLost, StoreError
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.contract import UNAVAILABLE, CompatError, check_namespace
from relayer.http.accept import MAX_TARGET, Authorities
from relayer.http.limits import MAX_BODY, Limits, ReplayCache, RequestBodies, peer_name
from relayer.http.problems import HttpProblem
from relayer.lib.work import Buckets, Limit, take
from relayer.ports import Clock
from relayer.wire.sealing import is_account_id

CLIENT_DRIFT = 300
"""Seconds that the clock of a MemWal client may be off; MemWal's own relayer allows the same."""
# Seconds for which the log remembers a request's nonce: longer than the window of any valid timestamp.
NONCE_SECONDS = 660
CHALLENGE = 'Bearer realm="memwal", error="invalid_token"'
# Delay of a refusal that depends on secrets or state, so that its duration reveals nothing.
STEADY_SECONDS = 0.1
_HELD_MS = 15 * 60 * 1000
_ADMITTED_SECONDS = 3600.0
_MOST_ADMITTED = 8192
_KEY_DIGITS, _SIGNATURE_DIGITS = 64, 128


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request, with access to its namespaces.

    Attributes:
        shown: the account's id as the client knows it; responses name it as the owner.
        legacy: whether the client predates nonces. Such clients expect complete responses instead of jobs.
        until: how long keys derived for this caller may be held, in ms since the epoch.
    """

    shown: str
    principal: Principal
    legacy: bool
    keys: RelayerKeys
    until: int

    @property
    def account(self) -> str:
        """The account's id as memrelay stores it."""
        return self.principal.account

    def access(self, namespace: str) -> Access:
        """Return the access to a namespace by its name; raises `CompatError` for an invalid name."""
        return self.inner_access(contract.inner_namespace(check_namespace(namespace)))

    def numbered(self, access: Access, place: int) -> Access:
        """Return an access with a nonce for operation number ``place`` of a request: the log identifies operations by nonce."""
        nonce = hashlib.sha256(self.principal.nonce + place.to_bytes(4, "big")).digest()[:16]
        return replace(access, principal=replace(self.principal, nonce=nonce))

    def inner_access(self, inner: str) -> Access:
        """Return the access to a namespace by the name under which it is stored."""
        return contract.way_into(self.keys, self.principal, inner, self.until)


@dataclass(frozen=True, slots=True)
class Rates:
    """Maximum points: of a key in a minute, of an account in a minute, of an account in an hour."""

    key: int
    burst: int
    sustained: int


class Points:
    """A rate limit with three layers of token buckets. A request is charged to all of them, or to none."""

    def __init__(self, rates: Rates, clock: Clock, *, enabled: bool) -> None:
        def layer(name: str, points: int, seconds: int, unit: str) -> tuple[str, str, Buckets]:
            return name, f"{points} weighted-requests/{unit}", Buckets(Limit(float(points), points / seconds))

        self.enabled = enabled
        self._clock = clock
        self._layers = (
            layer("delegate_key", rates.key, 60, "min"),
            layer("account_burst", rates.burst, 60, "min"),
            layer("account_sustained", rates.sustained, 3600, "hour"),
        )

    def charge(self, key: str, account: str, points: float) -> None:
        """Charge a request; raises `CompatError` 429 with the layer that has the longest wait, and that wait."""
        if not self.enabled or not points:
            return
        now = self._clock.monotonic()
        named = [(table, key if layer == "delegate_key" else account) for layer, _, table in self._layers]
        if not take(named, points, now):
            return
        waits = [table.wait(name, points, now) for table, name in named]
        longest = max(range(len(waits)), key=waits.__getitem__)
        layer, limit, _ = self._layers[longest]
        raise too_many(layer, limit, waits[longest])

    def spend(self, key: str, account: str, points: float) -> None:
        """Charge points that are known only after the request. The next request may have to wait for them."""
        if self.enabled:
            for layer, _, table in self._layers:
                table.spend(key if layer == "delegate_key" else account, points, self._clock.monotonic())


def too_many(layer: str, limit: str, wait: float) -> CompatError:
    """Return the 429 response; ``wait`` is the exact time to wait, in seconds."""
    seconds = max(1, -int(-wait // 1))
    return CompatError(
        429,
        "Rate limit exceeded",
        rule=layer,
        headers={"Retry-After": str(seconds)},
        more={"layer": layer, "limit": limit, "retry_after_seconds": seconds},
    )


# The points that a request costs, by route; one for every other route, none for the status of a write.
_POINTS = {
    "/api/analyze": 5.0,
    "/api/remember": 5.0,
    "/api/remember/bulk": 10.0,
    "/api/remember/manual": 3.0,
    "/api/restore": 3.0,
    "/api/ask": 2.0,
}


@dataclass(frozen=True, slots=True)
class Window:
    """The rules for signatures: seconds that a client's clock may be off, and whether requests without a nonce are accepted."""

    drift: int = CLIENT_DRIFT
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class _Signed:
    """The parsed headers of a request, which are not verified yet."""

    key: bytes
    signature: bytes
    stamp: str
    nonce_text: str
    nonce: bytes
    account: str

    @property
    def legacy(self) -> bool:
        return not self.nonce_text

    def message(self, method: str, target: str, body_digest: bytes) -> bytes:
        """Return the bytes that must be signed."""
        fields = [self.stamp, method, target, body_digest.hex()]
        if not self.legacy:
            fields += [self.nonce_text, self.account]
        return ".".join(fields).encode()


class CompatAcceptance:
    """Accepts or refuses requests; there is one per relayer process."""

    def __init__(
        self,
        accounts: Accounts,
        keys: RelayerKeys,
        limits: Limits,
        *,
        bodies: RequestBodies,
        authorities: Authorities,
        points: Points,
        window: Window,
        clock: Clock,
    ) -> None:
        self.authorities = authorities
        self._bodies = bodies
        self._accounts = accounts
        self._keys = keys
        self.limits = limits
        self.points = points
        self._window = window
        # Whether clients that predate nonces are accepted.
        self.serves_legacy = window.legacy
        self._clock = clock
        self._nonces = ReplayCache()
        # Time at which each key was last accepted, by its public half, or by the digest of the header for bearer keys.
        self._admitted: LRUCache[str, float] = LRUCache(_MOST_ADMITTED)

    async def accept(self, request: BaseRequest, peer: str) -> tuple[Caller, bytes]:
        """Authenticate a request; returns the caller and the body.

        Raises:
            CompatError: the request is refused.
            HttpProblem: it is addressed to another relayer, its body does not arrive, its peer failed too often, or its account
                sends too many requests.
            StoreError: the cached state of its account is too old, and the store does not respond.
        """
        self.authorities.check(_one(request, "host"))
        now = self._clock.now_ms() // 1000
        signed = self._parsed(request, now)
        name = signed.key.hex()
        self._check_peer(peer, name)
        body, digest = await self._body(request, peer)
        try:
            self._verify(request, signed, digest)
            account = signed.account or contract.address_of(signed.key)
            await self._admit(signed.key, account, peer)
            caller = self._caller(signed.key, account, signed.nonce, peer, legacy=signed.legacy)
            self._admitted[name] = self._clock.monotonic()
            self._charge(request, signed, caller, now)
        except CompatError as error:
            if error.status == 401:
                self.limits.note_failure(peer)
            raise
        return caller, body

    async def accept_bearer(self, request: BaseRequest, peer: str, nonce: bytes) -> Caller:
        """Authenticate a request of an MCP client, which sends its private key.

        Raises:
            CompatError: the request is refused.
            HttpProblem: it is addressed to another relayer, or its peer failed too often.
        """
        self.authorities.check(_one(request, "host"))
        shown = _one(request, "authorization")
        name = hashlib.sha256(shown.encode(errors="surrogateescape")).hexdigest()
        self._check_peer(peer, name)
        try:
            kind, _, token = shown.partition(" ")
            seed = _hex(token.strip(), _KEY_DIGITS) if kind.lower() == "bearer" else None
            key = None if seed is None else bytes(SigningKey(seed).verify_key)
            account = _one(request, "x-memwal-account-id").lower()
            if key is None:
                raise _refused("bearer")
            await self._admit(key, account, peer)
        except CompatError as error:
            if error.status == 401:
                self.limits.note_failure(peer)
                error.headers["WWW-Authenticate"] = CHALLENGE
            raise
        self._admitted[name] = self._clock.monotonic()
        return self._caller(key, account, nonce, peer)

    def _check_peer(self, peer: str, name: str) -> None:
        """Refuse a peer that failed too often. Keys that were accepted lately are still served behind the same address."""
        if self._clock.monotonic() - self._admitted.get(name, -math.inf) > _ADMITTED_SECONDS:
            self.limits.check_peer(peer)

    def _charge(self, request: BaseRequest, signed: _Signed, caller: Caller, now: int) -> None:
        """Charge a request, then record its nonce, so that one that is refused for its rate may be sent again and uses no memory.

        Raises:
            CompatError: it costs too much, or is a replay, whose cost is refunded.
        """
        key, account = caller.principal.author, caller.account
        plain = unquote(request.raw_path.partition("?")[0]).rstrip("/")
        points = _POINTS.get(plain, 1.0)
        if plain == "/api/remember/bulk/status" or (
            request.method == "GET" and plain.startswith("/api/remember/")
        ):
            points = 0.0  # requests for the status of a write are free
        self.points.charge(key.hex(), account, points)
        # Status requests cost no points, but must not be a way to keep a relayer busy.
        self.limits.charge(account, key, max(points, 1.0))
        try:
            self._note(signed, now)
        except (CompatError, HttpProblem):
            self.points.spend(key.hex(), account, -points)
            self.limits.credit(account, key, max(points, 1.0))
            raise

    async def readmit(self, key: bytes, account: str, peer: str) -> None:
        """Check again a key that was accepted before; raises as `accept_bearer`."""
        await self._admit(key, account, peer)

    async def open_body(self, request: BaseRequest, peer: str) -> bytes:
        """Receive the body of a request that needs no signature."""
        return (await self._body(request, peer))[0]

    def _parsed(self, request: BaseRequest, now: int) -> _Signed:
        key, signature, stamp = (
            _one(request, name) for name in ("x-public-key", "x-signature", "x-timestamp")
        )
        if not key or not signature or not stamp:
            raise _refused("missing header")
        nonce_text = _one(request, "x-nonce")
        if not nonce_text and not self._window.legacy:
            raise CompatError(426, rule="no nonce")
        nonce = _nonce(nonce_text) if nonce_text else b""
        if nonce is None:
            raise _refused("nonce", steady=True)
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
            raise _refused("timestamp")
        if abs(now - int(stamp)) > self._window.drift:
            raise _refused("window", steady=True, reason="ERR_TIMESTAMP_OUT_OF_BOUNDS")
        raw_key, raw_signature = _hex(key, _KEY_DIGITS), _hex(signature, _SIGNATURE_DIGITS)
        if raw_key is None or raw_signature is None:
            raise _refused("key or signature")
        account = _one(request, "x-account-id")
        if not nonce_text:
            # Legacy clients do not sign the account, so it must be the one derived from the key, whatever the header says.
            if account not in {"", contract.address_of(raw_key)}:
                raise _refused("account not signed")
            # The same request, signed in the same second, has the same signature, which serves as its nonce.
            nonce = hashlib.sha256(raw_signature).digest()[:16]
        return _Signed(raw_key, raw_signature, stamp, nonce_text, nonce, account)

    async def _body(self, request: BaseRequest, peer: str) -> tuple[bytes, bytes]:
        announced = request.headers.get("content-length", "0")
        size = int(announced) if announced.isascii() and announced.isdigit() else MAX_BODY
        if size > MAX_BODY:
            raise CompatError(413, f"The body has at most {MAX_BODY} bytes", rule="too_large")
        return await self._bodies.receive(request, peer)

    def _verify(self, request: BaseRequest, signed: _Signed, digest: bytes) -> None:
        target = request.raw_path
        if len(target) > MAX_TARGET or not target.isascii():
            raise _refused("target")
        try:
            VerifyKey(signed.key).verify(signed.message(request.method, target, digest), signed.signature)
        except (CryptoError, ValueError) as error:
            raise _refused("signature", steady=True) from error

    def _note(self, signed: _Signed, now: int) -> None:
        try:
            # The expiry follows from the signed timestamp, so that every replay is looked up in the slice of the first request.
            expires = int(signed.stamp) + self._window.drift
            self._nonces.note(signed.key, signed.nonce, expires=expires, now=now)
        except HttpProblem as error:
            if error.code != "replayed":
                raise
            raise _refused("replayed", steady=True) from error

    async def _admit(self, key: bytes, shown: str, peer: str) -> None:
        if not is_account_id(shown):
            raise _refused("account", steady=True)
        inner = contract.inner_account(shown)
        try:
            with self.limits.lookup(partial(self._accounts.knows, inner), peer_name(peer), 1.0):
                registered = await self._accounts.registration(inner)
        except AccountLost as error:
            raise _refused("account lost", steady=True) from error
        except StoreError as error:
            # This header makes clients report a temporary failure instead of a wrong key.
            raise CompatError(
                503, UNAVAILABLE, rule="auth", headers={"x-auth-error": "AUTH_UPSTREAM_UNAVAILABLE"}
            ) from error
        if self._accounts.rules_of(inner).is_revoked:
            raise _refused("account revoked", steady=True)
        if registered is not None:
            if not registered.admits(key):
                raise _refused("key not registered", steady=True)
        elif shown != contract.address_of(key) or not self._accounts.serves(shown):
            raise _refused("account not served", steady=True)

    def _caller(self, signer: bytes, shown: str, nonce: bytes, peer: str, *, legacy: bool = False) -> Caller:
        now = self._clock.now_ms()
        until = now // 1000 + max(NONCE_SECONDS, 2 * self._window.drift + 60)
        principal = contract.principal_of(contract.account_key(shown), signer, nonce, until, peer_name(peer))
        return Caller(shown, principal, legacy, self._keys, now + _HELD_MS)


def _one(request: BaseRequest, name: str) -> str:
    """Return a header, empty if it is missing; refuse one that is given twice, because it is unclear which value counts."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise _refused(f"second {name}")
    return values[0].strip() if values else ""


def _nonce(text: str) -> bytes | None:
    try:
        return uuid.UUID(text).bytes if len(text) == 36 else None
    except ValueError:
        return None


def _hex(text: str, digits: int) -> bytes | None:
    try:
        return bytes.fromhex(text) if len(text) == digits and text.isascii() and text.isalnum() else None
    except ValueError:
        return None


def _refused(rule: str, *, steady: bool = False, reason: str = "") -> CompatError:
    return CompatError(401, rule=rule, headers={"x-auth-error": reason} if reason else {}, steady=steady)
