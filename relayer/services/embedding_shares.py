"""A fair queue in front of the embedding model: no account waits for more than one call of another one.

The model does few calls at once, and one call cannot be interrupted. So an account has at most some of them under way,
never all; of those that wait, queries go before captures, and among these the account that had the least of the model so
far. A request says in `on_behalf_of` whose it is; what nobody asked for (memories that lack vectors) is an account of its own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relayer.errors import AccountBusy, QueueFull
from relayer.ports import Embedder, EmbeddingModel

__all__ = ["EmbeddingShares", "OnBehalfOf", "ShareLimits", "on_behalf_of"]

# What a call costs whatever it holds, and the most that the model reads of a text, both in characters: 256 tokens.
_CALL_COST = 128
_READ_CHARACTERS = 1024
# So many queries may go before a capture that waits.
_QUERIES_IN_A_ROW = 8


@dataclass(frozen=True, slots=True)
class OnBehalfOf:
    """Whose work is being done now, and whether somebody waits for it before they can go on: a query, not a capture."""

    account: str = ""
    urgent: bool = False


on_behalf_of: ContextVar[OnBehalfOf] = ContextVar("on_behalf_of", default=OnBehalfOf())  # noqa: B039 - frozen


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """How much of the model there is, and how much of it one account may take.

    Attributes:
        at_once: calls of the model under way.
        of_account: those of one account; below ``at_once``, so that another one's query finds the model free.
        waiting: calls that may wait in all.
        waiting_of_account: those of one account.
        call_characters: what one call holds at most, if it has several texts; longer ones are divided. None divides none.
    """

    at_once: int = 2
    of_account: int = 1
    waiting: int = 1024
    waiting_of_account: int = 64
    call_characters: int | None = 2048


_Waiting = deque[tuple[int, asyncio.Future[None]]]


class EmbeddingShares:
    """An `Embedder` that divides another one fairly among accounts.

    Args:
        embedder: does the work; closed by whoever made it.
        limits: see `ShareLimits`.
    """

    def __init__(self, embedder: Embedder, limits: ShareLimits | None = None) -> None:
        self._embedder = embedder
        self._limits = limits or ShareLimits()
        # By urgency and account; an empty queue is none.
        self._queues: dict[bool, dict[str, _Waiting]] = {True: {}, False: {}}
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._running: defaultdict[str, int] = defaultdict(int)
        # What each account had of the model; who comes new begins where the others are.
        self._had: dict[str, float] = {}
        self._now = 0.0
        self._in_a_row = 0

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model in use."""
        return self._embedder.model

    @property
    def waiting(self) -> int:
        """How many calls wait for the model."""
        return sum(self._waiting.values())

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts as `Embedder.embed`, when it is the account's turn.

        Raises:
            AccountBusy: as many calls of this account wait as may.
            QueueFull: as many calls wait as may.
            EmbedderUnavailable: as the embedder.
        """
        if len(texts) <= 1:
            async with self._turn(texts):
                return await self._embedder.embed(texts)
        vectors = np.empty((len(texts), self.model.dimension), dtype=np.float32)
        for part in self._parts(texts):
            some = [texts[index] for index in part]
            async with self._turn(some):
                vectors[part] = await self._embedder.embed(some)
        return vectors

    async def close(self) -> None:
        """Release what the embedder holds."""
        await self._embedder.close()

    def _parts(self, texts: Sequence[str]) -> list[list[int]]:
        """Divide texts into calls of similar lengths, as indexes: what is padded together costs what the longest costs."""
        room = self._limits.call_characters
        if room is None:
            return [list(range(len(texts)))]
        parts: list[list[int]] = []
        for index in sorted(range(len(texts)), key=lambda number: len(texts[number])):
            longest = min(len(texts[index]), _READ_CHARACTERS)
            if not parts or (len(parts[-1]) + 1) * longest > room:
                parts.append([])
            parts[-1].append(index)
        return parts

    @asynccontextmanager
    async def _turn(self, texts: Sequence[str]) -> AsyncIterator[None]:
        """Wait until the account may have the model, and have it until the block ends."""
        who = on_behalf_of.get()
        cost = _CALL_COST + sum(min(len(text), _READ_CHARACTERS) for text in texts)
        if self._may_run(who.account) and not self.waiting:
            self._begin(who.account, cost)
        else:
            await self._wait(who, cost)
        try:
            yield
        finally:
            self._end(who.account)

    async def _wait(self, who: OnBehalfOf, cost: int) -> None:
        if self._waiting.get(who.account, 0) >= self._limits.waiting_of_account:
            raise AccountBusy("too many texts of this account wait for the embedder", retry_after=1.0)
        if self.waiting >= self._limits.waiting:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queues = self._queues[who.urgent]
        queues.setdefault(who.account, deque()).append((cost, turn))
        self._waiting[who.account] += 1
        # It may be this account's turn although others wait: theirs run already.
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # Its turn came in the very moment in which it was given up.
                self._end(who.account)
            elif (cost, turn) in queues.get(who.account, ()):
                queues[who.account].remove((cost, turn))
                self._left(who.urgent, who.account)
            raise

    def _may_run(self, account: str) -> bool:
        limits = self._limits
        return (
            sum(self._running.values()) < limits.at_once and self._running.get(account, 0) < limits.of_account
        )

    def _begin(self, account: str, cost: int) -> None:
        # Virtual time: nobody saves up what they did not use, and nobody pays twice for having been alone.
        start = max(self._had.get(account, 0.0), self._now)
        self._now = start
        self._had[account] = start + cost
        self._running[account] += 1
        if len(self._had) > self._limits.waiting:
            self._had = {name: had for name, had in self._had.items() if had > start}

    def _end(self, account: str) -> None:
        self._running[account] -= 1
        if not self._running[account]:
            del self._running[account]
        self._next()

    def _next(self) -> None:
        """Give free places to whoever is to have them next."""
        while (chosen := self._chosen()) is not None:
            urgent, account = chosen
            self._in_a_row = self._in_a_row + 1 if urgent else 0
            cost, turn = self._queues[urgent][account].popleft()
            self._left(urgent, account)
            if not turn.cancelled():
                self._begin(account, cost)
                turn.set_result(None)

    def _chosen(self) -> tuple[bool, str] | None:
        first = self._in_a_row < _QUERIES_IN_A_ROW
        for urgent in (first, not first):
            ready = [account for account in self._queues[urgent] if self._may_run(account)]
            if ready:
                return urgent, min(ready, key=lambda account: self._had.get(account, 0.0))
        return None

    def _left(self, urgent: bool, account: str) -> None:  # noqa: FBT001 - a key of the queues
        self._waiting[account] -= 1
        if not self._waiting[account]:
            del self._waiting[account]
        if not self._queues[urgent][account]:
            del self._queues[urgent][account]
