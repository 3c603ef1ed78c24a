"""What the plugin remembers of each chat session while it lives: its echoes and the block last injected."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.turn.echoes import EchoFilter

__all__ = ["MAX_SESSIONS", "Session", "Sessions"]

MAX_SESSIONS: Final = 1000


@dataclass(slots=True)
class Session:
    """One chat session of one namespace.

    ``sticky`` is the block last injected, by the memories in it: the same memories give the same bytes, whatever order
    they were found in and whatever day it has become.
    """

    echoes: EchoFilter = field(default_factory=EchoFilter)
    sticky: tuple[frozenset[str], str] = (frozenset(), "")


class Sessions:
    """Sessions by namespace and key; the least recently used are forgotten."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], Session] = OrderedDict()

    def of(self, namespace: str, key: str) -> Session:
        """Return a session, a new one if it is not known."""
        session = self._known.setdefault((namespace, key), Session())
        self._known.move_to_end((namespace, key))
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return session
