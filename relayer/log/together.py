"""Several requests at the same time, with the one error that a caller can decide on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from relayer.errors import RelayerError

__all__ = ["AT_ONCE", "both", "together"]

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
