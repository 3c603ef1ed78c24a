"""One HTTP endpoint that is asked for JSON: connections, time, retries, and how much at once.

Everything that a server may get wrong on the way to one JSON document is dealt with here; what the document says is
for `embedder` and `chat`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import TypeVar

import aiohttp

from relayer.errors import QueueFull
from relayer.lib.work import uneven
from relayer.ports import Clock, Randomness
from relayer.wire.retries import Breaker, doubled

# Longer waits are a matter for whoever asked, not for a request that is kept open.
_LONGEST_RETRY_AFTER = 24 * 3600.0


class Fault(Enum):
    """What is to be done about a failure."""

    TRANSIENT = auto()  # the same request may work a moment later
    REJECTED = auto()  # this request never works; another one may
    REFUSED = auto()  # no request works until an operator acts


class EndpointFault(Exception):
    """Raised when a request got no usable answer.

    Attributes:
        fault: see `Fault`.
        what: the failure in a few words, which quote nothing of request or answer.
        retry_after: seconds that the server asked for; None when it did not.
    """

    def __init__(self, fault: Fault, what: str, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.fault = fault
        self.what = what
        self.retry_after = retry_after


def fault_of_status(status: int, retry_after: float | None) -> EndpointFault:
    """Return what an HTTP status other than 200 means; the body of such an answer is never looked at."""
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
    """Return what an operator is to look at.

    Args:
        fault: what no request will get past.
        setting: what the settings of this endpoint begin with.
        url: its base URL.
        path: what is asked below it.
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
    """Parse ``Retry-After`` (RFC 9110, 10.2.3): seconds or a date; None when it is absent or neither."""
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


class RetryBudget:
    """Tokens for retries: each costs one, each success gives back a tenth."""

    def __init__(self, capacity: float = 10.0, per_success: float = 0.1) -> None:
        self._capacity = capacity
        self._per_success = per_success
        self._tokens = capacity

    def take(self) -> bool:
        """Pay for one retry, if it can be paid."""
        # Ten tenths are a little less than one.
        if self._tokens < 1.0 - 1e-6:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def succeeded(self) -> None:
        """Note a request that worked."""
        self._tokens = min(self._capacity, self._tokens + self._per_success)


T = TypeVar("T")

_ATTEMPTS = 3
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 0.4
_CHUNK = 64 * 1024
# What aiohttp and the sockets below it raise when a connection fails; its messages may name hosts and are not used.
_BROKEN = (aiohttp.ClientError, ConnectionError, OSError)


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """Bounds of one endpoint; times in seconds.

    Attributes:
        connect: to make a connection.
        total: one call, retries and waiting included.
        at_once: requests under way.
        waiting: calls under way and waiting; beyond them `QueueFull`.
        answer_bytes: of one answer.
    """

    connect: float = 5.0
    total: float = 60.0
    at_once: int = 4
    waiting: int = 64
    answer_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True)
class Endpoint:
    """A base URL such as ``https://api.example.org/v1`` and how it is asked. The key is in no representation.

    Args:
        url: without a slash at its end.
        clock: for time and pauses.
        randomness: for jitter.
        key: sent as a bearer token; empty for none.
        limits: see `EndpointLimits`.
    """

    url: str
    clock: Clock
    randomness: Randomness
    key: str = field(default="", repr=False)
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    _budget: RetryBudget = field(default_factory=RetryBudget, repr=False)
    _breaker: Breaker = field(init=False, repr=False)
    _trouble: str = field(default="", repr=False)
    _slots: asyncio.Semaphore = field(init=False, repr=False)
    _calls: int = field(default=0, repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._breaker = Breaker(self.clock.monotonic, limit=3, first=1.0, longest=30.0)
        self._slots = asyncio.Semaphore(self.limits.at_once)

    @property
    def trouble(self) -> str:
        """Why the last request failed; empty when it did not, or none was made."""
        return self._trouble

    async def post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[object], T],
        *,
        seconds: float | None = None,
    ) -> T:
        """Send JSON and return what ``read`` makes of the JSON document of the answer.

        Tried again after transient faults while time and the retry budget last. Cancelling the caller closes the
        connection, so that the server can stop its work.

        Args:
            path: below the base URL.
            body: to be encoded.
            read: called with the document; a fault that it raises is a fault of the endpoint.
            seconds: for everything; the endpoint's own bound if that is sooner.

        Raises:
            EndpointFault: see there.
            QueueFull: too many calls wait.
        """
        if self._calls >= self.limits.waiting:
            raise QueueFull("too many requests wait for the model endpoint", retry_after=1.0)
        self._calls += 1
        try:
            async with self._in_time(seconds):
                return await self._persist(path, json.dumps(body).encode(), read, self._end(seconds))
        finally:
            self._calls -= 1

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _end(self, seconds: float | None) -> float:
        return self.clock.monotonic() + self._bound(seconds)

    def _bound(self, seconds: float | None) -> float:
        return self.limits.total if seconds is None else min(seconds, self.limits.total)

    @asynccontextmanager
    async def _in_time(self, seconds: float | None) -> AsyncIterator[None]:
        bound = self._bound(seconds)
        try:
            async with asyncio.timeout(bound):
                yield
        except TimeoutError:
            fault = EndpointFault(Fault.TRANSIENT, f"no answer within {bound:.0f} s")
            self._failed(fault)
            raise fault from None

    async def _persist(self, path: str, body: bytes, read: Callable[[object], T], end: float) -> T:
        for attempt in range(_ATTEMPTS):
            wait = self._breaker.wait()
            if wait > 0:
                raise EndpointFault(Fault.TRANSIENT, self._trouble, wait)
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
                self._trouble = ""
                return found
        raise EndpointFault(Fault.TRANSIENT, self._trouble)

    def _failed(self, fault: EndpointFault) -> None:
        self._trouble = fault.what
        self._breaker.failed(fault.retry_after or 0.0)

    def _pause(self, attempt: int, fault: EndpointFault) -> float | None:
        """Return how long to wait before the next attempt; None when there is none."""
        if fault.fault is not Fault.TRANSIENT or attempt + 1 >= _ATTEMPTS or not self._budget.take():
            return None
        pause = doubled(_FIRST_PAUSE, attempt, _LONGEST_PAUSE)
        return pause * uneven(self.randomness) + max(fault.retry_after or 0.0, 0.0)

    async def _exchange(self, path: str, body: bytes) -> object:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            # A redirect would carry texts and the key to somewhere nobody chose.
            async with self._connected().post(
                self.url + path, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    asked = retry_after_seconds(answer.headers.get("Retry-After"), self.clock.now_ms())
                    raise fault_of_status(answer.status, asked)
                raw = await self._read(answer)
        except _BROKEN as error:
            # The chain would carry the URL's host into logs, and nothing that helps.
            raise EndpointFault(Fault.TRANSIENT, f"the connection failed ({type(error).__name__})") from None
        return _parsed(raw)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in answer.content.iter_chunked(_CHUNK):
            size += len(piece)
            if size > self.limits.answer_bytes:
                raise EndpointFault(Fault.REJECTED, "the answer is larger than any that makes sense")
            pieces.append(piece)
        return b"".join(pieces)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.limits.at_once),
                timeout=aiohttp.ClientTimeout(total=None, connect=self.limits.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def _parsed(raw: bytes) -> object:
    try:
        document: object = json.loads(raw)
    except (ValueError, RecursionError):
        raise EndpointFault(Fault.TRANSIENT, "the answer is not JSON") from None
    return document
