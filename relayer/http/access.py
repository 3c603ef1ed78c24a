"""When a request is accepted: addressed to this relayer, signed, certified, not seen before, within its limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from relayer.access.accounts import Accounts
from relayer.access.fleet import FleetKeys
from relayer.access.principal import Access, Principal
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.errors import ConfigurationError
from relayer.http.limits import Limits, peer_name
from relayer.http.parsing import Head
from relayer.http.problems import HttpProblem, unauthorized
from relayer.lib.lru import BoundedCache
from relayer.ports import Clock
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.certificates import Certificate, Right
from relayer.wire.codec import Reader
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.keys import FIRST_GENERATION
from relayer.wire.loopback import is_loopback
from relayer.wire.proofs import Prover
from relayer.wire.sealed_keys import MAX_LIFE_SECONDS, SealedKey, named_fleet_key
from relayer.wire.signing import SKEW_SECONDS, RequestSignature, normal_authority

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ANY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to
_MOST_SPELLINGS = 256


def public_authority(url: str) -> str:
    """Return the authority of a public URL.

    Raises:
        ConfigurationError: not an http(s) URL without path, query, fragment or credentials.
    """
    parts = urlsplit(url)
    plain = (
        parts.scheme in {"http", "https"}
        and parts.netloc
        and not (parts.query or parts.fragment or parts.username)
    )
    if not plain or parts.path not in {"", "/"}:
        raise ConfigurationError(
            "--public-url must be a URL without a path, such as https://memory.example.org"
        )
    return normal_authority(parts.netloc, parts.scheme)


def accepted_authorities(host: str, port: int, *, scheme: str, public_url: str | None) -> tuple[str, ...]:
    """Return what a request may be addressed to: the bound address, loopback names if they lead here, the public URL."""
    names: list[str] = []
    if host not in _ANY:
        names.append(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    if host in _ANY or is_loopback(host):
        names.extend(_LOOPBACK)
    accepted = [normal_authority(f"{name}:{port}", scheme) for name in names]
    if public_url is not None:
        accepted.insert(0, public_authority(public_url))
    return tuple(dict.fromkeys(accepted))


class Authorities:
    """Checks the Host header. Behind a proxy the client's scheme is not visible, so both default ports are plain."""

    def __init__(self, accepted: Iterable[str]) -> None:
        self.accepted = tuple(accepted)
        self._spellings: dict[str, str] = {}

    def check(self, host: str) -> str:
        """Return the authority as it is signed.

        Raises:
            HttpProblem: ``wrong_authority``, with the accepted ones.
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


_SLICE = 60
# A signature lives at most 120 s and is accepted 60 s around that: five slices, some 100 bytes for each read.
_MOST = 1_000_000


class SeenReads:
    """Remembers reads until their signatures have run out, in slices of a minute."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._slices: dict[int, set[bytes]] = {}
        self._count = 0

    def note(self, agent_key: bytes, nonce: bytes, *, expires: int, now: int) -> None:
        """Remember a read; times in seconds since the epoch.

        Raises:
            HttpProblem: ``replayed``, or ``queue_full`` when there is no room: what cannot be remembered is not served.
        """
        seen = self._slices.get(expires // _SLICE)
        if seen is None:
            self._drop(now)
            seen = self._slices[expires // _SLICE] = set()
        read = agent_key[:16] + nonce
        if read in seen:
            raise HttpProblem("replayed")
        if self._count >= self._most:
            self._drop(now)
            if self._count >= self._most:
                raise HttpProblem("queue_full", retry_after=float(_SLICE), rule="seen_reads_full")
        seen.add(read)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _drop(self, now: int) -> None:
        for over in [at for at in self._slices if (at + 1) * _SLICE + SKEW_SECONDS < now]:
            self._count -= len(self._slices.pop(over))


_NO_BODY = hashlib.sha256(b"").digest()
_CERTIFICATES = 4096
_SEALED_KEYS = 8192
_TOLD = {"window": "window", "not_yet_valid": "clock_skew", "expired": "clock_skew"}


@dataclass(frozen=True, slots=True)
class Signed:
    """A request whose head was accepted; ``sealed`` is its opened memory-key, if it has one.

    ``unkept`` is the digest under which that key is to be kept when the request is let in; empty when it is kept already.
    """

    principal: Principal
    sealed: SealedKey | None
    unkept: bytes = b""


class Authenticator:
    """Accepts requests by the rules above; one per relayer process.

    Args:
        authorities: names of this relayer.
        accounts: who is served.
        fleet: opens sealed keys.
        keys: the relayer's, for custody ``relayer``.
        clock: local time.
        limits: rates.
    """

    def __init__(
        self,
        *,
        authorities: Authorities,
        accounts: Accounts,
        fleet: FleetKeys,
        keys: RelayerKeys,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._authorities = authorities
        self._accounts = accounts
        self._fleet = fleet
        self._keys = keys
        self._clock = clock
        self._limits = limits
        self._seen = SeenReads()
        self._certificates: BoundedCache[Certificate] = BoundedCache(_CERTIFICATES)
        self._sealed_keys: BoundedCache[SealedKey] = BoundedCache(_SEALED_KEYS)

    def accept(self, head: Head, *, right: Right | None, writes: bool, cost: float) -> Signed:
        """Decide on everything that needs neither body nor store.

        Args:
            head: of the request.
            right: what the certificate must grant on the sealed key's namespace, if there is one.
            writes: a write's repetition is answered by the log and never refused as a replay.
            cost: in tokens of the account's and the agent's bucket.

        Raises:
            HttpProblem: the request ends here.
        """
        now = self._clock.now_ms() // 1000
        try:
            signed = self._check(head, right, now)
        except NotAccepted as error:
            self._limits.note_failure(head.peer)
            raise unauthorized(error.rule) from error
        principal = signed.principal
        if not writes:
            self._seen.note(principal.author, principal.nonce, expires=principal.expires // 1000, now=now)
        self._limits.charge(principal.account, principal.author, cost)
        return signed

    def prover(self, head: Head) -> Prover | None:
        """Return what proves the answer to a request, None to one that states no signature to bind it to."""
        signature = head.values.get(signing.SIGNATURE_HEADER)
        return None if signature is None else Prover(signature, self._keys.identity)

    def charge_body(self, signed: Signed, cost: float) -> None:
        """Charge a request's account and agent for its body; raises `HttpProblem` ``rate_limited``."""
        self._limits.charge_body(signed.principal.account, signed.principal.author, cost)

    def admits_now(self, signed: Signed) -> bool:
        """Whether `admit` is sure to let the request in, so that it need not be asked; `keep` is then all that is left."""
        return self._accounts.admits_now(signed.principal.certificate)

    async def admit(self, signed: Signed, *, cost: float, revokes: bool) -> None:
        """Hold the request against what its account has taken back: the last step, and the first to ask the store.

        An account that has nothing here costs its peer: there are as many such accounts as somebody cares to make up. ``revokes``
        says that it is about the list of revocations alone.

        Raises:
            HttpProblem: ``unauthorized`` or ``rate_limited``.
            StoreError: what is known is too old and the store does not answer.
        """
        principal = signed.principal
        stranger = not self._accounts.knows(principal.account)
        if stranger:
            self._limits.charge_stranger(principal.peer, cost)
        try:
            await self._accounts.admit(principal.certificate, revokes=revokes)
        except NotAccepted as error:
            raise unauthorized(error.rule) from error
        if stranger and self._accounts.knows(principal.account):
            self._limits.credit_stranger(principal.peer, cost)

    async def still_admits(self, signed: Signed) -> None:
        """Hold a request that was let in against what its account has taken back since; it must not see an answer then.

        Raises:
            HttpProblem: ``unauthorized``.
            StoreError: as for `admit`.
        """
        certificate = signed.principal.certificate
        if self._accounts.admits_now(certificate):
            return
        try:
            # What a lost account may still ask for was decided when the request was let in.
            await self._accounts.admit(certificate, revokes=True)
        except NotAccepted as error:
            raise unauthorized(error.rule) from error

    def keep(self, signed: Signed) -> None:
        """Keep the opened key of a request that was let in, in the same step of the event loop: a revocation drops it."""
        if signed.sealed is not None and signed.unkept:
            self._sealed_keys.put(signed.unkept, signed.sealed)

    def access(self, signed: Signed, namespace: str | None, right: Right) -> Access:
        """Return the way into the request's one namespace, the body's (``namespace``) being known now.

        Raises:
            HttpProblem: ``missing_header`` when neither body nor sealed key names one; ``unauthorized``.
        """
        sealed, principal = signed.sealed, signed.principal
        now = self._clock.now_ms()
        if sealed is None:
            if namespace is None:
                raise HttpProblem(
                    "missing_header", "Send memory-key, or name a namespace of custody relayer in the body."
                )
            if not principal.may(namespace, right):
                raise unauthorized("namespace_not_granted")
            secret = self._keys.namespace_secret(principal.account, namespace, FIRST_GENERATION)
            until = now + MAX_LIFE_SECONDS * 1000
            return Access(principal, namespace, FIRST_GENERATION, Custody.RELAYER, until, secret)
        if namespace is not None and namespace != sealed.namespace:
            raise unauthorized("namespace_mismatch")
        custody, secret = Custody.AGENT, sealed.secret
        if not secret:
            custody = Custody.RELAYER
            secret = self._keys.namespace_secret(principal.account, sealed.namespace, sealed.generation)
        until = min(sealed.not_after, now // 1000 + MAX_LIFE_SECONDS) * 1000
        return Access(principal, sealed.namespace, sealed.generation, custody, until, secret)

    def drop_expired(self) -> None:
        """Forget opened keys that are over; called now and then, so that a secret does not outlive its key here."""
        now = self._clock.now_ms() // 1000
        for digest, sealed in self._sealed_keys.items():
            if sealed.not_after <= now:
                self._sealed_keys.discard(digest)

    def drop_keys_of(self, account: str) -> None:
        """Forget the opened keys of an account, because it revoked something."""
        for digest, sealed in self._sealed_keys.items():
            if sealed.account == account:
                self._sealed_keys.discard(digest)

    def _check(self, head: Head, right: Right | None, now: int) -> Signed:
        certificate_header = head.need(signing.CERTIFICATE_HEADER)
        authority = self._authorities.check(head.need("host"))
        signature, digest = self._stated(head, now)
        memory_key = head.values.get(signing.KEY_HEADER, "")
        certificate_id = hashlib.sha256(certificate_header.encode()).digest()
        certificate = self._certificates.get(certificate_id)
        encoded = b""
        if certificate is None:
            # A peer that keeps failing is not worth the arithmetic; agents known already are, behind the same proxy.
            self._limits.check_peer(head.peer)
            encoded = _decoded(certificate_header, signing.CERTIFICATE_HEADER)
        signing.verify(
            signature,
            certificate.agent_key if certificate is not None else _claimed_agent_key(encoded),
            method=head.method,
            authority=authority,
            target=head.target,
            body_sha256=digest,
            certificate=certificate_header,
            memory_key=memory_key,
        )
        if certificate is None:
            certificate = Certificate.verify(encoded)
            self._certificates.put(certificate_id, certificate)
        if not certificate.not_before - SKEW_SECONDS <= now < certificate.not_after + SKEW_SECONDS:
            raise NotAccepted("certificate_time")
        if not self._accounts.serves(certificate.account):
            raise NotAccepted("account_not_served")
        principal = Principal(
            certificate, signature.nonce, signature.expires * 1000, digest, peer_name(head.peer)
        )
        if not memory_key:
            return Signed(principal, None)
        return Signed(principal, *self._sealed(memory_key, certificate, right, now))

    def _stated(self, head: Head, now: int) -> tuple[RequestSignature, bytes]:
        """Return the signature, its times checked, and the digest that the request states."""
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

    def _sealed(
        self, header: str, certificate: Certificate, right: Right | None, now: int
    ) -> tuple[SealedKey, bytes]:
        """Open the memory-key and hold it against certificate and right; returns it with its digest if it is new."""
        digest = hashlib.sha256(header.encode()).digest()
        sealed, new = self._sealed_keys.get(digest), b""
        if sealed is None:
            encoded = _decoded(header, signing.KEY_HEADER)
            private = self._fleet.private(named_fleet_key(encoded))
            if private is None:
                raise HttpProblem("unknown_fleet_key")
            sealed = SealedKey.open(encoded, private)
            new = digest
        if sealed.not_after <= now:
            self._sealed_keys.discard(digest)
            raise NotAccepted("sealed_key_expired")
        if sealed.not_after > now + MAX_LIFE_SECONDS + SKEW_SECONDS:
            raise NotAccepted("sealed_key_too_long")
        if sealed.account != certificate.account:
            raise NotAccepted("sealed_key_account")
        if sealed.agent_key != certificate.agent_key:
            raise NotAccepted("sealed_key_agent")
        if right is not None and not certificate.allows(sealed.namespace, right):
            raise NotAccepted("namespace_not_granted")
        return sealed, new


def _decoded(header: str, name: str) -> bytes:
    try:
        return base64url.decode(header)
    except Malformed as error:
        raise HttpProblem("malformed", f"{name}: {error}.") from error


def _claimed_agent_key(encoded: bytes) -> bytes:
    """Return the agent key that a certificate names, before its own signature is looked at."""
    try:
        body = Reader(Reader(encoded).bytes())
        body.text()
        body.bytes(32)
        body.text()
        return body.bytes(32)
    except Malformed as error:
        raise HttpProblem("malformed", "memory-certificate is not a certificate.") from error
