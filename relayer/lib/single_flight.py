"""One run of an action shared by everybody who asked before it began.

A caller never shares a run that had begun when it asked: that run may have read the store before something the caller
already knows of was written. At most one run is under way and one is due, however many wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from relayer.errors import RelayerError


class SingleFlight:
    """Runs ``action`` for its callers, one run at a time, in the task of one of them.

    A cancelled caller cancels nobody else: the next one that waits takes over.
    """

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._failed = 0
        self._failure: RelayerError | None = None

    async def run(self) -> None:
        """Return after a run that began after this call; raises what that run raised."""
        wanted = self._begun + 1
        async with self._turn:
            if self._done >= wanted:
                return
            if self._failed >= wanted and self._failure is not None:
                raise self._failure.with_traceback(None)
            self._begun += 1
            number = self._begun
            try:
                await self._action()
            except RelayerError as error:
                self._failed, self._failure = number, error
                raise
            self._done = number


AT_ONCE = 16  # requests to the store on behalf of one caller

T = TypeVar("T")
U = TypeVar("U")


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time and return their results in order.

    The first error cancels the others and is raised itself, not in a group; one of the relayer's own if there is one.
    """
    if len(works) == 1:
        return [await works[0]]  # the common case needs no task
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [task.result() for task in tasks]


async def in_windows(
    work: Callable[[U], Coroutine[Any, Any, T]], items: Iterable[U], size: int = AT_ONCE
) -> list[T]:
    """Do the work for every item, ``size`` of them at the same time; results in order, raises as `together`."""
    rest, results = list(items), list[T]()
    for start in range(0, len(rest), size):
        results += await together([work(item) for item in rest[start : start + size]])
    return results


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines of different results as `together` does."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other)
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return tasks[0].result(), tasks[1].result()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    for error in errors.exceptions:
        if isinstance(error, RelayerError):
            return error
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
