"""Calls to other machines: the address of a host, exponential backoff, and a circuit breaker.

Requests to a loopback address never leave the machine, so they may be sent without encryption.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable


def is_loopback(host: str) -> bool:
    """Return whether a host, as a URL or a socket gives it, is this machine's loopback address.

    Addresses count only in their full form (``127.0.0.0/8``, ``::1``, and IPv4-mapped IPv6 addresses), names as RFC 6761
    (6.3) reserves them. Forms that some resolvers read as an address and others as a name, ``127.1`` or ``0x7f000001``, do
    not count.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("10.0.0.5")
        (True, True, False)
    """
    if ":" in host and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    name = host.lower().removesuffix(".")
    if name == "localhost" or (host.isascii() and name.endswith(".localhost") and _is_name(name)):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return address.scope_id is None and (address.is_loopback if mapped is None else mapped.is_loopback)
    return address.is_loopback


def in_url(host: str) -> str:
    """Return a host as URLs write it: an IPv6 address in brackets, also one that has them already.

    Example:
        >>> in_url("::1")
        '[::1]'
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_name(name: str) -> bool:
    return all(part and all(char.isalnum() or char in "-_" for char in part) for part in name.split("."))


def doubled(first: float, failures: int, longest: float) -> float:
    """Return the pause after a failure: ``first``, doubled for each of the ``failures`` in a row before, at most ``longest``.

    Example:
        >>> [doubled(1.0, failures, 10.0) for failures in range(6)]
        [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    return min(longest, first * 2.0 ** min(failures, 30))


class Breaker:
    """A circuit breaker: counts failures in a row, and blocks calls for a while from the ``limit``-th failure on.

    Args:
        monotonic: returns the time in seconds.
        limit: the number of failures in a row from which calls are blocked.
        first: seconds of the first pause; each further failure doubles it, except one that cost no time.
        longest: maximum seconds of a pause.
    """

    def __init__(self, monotonic: Callable[[], float], *, limit: int, first: float, longest: float) -> None:
        self.failures = 0
        self._doublings = 0
        self._monotonic = monotonic
        self._limit = limit
        self._first = first
        self._longest = longest
        self._until = float("-inf")

    @property
    def remaining(self) -> float:
        """Return the seconds until the next call may be tried; 0 while calls are not blocked."""
        return max(self._until - self._monotonic(), 0.0)

    def wait(self) -> float:
        """Return the seconds until a call may be tried; 0 lets the caller try now.

        After the limit of failures, the caller that gets 0 makes the trial call, and other calls are blocked for another pause.
        """
        left = self.remaining
        if not left and self.failures >= self._limit:
            self._until = self._monotonic() + self._pause()
        return left

    def succeeded(self) -> None:
        """Record that a call succeeded."""
        self.failures = 0
        self._until = float("-inf")

    def failed(self, at_least: float = 0.0, *, quickly: bool = False) -> None:
        """Record that a call failed.

        Args:
            at_least: seconds for which the server asked not to be called; this blocks calls even below the limit of failures.
            quickly: whether the call cost no time, as a refused connection does. The pause is then the first one again.
        """
        self.failures += 1
        self._doublings = 0 if quickly or self.failures <= self._limit else self._doublings + 1
        pause = self._pause() if self.failures >= self._limit else 0.0
        # A trial that fails quickly ends the longer pause that `wait` began for it.
        before = float("-inf") if quickly else self._until
        self._until = max(before, self._monotonic() + max(pause, at_least))

    def _pause(self) -> float:
        return doubled(self._first, self._doublings, self._longest)
