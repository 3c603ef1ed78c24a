"""A store that fails the way real ones do, by a seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from relayer.errors import StoreFull, StoreThrottled, StoreUnavailable
from relayer.ports import (
    Clock,
    CreateOutcome,
    Found,
    GetOutcome,
    ObjectStore,
    SwapOutcome,
    T,
    Throttled,
    Unchanged,
    Unknown,
    WrappedStore,
)

__all__ = ["Faults", "FaultyStore"]

Outcome = TypeVar("Outcome", bound=GetOutcome | CreateOutcome | SwapOutcome)
_Written = CreateOutcome | SwapOutcome

_ETAGS_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often what goes wrong; the rates are probabilities per request, all 0 by default.

    Attributes:
        latency: shortest and longest time of a request, in seconds.
        throttled: refused for now, nothing written.
        unanswered: a write is applied and answered `Unknown`.
        lost: a write is not applied and answered `Unknown`.
        delayed: a write is answered `Unknown` and applied up to ``delay`` seconds later, before some later request.
        unavailable: a read or deletion fails and changes nothing.
        truncated: a read gives only the beginning of the object.
        stale_unchanged: a conditional read says `Unchanged` of an object that had the etag once.
        wrong_time: an answer's store time is off by up to ``time_error_ms``, either way.
    """

    latency: tuple[float, float] = (0.0, 0.0)
    throttled: float = 0.0
    unanswered: float = 0.0
    lost: float = 0.0
    delayed: float = 0.0
    delay: float = 60.0
    unavailable: float = 0.0
    truncated: float = 0.0
    stale_unchanged: float = 0.0
    wrong_time: float = 0.0
    time_error_ms: int = 3_600_000


class FaultyStore(WrappedStore):
    """The same seed and the same order of requests give the same faults.

    Attributes:
        faults: may be changed at any time.
        down: True makes every request fail with `StoreUnavailable`, before it changes anything.
        full: True makes every write fail with `StoreFull`.
    """

    def __init__(self, inner: ObjectStore, *, clock: Clock, seed: int, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.down = False
        self.full = False
        super().__init__(inner)
        self._clock = clock
        self._random = random.Random(seed)
        self._delayed: list[tuple[float, Callable[[], Awaitable[object]]]] = []
        self._etags: dict[str, list[str]] = {}

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, if all goes well."""
        outcome = await super().get(key, byte_range=byte_range, if_none_match=if_none_match)
        if isinstance(outcome, Found):
            known = self._etags.setdefault(key, [])
            if if_none_match in known and self._happens(self.faults.stale_unchanged):
                return self._timed(Unchanged(outcome.store_time))
            if outcome.etag not in known:
                known.append(outcome.etag)
                del known[:-_ETAGS_REMEMBERED]
            if outcome.data and self._happens(self.faults.truncated):
                outcome = replace(outcome, data=outcome.data[: self._random.randrange(len(outcome.data))])
        return self._timed(outcome)

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Make the request, if all goes well."""
        if operation in {"create", "swap"}:
            return cast("T", await self._write(cast("Callable[[], Awaitable[_Written]]", ask)))
        await self._begin_read()
        return await ask()

    async def close(self) -> None:
        """Close the inner store; writes that are still delayed never happen."""
        self._delayed.clear()
        await self._inner.close()

    async def apply_delayed(self) -> int:
        """Apply every delayed write now, due or not; returns how many there were."""
        delayed, self._delayed = self._delayed, []
        for _, apply in delayed:
            await apply()
        return len(delayed)

    async def _begin(self) -> None:
        await self._apply_due()
        if any(self.faults.latency):
            await self._clock.sleep(self._random.uniform(*self.faults.latency))
        if self.down:
            raise StoreUnavailable("the store is down")

    async def _begin_read(self) -> None:
        await self._begin()
        if self._happens(self.faults.throttled):
            raise StoreThrottled("slow down", retry_after=self._random.uniform(0.01, 1.0))
        if self._happens(self.faults.unavailable):
            raise StoreUnavailable("connection reset")

    async def _write(self, apply: Callable[[], Awaitable[_Written]]) -> _Written:
        await self._begin()
        if self.full:
            raise StoreFull("no room")
        if self._happens(self.faults.throttled):
            return Throttled(retry_after=self._random.uniform(0.01, 1.0))
        if self._happens(self.faults.lost):
            return Unknown("connection reset")
        if self._happens(self.faults.delayed):
            due = self._clock.monotonic() + self._random.uniform(0, self.faults.delay)
            self._delayed.append((due, apply))
            return Unknown("timed out")
        outcome = await apply()
        if self._happens(self.faults.unanswered):
            return Unknown("connection reset")
        return self._timed(outcome)

    async def _apply_due(self) -> None:
        now = self._clock.monotonic()
        due = sorted((entry for entry in self._delayed if entry[0] <= now), key=lambda entry: entry[0])
        self._delayed = [entry for entry in self._delayed if entry[0] > now]
        for _, apply in due:
            await apply()

    def _happens(self, rate: float) -> bool:
        # Always draws, so that changing one rate leaves the other faults of a seed where they were.
        return self._random.random() < rate

    def _timed(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Unknown | Throttled) or not self._happens(self.faults.wrong_time):
            return outcome
        error = self._random.randint(-self.faults.time_error_ms, self.faults.time_error_ms)
        return replace(outcome, store_time=outcome.store_time + error)
