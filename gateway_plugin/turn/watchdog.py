"""Noticing that turns recall and are never captured: a host that withholds the end of its turns looks healthy otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway_plugin.clock import Clock

__all__ = ["TURNS", "Watchdog"]

TURNS: Final = 10
_DAY: Final = 24 * 3600.0


class Watchdog:
    """Counts turns that recalled since the last one whose messages were handed over.

    Args:
        clock: the time.
        notify: told the warning, once a day at most.
        enabled: False where capture is switched off on purpose.
    """

    def __init__(self, clock: Clock, notify: Callable[[str], None], *, enabled: bool) -> None:
        self._clock = clock
        self._notify = notify
        self._enabled = enabled
        self._turns = 0
        self._warned: float | None = None

    @property
    def warning(self) -> str:
        """The warning while it holds, else ""."""
        if not self._enabled or self._turns < TURNS:
            return ""
        return (
            f"{self._turns} turns recalled memories and none was handed over for capture: nothing is being remembered. "
            "The host must deliver the end of a turn (OpenClaw: "
            "plugins.entries.<id>.hooks.allowConversationAccess = true); memrelay-gateway doctor tells more"
        )

    def recalled(self) -> None:
        """Note a turn of a person that recalled, found something or not."""
        self._turns += 1
        warning = self.warning
        now = self._clock.monotonic()
        if warning and (self._warned is None or now - self._warned >= _DAY):
            self._warned = now
            self._notify(f"memrelay: {warning}")

    def handed_over(self) -> None:
        """Note a turn whose messages arrived, worth keeping or not."""
        self._turns = 0
