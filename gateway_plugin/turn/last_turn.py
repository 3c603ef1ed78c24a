"""Why the last turn was given what it was given: at hand for the chat, and noted for the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from gateway_plugin.outbox import Mark, Outbox, Waiting
from gateway_plugin.status import TurnTrace

__all__ = ["WHY_MARK", "LastTurn"]

WHY_MARK: Final = "why"
"""Under this name the outbox keeps the trace of an agent's last turn."""


class LastTurn:
    """The trace of the last turn.

    Args:
        outbox: where it is noted.
        noted: whether it may be: where capture is switched off, nothing is written.
    """

    def __init__(self, outbox: Outbox, *, noted: bool) -> None:
        self.trace = TurnTrace("")
        self._outbox = outbox
        self._noted = noted
        self._owed: tuple[Waiting, TurnTrace] | None = None

    def note(self, owner: Waiting, trace: TurnTrace) -> None:
        """Have a trace written with the next `persist`."""
        self._owed = (owner, trace)

    def persist(self) -> None:
        """Write what was noted since.

        Raises:
            OutboxUnavailable: the file cannot be written; the trace is not tried again.
        """
        owed, self._owed = self._owed, None
        if owed is not None and self._noted:
            owner, trace = owed
            self._outbox.keep(Mark(owner, WHY_MARK, json.dumps(asdict(trace)).encode()))
