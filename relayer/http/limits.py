"""Rate limits, replay detection, and limits on request bodies and on responses that clients do not read.

`Limits` holds token buckets for accounts, agents, failing peers and unknown accounts. `ReplayCache` remembers the nonces of
reads, so that a signature is not accepted twice. `UnreadAnswers` limits the bytes of responses that are being sent, and
`taken` breaks a connection off if its client reads too slowly. The rates leave capacity for a gateway with many busy agents
and stop a client that loops. Each process counts for itself: with n replicas, or n processes on one port, the effective
limit is n times as high.

`RequestBodies` receives bodies, with a minimum rate and a limit on memory. A body may be received before its sender is
authenticated, because the signatures of MemWal's clients cover its digest. So the bytes that have arrived are counted, not the
announced length, and each peer has a maximum share. A peer that stops sending counts as failed, like one with a wrong signature.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
import struct
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from aiohttp.web import BaseRequest, RequestPayloadError

from relayer.errors import QueueFull
from relayer.http.problems import HttpProblem
from relayer.lib.work import Buckets, Limit, take
from relayer.ports import Clock
from relayer.wire.signing import SKEW_SECONDS

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# A turn costs about one recall (1) and one analyze (5). One agent may do twenty turns a second, more than people type.
AGENT = Limit(capacity=1_200, per_second=120)
ACCOUNT = Limit(capacity=6_000, per_second=600)
# A misconfigured gateway retries a few times a minute; guessing would take millions of attempts.
FAILURES = Limit(capacity=60, per_second=1)
PEER_FAILURES = "peer_failures"
# The rules of a 429, which metrics count by. MemWal's front has more of its own.
RATE_CAUSES = ("account", "agent", "new_accounts", PEER_FAILURES, "peer_strangers")
# In the long run, one account gets at most six tenths of the one thread that parses texts.
_TOKENS_PER_SECOND = 1_000
_MOST_FOR_A_BODY = 250
# Requests of accounts that have nothing stored here. A new gateway recalls a few times a minute until it first remembers.
STRANGERS = Limit(capacity=300, per_second=5)


def peer_behind(address: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the address of the client that made a request.

    This is the peer itself, unless the peer is a trusted proxy. Then it is the last address in ``X-Forwarded-For`` that is not
    a trusted proxy's. Addresses before that one were written by others and prove nothing.

    Args:
        address: of the connection's other end.
        forwarded: the header's values joined by commas, the one added last at the end; empty if there is no such header.
        trusted: networks of trusted proxies.
    """
    hops = forwarded.split(",") if trusted and forwarded else []
    while hops:
        parsed = _parsed(address)
        if parsed is None or not any(parsed in network for network in trusted):
            break
        named = hops.pop().strip()
        try:
            ipaddress.ip_address(named)
        except ValueError:
            return address
        address = named
    return address


@lru_cache(maxsize=4096)
def peer_name(address: str) -> str:
    """Return the name by which a peer is counted: each IPv4 address, but IPv6 by /64, which is what one host gets."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address without its zone, IPv4-mapped addresses as IPv4; None if it is not an address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


class Limits:
    """The token buckets of this process.

    Args:
        failures: the rate of refused requests of each peer.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        enabled: bool = True,
        account: Limit = ACCOUNT,
        agent: Limit = AGENT,
        failures: Limit = FAILURES,
    ) -> None:
        self._clock = clock
        self._enabled = enabled
        self._accounts = Buckets(account)
        self._agents = Buckets(agent)
        self._failures = Buckets(failures)
        self._strangers = Buckets(STRANGERS)

    def charge(self, account: str, agent_key: bytes, cost: float) -> None:
        """Charge a request to both its account and its agent, or to neither if one has too few tokens.

        Raises:
            HttpProblem: ``rate_limited``, with the exact time to wait.
        """
        if not self._enabled or not cost:
            return
        buckets, now = ((self._accounts, account), (self._agents, agent_key.hex())), self._clock.monotonic()
        wait = take(buckets, cost, now)
        if wait:
            whole = self._accounts.wait(account, cost, now) >= wait
            raise HttpProblem("rate_limited", retry_after=wait, rule="account" if whole else "agent")

    def credit(self, account: str, agent_key: bytes, cost: float) -> None:
        """Refund what `charge` took, because the request repeated an earlier one."""
        if self._enabled:
            now = self._clock.monotonic()
            self._accounts.spend(account, -cost, now)
            self._agents.spend(agent_key.hex(), -cost, now)

    def charge_body(self, account: str, agent_key: bytes, cost: float) -> None:
        """Charge a request for its body's length, like `charge`. A full bucket of an agent covers the maximum several times."""
        self.charge(account, agent_key, min(cost, _MOST_FOR_A_BODY))

    def charge_work(self, account: str, seconds: float) -> None:
        """Charge an account for the CPU seconds that a request took. The next request may have to wait for it."""
        if self._enabled:
            self._accounts.spend(account, seconds * _TOKENS_PER_SECOND, self._clock.monotonic())

    @contextmanager
    def lookup(self, is_known: Callable[[], bool], peer: str, cost: float) -> Iterator[None]:
        """Charge the lookup of an account in the block to its peer, unless the account has something stored here.

        A client can make up any number of accounts, and each lookup takes a request of the store. ``is_known`` is asked
        before and after the lookup; ``peer`` is a `peer_name`.

        Raises:
            HttpProblem: ``rate_limited``.
        """
        stranger = self._enabled and not is_known()
        if stranger and (wait := take(((self._strangers, peer),), cost, self._clock.monotonic())):
            raise HttpProblem("rate_limited", retry_after=wait, rule="peer_strangers")
        yield
        if stranger and is_known():
            self._strangers.spend(peer, -cost, self._clock.monotonic())

    def check_peer(self, address: str) -> None:
        """Refuse a peer that has failed too often.

        Raises:
            HttpProblem: ``rate_limited``.
        """
        if not self._enabled or not len(self._failures):
            return
        wait = self._failures.wait(peer_name(address), 1.0, self._clock.monotonic())
        if wait:
            raise HttpProblem("rate_limited", retry_after=wait, rule=PEER_FAILURES)

    def note_failure(self, address: str) -> None:
        """Charge a refused request to its peer."""
        if self._enabled:
            self._failures.spend(peer_name(address), 1.0, self._clock.monotonic())

    def failures_left(self, address: str) -> float:
        """Return how many more failures a peer may have before `check_peer` refuses it."""
        return self._failures.level(peer_name(address), self._clock.monotonic())


_SLICE = 60
# A signature is valid for at most 120 s and accepted with 60 s of tolerance, so at most five slices exist. A read takes some
# 100 bytes.
_MOST_SEEN = 1_000_000


class ReplayCache:
    """Remembers the reads that this process answered until their signatures expire, in slices of one minute.

    A slice that has been dropped stays closed. If the clock is set back, expired signatures become valid again, and nothing
    distinguishes a new one from a repetition. So they are refused until the clock has passed them again. A step back of less
    than four minutes closes no slice.
    """

    def __init__(self, *, most: int = _MOST_SEEN) -> None:
        self._most = most
        self._slices: dict[int, set[bytes]] = {}
        self._count = 0
        self._forgotten = 0

    def note(self, agent_key: bytes, nonce: bytes, *, expires: int, now: int) -> None:
        """Record a read; times are in seconds since the epoch. A read that cannot be recorded is not served.

        Raises:
            HttpProblem: ``replayed`` if it was recorded before, or ``queue_full`` if there is no capacity left or the clock was
                set back.
        """
        if expires // _SLICE <= self._forgotten:
            wait = float((self._forgotten + 1) * _SLICE - expires)
            raise HttpProblem("queue_full", retry_after=wait, rule="clock_set_back")
        seen = self._slices.get(expires // _SLICE)
        if seen is None:
            self._drop(now)
            seen = self._slices[expires // _SLICE] = set()
        read = agent_key[:16] + nonce
        # All slices are searched, because a repetition may state a later expiry than the first request.
        if any(read in some for some in self._slices.values()):
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
            self._forgotten = max(self._forgotten, over)


def break_off(transport: asyncio.Transport | None) -> None:
    """Reset a connection; the kernel also discards what the peer has not received."""
    if transport is not None:
        line = transport.get_extra_info("socket")
        if line is not None:
            no_lingering = struct.pack("ii", 1, 0)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_lingering)
        transport.abort()


_MIB = 1024 * 1024
# Minimum number of bytes that a peer has to receive per interval. At a byte a second, a response would be held for days.
_LEAST_BYTES = 16 * 1024
_RETRY_SECONDS = 1.0


class SlowClient(ConnectionError):
    """Raised if a client does not read its response in time; the connection is broken off."""


_UNCOUNTED = nullcontext()


class UnreadAnswers:
    """Counts the bytes of responses that are being sent, by account, and limits them.

    An account with no response under way may always send one, so that unread responses of others never lock it out. Responses
    of up to 64 KiB are neither counted nor refused, because the limit on connections also limits these. All limits are in
    bytes.
    """

    SMALL = 64 * 1024
    _MOST = 256 * _MIB
    _PER_ACCOUNT = 16 * _MIB

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    @property
    def nbytes(self) -> int:
        """The number of bytes that are being sent now."""
        return self._bytes.total()

    def check(self, account: str, size: int = 0) -> None:
        """Refuse a response of ``size`` bytes if too much is unread already.

        Raises:
            QueueFull: the client is to come back in a second.
        """
        held = self._bytes[account]
        if held and (held + size >= self._PER_ACCOUNT or self.nbytes + size >= self._MOST):
            raise QueueFull("too many answers to this account are not being read", retry_after=_RETRY_SECONDS)

    def counted(self, account: str, size: int) -> AbstractContextManager[None]:
        """Return a context that counts a response while it is sent."""
        return _UNCOUNTED if size <= self.SMALL else self._counted(account, size)

    @contextmanager
    def _counted(self, account: str, size: int) -> Iterator[None]:
        self._bytes[account] += size
        try:
            yield
        finally:
            self._bytes[account] -= size
            if not self._bytes[account]:
                del self._bytes[account]


async def taken(request: BaseRequest, writing: Awaitable[None], size: int, seconds: float) -> None:
    """Wait until a response is written and the kernel has accepted all of it.

    ``size`` is in bytes. In every interval of ``seconds`` the peer has to receive at least 16 KiB.

    Raises:
        SlowClient: the peer received less than that; the connection is broken off.
        ConnectionError: the connection is gone.
    """
    watch = _Watch(request, size, seconds)
    try:
        await writing
        while _waiting(request):
            # uvloop writes, and reports a full buffer, only at the end of an iteration of the loop.
            await asyncio.sleep(0)
            await request.writer.drain()
    finally:
        watch.timer.cancel()
        if watch.stalled:
            raise SlowClient("an answer was not read in time")


class _Watch:
    """Checks at intervals that a response makes progress, and breaks its connection off if not."""

    def __init__(self, request: BaseRequest, size: int, seconds: float) -> None:
        self.stalled = False
        self._request = request
        self._left = size
        self._seconds = seconds
        self.timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        before, self._left = self._left, _waiting(self._request)
        if self._left and before - self._left < _LEAST_BYTES:
            self.stalled = True
            # This also wakes the task that waits for space in the buffer.
            break_off(self._request.transport)
        else:
            self.timer = asyncio.get_running_loop().call_later(self._seconds, self._look)


def _waiting(request: BaseRequest) -> int:
    """Return how many bytes of a connection the kernel has not accepted yet."""
    return request.transport.get_write_buffer_size() if request.transport is not None else 0


MAX_BODY = 2 * 1024 * 1024
READ_SECONDS = 15.0
GRACE_SECONDS = 5.0
"""Seconds that a body may take in addition to the time that the minimum rate allows it."""
_LEAST_PER_SECOND = 16 * 1024
_TOO_MANY = "too many request bodies are being received"


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being received."""

    peer: str
    most: int
    timeout: asyncio.Timeout
    refused: bool = False
    nbytes: int = 0
    chunks: list[bytes] = field(default_factory=list)
    # The digest is computed per chunk, because hashing a large body in one call would block the event loop.
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, chunk: bytes) -> None:
        self.nbytes += len(chunk)
        if self.nbytes > self.most:
            raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
        self.digest.update(chunk)
        self.chunks.append(chunk)


class RequestBodies:
    """Receives the request bodies of one process.

    If all bodies together, or those of one peer, take too much memory, the body that has waited longest for its next byte is
    refused; in the first case one of the peer that holds the most. Bodies of up to 64 KiB do not count towards their peer's
    share, so that other clients behind the same address are still served; they do count towards the total.
    """

    SMALL = 64 * 1024
    _PER_PEER = 16 * _MIB

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Maximum bytes of all bodies.
        self._most = 64 * _MIB
        # Ordered by the time of their last bytes, the latest last.
        self._open: OrderedDict[_Body, None] = OrderedDict()
        self.nbytes = 0
        """Bytes of all bodies that are still being received."""

    async def receive(
        self, request: BaseRequest, peer: str, *, most: int = MAX_BODY, seconds: float = READ_SECONDS
    ) -> tuple[bytes, bytes]:
        """Receive a body and return it with its SHA-256.

        ``most`` is in bytes. It may take ``seconds``, and never more than `READ_SECONDS`.

        Raises:
            HttpProblem: ``too_large``, ``body_timeout`` or ``malformed``.
            QueueFull: its peer, or all peers together, are sending too much.
        """
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        stream, started = request.content, asyncio.get_running_loop().time()
        until = started + min(seconds, READ_SECONDS)
        body = _Body(peer_name(peer), most, asyncio.timeout_at(min(until, started + GRACE_SECONDS)))
        if stream.is_eof():
            body.add(stream.read_nowait())
        if stream.at_eof():
            return b"".join(body.chunks), body.digest.digest()
        self._open[body] = None
        self.nbytes += body.nbytes
        try:
            async with body.timeout:
                async for chunk in stream.iter_any():
                    if body.refused:
                        raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS)
                    self.nbytes += len(chunk)
                    body.add(chunk)
                    self._make_room(body)
                    allowed = GRACE_SECONDS + body.nbytes / _LEAST_PER_SECOND
                    body.timeout.reschedule(min(until, started + allowed))
        except TimeoutError as error:
            if body.refused:
                raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS) from error
            self._limits.note_failure(peer)
            raise HttpProblem("body_timeout") from error
        except (RequestPayloadError, ConnectionError) as error:
            raise HttpProblem("malformed", "The body is not in form, or ended early.") from error
        finally:
            self._forget(body)
        return b"".join(body.chunks), body.digest.digest()

    def _make_room(self, body: _Body) -> None:
        """Refuse bodies until the remaining ones are within both limits; raises `QueueFull` if ``body`` is one of them."""
        self._open.move_to_end(body)
        if body.nbytes > self.SMALL:
            large = [one for one in self._open if one.peer == body.peer and one.nbytes > self.SMALL]
            while sum(one.nbytes for one in large) > self._PER_PEER:
                self._refuse(large.pop(0), body)
        while self.nbytes > self._most:
            held: Counter[str] = Counter()
            for one in self._open:
                held[one.peer] += one.nbytes
            [(peer, _)] = held.most_common(1)
            self._refuse(next(one for one in self._open if one.peer == peer and one.nbytes), body)

    def _forget(self, body: _Body) -> None:
        if body in self._open:
            del self._open[body]
            self.nbytes -= body.nbytes

    def _refuse(self, victim: _Body, current: _Body) -> None:
        self._forget(victim)
        victim.refused = True
        victim.chunks.clear()
        if victim is current:
            raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS)
        if not victim.timeout.expired():
            victim.timeout.reschedule(asyncio.get_running_loop().time())
