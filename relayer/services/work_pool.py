"""Work on texts beside the event loop: one thread, a slice of it for each account in its turn.

Reading JSON, looking for secrets, judging sentences and folding texts take milliseconds for a small text and a second for
the largest request. One thread, because Python runs one at a time: more of them would only take the event loop its turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any, TypeVar, cast

from relayer.errors import QueueFull

__all__ = ["PoolLimits", "WorkPool", "weight"]

T = TypeVar("T")

# What is done at once, without the thread: ordinary requests, in well under a millisecond.
_INLINE = 1024
# Characters beyond ASCII take several times as long to fold and to judge.
_OTHER_SCRIPTS = 8


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How much may wait, that under way included: works, and what they weigh, of one account and in all.

    Attributes:
        slice_seconds: how long one work keeps others from their turn; a piece of it is never cut.
        retry_after: seconds after which who was refused may come back.
    """

    account_works: int = 32
    account_weight: int = 32 * 1024 * 1024
    works: int = 1024
    weight: int = 256 * 1024 * 1024
    slice_seconds: float = 0.005
    retry_after: float = 1.0


def weight(texts: Iterable[str]) -> int:
    """Return about how much work texts are: their characters, those of other scripts more than once."""
    return sum(len(text) if text.isascii() else len(text) * _OTHER_SCRIPTS for text in texts)


@dataclass(slots=True, eq=False)
class _Work:
    """Pieces still to be made, and those that are there."""

    pieces: Iterator[Any]
    account: str
    weight: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    made: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    abandoned: bool = False


class WorkPool:
    """Makes things piece by piece, fairly: accounts take turns, and so do the works of one account.

    Args:
        limits: of what may wait.
        on_used: told, on the event loop, of an account and the seconds of CPU that a work of its took.
    """

    def __init__(
        self, limits: PoolLimits | None = None, on_used: Callable[[str, float], None] = lambda _, __: None
    ) -> None:
        self._limits = limits or PoolLimits()
        self._on_used = on_used
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()
        # Works of each account that are not over, and their weight.
        self._held: dict[str, tuple[int, int]] = {}
        self._running = False

    def __len__(self) -> int:
        """How many works are not over."""
        return sum(works for works, _ in self._held.values())

    async def make(self, account: str, pieces: Iterable[T], weight: int) -> list[T]:
        """Return the pieces, each made on the thread unless they weigh next to nothing.

        Who stops waiting, because the deadline passed for example, has no more made than the piece under way.

        Args:
            account: for whom.
            pieces: an iterator that makes them; others get their turn between two.
            weight: about how much work that is, in characters of plain text.

        Raises:
            QueueFull: too much waits, of this account or in all.
        """
        if weight <= _INLINE:
            return list(pieces)
        loop = asyncio.get_running_loop()
        work = _Work(iter(pieces), account, weight, loop, loop.create_future())
        self._hold(account, 1, weight)
        try:
            with self._lock:
                self._waiting.setdefault(account, deque()).append(work)
                idle, self._running = not self._running, True
            if idle:
                # For as long as there is work: nothing is left to be stopped.
                threading.Thread(target=self._work, name="texts", daemon=True).start()
            await work.done
        finally:
            work.abandoned = True
            self._hold(account, -1, -weight)
            self._on_used(account, work.seconds)
        return cast("list[T]", work.made)

    def _hold(self, account: str, works: int, weight: int) -> None:
        count, size = self._held.get(account, (0, 0))
        limits = self._limits
        if works > 0 and (
            count >= limits.account_works
            or (count and size + weight > limits.account_weight)
            or len(self) >= limits.works
            or sum(held for _, held in self._held.values()) + weight > limits.weight
        ):
            raise QueueFull("too many texts wait to be read", limits.retry_after)
        self._held[account] = (count + works, size + weight)
        if not count + works:
            del self._held[account]

    def _work(self) -> None:
        while (work := self._next()) is not None:
            failure: BaseException | None = None
            before = thread_time()
            try:
                over = _advanced(work, self._limits.slice_seconds)
            except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
                over, failure = True, error
            work.seconds += thread_time() - before
            if over:
                # A loop that is closed has nobody waiting.
                with suppress(RuntimeError):
                    work.loop.call_soon_threadsafe(_tell, work.done, failure)
            else:
                with self._lock:
                    self._waiting.setdefault(work.account, deque()).append(work)

    def _next(self) -> _Work | None:
        """Take the next work of the account whose turn it is, which goes behind the others."""
        with self._lock:
            if not self._waiting:
                self._running = False
                return None
            account, works = self._waiting.popitem(last=False)
            work = works.popleft()
            if works:
                self._waiting[account] = works
            return work


def _advanced(work: _Work, seconds: float) -> bool:
    """Make pieces for so long; says whether there are no more, or nobody waits for them."""
    end = perf_counter() + seconds
    while not work.abandoned:
        try:
            work.made.append(next(work.pieces))
        except StopIteration:
            return True
        if perf_counter() >= end:
            return work.abandoned
    return True


def _tell(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
