"""One open namespace: its log, its keys, and its memories in clear.

The log tells what it applied in one step of the event loop. What is small is indexed in the same step; what is large is
indexed by a task that gives others a turn in between, and every read waits for it: the order is kept, the loop is not
held, and done still means recallable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.namespace import Position
from relayer.domain.operations import Close, Erase, JobFinished, Put, Supersede
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.log import creation
from relayer.log.namespace_log import Consistency, NamespaceLog
from relayer.services.view import NamespaceView
from relayer.wire import schemas

__all__ = ["OpenNamespace"]

# Indexing takes about 0.1 ms for a KiB of text; after this much the others get a turn.
SLICE_BYTES = 32 * 1024


def _nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class OpenNamespace:
    """A namespace while a key for it is live; ``users`` counts the requests in it.

    Attributes:
        key_not_after: until when it may be held, in ms since the epoch.
        on_erased: called when the log says that something was erased.
    """

    namespace: creation.OpenedNamespace
    log: NamespaceLog
    new_view: Callable[[], NamespaceView]
    secret: bytes = field(repr=False)
    key_not_after: int = 0
    on_erased: Callable[[], None] = _nothing
    users: int = 0
    view: NamespaceView = field(init=False)
    _failure: Exception | None = None
    _behind: deque[Applied] = field(default_factory=deque)
    _indexing: asyncio.Task[None] | None = None
    _measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.view = self.new_view()
        self.log.subscribe(self._on_applied, self._on_reset)

    @property
    def keys(self) -> NamespaceKeys:
        """The keys of the current epoch."""
        return self.namespace.keys

    @property
    def broken(self) -> bool:
        """Whether it has to be opened anew to be served."""
        return self._failure is not None or self.log.broken or self.log.state.closed

    async def read(
        self, consistency: schemas.Consistency, min_position: schemas.Position | None = None
    ) -> None:
        """Bring log and view up to what the consistency asks for."""
        wanted = Position(min_position.seq, bytes.fromhex(min_position.digest)) if min_position else None
        await self.log.read(Consistency(consistency.value), wanted)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the view has everything that the log has applied.

        Raises:
            NamespaceClosed: the namespace was erased.
            CorruptNamespace: it could not follow; the next request opens the namespace anew.
        """
        while self._indexing is not None:
            # Waited for, not awaited: neither side's cancellation reaches the other.
            await asyncio.wait([self._indexing])
        if self._failure is not None:
            raise CorruptNamespace("the view could not follow the log; it is opened anew") from self._failure
        if self.log.state.closed:
            raise NamespaceClosed("the namespace was erased")

    async def judge_alike(self) -> None:
        """Bring the null that relevance is judged by up to date, as every replica has it; `read` first."""
        while self.view.index.null_is_due:
            async with self._measuring:
                await self.view.index.measure_null()
            await self.settle()

    async def changed(self, seconds: float) -> None:
        """Wait until the log moves, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def close(self, patience: float = 10.0) -> None:
        """Commit what is queued for at most ``patience`` seconds, and stop."""
        await self.log.close(patience)
        if self._indexing is not None:
            self._failure = NamespaceClosed("the namespace was let go of while it was indexed")
            self._indexing.cancel()
            await asyncio.wait([self._indexing])

    def _on_applied(self, applied: list[Applied]) -> None:
        if any(isinstance(item.operation, Erase | Close) for item in applied):
            self.on_erased()
        if self.log.state.closed:
            # Nobody may be answered from this any more: let go of it now, not when its key ends.
            self._behind.clear()
            self.view = self.new_view()
            self._wake()
            return
        if self._indexing is None and sum(map(_weight, applied)) <= SLICE_BYTES:
            self.view.apply(self.log.state, applied)
        else:
            self._behind.extend(applied)
            if self._indexing is None:
                self._indexing = asyncio.create_task(self._index())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _on_reset(self, _: NamespaceState) -> None:
        self._behind.clear()
        self.view = self.new_view()

    async def _index(self) -> None:
        try:
            while self._behind:
                self.view.apply(self.log.state, list(self._slice()))
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be answered from this view
            self._failure = error
        finally:
            self._indexing = None

    def _slice(self) -> Iterable[Applied]:
        """Take from what is behind at least one operation, and no more than a slice after it."""
        room = SLICE_BYTES
        while self._behind and room > 0:
            item = self._behind.popleft()
            room -= _weight(item)
            yield item


def _weight(item: Applied) -> int:
    """How much there is to index in an operation, in bytes of its sealed text."""
    match item.operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return len(stored.sealed)
        case JobFinished(stored=results):
            return sum(len(stored.sealed) for stored in results)
        case _:
            return 0
