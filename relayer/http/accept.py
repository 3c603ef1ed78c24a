"""Authenticate, authorize and parse requests, in the steps of docs/protocol.md.

`Acceptance.accept` is one coroutine that takes the numbered steps; the functions below it do their work, in the same
order. It reads the head, verifies signature, certificate and sealed key, charges the rate limits, rejects replayed reads,
and then receives, decrypts and validates the body. The result is an `AcceptedCall`, or the error of the first step that
fails. A signature covers the bytes as they were sent, so nothing is decoded or normalized before it is verified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Never, TypeVar
from urllib.parse import parse_qsl

import msgspec
from aiohttp.web import BaseRequest
from cachetools import LRUCache, TLRUCache
from pydantic import BaseModel, ValidationError

from relayer.access.accounts import Access, Accounts, Principal
from relayer.access.store_keys import FleetKeys
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.http.limits import (
    MAX_BODY,
    Limits,
    Network,
    ReplayCache,
    RequestBodies,
    UnreadAnswers,
    peer_behind,
    peer_name,
)
from relayer.http.problems import HttpProblem
from relayer.http.routes import EVENTS, AcceptedCall, RequestContext, Route, Routes
from relayer.lib.work import Deadline, FairExecutor
from relayer.ports import Clock
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.codec import Malformed, NotAccepted, Reader, UnsealError
from relayer.wire.connections import Connections
from relayer.wire.sealed_keys import MAX_LIFE_SECONDS, MAX_SEALED_KEY, SealedKey, named_fleet_key
from relayer.wire.sealing import FIRST_GENERATION
from relayer.wire.service import ProblemField
from relayer.wire.signing import (
    BODY_OVERHEAD,
    MAX_CERTIFICATE,
    SEALED_TYPE,
    SKEW_SECONDS,
    Certificate,
    Prover,
    RequestSignature,
    Right,
    normal_authority,
    open_body,
)

_CERTIFICATES = 4096
_SEALED_KEYS = 8192


class Acceptance:
    """Accepts or refuses requests; there is one per relayer process.

    Args:
        authorities: the names of this relayer, as in the Host header.
        connections: gets every accepted request, to know which connections are worth keeping.
        trusted: networks of proxies that are trusted to name the client in ``X-Forwarded-For``.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        authorities: Iterable[str],
        accounts: Accounts,
        fleet: FleetKeys,
        keys: RelayerKeys,
        limits: Limits,
        texts: FairExecutor,
        connections: Connections,
        clock: Clock,
        trusted: Sequence[Network] = (),
    ) -> None:
        self.connections = connections
        self.unread = UnreadAnswers()
        self.limits = limits
        self.bodies = RequestBodies(limits)
        self.authorities = Authorities(authorities)
        self.routes = Routes(routes)
        self._accounts = accounts
        self._fleet = fleet
        self._keys = keys
        self._texts = texts
        self._clock = clock
        self._trusted = trusted
        self._seen = ReplayCache()
        self._certificates: LRUCache[bytes, Certificate] = LRUCache(_CERTIFICATES)
        self._sealed_keys: TLRUCache[bytes, SealedKey] = TLRUCache(
            _SEALED_KEYS, ttu=lambda _, key, __: key.not_after, timer=lambda: clock.now_ms() // 1000
        )

    async def accept(self, request: BaseRequest, context: RequestContext) -> AcceptedCall:
        """Check a request and return the call for its handler. The first step that fails decides the response.

        Steps before 11 wait for nothing; steps before 13 do not access the store.

        Raises:
            HttpProblem, NotAccepted: the request is refused.
            StoreError: the cached state of its account is too old and the store does not respond.
        """
        # 1. Target and headers are within their size limits, and no header is given twice.
        head = read_head(request, self._trusted)
        context.prover = self._prover(head)
        # 2. The route exists and accepts this method and, as far as the headers tell, this body.
        route, parameter, raw_query = self.routes.find(head.method, head.target)
        context.route = route
        check_announced(head, expects_body=route.body is not None)
        deadline = Deadline.after(self._clock, head.deadline_seconds(route.seconds))
        if route.right is None:
            query, authorization = parse_query(raw_query, route.query), head.values.get("authorization", "")
            return AcceptedCall(
                route, deadline, parameter, query, peer=head.peer, authorization=authorization
            )
        now = self._clock.now_ms() // 1000
        try:
            certificate_header = head.need(signing.CERTIFICATE_HEADER)
            key_header = head.values.get(signing.KEY_HEADER, "")
            # The digests of both headers: keys of the caches, and part of what the signature covers.
            said = signing.header_digest(certificate_header), signing.header_digest(key_header)
            known = self._certificates.get(said[0])
            # 3. The authority is one of this relayer's names.
            authority = self.authorities.check(head.need("host"))
            # 4. The signature's times are valid.
            signature, digest = _stated(head, now)
            # 5. The signature over the stated digest is valid, by the key that the certificate names.
            signing.verify(
                signature,
                self._claimed_agent_key(certificate_header, head.peer) if known is None else known.agent_key,
                method=head.method,
                authority=authority,
                target=head.target,
                body_sha256=digest,
                headers_sha256=said,
            )
            # 6. and 7. The certificate's own signature, form and validity period are valid, and this relayer serves its account.
            certificate = self._certificate(certificate_header, said[0], now)
            # 8. The sealed key opens with a live fleet key, belongs to this agent and has not expired, and the certificate
            # grants the right on its namespace.
            key, opened = self._sealed_key(key_header, said[1], certificate, route, now=now)
        except NotAccepted:
            # Failures that depend on keys are charged to the peer. The client gets the same 401 for all of them.
            self.limits.note_failure(head.peer)
            raise
        signer = Principal(
            certificate, signature.nonce, signature.expires * 1000, digest, peer_name(head.peer)
        )
        # 9. The buckets of the account and the agent cover the cost. This precedes 10, so that a request which is refused for
        # its rate leaves no nonce behind and can be sent again.
        self.limits.charge(signer.account, signer.author, route.cost)
        # 10. A read was not answered before. A repeated write needs no check, because the log detects it.
        if not route.writes:
            try:
                self._seen.note(signer.author, signer.nonce, expires=signature.expires, now=now)
            except HttpProblem:
                # A copied request must not spend the tokens of the account: only the account itself may.
                self.limits.credit(signer.account, signer.author, route.cost)
                raise
            self.unread.check(signer.account)
        # 11. Only now parse the query and receive the body: compare its digest, decrypt it if it is sealed, parse it as strict
        # JSON and validate it.
        query = parse_query(raw_query, route.query)
        if route.rows_a_token is not None:
            self.limits.charge(
                signer.account, signer.author, getattr(query, "limit", 0) // route.rows_a_token
            )
        body, signer = await self._body(
            request, head, route, signer, key, prover=context.prover, seconds=deadline.remaining()
        )
        # 12. The body's namespace, if it has one, matches.
        access = self._access(route, route.right, signer, key, getattr(body, "namespace", None))
        # 13. The account has revoked neither key nor certificate. This is the first step that may access the store.
        if not self._accounts.admits_now(certificate):
            knows = partial(self._accounts.knows, signer.account)
            async with deadline.step("admit"):
                with self.limits.lookup(knows, signer.peer, route.cost):
                    await self._check_revocations(signer, route)
        # Cache the opened key for the next requests. This must happen in the same step of the event loop as the check above,
        # because a revocation removes the account's keys from the cache.
        if opened is not None and key is not None:
            # The cache does not take a key that expired while the body was being received.
            self._sealed_keys[opened] = key
        last_event = head.values.get("last-event-id", "")
        return AcceptedCall(
            route, deadline, parameter, query, body, signer, access, head.wants_events, last_event
        )

    async def still_admits(self, call: AcceptedCall) -> None:
        """Check an accepted call against revocations that came later, before its response is sent.

        Raises:
            NotAccepted: key or certificate has been revoked meanwhile.
            StoreError: as for `accept`.
        """
        if call.signer is not None and not self._accounts.admits_now(call.signer.certificate):
            await self._check_revocations(call.signer, call.route)

    def drop_expired(self) -> None:
        """Remove expired keys from the cache. Call it regularly, so that no secret is kept longer than its key is valid."""
        self._sealed_keys.expire()

    def drop_keys_of(self, account: str) -> None:
        """Remove the opened keys of an account from the cache, because the account revoked something."""
        for digest in list(self._sealed_keys):
            sealed = self._sealed_keys.get(digest)
            if sealed is not None and sealed.account == account:
                self._sealed_keys.pop(digest, None)

    def _prover(self, head: RequestHead) -> Prover | None:
        signature = head.values.get(signing.SIGNATURE_HEADER)
        if signature is None:
            return None
        request = signing.answered_request(
            signature,
            method=head.method,
            target=head.target,
            digest=head.values.get(signing.DIGEST_HEADER, ""),
            content_type=head.values.get("content-type", ""),
        )
        return Prover(request, self._keys.identity)

    def _claimed_agent_key(self, header: str, peer: str) -> bytes:
        """Return the agent key that an unknown certificate names, before the certificate's own signature is verified."""
        # Verifying costs CPU, so peers that keep failing are refused first. Agents whose certificate is cached do not come
        # here, and are still served if they share a proxy with such a peer.
        self.limits.check_peer(peer)
        encoded = _decoded(header, signing.CERTIFICATE_HEADER)
        try:
            body = Reader(Reader(encoded).bytes())
            body.text()
            body.bytes(32)
            body.text()
            return body.bytes(32)
        except Malformed as error:
            raise HttpProblem("malformed", "memory-certificate is not a certificate.") from error

    def _certificate(self, header: str, digest: bytes, now: int) -> Certificate:
        certificate = self._certificates.get(digest)
        if certificate is None:
            certificate = Certificate.verify(_decoded(header, signing.CERTIFICATE_HEADER))
            self._certificates[digest] = certificate
        if not certificate.not_before - SKEW_SECONDS <= now < certificate.not_after + SKEW_SECONDS:
            raise NotAccepted("certificate_time")
        if not self._accounts.serves(certificate.account):
            raise NotAccepted("account_not_served")
        return certificate

    def _sealed_key(
        self, header: str, digest: bytes, certificate: Certificate, route: Route, *, now: int
    ) -> tuple[SealedKey | None, bytes | None]:
        """Open the memory-key, if there is one, and check it against the certificate and the route's right.

        Returns the key, and its digest if it was opened just now instead of found in the cache.
        """
        if not header:
            return None, None
        opened = None
        sealed = self._sealed_keys.get(digest)
        if sealed is None:
            opened = digest
            encoded = _decoded(header, signing.KEY_HEADER)
            private = self._fleet.private(named_fleet_key(encoded))
            if private is None:
                raise HttpProblem("unknown_fleet_key")
            sealed = SealedKey.open(encoded, private)
        if sealed.not_after <= now:
            raise NotAccepted("sealed_key_expired")
        if sealed.not_after > now + MAX_LIFE_SECONDS + SKEW_SECONDS:
            raise NotAccepted("sealed_key_too_long")
        if sealed.account != certificate.account:
            raise NotAccepted("sealed_key_account")
        if sealed.agent_key != certificate.agent_key:
            raise NotAccepted("sealed_key_agent")
        if (
            route.namespaced
            and route.right is not None
            and not certificate.allows(sealed.namespace, route.right)
        ):
            raise NotAccepted("namespace_not_granted")
        return sealed, opened

    async def _body(
        self,
        request: BaseRequest,
        head: RequestHead,
        route: Route,
        signer: Principal,
        key: SealedKey | None,
        *,
        prover: Prover | None,
        seconds: float,
    ) -> tuple[BaseModel | None, Principal]:
        """Receive, decrypt and parse the body. A large one is parsed on the executor, in its account's turn.

        The returned signer of a sealed body has the digest of the plaintext instead of that of the sealed bytes.
        """
        schema, raw = route.body, b""
        if schema is not None:
            raw, received = await self.bodies.receive(
                request, head.peer, most=head.longest_body, seconds=seconds
            )
            if received != signer.body_digest:
                raise HttpProblem("digest_mismatch")
        if prover is not None:
            # Not earlier: the proof of a refusal of some other body with these headers must not be valid for this request.
            prover.accepted(b"" if key is None else key.answer_key)
        if schema is None:
            return None, signer
        self.limits.charge_body(signer.account, signer.author, len(raw) // route.bytes_a_token)

        def parsed() -> tuple[BaseModel, Principal]:
            if not head.is_sealed:
                return parse_body(raw, schema), signer
            opened = unsealed(raw, key, signer.nonce)
            # Writes are identified by the digest of their content, so a sealed request equals the same one in plaintext.
            digest = hashlib.sha256(opened).digest()
            return parse_body(opened, schema), Principal(
                signer.certificate, signer.nonce, signer.expires, digest, signer.peer
            )

        if len(raw) <= _PARSED_AT_ONCE:
            return parsed()
        (found,) = await self._texts.make(signer.account, (parsed() for _ in (raw,)), len(raw))
        return found

    def _access(
        self, route: Route, right: Right, signer: Principal, key: SealedKey | None, namespace: str | None
    ) -> Access | None:
        """Return the access to the request's namespace; None for a route that is not about one namespace.

        Raises:
            HttpProblem: ``missing_header`` if neither body nor sealed key names a namespace.
            NotAccepted: the namespace is not granted, or is not the one of the sealed key.
        """
        if not route.namespaced:
            if right not in signer.certificate.rights:
                raise NotAccepted("right_not_granted")
            return None
        generation, secret = FIRST_GENERATION, b""
        until = self._clock.now_ms() + MAX_LIFE_SECONDS * 1000
        if key is not None:
            if namespace not in {None, key.namespace}:
                raise NotAccepted("namespace_mismatch")
            namespace, generation, secret = key.namespace, key.generation, key.secret
            until = min(until, key.not_after * 1000)
        elif namespace is None:
            raise HttpProblem(
                "missing_header", "Send memory-key, or name a namespace of custody relayer in the body."
            )
        elif not signer.may(namespace, right):
            raise NotAccepted("namespace_not_granted")
        custody = Custody.AGENT if secret else Custody.RELAYER
        secret = secret or self._keys.namespace_secret(signer.account, namespace, generation)
        return Access(signer, namespace, generation, custody, until, secret)

    async def _check_revocations(self, signer: Principal, route: Route) -> None:
        # The list of revocations is the only thing that admin rights without a namespace give access to.
        revokes = route.right is Right.ADMIN and not route.namespaced
        await self._accounts.admit(signer.certificate, revokes=revokes)


MAX_TARGET = 2048
_BASE64_CERTIFICATE = (MAX_CERTIFICATE * 4 + 2) // 3
_BASE64_KEY = (MAX_SEALED_KEY * 4 + 2) // 3
DEADLINE_HEADER = "x-deadline-ms"
LONGEST_DEADLINE_MS = 600_000

# Maximum length of each header that affects a decision. A request that gives one of them twice is refused.
_SINGLE: dict[bytes, tuple[str, int]] = {
    signing.CERTIFICATE_HEADER.encode(): (signing.CERTIFICATE_HEADER, _BASE64_CERTIFICATE),
    signing.KEY_HEADER.encode(): (signing.KEY_HEADER, _BASE64_KEY),
    signing.SIGNATURE_HEADER.encode(): (signing.SIGNATURE_HEADER, 128),
    signing.DIGEST_HEADER.encode(): (signing.DIGEST_HEADER, 64),
    b"host": ("host", 300),
    b"content-length": ("content-length", 20),
    b"content-type": ("content-type", 256),
    b"content-encoding": ("content-encoding", 64),
    b"transfer-encoding": ("transfer-encoding", 64),
    b"expect": ("expect", 64),
    DEADLINE_HEADER.encode(): (DEADLINE_HEADER, 16),
    b"accept": ("accept", 1024),
    b"last-event-id": ("last-event-id", 64),
    b"authorization": ("authorization", 8190),
}
# Most clients write names in title case; with these entries such names need no lowering.
_SINGLE |= {name.title(): known for name, known in _SINGLE.items()}


class RequestHead(msgspec.Struct, frozen=True):
    """Method, raw target and the headers that affect a decision.

    Attributes:
        method: as sent.
        target: path and query, as sent.
        peer: address of the client, as far as it is known: see `relayer.http.limits.peer_behind`.
        values: header values by lower-case name; absent headers are missing.
    """

    method: str
    target: str
    peer: str
    values: dict[str, str]

    def need(self, name: str) -> str:
        """Return a header's value; raises `HttpProblem` ``missing_header``."""
        value = self.values.get(name)
        if not value:
            raise HttpProblem("missing_header", f"The header {name} is missing.", rule=f"missing {name}")
        return value

    @property
    def has_body(self) -> bool:
        """Return whether the request announces a body."""
        return self.values.get("content-length", "0").strip("0") != "" or "transfer-encoding" in self.values

    @property
    def is_sealed(self) -> bool:
        """Return whether the body is sealed with the secret in the request's memory-key."""
        return self.values.get("content-type") == SEALED_TYPE

    @property
    def longest_body(self) -> int:
        """The maximum size of the body, in bytes."""
        return MAX_BODY + (BODY_OVERHEAD if self.is_sealed else 0)

    @property
    def wants_events(self) -> bool:
        """Return whether the client prefers a stream of server-sent events, on routes that have one."""
        accepted = self.values.get("accept")
        if accepted is None:
            return False
        return any(part.partition(";")[0].strip() == EVENTS for part in accepted.lower().split(","))

    def deadline_seconds(self, bound: float) -> float:
        """Return the seconds this request may take, at most ``bound``; raises `HttpProblem` ``malformed``."""
        text = self.values.get(DEADLINE_HEADER)
        if text is None:
            return bound
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LONGEST_DEADLINE_MS):
            raise HttpProblem("malformed", f"{DEADLINE_HEADER} must be 1..{LONGEST_DEADLINE_MS}.")
        return min(bound, int(text) / 1000)


def read_head(request: BaseRequest, trusted: Sequence[Network] = ()) -> RequestHead:
    """Read the head of a request and check its size limits.

    ``trusted`` are the networks of proxies that may name the client in ``X-Forwarded-For``.

    Raises:
        HttpProblem: ``malformed`` for a header that is given twice or is not ASCII, ``header_too_large``.
    """
    target = request.raw_path
    if len(target) > MAX_TARGET:
        raise HttpProblem("header_too_large", "The request's target is too long.", status=414)
    if not target.startswith("/") or not target.isascii():
        raise HttpProblem("malformed", "The target must be a path in ASCII.")
    values: dict[str, str] = {}
    for raw_name, raw_value in request.raw_headers:
        known = _SINGLE.get(raw_name) or _SINGLE.get(raw_name.lower())
        if known is None:
            continue
        name, longest = known
        if name in values:
            raise HttpProblem("malformed", f"The header {name} is given twice.", rule=f"second {name}")
        if len(raw_value) > longest:
            raise HttpProblem("header_too_large", f"The header {name} is too long.")
        try:
            values[name] = raw_value.decode("ascii")
        except UnicodeDecodeError as error:
            raise HttpProblem("malformed", f"The header {name} must be ASCII.") from error
    return RequestHead(request.method, target, peer_of(request, trusted), values)


def peer_of(request: BaseRequest, trusted: Sequence[Network] = ()) -> str:
    """Return the client's address, empty if it is unknown; ``trusted`` as for `read_head`."""
    peername = request.transport.get_extra_info("peername") if request.transport else None
    peer = peername[0] if isinstance(peername, tuple) else ""
    if trusted:
        peer = peer_behind(peer, ",".join(request.headers.getall("x-forwarded-for", [])), trusted)
    return peer


def check_announced(head: RequestHead, *, expects_body: bool) -> None:
    """Refuse a request if its head alone shows that the body is not acceptable.

    Raises:
        HttpProblem: ``unsupported_media_type``, ``too_large`` or ``malformed``.
    """
    if "content-encoding" in head.values:
        raise HttpProblem("unsupported_media_type")
    if not expects_body:
        if head.has_body:
            raise HttpProblem("malformed", "This route takes no body.")
        return
    if int(head.values.get("content-length", "0")) > head.longest_body:
        raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
    if head.is_sealed:
        return
    media_type, _, parameters = head.values.get("content-type", "").lower().partition(";")
    if media_type.strip() != "application/json" or parameters.strip().replace('"', "") not in {
        "",
        "charset=utf-8",
    }:
        raise HttpProblem("unsupported_media_type")


_MOST_SPELLINGS = 256


class Authorities:
    """Checks the Host header.

    Behind a proxy the client's scheme is not visible, so both :443 and :80 count as the default port.
    """

    def __init__(self, accepted: Iterable[str]) -> None:
        self.accepted = tuple(accepted)
        self._spellings: dict[str, str] = {}

    def check(self, host: str) -> str:
        """Return the authority in the form in which it is signed.

        Raises:
            HttpProblem: ``wrong_authority``, with the accepted names.
        """
        known = self._spellings.get(host)
        if known is not None:
            return known
        for scheme in ("https", "http"):
            authority = normal_authority(host, scheme)
            if authority in self.accepted:
                if len(self._spellings) < _MOST_SPELLINGS:
                    self._spellings[host] = authority
                return authority
        raise HttpProblem("wrong_authority", accepted=self.accepted)


_NO_BODY = hashlib.sha256(b"").digest()
_TOLD = {"window": "window", "not_yet_valid": "clock_skew", "expired": "clock_skew"}


def _stated(head: RequestHead, now: int) -> tuple[RequestSignature, bytes]:
    """Return the signature, after checking its times, and the body digest that the request states."""
    try:
        signature = RequestSignature.parse(head.need(signing.SIGNATURE_HEADER))
        if signing.DIGEST_HEADER in head.values or head.has_body:
            digest = signing.parse_content_digest(head.need(signing.DIGEST_HEADER))
        else:
            digest = _NO_BODY
    except Malformed as error:
        raise HttpProblem("malformed", f"{error}.") from error
    try:
        signature.check_times(now)
    except NotAccepted as error:
        raise HttpProblem(_TOLD[error.rule], server_time=now, rule=error.rule) from error
    return signature, digest


def _decoded(header: str, name: str) -> bytes:
    try:
        return base64url.decode(header)
    except Malformed as error:
        raise HttpProblem("malformed", f"{name}: {error}.") from error


_MOST_FIELDS = 16


def parse_query(raw: str, schema: type[BaseModel] | None) -> BaseModel | None:
    """Parse and validate a raw query string.

    Raises:
        HttpProblem: ``malformed`` if it cannot be parsed or has a name twice, or ``invalid``.
    """
    if schema is None:
        if raw:
            raise HttpProblem("malformed", "This route takes no query.")
        return None
    values: dict[str, Any] = {}
    if raw:
        try:
            pairs = parse_qsl(
                raw, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MOST_FIELDS
            )
        except ValueError as error:
            raise HttpProblem("malformed", "The query is malformed.") from error
        values = dict(pairs)
        if len(values) != len(pairs):
            raise HttpProblem("malformed", "The query has the same name twice.")
    return validate(values, schema, within=("query",))


# Bodies up to this many bytes are parsed on the event loop, which takes about half a millisecond.
_PARSED_AT_ONCE = 4096


def unsealed(raw: bytes, key: SealedKey | None, nonce: bytes) -> bytes:
    """Decrypt a sealed body.

    Raises:
        HttpProblem: ``malformed`` if the request has no secret for it, or the secret does not open it.
    """
    if key is None or not key.secret:
        raise HttpProblem("malformed", "A sealed body needs a memory-key that holds the namespace's secret.")
    try:
        return open_body(key.secret, nonce, raw)
    except UnsealError as error:
        raise HttpProblem(
            "malformed", "The body does not open with the secret in memory-key and the signature's nonce."
        ) from error


B = TypeVar("B", bound=BaseModel)


def parse_body(body: bytes, schema: type[B]) -> B:
    """Parse and validate a body; raises `HttpProblem` ``invalid_json`` or ``invalid``."""
    return validate(parse_json(body), schema)


# The largest object of the API has about twenty keys. Every unknown key adds an error, so their number is limited.
_MOST_KEYS = 64
# The largest request has a hundred items with two or three objects in each.
_MOST_OBJECTS = 4_096


def parse_json(body: bytes) -> Any:
    """Parse one JSON document.

    Raises:
        HttpProblem: ``invalid_json``, with a detail that names the rule and never a value.
    """
    try:
        text = body.decode("utf-8")
        # An object takes at least two bytes, so the objects of a small body need no counting.
        value = (_SMALL if len(body) <= 2 * _MOST_OBJECTS else _decoder()).decode(text)
        # A lone surrogate can only come from an escape sequence. Most bodies have none and need no second pass.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid("The body is not UTF-8.") from error
    except UnicodeEncodeError as error:
        raise _invalid("A string contains a lone surrogate.") from error
    except RecursionError as error:
        raise _invalid("The body is nested too deeply.") from error
    except ValueError as error:
        raise _invalid("The body is not one JSON document.") from error
    return value


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem("invalid_json", detail)


def _decoder() -> json.JSONDecoder:
    left = _MOST_OBJECTS

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise _invalid(f"The body has more than {_MOST_OBJECTS} objects.")
        return _object(pairs)

    return json.JSONDecoder(object_pairs_hook=counted, parse_constant=_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise _invalid(f"An object has more than {_MOST_KEYS} keys.")
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _invalid("An object has the same key twice.")
    return value


def _constant(_: str) -> Never:
    raise _invalid("NaN and Infinity are not JSON.")


_SMALL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


_MOST_ERRORS = 20


def validate(value: Any, schema: type[B], *, within: tuple[str, ...] = ()) -> B:
    """Validate a parsed value.

    Raises:
        HttpProblem: ``invalid``, with field, rule and length of each violation, and no value.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
    fields = []
    for item in found[:_MOST_ERRORS]:
        path = [*within, *(str(part) for part in item["loc"])]
        # The name of an unknown field is text of the client, which is never echoed.
        if item["type"] == "extra_forbidden":
            path[-1] = "(unknown field)"
        given = item.get("input")
        length = len(given) if isinstance(given, str | bytes | list | tuple) else None
        rule = item["msg"].removeprefix("Value error, ")
        fields.append(ProblemField(field=".".join(path) or "(body)", rule=rule, length=length))
    # Raised outside of the except block, so that the problem does not hold the validation error, which has the value.
    raise HttpProblem("invalid", errors=tuple(fields))
