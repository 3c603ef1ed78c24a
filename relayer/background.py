"""What a relayer does beside its requests, for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from relayer.http.auth import Authenticator
from relayer.observability import describe, log
from relayer.ports import Clock
from relayer.services.context import Context
from relayer.services.fact_work import work_forever
from relayer.services.fleet import FleetKeys
from relayer.services.idle_collection import IdleCollection
from relayer.services.inactivity import forget_inactive_forever
from relayer.services.index_keeping import IndexKeeper
from relayer.services.tending import tend_forever
from relayer.services.upkeep import Upkeep

__all__ = ["background"]

_EXPIRY_SECONDS = 15.0
_RESTART_SECONDS = 1.0


def _warn(event: str, error: BaseException) -> None:
    log.warning(event, **describe(error))


def _error(event: str, error: BaseException) -> None:
    log.error(event, **describe(error))


@asynccontextmanager
async def background(
    context: Context,
    *,
    fleet: FleetKeys,
    authenticator: Authenticator,
    indexes: IndexKeeper,
    upkeep: Upkeep,
    idle: IdleCollection | None,
    forget_inactive_days: int,
) -> AsyncIterator[None]:
    """Run what runs beside the requests, until the block ends."""
    clock = context.clock

    async def expire() -> None:
        while True:
            await clock.sleep(_EXPIRY_SECONDS)
            authenticator.drop_expired()
            # Also here: tending may be held up by a store that does not answer, and what has ended must go.
            await context.namespaces.drop_expired()

    endless: list[Callable[[], Awaitable[None]]] = [
        fleet.run,
        expire,
        lambda: tend_forever(context, partial(_error, "tending_failed")),
        lambda: indexes.run(partial(_error, "index_failed")),
        lambda: upkeep.run(partial(_warn, "upkeep_failed")),
        lambda: context.erasures.run(partial(_warn, "erasing_failed")),
    ]
    if idle is not None:
        endless.append(lambda: idle.run(partial(_warn, "idle_collection_failed")))
    facts = context.facts
    if facts is not None:
        endless.append(lambda: work_forever(context, facts, partial(_error, "job_failed")))
    if forget_inactive_days:
        endless.append(
            lambda: forget_inactive_forever(
                context, forget_inactive_days, partial(_error, "forgetting_failed")
            )
        )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_persist(work, clock)) for work in endless]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _persist(work: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run endless work again after a failure: one bad round must not end the service."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever it was, it is logged and tried again
            log.error("background_failed", **describe(error))
        await clock.sleep(_RESTART_SECONDS)
