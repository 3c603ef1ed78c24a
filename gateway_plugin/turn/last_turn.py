"""Why a session's last turn was given what it was given: at hand for its chat, and noted for the command line."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import asdict
from typing import Final

from gateway_plugin.outbox import Mark, Outbox, Waiting
from gateway_plugin.status import TurnTrace
from gateway_plugin.turn.sessions import MAX_SESSIONS

__all__ = ["WHY_MARK", "LastTurn"]

WHY_MARK: Final = "why"
"""Under this name the outbox keeps the trace of an agent's last turn."""


class LastTurn:
    """The traces of the last turns: ``trace`` is the latest of all, which is no chat's to see.

    Args:
        outbox: where it is noted.
        noted: whether it may be: where capture is switched off, nothing is written.
    """

    def __init__(self, outbox: Outbox, *, noted: bool) -> None:
        self.trace = TurnTrace("")
        self._outbox = outbox
        self._noted = noted
        self._known: OrderedDict[tuple[str, str], TurnTrace] = OrderedDict()
        self._owed: tuple[Waiting, TurnTrace] | None = None

    def of(self, namespace: str, session: str) -> TurnTrace:
        """Return the trace of a session of a namespace; an empty one if none is known."""
        return self._known.get((namespace, session), TurnTrace(""))

    def saw(self, namespace: str, session: str, trace: TurnTrace) -> None:
        """Take the trace of a session's turn, "" being the namespace where it could not be told."""
        self.trace = self._known[namespace, session] = trace
        self._known.move_to_end((namespace, session))
        if len(self._known) > MAX_SESSIONS:
            self._known.popitem(last=False)

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
