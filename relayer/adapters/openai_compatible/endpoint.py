"""A client for one HTTP endpoint with JSON responses: connections, timeouts, retries and limits on concurrency.

`Endpoint.post` handles everything that can go wrong before a JSON document has arrived, and raises `EndpointFault`, which says
whether a retry, another request or an operator can help. Retries are limited by a `RetryBudget` and a circuit breaker. The
content of the document is the concern of `embedder` and `chat`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import TypeVar

import aiohttp

from relayer.errors import QueueFull
from relayer.lib.work import uneven
from relayer.ports import Clock, Randomness
from relayer.wire.calls import Breaker, doubled

# Maximum seconds that are taken from a ``Retry-After`` header.
_LONGEST_RETRY_AFTER = 24 * 3600.0


class Fault(Enum):
    """The kind of a failure, by what can be done about it."""

    TRANSIENT = auto()  # the same request may succeed later
    REJECTED = auto()  # this request never succeeds; another one may
    REFUSED = auto()  # no request succeeds until an operator acts


class EndpointFault(Exception):
    """Raised if a request got no usable response.

    Attributes:
        what: a short description of the failure, which quotes neither the request nor the response.
        retry_after: seconds to wait as the server says; None if it does not say.
    """

    def __init__(self, fault: Fault, what: str, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.fault = fault
        self.what = what
        self.retry_after = retry_after


def fault_of_status(status: int, retry_after: float | None) -> EndpointFault:
    """Return the fault for an HTTP status other than 200. The body of such a response is never read."""
    if status in {401, 403}:
        return EndpointFault(Fault.REFUSED, f"the key is missing or not accepted (HTTP {status})")
    if status in {404, 405}:
        return EndpointFault(Fault.REFUSED, f"no such route or model (HTTP {status})")
    if 300 <= status < 400:
        return EndpointFault(Fault.REFUSED, f"it redirects elsewhere (HTTP {status}): give the final URL")
    if status in {408, 409, 425, 429} or status >= 500:
        return EndpointFault(Fault.TRANSIENT, f"HTTP {status}", retry_after)
    return EndpointFault(Fault.REJECTED, f"the request is not accepted (HTTP {status})")


def advice(fault: EndpointFault, *, setting: str, url: str, path: str, model: str) -> str:
    """Return a message that tells an operator which setting to check.

    Args:
        fault: the failure.
        setting: the prefix of this endpoint's settings.
        url: its base URL.
        path: the route below it.
        model: the option that names the model, and its value.
    """
    if "key" in fault.what:
        return (
            f"--{setting}-url: {url}: {fault.what}: give the key in the file that "
            f"MEMRELAY_{setting.replace('-', '_').upper()}_API_KEY_FILE names"
        )
    return (
        f"--{setting}-url: {url}{path} with --{setting}-{model}: {fault.what}; the URL ends before {path}, as in "
        "https://api.example.org/v1"
    )


def retry_after_seconds(value: str | None, now_ms: int) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3), seconds or a date; return None if it is missing or neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            then = parsedate_to_datetime(value)
        except ValueError:
            return None
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        seconds = (then - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds()
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER) if seconds == seconds else None  # noqa: PLR0124 - NaN


_MOST_TOKENS = 10.0


class RetryBudget:
    """A budget of tokens for retries: each retry costs one token, and each success adds a tenth, up to ten."""

    def __init__(self) -> None:
        self._tokens = _MOST_TOKENS

    def take(self) -> bool:
        """Take one token for a retry; return whether there was one."""
        # Adding a tenth ten times gives a little less than one in floating point.
        if self._tokens < 1.0 - 1e-6:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def succeeded(self) -> None:
        """Add a tenth of a token, after a request that succeeded."""
        self._tokens = min(_MOST_TOKENS, self._tokens + 0.1)


T = TypeVar("T")

_ATTEMPTS = 3
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 0.4
_CHUNK = 64 * 1024
_MOST_ANSWER_BYTES = 64 * 1024 * 1024
# The errors of aiohttp and sockets when a connection fails. Their messages may contain host names, so they are not used.
_BROKEN = (aiohttp.ClientError, ConnectionError, OSError)


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """Limits of one endpoint; times in seconds.

    Attributes:
        connect: maximum time to open a connection.
        total: maximum time of one call, including retries and waiting.
        at_once: maximum number of concurrent requests.
        waiting: maximum number of calls that run or wait; beyond that `QueueFull` is raised.
    """

    connect: float = 5.0
    total: float = 60.0
    at_once: int = 4
    waiting: int = 64


@dataclass(slots=True)
class Endpoint:
    """A client for a base URL such as ``https://api.example.org/v1``. Its repr does not contain the key.

    Args:
        url: without a slash at its end.
        key: sent as a bearer token; empty for none.

    Attributes:
        trouble: the error of the last request; empty if it succeeded or there was none. Only `post` sets it.
    """

    url: str
    clock: Clock
    randomness: Randomness
    key: str = field(default="", repr=False)
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    _budget: RetryBudget = field(default_factory=RetryBudget, repr=False)
    _breaker: Breaker = field(init=False, repr=False)
    trouble: str = field(default="", init=False, repr=False)
    _slots: asyncio.Semaphore = field(init=False, repr=False)
    _calls: int = field(default=0, repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._breaker = Breaker(self.clock.monotonic, limit=3, first=1.0, longest=30.0)
        self._slots = asyncio.Semaphore(self.limits.at_once)

    async def post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[object], T],
        *,
        seconds: float | None = None,
    ) -> T:
        """Send a JSON document, and return the result of ``read`` for the JSON document of the response.

        Transient faults are retried while the time and the retry budget last. Cancelling the caller closes the connection, so
        that the server can stop its work.

        Args:
            path: of the route, below the base URL.
            body: the document to send.
            read: called with the document of the response; an `EndpointFault` that it raises is handled as one of the endpoint.
            seconds: for the whole call; the endpoint's own limit applies too.

        Raises:
            EndpointFault: there was no usable response.
            QueueFull: too many calls wait.
        """
        if self._calls >= self.limits.waiting:
            raise QueueFull("too many requests wait for the model endpoint", retry_after=1.0)
        bound = self.limits.total if seconds is None else min(seconds, self.limits.total)
        end = self.clock.monotonic() + bound
        self._calls += 1
        try:
            async with asyncio.timeout(bound):
                return await self._persist(path, json.dumps(body).encode(), read, end)
        except TimeoutError:
            fault = EndpointFault(Fault.TRANSIENT, f"no answer within {bound:.0f} s")
            self._failed(fault)
            raise fault from None
        finally:
            self._calls -= 1

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _persist(self, path: str, body: bytes, read: Callable[[object], T], end: float) -> T:
        for attempt in range(_ATTEMPTS):
            wait = self._breaker.wait()
            if wait > 0:
                raise EndpointFault(Fault.TRANSIENT, self.trouble, wait)
            try:
                async with self._slots:
                    found = read(await self._exchange(path, body))
            except EndpointFault as fault:
                if fault.fault is Fault.REJECTED:
                    raise
                self._failed(fault)
                pause = self._pause(attempt, fault)
                if pause is None or self.clock.monotonic() + pause >= end:
                    raise
                await self.clock.sleep(pause)
            else:
                self._budget.succeeded()
                self._breaker.succeeded()
                self.trouble = ""
                return found
        raise EndpointFault(Fault.TRANSIENT, self.trouble)

    def _failed(self, fault: EndpointFault) -> None:
        self.trouble = fault.what
        self._breaker.failed(fault.retry_after or 0.0)

    def _pause(self, attempt: int, fault: EndpointFault) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        if fault.fault is not Fault.TRANSIENT or attempt + 1 >= _ATTEMPTS or not self._budget.take():
            return None
        pause = doubled(_FIRST_PAUSE, attempt, _LONGEST_PAUSE)
        return pause * uneven(self.randomness) + max(fault.retry_after or 0.0, 0.0)

    async def _exchange(self, path: str, body: bytes) -> object:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=self.limits.at_once),
                    timeout=aiohttp.ClientTimeout(total=None, connect=self.limits.connect),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trust_env=False,
                )
            # A redirect would send texts and the key to a server that the operator did not configure.
            async with self._session.post(
                self.url + path, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    asked = retry_after_seconds(answer.headers.get("Retry-After"), self.clock.now_ms())
                    raise fault_of_status(answer.status, asked)
                pieces: list[bytes] = []
                size = 0
                async for piece in answer.content.iter_chunked(_CHUNK):
                    size += len(piece)
                    if size > _MOST_ANSWER_BYTES:
                        raise EndpointFault(Fault.REJECTED, "the answer is larger than any that makes sense")
                    pieces.append(piece)
                raw = b"".join(pieces)
        except _BROKEN as error:
            # A chained exception would put the host of the URL into logs and explain nothing.
            raise EndpointFault(Fault.TRANSIENT, f"the connection failed ({type(error).__name__})") from None
        try:
            document: object = json.loads(raw)
        except (ValueError, RecursionError):
            raise EndpointFault(Fault.TRANSIENT, "the answer is not JSON") from None
        return document
