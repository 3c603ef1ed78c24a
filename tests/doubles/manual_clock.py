"""A clock of a gateway that a test moves."""

from __future__ import annotations


class ManualClock:
    """Stands at ``at``, until a test or whoever sleeps by it moves it on."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float, /) -> None:
        self.at += seconds
