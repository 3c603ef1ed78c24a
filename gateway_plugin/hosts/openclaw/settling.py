"""Capturing a turn when its output has been still for a while: for hosts that tell of an answer, and late or never of its end.

The end of a run may be told as well, before or after. Whichever comes first captures the turn; the session's cursor finds
nothing new in the other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["HeardTurn", "Settling"]

_MAX_PENDING: Final = 512


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """A question and what was answered so far.

    Attributes:
        session: the session key.
        context: the ``ctx`` of the event that told of the answer.
        messages: the turn's messages, oldest first.
    """

    session: str
    context: Mapping[str, Any] = field(repr=False)
    messages: tuple[Mapping[str, Any], ...] = field(repr=False)


class Settling:
    """One pending turn for each session.

    Args:
        seconds: how long its output must be still.
        capture: captures a turn; raises nothing.
        limit: of pending turns; beyond it the oldest is captured at once.
    """

    def __init__(
        self, seconds: float, capture: Callable[[HeardTurn], Awaitable[object]], limit: int = _MAX_PENDING
    ) -> None:
        self._seconds = seconds
        self._capture = capture
        self._limit = limit
        self._pending: OrderedDict[str, tuple[HeardTurn, asyncio.Task[None]]] = OrderedDict()

    async def heard(self, turn: HeardTurn) -> None:
        """Take a turn in place of what is pending of its session: the same turn, with more of its answer."""
        self.drop(turn.session)
        self._pending[turn.session] = (turn, asyncio.create_task(self._later(turn)))
        if len(self._pending) > self._limit:
            await self.flush(next(iter(self._pending)))

    async def flush(self, session: str) -> None:
        """Capture now what is pending of a session, because it goes on or ends."""
        if (pending := self._pending.pop(session, None)) is not None:
            turn, timer = pending
            timer.cancel()
            await self._capture(turn)

    def drop(self, session: str) -> None:
        """Let go of what is pending of a session: it is captured otherwise."""
        if (pending := self._pending.pop(session, None)) is not None:
            pending[1].cancel()

    async def aclose(self) -> None:
        """Capture everything that is pending."""
        for session in list(self._pending):
            await self.flush(session)

    async def _later(self, turn: HeardTurn) -> None:
        await asyncio.sleep(self._seconds)
        # From here on nobody cancels this: what is captured is captured once and whole.
        self._pending.pop(turn.session, None)
        await self._capture(turn)
