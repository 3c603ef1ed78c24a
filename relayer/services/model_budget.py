"""How much of a language model each account may use in a day, counted by this replica since its start."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["DailyLimits", "ModelBudget"]

DAY_MS = 24 * 3600 * 1000
_MOST_ACCOUNTS = 20_000


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """Calls and tokens of one account in a day of UTC; 0 sets no limit."""

    calls: int = 0
    tokens: int = 0


class ModelBudget:
    """Counts calls and tokens by account. What a restart or another replica counted is not known here."""

    def __init__(self, limits: DailyLimits) -> None:
        self._limits = limits
        self._used: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def wait_ms(self, account: str, now_ms: int) -> int:
        """Return the milliseconds until the account may ask again: 0, or what is left of the day."""
        calls, tokens = self._today(account, now_ms)
        over = 0 < self._limits.calls <= calls or 0 < self._limits.tokens <= tokens
        return DAY_MS - now_ms % DAY_MS if over else 0

    def spend(self, account: str, tokens: int, now_ms: int) -> None:
        """Note one call and what it cost."""
        calls, spent = self._today(account, now_ms)
        self._used[account] = (now_ms // DAY_MS, calls + 1, spent + tokens)
        self._used.move_to_end(account)
        if len(self._used) > _MOST_ACCOUNTS:
            self._used.popitem(last=False)

    def _today(self, account: str, now_ms: int) -> tuple[int, int]:
        day, calls, tokens = self._used.get(account, (0, 0, 0))
        return (calls, tokens) if day == now_ms // DAY_MS else (0, 0)
