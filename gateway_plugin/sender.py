"""Delivers what the outbox holds, in order, while the conversation goes on.

What fails for a passing reason stays at the head and is tried again, with longer and longer pauses; what the relayer
refuses for good becomes a dead letter and the next item goes on. Waiting for delivery never lasts longer than asked, and
not at all while the relayer keeps failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.identity import Identity
from gateway_plugin.outbox import Outbox, OutboxItem, Waiting

__all__ = ["Sender"]

_LONGEST_PAUSE: Final = 60.0
# Of the answers that blame the request, these pass: not signed in, timed out, out of order, too many.
_PASSING: Final = frozenset({401, 408, 409, 429})
_jitter = secrets.SystemRandom()


class Sender:
    """One delivery loop over one outbox.

    Args:
        client: the relayer.
        outbox: what to deliver.
        identity_of: finds the keys for an item; raises `IdentityError` when they are not held.
        first_pause: seconds before the first retry; doubled up to a minute.
    """

    def __init__(
        self,
        client: RelayerClient,
        outbox: Outbox,
        identity_of: Callable[[Waiting], Identity],
        *,
        first_pause: float = 1.0,
    ) -> None:
        self.delivered = 0
        self.last_error = ""
        self._client = client
        self._outbox = outbox
        self._identity_of = identity_of
        self._first_pause = first_pause
        self._failures = 0
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Note that the outbox has something; starts the loop when it is not running yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memrelay-sender")
        self._work.set()

    async def settled(self, namespace: str, seconds: float) -> bool:
        """Wait until a namespace has nothing waiting; False when time is up or deliveries fail."""
        return await self._wait(lambda: self._outbox.waiting(namespace) == 0, seconds, give_up_after=0)

    async def flush(self, seconds: float) -> bool:
        """Try everything now, and wait until nothing waits; False when time is up or the try fails."""
        if self._outbox.waiting() == 0:
            return True
        self.wake()
        failures = self._failures
        self._hurry.set()
        return await self._wait(lambda: self._outbox.waiting() == 0, seconds, give_up_after=failures)

    async def aclose(self) -> None:
        """Stop the loop; what was not delivered stays in the outbox."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _wait(self, done: Callable[[], bool], seconds: float, *, give_up_after: int) -> bool:
        async def wait() -> None:
            async with self._progress:
                await self._progress.wait_for(lambda: done() or self._failures > give_up_after)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wait()
        return done()

    async def _run(self) -> None:
        while True:
            item = self._outbox.head()
            if item is None:
                self._work.clear()
                await self._work.wait()
                continue
            try:
                await self._deliver(item)
                self._failures = 0
                self.last_error = ""
            except GatewayError as error:
                self._failures += 1
                self.last_error = str(error)
            except Exception as error:  # noqa: BLE001 - one bad item must not stop the others
                self._outbox.refused(item, f"it could not be sent ({type(error).__name__})")
            async with self._progress:
                self._progress.notify_all()
            if self._failures:
                await self._pause()

    async def _deliver(self, item: OutboxItem) -> None:
        """Deliver or bury an item; raises `GatewayError` when it should be tried again."""
        try:
            await self._client.analyze(self._identity_of(item.owner), item.request)
        except RelayerRefused as error:
            # The key says what the item says: under the same key, the relayer has it already.
            if error.code != "idempotency_conflict":
                if error.status in _PASSING or error.status >= 500:
                    raise
                self._outbox.refused(item, f"{error.status} {error.code}")
                return
        self._outbox.delivered(item)
        self.delivered += 1

    async def _pause(self) -> None:
        longest = min(self._first_pause * 2 ** min(self._failures - 1, 10), _LONGEST_PAUSE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest * _jitter.uniform(0.5, 1.0)):
                await self._hurry.wait()
        self._hurry.clear()
