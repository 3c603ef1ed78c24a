"""Answers kept for a few seconds: hosts ask for the same turn more than once, and only good answers are worth keeping.

What this process writes ends the answers that it may have changed. What others write is seen when an answer's life is
over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from gateway_plugin.clock import Clock

__all__ = ["RecallCache"]

LIFE_SECONDS: Final = 15.0
MAX_ENTRIES: Final = 1000

_Q = TypeVar("_Q", bound=Hashable)
_A = TypeVar("_A")


class RecallCache(Generic[_Q, _A]):
    """Answers by account-wide namespace and request, for ``life`` seconds, 1,000 of them at most (AM-21).

    ``writes`` counts the writes heard of. Who asks notes it first and gives it to `put`.
    """

    def __init__(self, clock: Clock, *, life: float = LIFE_SECONDS) -> None:
        self._clock = clock
        self._life = life
        self.writes = 0
        self._kept: OrderedDict[tuple[str, _Q], tuple[float, _A]] = OrderedDict()

    def get(self, namespace: str, request: _Q) -> _A | None:
        """Return the answer, if one is fresh."""
        found = self._kept.get((namespace, request))
        return found[1] if found is not None and self._clock.monotonic() < found[0] else None

    def put(self, namespace: str, request: _Q, answer: _A, *, since: int) -> None:
        """Keep an answer, unless something was written since it was asked for: then it may be from before."""
        if since != self.writes:
            return
        self._kept[(namespace, request)] = (self._clock.monotonic() + self._life, answer)
        self._kept.move_to_end((namespace, request))
        while len(self._kept) > MAX_ENTRIES:
            self._kept.popitem(last=False)

    def drop(self, namespace: str) -> None:
        """Forget a namespace's answers: something was, or may have been, written."""
        self.writes += 1
        for key in [key for key in self._kept if key[0] == namespace]:
            del self._kept[key]
