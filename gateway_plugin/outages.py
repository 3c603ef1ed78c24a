"""One line when memory stops working for a reason that lasts, and one when it works again.

What every turn would say again is said once: the relayer does not answer, is not the one that is trusted, or refuses who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway_plugin.errors import GatewayError, RelayerRefused

# What the relayer refuses whoever asks, whatever is asked.
_REFUSED_WHOM: Final = frozenset({401, 403})
_AWAY: Final = frozenset({"unavailable", "timeout"})
# One turn that took too long is no outage.
_TIMEOUTS: Final = 2
_GOES_ON: Final = "Turns go on without memory; what is captured waits on this machine."


class Outages:
    """Hears how every call of one plugin ended; ``lasting`` is the word for the outage that lasts, "" while there is none.

    Args:
        origin: the relayer's address.
        notify: told a sentence for a person.
    """

    def __init__(self, origin: str, notify: Callable[[str], None]) -> None:
        self.lasting = ""
        self._origin = origin
        self._notify = notify
        self._timeouts = 0

    def heard(self, error: GatewayError | None) -> None:
        """Note how a call ended: None is an answer of the relayer's."""
        status = "" if error is None else error.outcome
        refused = isinstance(error, RelayerRefused) and error.status in _REFUSED_WHOM
        self._timeouts = self._timeouts + 1 if status == "timeout" else 0
        if status in _AWAY | {"untrusted"} or refused:
            self._begin(status, error)
        elif self.lasting and error is None:
            self.lasting = ""
            self._notify(f"memrelay: the relayer at {self._origin} answers again: memory works")

    def _begin(self, status: str, error: GatewayError | None) -> None:
        if status == self.lasting or (status == "timeout" and self._timeouts < _TIMEOUTS):
            return
        # Slow or away is one outage: which of the two a turn sees changes from turn to turn.
        same = {self.lasting, status} <= _AWAY
        self.lasting = status
        if not same:
            self._notify(f"memrelay: memory does not work ({status}): {error}. {_GOES_ON}")
