"""Delivers what the outbox holds, in order within each namespace, while the conversation goes on.

What fails for a passing reason stays where it is and is tried again, with longer and longer pauses; meanwhile its
namespace waits, and no other. What the relayer refuses for good becomes a dead letter, and the next item goes on. Waiting
for delivery never lasts longer than asked, and not at all while the deliveries waited for keep failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused, RelayerUnreachable, RelayerUntrusted
from gateway_plugin.identity import Identity
from gateway_plugin.outbox import Outbox, OutboxItem, Waiting

__all__ = ["Sender"]

_LONGEST_PAUSE: Final = 60.0
# Of the answers that blame the request, these pass: not signed in, timed out, out of order, too many.
_PASSING: Final = frozenset({401, 408, 409, 429})
# Of those, these do not pass by themselves: asking again would only hide that a person has to look.
_LASTING: Final = {
    "wrong_namespace_key": "this gateway holds another secret than the one that made the namespace",
    "wrong_custody": "the namespace was made by a client that leaves its key to the relayer",
}
_jitter = secrets.SystemRandom()


@dataclass(slots=True)
class _Pause:
    """A namespace whose last delivery failed.

    Attributes:
        error: why.
        failures: how many in a row.
        serial: the number of the last of them among all failures of the sender.
        until: when it is tried again, in the event loop's time.
    """

    error: GatewayError
    failures: int
    serial: int
    until: float


class Sender:
    """One delivery loop over one outbox.

    Args:
        client: the relayer.
        outbox: what to deliver.
        identity_of: finds the keys for an item; raises `IdentityError` when they are not held.
        first_pause: seconds before the first retry; doubled up to a minute.
        notify: told a sentence for a person when turns are given up; once for each agent and reason.
    """

    def __init__(
        self,
        client: RelayerClient,
        outbox: Outbox,
        identity_of: Callable[[Waiting], Identity],
        *,
        first_pause: float = 1.0,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.delivered = 0
        self._client = client
        self._outbox = outbox
        self._identity_of = identity_of
        self._first_pause = first_pause
        self._notify = notify
        self._told: set[tuple[str, str]] = set()
        self._pauses: dict[str, _Pause] = {}
        self._failures = 0
        self._work = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @property
    def last_error(self) -> str:
        """Why what waits is not delivered, of the latest failure; "" when nothing failed."""
        latest = max(self._pauses.values(), key=lambda pause: pause.serial, default=None)
        return str(latest.error) if latest is not None else ""

    def wake(self) -> None:
        """Note that the outbox has something; starts the loop when it is not running yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memrelay-sender")
        self._work.set()

    async def settled(self, namespace: str, seconds: float) -> bool:
        """Wait until a namespace has nothing waiting; False when time is up or its deliveries fail."""
        await self._wait(
            lambda: self._outbox.waiting(namespace) == 0 or namespace in self._pauses,
            seconds,
        )
        return self._outbox.waiting(namespace) == 0

    async def flush(self, seconds: float) -> bool:
        """Try everything now, and wait until nothing waits; False when time is up or what still waits failed again."""
        if self._outbox.waiting() == 0:
            return True
        before = self._failures
        for pause in self._pauses.values():
            pause.until = 0.0
        self.wake()
        await self._wait(lambda: self._outbox.head(self._failed_since(before)) is None, seconds)
        return self._outbox.waiting() == 0

    async def aclose(self) -> None:
        """Stop the loop; what was not delivered stays in the outbox."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._progress:
                await self._progress.wait_for(done)

    def _failed_since(self, serial: int) -> set[str]:
        return {namespace for namespace, pause in self._pauses.items() if pause.serial > serial}

    async def _run(self) -> None:
        while True:
            self._work.clear()
            now = asyncio.get_running_loop().time()
            ends = {name: pause.until for name, pause in self._pauses.items() if pause.until > now}
            item = self._outbox.head(ends)
            if item is not None:
                await self._try(item)
                continue
            if self._outbox.waiting() == 0:
                self._pauses.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(ends.values(), default=None)):
                    await self._work.wait()

    async def _try(self, item: OutboxItem) -> None:
        namespace = item.owner.namespace
        try:
            await self._deliver(item)
            self._pauses.pop(namespace, None)
            self._relayer_is_back()
        except GatewayError as error:
            self._pause(namespace, error)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the others
            self._give_up(item, f"it could not be sent ({type(error).__name__})")
            self._pauses.pop(namespace, None)
        async with self._progress:
            self._progress.notify_all()

    async def _deliver(self, item: OutboxItem) -> None:
        """Deliver or bury an item; raises `GatewayError` when it should be tried again."""
        try:
            await self._client.analyze(self._identity_of(item.owner), item.request)
        except RelayerRefused as error:
            # The key says what the item says: under the same key, the relayer has it already.
            if error.code != "idempotency_conflict":
                if error.code not in _LASTING and (error.status in _PASSING or error.status >= 500):
                    raise
                advice = f", {_LASTING[error.code]}" if error.code in _LASTING else ""
                self._give_up(item, f"{error.status} {error.code}{advice}")
                return
        self._outbox.delivered(item)
        self.delivered += 1

    def _give_up(self, item: OutboxItem, reason: str) -> None:
        self._outbox.refused(item, reason)
        if self._notify is not None and (item.owner.agent, reason) not in self._told:
            self._told.add((item.owner.agent, reason))
            self._notify(f"memrelay: a captured turn of agent {item.owner.agent} is given up: {reason}")

    def _pause(self, namespace: str, error: GatewayError) -> None:
        self._failures += 1
        before = self._pauses.get(namespace)
        failures = before.failures + 1 if before is not None else 1
        longest = min(self._first_pause * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        until = asyncio.get_running_loop().time() + longest * _jitter.uniform(0.5, 1.0)
        self._pauses[namespace] = _Pause(error, failures, self._failures, until)

    def _relayer_is_back(self) -> None:
        """End the pauses of those that found nobody: somebody answers now, and may answer them too."""
        for namespace, pause in list(self._pauses.items()):
            if isinstance(pause.error, RelayerUnreachable | RelayerUntrusted):
                del self._pauses[namespace]
