"""Which namespaces wait after a failed delivery, how long, and why.

A namespace whose delivery failed is left alone for a while, and for longer each time; no other is. Times are an event
loop's, in seconds.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from gateway_plugin.errors import GatewayError, RelayerUnreachable, RelayerUntrusted

__all__ = ["Pauses"]

_LONGEST: Final = 60.0
_MOST_DOUBLINGS: Final = 10
_jitter = secrets.SystemRandom()


@dataclass(slots=True)
class _Pause:
    """A namespace whose last delivery failed.

    Attributes:
        error: why.
        failures: how many in a row.
        serial: the number of the last of them among all failures.
        until: when it is tried again.
    """

    error: GatewayError
    failures: int
    serial: int
    until: float


class Pauses:
    """The pauses of one sender.

    Args:
        first: seconds before the first retry of a namespace; doubled up to a minute, and shortened by up to a half at
            random, so that gateways that failed together do not come back together.

    Attributes:
        failures: how many there were in all.
    """

    def __init__(self, first: float) -> None:
        self.failures = 0
        self._first = first
        self._pauses: dict[str, _Pause] = {}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._pauses

    @property
    def latest(self) -> str:
        """Why the newest failure of those that still count happened; "" when there is none."""
        newest = max(self._pauses.values(), key=lambda pause: pause.serial, default=None)
        return str(newest.error) if newest is not None else ""

    def failed(self, namespace: str, error: GatewayError, now: float, *, at_least: float = 0.0) -> None:
        """Begin the next pause of a namespace, of ``at_least`` so many seconds."""
        self.failures += 1
        before = self._pauses.get(namespace)
        failures = before.failures + 1 if before is not None else 1
        longest = min(self._first * 2 ** min(failures - 1, _MOST_DOUBLINGS), _LONGEST)
        pause = max(at_least, longest * _jitter.uniform(0.5, 1.0))
        self._pauses[namespace] = _Pause(error, failures, self.failures, now + pause)

    def delivered(self, namespace: str) -> None:
        """End a namespace's pause, and those of all that found nobody: somebody answers now, and may answer them too."""
        self.end(namespace)
        for other, pause in list(self._pauses.items()):
            if isinstance(pause.error, RelayerUnreachable | RelayerUntrusted):
                del self._pauses[other]

    def end(self, namespace: str) -> None:
        """End a namespace's pause: what failed is given up."""
        self._pauses.pop(namespace, None)

    def clear(self) -> None:
        """End all of them: nothing waits any more."""
        self._pauses.clear()

    def cut_short(self) -> None:
        """Have everything tried now; how often it failed stays known."""
        for pause in self._pauses.values():
            pause.until = 0.0

    def ends(self, now: float) -> dict[str, float]:
        """Return the namespaces that still wait, and until when."""
        return {namespace: pause.until for namespace, pause in self._pauses.items() if pause.until > now}

    def failed_since(self, failures: int) -> set[str]:
        """Return the namespaces that failed after so many failures, and were not delivered to since."""
        return {namespace for namespace, pause in self._pauses.items() if pause.serial > failures}
