"""Rate limits of one replica: weighted requests per account and agent, failing signatures and strangers per peer address.

The defaults leave room for a gateway with many busy agents and hold off a client in a loop. Each replica counts for
itself: behind a balancer over n replicas the effective limit is n times as high.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from relayer.http.problems import HttpProblem
from relayer.lib.token_buckets import Buckets, Limit, take
from relayer.ports import Clock

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# A turn costs about one recall (1) and one analyze (5); twenty turns a second of one agent is more than people type.
AGENT = Limit(capacity=1_200, per_second=120)
ACCOUNT = Limit(capacity=6_000, per_second=600)
# A misconfigured gateway retries a few times a minute; guessing needs millions.
FAILURES = Limit(capacity=60, per_second=1)
PEER_FAILURES = "peer_failures"
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
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


def peer_name(address: str) -> str:
    """Return the name under which a peer is counted: IPv4 addresses alone, IPv6 by /64, which is what one host gets."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


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
        buckets = ((self._accounts, account), (self._agents, agent_key.hex()))
        wait = take(buckets, cost, self._clock.monotonic())
        if wait:
            raise HttpProblem("rate_limited", retry_after=wait)

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
