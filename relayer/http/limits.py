"""What one replica lets be taken of it: weighted requests, and answers that somebody does not read.

The rates leave room for a gateway with many busy agents and hold off a client in a loop. Each replica counts for
itself: over n replicas, or n processes on one port, the effective limit is n times as high.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TypeAlias

from aiohttp.web import BaseRequest

from relayer.errors import QueueFull
from relayer.http.problems import HttpProblem
from relayer.lib.work import Buckets, Limit, take
from relayer.ports import Clock
from relayer.wire.signing import SKEW_SECONDS

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# A turn costs about one recall (1) and one analyze (5); twenty turns a second of one agent is more than people type.
AGENT = Limit(capacity=1_200, per_second=120)
ACCOUNT = Limit(capacity=6_000, per_second=600)
# A misconfigured gateway retries a few times a minute; guessing needs millions.
FAILURES = Limit(capacity=60, per_second=1)
PEER_FAILURES = "peer_failures"
# What can be too much: the rules of a 429, which metrics count by. MemWal's front has its own besides.
RATE_CAUSES = ("account", "agent", "new_accounts", PEER_FAILURES, "peer_strangers")
# One account gets at most six tenths of the one thread that reads texts, for as long as it likes.
_TOKENS_PER_SECOND = 1_000
_MOST_FOR_A_BODY = 250
# Requests of accounts that have nothing stored here: a new gateway recalls a few times a minute until it first remembers.
STRANGERS = Limit(capacity=300, per_second=5)


def peer_behind(address: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the address of whoever made a request.

    That is the peer itself, unless it is a proxy that is trusted to name it: then the last address of ``X-Forwarded-For`` that is no
    trusted proxy's. What stands before that one was written by others and proves nothing.

    Args:
        address: of the connection's other end.
        forwarded: the header's values joined by commas, the one added last at the end; empty without it.
        trusted: networks of proxies.
    """
    hops = forwarded.split(",") if trusted and forwarded else []
    while hops and _within(address, trusted):
        named = hops.pop().strip()
        try:
            ipaddress.ip_address(named)
        except ValueError:
            return address
        address = named
    return address


def _within(address: str, networks: Sequence[Network]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in networks)


@lru_cache(maxsize=4096)
def peer_name(address: str) -> str:
    """Return the name under which a peer is counted: IPv4 addresses alone, IPv6 by /64, which is what one host gets."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address without its zone, as IPv4 where it stands for such a one; None when it is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


class Limits:
    """The buckets of this replica; ``enabled=False`` lets everything pass."""

    def __init__(
        self,
        clock: Clock,
        *,
        enabled: bool = True,
        account: Limit = ACCOUNT,
        agent: Limit = AGENT,
        failures: Limit = FAILURES,
        strangers: Limit = STRANGERS,
    ) -> None:
        self._clock = clock
        self._enabled = enabled
        self._accounts = Buckets(account)
        self._agents = Buckets(agent)
        self._failures = Buckets(failures)
        self._strangers = Buckets(strangers)

    def charge(self, account: str, agent_key: bytes, cost: float) -> None:
        """Charge a request to its account and its agent, or to neither.

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
        """Give back what `charge` took: the request was a repetition of an earlier one."""
        if self._enabled:
            now = self._clock.monotonic()
            self._accounts.spend(account, -cost, now)
            self._agents.spend(agent_key.hex(), -cost, now)

    def charge_body(self, account: str, agent_key: bytes, cost: float) -> None:
        """Charge a request for its body's length, as `charge`; the longest costs what an agent can pay several times over."""
        self.charge(account, agent_key, min(cost, _MOST_FOR_A_BODY))

    def charge_work(self, account: str, seconds: float) -> None:
        """Charge what a request turned out to cost, in seconds of CPU; it is the next one that may have to wait."""
        if self._enabled:
            self._accounts.spend(account, seconds * _TOKENS_PER_SECOND, self._clock.monotonic())

    def charge_stranger(self, peer: str, cost: float) -> None:
        """Charge a request of an account that is not known to have anything here to its peer, by `peer_name`.

        Raises:
            HttpProblem: ``rate_limited``.
        """
        if self._enabled and (wait := take(((self._strangers, peer),), cost, self._clock.monotonic())):
            raise HttpProblem("rate_limited", retry_after=wait, rule="peer_strangers")

    def credit_stranger(self, peer: str, cost: float) -> None:
        """Give back what was charged: the account turned out to be no stranger."""
        if self._enabled:
            self._strangers.spend(peer, -cost, self._clock.monotonic())

    def check_peer(self, address: str) -> None:
        """Refuse a peer that failed too often.

        Raises:
            HttpProblem: ``rate_limited``.
        """
        if not self._enabled or not len(self._failures):
            return
        wait = self._failures.wait(peer_name(address), 1.0, self._clock.monotonic())
        if wait:
            raise HttpProblem("rate_limited", retry_after=wait, rule=PEER_FAILURES)

    def note_failure(self, address: str) -> None:
        """Charge a request that was not accepted to its peer."""
        if self._enabled:
            self._failures.spend(peer_name(address), 1.0, self._clock.monotonic())

    def failures_left(self, address: str) -> float:
        """Return how many more failures a peer may have before `check_peer` refuses it."""
        return self._failures.level(peer_name(address), self._clock.monotonic())


_NO_LINGERING = struct.pack("ii", 1, 0)


_SLICE = 60
# A signature lives at most 120 s and is accepted 60 s around that: five slices, some 100 bytes for each read.
_MOST_SEEN = 1_000_000


class SeenReads:
    """Remembers the reads that this process answered until their signatures have run out, in slices of a minute.

    A slice that was forgotten stays closed: if the clock is set back, signatures that ran out are good once more, and nothing tells a
    new one from a repetition. They are refused until the clock is past them; a step of less than four minutes closes nothing.

    Args:
        most: reads that are remembered at a time.
    """

    def __init__(self, *, most: int = _MOST_SEEN) -> None:
        self._most = most
        self._slices: dict[int, set[bytes]] = {}
        self._count = 0
        self._forgotten = 0

    def note(self, agent_key: bytes, nonce: bytes, *, expires: int, now: int) -> None:
        """Remember a read; times in seconds since the epoch.

        Raises:
            HttpProblem: ``replayed``, or ``queue_full`` when there is no room, or the clock was set back: what cannot be remembered
                is not served.
        """
        if expires // _SLICE <= self._forgotten:
            wait = float((self._forgotten + 1) * _SLICE - expires)
            raise HttpProblem("queue_full", retry_after=wait, rule="clock_set_back")
        seen = self._slices.get(expires // _SLICE)
        if seen is None:
            self._drop(now)
            seen = self._slices[expires // _SLICE] = set()
        read = agent_key[:16] + nonce
        # In all of them: what is sent again may be said to run out later than it was at first.
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
    """Reset a connection; the kernel, too, lets go of what its peer has not taken."""
    if transport is not None:
        line = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        transport.abort()


_MIB = 1024 * 1024
# What a peer has to take in the time that it has: less is as good as nothing (a byte a second holds an answer for days).
_LEAST_BYTES = 16 * 1024
_RETRY_SECONDS = 1.0


class NotTaken(ConnectionError):
    """Raised when a peer does not take its answer: the connection is broken off."""


_UNCOUNTED = nullcontext()


class UnreadAnswers:
    """Bytes of answers that are being sent, by account.

    An account that has none under way may always send one, so that nobody is kept out by what others leave unread. Answers
    of up to 64 KiB are neither counted nor refused: the bound on connections bounds them.
    """

    SMALL = 64 * 1024

    def __init__(self, *, most: int = 256 * _MIB, per_account: int = 16 * _MIB) -> None:
        self._most = most
        self._per_account = per_account
        self._bytes: Counter[str] = Counter()

    @property
    def nbytes(self) -> int:
        """What waits now."""
        return self._bytes.total()

    def check(self, account: str, size: int = 0) -> None:
        """Refuse an answer of so many bytes where too much waits already.

        Raises:
            QueueFull: come back in a second.
        """
        held = self._bytes[account]
        if held and (held + size >= self._per_account or self.nbytes + size >= self._most):
            raise QueueFull("too many answers of this account are not read", retry_after=_RETRY_SECONDS)

    def counted(self, account: str, size: int) -> AbstractContextManager[None]:
        """Count an answer while it is sent."""
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
    """Wait until so many bytes are written, and the kernel has taken all of them.

    Raises:
        NotTaken: the peer took less than 16 KiB in so many seconds; the connection is broken off.
        ConnectionError: it is gone.
    """
    watch = _Watch(request, size, seconds)
    try:
        await writing
        while _waiting(request):
            # uvloop writes, and says that it is full, only at the end of a turn.
            await asyncio.sleep(0)
            await request.writer.drain()
    finally:
        watch.timer.cancel()
        if watch.stalled:
            raise NotTaken("an answer was not taken")


class _Watch:
    """Looks now and then at how much of an answer is left."""

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
            # Whoever waits for room is woken by that.
            break_off(self._request.transport)
        else:
            self.timer = asyncio.get_running_loop().call_later(self._seconds, self._look)


def _waiting(request: BaseRequest) -> int:
    """Return how many bytes of a connection the kernel has not taken yet."""
    return request.transport.get_write_buffer_size() if request.transport is not None else 0
