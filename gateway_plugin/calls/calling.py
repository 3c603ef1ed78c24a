"""Calls to a relayer: signed requests, retries under one deadline, verified responses, and a circuit breaker.

`RelayerCaller` makes the calls and `Transport` sends the HTTP requests. The deadline covers the whole call: fetching keys,
connecting, and all retries and the pauses between them; when it passes, the request is cancelled. A call is retried if
nothing answers or the relayer is busy, once if the clocks disagree, and once if the relayer does not know the fleet key.
Each attempt is signed separately. A response counts only if it is proven to be the relayer's response to this request, see
`relayer.wire.signing`. `RelayerBreaker` holds calls back after repeated failures, and `Outages` reports lasting ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar
from urllib.parse import quote, urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from cachetools import LRUCache
from pydantic import BaseModel, ValidationError
from yarl import URL

from gateway_plugin import __version__
from gateway_plugin.calls.clock import Clock, SystemClock
from gateway_plugin.calls.trust import NO_KEYS, RelayerAddress, SealedKeyCache, TrustedFleetKeys, TrustStore
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
)
from gateway_plugin.keys.identity import Identity
from relayer.wire import signing
from relayer.wire.calls import Breaker
from relayer.wire.codec import NotAccepted
from relayer.wire.sealed_keys import FleetList
from relayer.wire.service import KeysResponse, Problem
from relayer.wire.signing import PROOF_HEADER, SEALED_TYPE, Verifier, seal_body

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
# Idle connections are closed shortly before a relayer, or a load balancer in front of it, would close them.
_KEPT_SECONDS: Final = 45.0
_REQUEST_HEADERS: Final = {"accept": "application/json", "user-agent": f"memrelay-gateway/{__version__}"}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response. ``accepted`` is set if it is proven to answer a request that the relayer had accepted."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    accepted: bool = False


def signed_headers(
    identity: Identity,
    endpoint: RelayerAddress,
    *,
    method: str,
    target: str,
    body: bytes,
    memory_key: str,
    now: int,
    nonce: bytes | None = None,
    route: str = "",
) -> dict[str, str]:
    """Return the headers that authenticate a request. ``now`` is in seconds since the epoch by the relayer's clock."""
    digest = hashlib.sha256(body).digest()
    certificate = identity.certificate_header(now)
    signature = signing.sign(
        identity.keys.identity,
        method=method,
        authority=endpoint.authority,
        target=target,
        body_sha256=digest,
        created=now,
        nonce=nonce or secrets.token_bytes(signing.NONCE_SIZE),
        certificate=certificate,
        memory_key=memory_key,
    )
    headers = {
        signing.CERTIFICATE_HEADER: certificate,
        signing.DIGEST_HEADER: signing.content_digest(digest),
        signing.SIGNATURE_HEADER: signature.header(),
    }
    if memory_key:
        headers |= {signing.KEY_HEADER: memory_key, signing.ROUTE_HEADER: route or identity.route}
    return headers


class Transport:
    """A pool of HTTP connections to one relayer. It belongs to the event loop that sends the first request."""

    def __init__(self, endpoint: RelayerAddress, http: aiohttp.ClientSession | None = None) -> None:
        self.endpoint = endpoint
        self._own: aiohttp.ClientSession | None = None
        self._given = http
        self._closed = False

    async def send(
        self, method: str, target: str, *, body: bytes = b"", headers: Mapping[str, str], patience: float
    ) -> HttpAnswer:
        """Send one request and read the whole response.

        ``patience`` limits, in seconds, connecting and each read; the caller limits the total time.

        Raises:
            RelayerUntrusted: the TLS certificate is not trusted.
            RelayerUnreachable: no complete response came, or it is longer than 16 MiB.
            GatewayError: the transport is closed.
        """
        async with self._sent(method, target, body, headers, patience) as response:
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise RelayerUnreachable(
                        f"{self.endpoint.origin} sent more than {MAX_ANSWER_BYTES} bytes"
                    )
            return _answer(response, bytes(content))

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, target: str, *, body: bytes, headers: Mapping[str, str], patience: float
    ) -> AsyncIterator[tuple[HttpAnswer, AsyncIterator[bytes]]]:
        """Send one request and read the response in chunks. Raises like `send`.

        Yields:
            The response and an iterator of chunks. If the status is 300 or more, the response contains the whole body.
        """
        async with self._sent(method, target, body, headers, patience) as response:
            content = b"" if response.status < 300 else await response.read()
            yield _answer(response, content), response.content.iter_any()

    @contextlib.asynccontextmanager
    async def _sent(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], patience: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        typed = {"content-type": "application/json"} if body else {}
        try:
            async with self._session().request(
                method,
                URL(self.endpoint.origin + target, encoded=True),
                data=body or None,
                headers={**_REQUEST_HEADERS, **typed, **headers},
                allow_redirects=False,
                # The timeout ``connect`` also covers the DNS lookup.
                timeout=aiohttp.ClientTimeout(connect=patience, sock_read=patience),
            ) as response:
                yield response
        except aiohttp.ClientProxyConnectionError as error:
            raise RelayerUnreachable(
                f"the proxy on the way to {self.endpoint.origin}, which is set in the environment, does not answer"
            ) from error
        except aiohttp.ClientConnectorError as error:
            if _is_untrusted(error):
                raise RelayerUntrusted(
                    f"the TLS certificate of {self.endpoint.origin} is not trusted by this machine; for a private certificate authority, set SSL_CERT_FILE to its PEM file"
                ) from error
            raise RelayerUnreachable(f"no relayer answers at {self.endpoint.origin}") from error
        except (aiohttp.ClientError, OSError) as error:
            # Only the type of the error is shown: its text may contain the URL of a proxy with credentials.
            raise RelayerUnreachable(
                f"the connection to {self.endpoint.origin} failed ({type(error).__name__})"
            ) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._given is not None:
            return self._given
        if self._closed:
            # A turn that is still running may retry after the close; a new session would then stay open.
            raise GatewayError("the connections to the relayer are closed")
        if self._own is None:
            connector = aiohttp.TCPConnector(
                ssl=_authorities() if self.endpoint.scheme == "https" else True,
                keepalive_timeout=_KEPT_SECONDS,
            )
            # Without ``trust_env``, which would read passwords from ~/.netrc for each request.
            self._own = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), proxy=_proxy_to(self.endpoint)
            )
        return self._own

    async def aclose(self) -> None:
        """Close the connections. No request can be sent afterwards."""
        self._closed = True
        own, self._own = self._own, None
        if own is not None:
            await own.close()


def _answer(response: aiohttp.ClientResponse, content: bytes) -> HttpAnswer:
    return HttpAnswer(
        response.status, {name.lower(): value for name, value in response.headers.items()}, content
    )


def _proxy_to(endpoint: RelayerAddress) -> str | None:
    """Return the URL of the proxy that the environment names; None if there is none, and for loopback addresses."""
    if endpoint.loopback or proxy_bypass(endpoint.authority):
        return None
    named = getproxies()
    proxy = named.get(endpoint.scheme) or named.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _authorities() -> ssl.SSLContext:
    """Return the trusted certificate authorities: those of SSL_CERT_FILE or SSL_CERT_DIR if set, else those of certifi."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    return ssl.create_default_context(cafile=file if file or folder else certifi.where(), capath=folder)


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


_TEMPORARY: Final = frozenset({429, 502, 503})
# Statuses below 500 that proxies send, too.
_PROXIES: Final = frozenset({408, 413, 429})
_MAX_DETAIL: Final = 500
# Times in ms passed this in 1973; times in seconds will in the year 5138.
_MS_FROM: Final = 10**11


@dataclass(frozen=True, slots=True)
class ProvenRefusal:
    """An error response that is proven to come from the relayer.

    Attributes:
        code: the stable code of the problem; ``http_NNN`` if this version does not know the format of the response.
        detail: the relayer's message, cut to 500 characters.
        retry_after: seconds that the relayer asks to wait; 0 if it does not say.
        server_time: the relayer's clock in seconds since the epoch; None if it does not say.
        generation: the generation of the secret that opens the namespace; None if it does not say.
        accepted: whether the relayer had accepted the request before it refused it.
    """

    status: int
    code: str
    detail: str
    request_id: str = ""
    retry_after: float = 0.0
    server_time: int | None = None
    generation: int | None = None
    accepted: bool = False

    @classmethod
    def parse(cls, answer: HttpAnswer) -> ProvenRefusal:
        """Parse a response whose status is 300 or more."""
        request_id = answer.headers.get("x-request-id", "")[:128]
        header = _seconds(answer.headers.get("retry-after", ""))
        try:
            problem = Problem.model_validate_json(answer.body)
        except ValidationError:
            detail = "the relayer sent an error in an unknown format: update this plugin"
            return cls(
                answer.status, f"http_{answer.status}", detail, request_id, header, accepted=answer.accepted
            )
        server_time = problem.server_time
        if server_time is not None and abs(server_time) >= _MS_FROM:
            server_time //= 1000
        # Wait for the longer of the two times, in the body and in the header.
        retry_after = max(problem.retry_after or 0.0, header)
        fields = "; ".join(f"{error.field}: {error.rule}" for error in problem.errors[:5])
        detail = (f"{problem.detail} ({fields})" if fields else problem.detail)[:_MAX_DETAIL]
        return cls(
            answer.status,
            problem.code,
            detail,
            problem.request_id,
            retry_after,
            server_time,
            problem.generation,
            accepted=answer.accepted,
        )

    @property
    def temporary(self) -> bool:
        """Return whether the same request may succeed later."""
        return self.status in _TEMPORARY or self.code == "replayed"

    def error(self) -> GatewayError:
        """Return the exception for this response."""
        if self.status == 504:
            return DeadlineExceeded(f"the relayer's work ({self.detail})")
        return RelayerRefused(
            self.code, self.detail, status=self.status, request_id=self.request_id, accepted=self.accepted
        )


def unproven(answer: HttpAnswer, origin: str) -> GatewayError:
    """Return the exception for a response without the relayer's proof, of which only the status is used."""
    if 300 <= answer.status < 400:
        # Following the redirect would send a signed request to an address that is not configured.
        return RelayerUntrusted(f"{origin} answers with a redirect; set the URL of the relayer itself")
    if answer.status >= 500 or answer.status in _PROXIES:
        return RelayerUnreachable(f"the server at {origin} is not the relayer: {answer.status}")
    return RelayerUntrusted(
        f"what answers at {origin} ({answer.status}) did not prove that it is the relayer, and its answer was discarded; check which program listens there, and update the relayer if it is older than this plugin"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0  # absent, or the form with a date, which a relayer does not use
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


_FAILURES_IN_A_ROW: Final = 3
_FIRST_BREAK: Final = 1.0
BREAKER_SECONDS: Final = 60.0
_BREAKER_NAMESPACES: Final = 256


class RelayerBreaker:
    """A circuit breaker for a relayer and each of its namespaces: holds calls back after three failures in a row (AM-26).

    The pause is a second, and each trial that then times out or gets an error doubles it, up to ``longest`` seconds. It stays a
    second while connections fail: that costs a turn no time, and the relayer may be back at any moment.

    If the relayer does not answer, or is not the trusted one, that counts as a failure of the relayer. A timeout or an
    error response counts as a failure of the call's namespace; for each such namespace, it also counts once as a failure
    of the relayer, until any call succeeds. So three slow namespaces are treated as a slow relayer.
    """

    def __init__(self, clock: Clock, longest: float = BREAKER_SECONDS) -> None:
        self._clock = clock
        self._longest = longest
        self._relayer = self._new()
        self._namespaces: LRUCache[str, Breaker] = LRUCache(_BREAKER_NAMESPACES)
        self._failing: set[str] = set()
        self._last: GatewayError | None = None

    @property
    def remaining(self) -> float:
        """Return the seconds until the relayer and all namespaces may be called again; 0 if no call is held back."""
        return max(
            self._relayer.remaining, *(breaker.remaining for breaker in self._namespaces.values()), 0.0
        )

    def check(self, namespace: str = "") -> None:
        """Raise an error if a call must be held back. After a pause, one call is let through as a trial.

        Raises:
            RelayerUnreachable: the call is held back.
            RelayerUntrusted: the call is held back, and the last response was not proven to be the relayer's.
        """
        own = self._namespaces.get(namespace)
        # A call that the relayer's pause holds back anyway must not use up the namespace's trial.
        if not self._relayer.remaining and own is not None and (seconds := own.wait()):
            raise RelayerUnreachable(
                f"the relayer failed {own.failures} times in a row in namespace {namespace}; "
                f"the next try is in {seconds:.0f} s"
            )
        seconds = self._relayer.wait()
        if seconds and isinstance(self._last, RelayerUntrusted):
            raise RelayerUntrusted(f"{self._last} (the next try is in {seconds:.0f} s)")
        if seconds:
            raise RelayerUnreachable(
                f"the relayer failed {self._relayer.failures} times in a row; the next try is in {seconds:.0f} s"
            )

    def succeeded(self, namespace: str = "") -> None:
        """Record a successful call to a namespace: the relayer and the namespace have no failures any more."""
        self._relayer.succeeded()
        self._failing.clear()
        self._namespaces.pop(namespace, None)

    def failed_by(self, error: GatewayError | None) -> None:
        """Record a failure of the relayer; ``error`` is None if it was too slow or answered with an error."""
        self._last = error
        is_away = isinstance(error, RelayerUnreachable)
        if is_away:
            # It may answer all of them in time when it is back.
            self._namespaces.clear()
        self._relayer.failed(quickly=is_away)

    def failed_in(self, namespace: str) -> None:
        """Record that a call timed out or got an error; ``namespace`` is empty if it is not about a namespace."""
        if not namespace:
            self.failed_by(None)
            return
        own = self._namespaces.get(namespace)
        if own is None:
            own = self._namespaces[namespace] = self._new()
        own.failed()
        if namespace not in self._failing:
            self._failing.add(namespace)
            self.failed_by(None)

    def _new(self) -> Breaker:
        return Breaker(
            self._clock.monotonic, limit=_FAILURES_IN_A_ROW, first=_FIRST_BREAK, longest=self._longest
        )


# Statuses with which the relayer refuses the client itself, whatever it requests.
_REFUSED_WHOM: Final = frozenset({401, 403})
_AWAY: Final = frozenset({"unavailable", "timeout"})
# Timeouts in a row that count as an outage: a single slow turn is not one.
_TIMEOUTS: Final = 2
_GOES_ON: Final = (
    "The agent continues without memory; turns that are captured meanwhile wait on this machine."
)


class Outages:
    """Reports outages: prints one message when memory stops working, and one when it works again.

    Attributes:
        lasting: the outcome of the failing calls during an outage, see `GatewayError`; "" while there is none.
    """

    def __init__(self, origin: str, notify: Callable[[str], None]) -> None:
        self.lasting = ""
        self._origin = origin
        self._notify = notify
        self._timeouts = 0

    def heard(self, error: GatewayError | None) -> None:
        """Record the end of a call; ``error`` is None if the relayer answered."""
        status = "" if error is None else error.outcome
        refused = isinstance(error, RelayerRefused) and error.status in _REFUSED_WHOM
        self._timeouts = self._timeouts + 1 if status == "timeout" else 0
        if status in _AWAY | {"untrusted"} or refused:
            if status == self.lasting or (status == "timeout" and self._timeouts < _TIMEOUTS):
                return
            # Timeouts and failed connections are the same outage, because they alternate from turn to turn.
            same = {self.lasting, status} <= _AWAY
            self.lasting = status
            if not same:
                self._notify(f"memrelay: memory does not work ({status}): {error}. {_GOES_ON}")
        elif self.lasting and error is None:
            self.lasting = ""
            self._notify(f"memrelay: the relayer at {self._origin} answers again: memory works")


DEFAULT_DEADLINE: Final = 30.0
ATTEMPTS: Final = 4
ROTATION_DEADLINE: Final = 600.0
_GENERATIONS: Final = 1024
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
# A larger difference of the clocks is not corrected, because a person should know about it.
_MAX_SKEW_SECONDS: Final = 24 * 3600

# Errors with status 500 or more that concern a single request or namespace. Holding other calls back would not help the relayer.
_ABOUT_ONE: Final = frozenset(
    {"internal_error", "corrupt_namespace", "upgrade_required", "queue_full", "keys_are_rotated"}
)

AnswerT = TypeVar("AnswerT", bound=BaseModel)
_jitter = secrets.SystemRandom()


# With this margin, the relayer can report that its store does not accept a write before the call times out.
_WRITES_MARGIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request before it is signed.

    Attributes:
        target: path and query, percent-encoded.
        identity: the agent that signs; None for public routes.
        body: the JSON body; empty if there is none.
        keyed: whether the request carries a sealed key, because it is about a namespace.
        margin: share of the remaining time, 0..1, by which the relayer's deadline is before the end of the call. Writes
            always have a margin of at least 0.05.
        writes: whether the call may change what the namespace returns.
    """

    name: str
    method: str
    target: str
    identity: Identity | None = None
    body: bytes = b""
    keyed: bool = True
    attempts: int = ATTEMPTS
    margin: float = 0.0
    writes: bool = False

    @property
    def namespace(self) -> str:
        """Return the namespace that the call is about, see `Identity.shown`; empty if it is about the account or the relayer."""
        return self.identity.shown if self.identity is not None and self.keyed else ""


@dataclass(frozen=True, slots=True)
class _Signed:
    """A signed request for one attempt. ``verifier`` checks the response; None for public routes."""

    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    verifier: Verifier | None = field(repr=False)


class _Deadline:
    """The deadline of a call, and the step that it is in."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self.step = "connect"

    @property
    def remaining(self) -> float:
        return self._end - self._clock.monotonic()


class RelayerCaller:
    """Makes calls to one relayer for any number of agents.

    Args:
        relayer_identity: the identity that the relayer must have, 32 bytes; None uses the pinned one.
        http: the HTTP session to use; the caller closes it. None creates one.
        pause: the longest time in seconds that calls are held back after repeated failures, see `RelayerBreaker`.

    Raises:
        SettingsError: the URL is malformed, has a path, or would send keys unencrypted.
    """

    def __init__(
        self,
        url: str,
        *,
        trust: TrustStore,
        relayer_identity: bytes | None = None,
        clock: Clock | None = None,
        http: aiohttp.ClientSession | None = None,
        pause: float = BREAKER_SECONDS,
    ) -> None:
        self.endpoint = RelayerAddress.parse(url)
        self.clock_offset = 0
        self._clock = clock or SystemClock()
        self.breaker = RelayerBreaker(self._clock, pause)
        self._transport = Transport(self.endpoint, http)
        self._fleet = TrustedFleetKeys(
            self.endpoint.origin, trust, self._fetch_keys, identity=relayer_identity
        )
        self._sealed = SealedKeyCache()
        # The generations of namespaces whose keys were rotated, by account and name, as the relayer told them.
        self._generations: LRUCache[tuple[str, str], int] = LRUCache(_GENERATIONS)
        self._watchers: list[Callable[[str], None]] = []
        self._listeners: list[Callable[[GatewayError | None], None]] = []

    def watch_ends(self, listener: Callable[[GatewayError | None], None]) -> None:
        """Register a listener that is called at the end of every call with its error, or None if it succeeded."""
        self._listeners.append(listener)

    def watch_writes(self, watcher: Callable[[str], None]) -> None:
        """Register a function that is called with the namespace after every write.

        It is also called after a write that failed, because the relayer may have done it although the response was lost.
        """
        self._watchers.append(watcher)

    def note_write(self, namespace: str) -> None:
        """Notify the watchers of a write to a namespace that has ended, or is about to be made."""
        for watcher in self._watchers:
            watcher(namespace)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _run(self, call: ApiCall, shape: type[AnswerT], seconds: float) -> AnswerT:
        try:
            answer = await self._bounded_call(call, shape, seconds)
            self._ended(None)
        except GatewayError as error:
            # Another account may end its share at any time. That is not an outage of this gateway's memory.
            by_guest = call.identity is not None and call.identity.is_guest
            if not (by_guest and isinstance(error, RelayerRefused)):
                self._ended(error)
            raise
        else:
            return answer
        finally:
            if call.writes and call.identity is not None:
                self.note_write(call.identity.namespace)

    def _ended(self, error: GatewayError | None) -> None:
        for listener in self._listeners:
            listener(error)

    async def _bounded_call(self, call: ApiCall, shape: type[AnswerT], seconds: float) -> AnswerT:
        namespace = call.namespace
        self.breaker.check(namespace)
        limit = _Deadline(self._clock, seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._attempts(call, limit)
        except TimeoutError as error:
            self.breaker.failed_in(namespace)
            raise DeadlineExceeded(limit.step) from error
        except DeadlineExceeded:
            self.breaker.failed_in(namespace)
            raise
        except (RelayerUnreachable, RelayerUntrusted) as error:
            self.breaker.failed_by(error)
            raise
        except RelayerRefused as error:
            # A busy relayer is treated like one that is down. A relayer that refuses a request works.
            busy = error.status >= 500 and error.code not in _ABOUT_ONE
            if busy:
                self.breaker.failed_in(namespace)
            else:
                self.breaker.succeeded(namespace)
            raise
        self.breaker.succeeded(namespace)
        return self._parsed(answer, shape)

    async def _attempts(self, call: ApiCall, limit: _Deadline) -> HttpAnswer:
        corrected = refetched = False
        pause = _FIRST_PAUSE
        attempt = 0
        while True:
            attempt += 1
            wanted = 0.0
            failure: GatewayError
            try:
                used = 0 if call.identity is None else self.present(call.identity).generation
                signed = await self._signed(call, limit)
                # The transport's timeout is one second later, so that the call's deadline takes effect first.
                patience = max(limit.remaining, 0.001) + 1
                answer = await self._transport.send(
                    call.method, call.target, body=signed.body, headers=signed.headers, patience=patience
                )
                answer = self._proven(answer, signed)
                if answer.status < 300:
                    return answer
                refusal = ProvenRefusal.parse(answer)
                if refusal.code == "clock_skew" and not corrected and self._correct_clock(refusal):
                    corrected = True
                    attempt -= 1
                    continue
                if self._follow(call, refusal, used):
                    attempt -= 1
                    continue
                if refusal.code == "unknown_fleet_key" and not refetched:
                    refetched = True
                    attempt -= 1
                    self._fleet.drop()
                    continue
                failure, again, wanted = refusal.error(), refusal.temporary, refusal.retry_after
            except RelayerUnreachable as error:
                failure, again = error, True
            wait = max(wanted, uneven(pause))
            if not again or attempt >= call.attempts or wait >= limit.remaining:
                raise failure
            limit.step = "wait for the relayer"
            await self._clock.sleep(wait)
            pause = min(pause * 3, _LONGEST_PAUSE)

    async def _lines(self, call: ApiCall, seconds: float) -> AsyncGenerator[bytes, None]:
        """Make a call and yield the lines of its response, each verified. There is one attempt, of at most ``seconds``."""
        self.breaker.check(call.namespace)
        limit = _Deadline(self._clock, seconds)
        try:
            async with asyncio.timeout(seconds):
                signed = await self._signed(call, limit)
                assert signed.verifier is not None  # no public route is read in lines
                sent = self._transport.stream(
                    call.method, call.target, body=signed.body, headers=signed.headers, patience=seconds + 1
                )
                async with sent as (answer, chunks):
                    if answer.status >= 300:
                        raise ProvenRefusal.parse(self._proven(answer, signed)).error()
                    proven = signed.verifier.lines(chunks, most=MAX_ANSWER_BYTES)
                    try:
                        async with contextlib.aclosing(proven) as lines:
                            async for line in lines:
                                yield line
                    except NotAccepted as error:
                        raise self._unproven(answer) from error
        except TimeoutError as error:
            raise DeadlineExceeded(limit.step) from error
        except RelayerUntrusted as error:
            self.breaker.failed_by(error)
            raise

    def _proven(self, answer: HttpAnswer, signed: _Signed) -> HttpAnswer:
        """Verify a response and return it. A response of a public route has no proof and is returned if it is successful.

        Raises:
            RelayerUntrusted, RelayerUnreachable: see `unproven`.
        """
        try:
            if signed.verifier is not None:
                proof = answer.headers.get(PROOF_HEADER, "")
                accepted = signed.verifier.check(proof, answer.status, answer.body)
                return replace(answer, accepted=accepted)
            if answer.status >= 300:
                raise self._unproven(answer)
        except NotAccepted as error:
            raise self._unproven(answer) from error
        return answer

    def _unproven(self, answer: HttpAnswer) -> GatewayError:
        error = unproven(answer, self.endpoint.origin)
        if isinstance(error, RelayerUntrusted):
            # Fetch the list of keys again: it shows whether another relayer answers, and whether a person trusts it by now.
            self._fleet.drop()
        return error

    async def _signed(self, call: ApiCall, limit: _Deadline) -> _Signed:
        signed = _Signed({}, call.body, None)
        if call.identity is not None:
            limit.step = "keys"
            signed = await self._authenticated(call, call.identity)
        limit.step = call.name
        remaining = max(limit.remaining, 0.001)
        margin = max(call.margin, _WRITES_MARGIN if call.writes else 0.0)
        signed.headers["x-deadline-ms"] = str(max(int(remaining * (1 - margin) * 1000), 1))
        return signed

    async def _authenticated(self, call: ApiCall, identity: Identity) -> _Signed:
        """Sign a call, with a sealed key if it is about a namespace.

        Over unencrypted HTTP on loopback, the body is sealed, because any process of this machine may be listening. Calls
        about the account are not sealed: they contain no text of memories.
        """
        now, nonce, body, typed = self._now(), secrets.token_bytes(signing.NONCE_SIZE), call.body, {}
        keys = NO_KEYS
        if call.keyed:
            identity = self.present(identity)
            keys = self._sealed.keys(identity, await self._fleet.current(now), now)
            if body and self.endpoint.scheme == "http":
                body, typed = seal_body(keys.secret, nonce, body), {"content-type": SEALED_TYPE}
        relayer = await self._fleet.identity(now)
        headers = signed_headers(
            identity,
            self.endpoint,
            method=call.method,
            target=call.target,
            body=body,
            memory_key=keys.header,
            now=self._now(),
            nonce=nonce,
            route=keys.route,
        )
        request = signing.answered_request(
            headers[signing.SIGNATURE_HEADER],
            method=call.method,
            target=call.target,
            digest=headers[signing.DIGEST_HEADER],
            content_type=typed.get("content-type", ""),
        )
        verifier = Verifier(request, relayer, keys.answer_key)
        return _Signed({**headers, **typed}, body, verifier)

    def present(self, identity: Identity) -> Identity:
        """Return an identity with the generation of the secret that its namespace is kept under, as far as it is known."""
        known = self._generations.get((identity.account, identity.namespace), 0)
        return replace(identity, generation=known) if known > identity.generation else identity

    def _follow(self, call: ApiCall, refusal: ProvenRefusal, used: int) -> bool:
        """Return whether a call was refused because of a rotation of the keys after the generation that it ``used``.

        Generations are followed upwards only: a relayer cannot make a gateway use a secret again that a rotation has replaced.
        """
        told, identity = refusal.generation, call.identity
        if refusal.code != "wrong_generation" or told is None or identity is None or told <= used:
            return False
        # Another call may have learned of a later one meanwhile.
        self._generations[identity.account, identity.namespace] = max(told, self.present(identity).generation)
        return True

    async def _sealed_for(self, identity: Identity, generation: int) -> str:
        now = self._now()
        fleet_key = await self._fleet.current(now)
        return self._sealed.header(replace(identity, generation=generation), fleet_key, now)

    async def _fetch_keys(self) -> KeysResponse:
        answer = await self._transport.send("GET", "/v1/keys", headers={}, patience=DEFAULT_DEADLINE)
        if answer.status >= 300:
            raise self._unproven(answer)
        return self._parsed(answer, KeysResponse)

    async def _bounded(self, work: Callable[[int], Awaitable[FleetList]], seconds: float) -> FleetList:
        try:
            async with asyncio.timeout(seconds):
                return await work(self._now())
        except TimeoutError as error:
            raise DeadlineExceeded("keys") from error

    def _parsed(self, answer: HttpAnswer, shape: type[AnswerT]) -> AnswerT:
        try:
            return shape.model_validate_json(answer.body)
        except ValidationError as error:
            raise RelayerUnreachable(
                f"{self.endpoint.origin} does not answer as a memrelay relayer does; check the URL"
            ) from error

    def _correct_clock(self, refusal: ProvenRefusal) -> bool:
        if refusal.server_time is None:
            return False
        offset = refusal.server_time - int(self._clock.now())
        if abs(offset) > _MAX_SKEW_SECONDS:
            return False
        self.clock_offset = offset
        return True

    def _now(self) -> int:
        return int(self._clock.now()) + self.clock_offset


def uneven(pause: float) -> float:
    """Return a pause shortened at random by up to a half, so that gateways that failed together do not retry together."""
    return pause * _jitter.uniform(0.5, 1.0)


def body_of(request: BaseModel) -> bytes:
    """Return a request as JSON, without fields that the caller did not set: the relayer has the defaults."""
    return request.model_dump_json(exclude_unset=True).encode()


def segment(value: str) -> str:
    """Return a value percent-encoded as one segment of a path.

    Undecodable bytes, which a shell may pass, are replaced; the relayer then refuses the id.
    """
    return quote(value, safe="", errors="replace")


def paged(path: str, limit: int, cursor: str | None, filters: list[tuple[str, str]]) -> str:
    """Return path and query for one page of a list; ``cursor`` is the ``next_cursor`` of the previous page."""
    query = [("limit", str(limit)), *([("cursor", cursor)] if cursor else []), *filters]
    return f"{path}?{urlencode(query, safe=',', errors='replace')}"
