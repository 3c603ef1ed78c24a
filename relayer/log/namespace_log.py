"""One namespace's log as the services see it: append, read, and where it stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from relayer.domain.namespace import Pointer, Position
from relayer.domain.operations import Operation
from relayer.domain.outcomes import Outcome, Refusal
from relayer.domain.state import NamespaceState
from relayer.errors import NamespaceClosed
from relayer.log.committer import Committer, CommitterLimits
from relayer.log.compactor import Compaction, CompactionLimits, Compactor
from relayer.log.index_file import IndexObjects
from relayer.log.log_ports import LogPorts
from relayer.log.manifest import SeenManifest
from relayer.log.replica import Begin, Consistency, OnApplied, OnReset, Replica

__all__ = ["Allowance", "Consistency", "NamespaceLog"]

# Asked before operations are appended, and refuses them by raising; what it returns is told their outcomes, none if they failed.
Allowance: TypeAlias = Callable[[Sequence[Operation]], Awaitable[Callable[[Sequence[Outcome]], None]]]


class NamespaceLog:
    """A replica of one incarnation and the committer that appends to it.

    Use: construct, `subscribe` the projections, `start`, then `append` and `read`, finally `close`.

    Attributes:
        indexes: the stored states and views of this log.
    """

    def __init__(
        self,
        ports: LogPorts,
        account: str,
        pointer: Pointer,
        *,
        limits: CommitterLimits | None = None,
        begin: Begin | None = None,
        seen: SeenManifest | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.pointer = pointer
        self._allowance = allowance
        self._ports = ports
        self._replica = Replica(ports, account, pointer.incarnation, begin, seen)
        self.indexes = IndexObjects(ports, account, self._replica)
        self._committer = Committer(ports, self._replica, limits or CommitterLimits())

    @property
    def replica(self) -> Replica:
        """The copy that this follows the log with: for what looks after the log beside the requests."""
        return self._replica

    @property
    def state(self) -> NamespaceState:
        """What this process has applied so far; changed by the log only."""
        return self._replica.state

    @property
    def position(self) -> Position:
        """Where this process stands in the log."""
        return self._replica.state.position

    @property
    def broken(self) -> bool:
        """Whether reading and appending are refused until the log is read anew; see `Replica.subscribe`."""
        return self._replica.broken

    @property
    def nbytes(self) -> int:
        """About the bytes that the log's tables take in memory."""
        return self._replica.nbytes

    def unsubscribe(self) -> None:
        """Forget the projections: whoever is done with a log need not wait until nobody holds it any more."""
        self._replica.unsubscribe()

    def subscribe(self, on_applied: OnApplied, on_reset: OnReset) -> None:
        """Register a projection; see `Replica.subscribe`."""
        self._replica.subscribe(on_applied, on_reset)

    def positions(self) -> list[Position]:
        """Return the last positions that are known; see `Replica.positions`."""
        return self._replica.positions()

    async def start(self) -> Position:
        """Read the log and accept appends; on an error nothing runs, and starting again is possible.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: what reading the log may raise.
        """
        position = await self._replica.reload()
        self._committer.start()
        return position

    async def append(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Append operations and return their outcomes; see `Committer.submit` for limits and errors.

        Raises:
            NamespaceClosed: the log has ended. Whoever asks again finds the life that its name has now, if any.
            Refused: ``quota_exceeded``.
        """
        outcomes: list[Outcome] = []
        settle = await self._allowance(operations) if self._allowance is not None else None
        try:
            outcomes = await self._committer.submit(operations)
        finally:
            if settle is not None:
                settle(outcomes)
        if any(outcome.refusal is Refusal.CLOSED for outcome in outcomes):
            raise NamespaceClosed("the namespace was erased")
        return outcomes

    async def read(
        self, consistency: Consistency = Consistency.STRONG, min_position: Position | None = None
    ) -> Position:
        """Make `state` as fresh as asked; see `Replica.read`."""
        return await self._replica.read(consistency, min_position)

    def compaction_due(self, limits: CompactionLimits) -> bool:
        """Whether the tail is long enough to be compacted, as far as this process knows."""
        return Compactor(self._ports, self._replica, limits).due

    async def compact(self, limits: CompactionLimits) -> Compaction | None:
        """Make one segment if there is need; see `Compactor.run`. Appends and reads go on meanwhile."""
        return await Compactor(self._ports, self._replica, limits).run()

    async def close(self, grace: float = 10.0) -> None:
        """Commit what is queued, for at most ``grace`` seconds, and stop."""
        await self._committer.close(grace)
