"""One simulated relayer, from its start to its death: the real parts of the log, put together as the product does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import msgspec
from sim_plans import Plan
from sim_store import LinkToStore

from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Manifest
from relayer.domain.operations import JobFinished, OperationResult, Put, Stored, Supersede
from relayer.domain.snapshot import write_state
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace
from relayer.log import erasure
from relayer.log.collector import Collector
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.index_file import IndexObjects, Part
from relayer.log.namespace_log import Committer, CommitterLimits
from relayer.log.objects import LogPorts
from relayer.log.replica import Replica, StartingState
from relayer.ports import EmbeddingModel
from relayer.wire.fields import Consistency

__all__ = ["ACCOUNT", "KEYS", "Parts", "Process"]

ACCOUNT = "0x" + "ab" * 32
KEYS = RelayerKeys.derive(b"\x07" * 32)
# Wrong clocks are let write here: nothing may depend on them.
LIMITS = CommitterLimits(give_up_after=20.0, entry_operations=4, most_skew_ms=10**12)
_MODEL = EmbeddingModel("none", "0" * 64, 1)


@dataclass(frozen=True)
class Parts:
    """The classes that run, and the module of erasures; a negative control puts a wrong one in."""

    replica: type[Any] = Replica
    committer: type[Any] = Committer
    compactor: type[Any] = Compactor
    collector: type[Any] = Collector
    erasure: Any = erasure
    indexes: type[Any] = IndexObjects
    strong: Any = Consistency.STRONG


class Process:
    """A relayer that has one log open.

    Attributes:
        changes: how often each record and each end of a job was applied.
        shown: the projection: the bodies of the records that are there. It is stored with an index and read from there.
        tasks: what runs in it, in the order in which it began: a set's order is another one in every process of Python.
    """

    def __init__(
        self, ports: LogPorts, incarnation: bytes, parts: Parts, plan: Plan, link: LinkToStore | None = None
    ) -> None:
        limits = CompactionLimits(entries=plan.entries, most_small=plan.most_small)
        grace_ms = int(plan.grace * 1000)
        self.replica = parts.replica(ports, ACCOUNT, incarnation, self._begin)
        self.committer = parts.committer(ports, self.replica, LIMITS)
        self.compactor = parts.compactor(ports, self.replica, limits)
        self.collector = parts.collector(ports, ACCOUNT, incarnation, grace_ms)
        self.eraser = parts.erasure.MemoryEraser(ports, self.replica, self.collector.run, grace_ms)
        self.indexes = parts.indexes(ports, ACCOUNT, self.replica)
        self.erasure = parts.erasure
        self.reports = self.erasure.ErasureReports(ports)
        self.changes: Counter[bytes] = Counter()
        self.shown: dict[bytes, bytes] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.link = link
        self.dead = False
        self._tidied = 0
        self._restored: tuple[NamespaceState, Counter[bytes], dict[bytes, bytes]] | None = None
        self.replica.subscribe(self._on_applied, self._on_reset)

    async def _begin(self, manifest: Manifest) -> StartingState | None:
        self._restored = None
        try:
            reader = await self.indexes.open(manifest, _MODEL)
            if reader is None:
                return None
            start = await reader.state()
            [block] = [block async for block in reader.blocks(Part.VIEW)]
        except CorruptNamespace:
            return None
        changes, shown = msgspec.msgpack.decode(block, type=tuple[dict[bytes, int], dict[bytes, bytes]])
        self._restored = (start.state, Counter(changes), shown)
        return start

    def _on_reset(self, state: NamespaceState) -> None:
        restored, self._restored = self._restored, None
        found = restored is not None and restored[0] is state
        self.changes, self.shown = restored[1:] if restored is not None and found else (Counter(), {})

    def _on_applied(self, applied: list[Applied]) -> None:
        for item in applied:
            if item.repeated or item.outcome.result is OperationResult.REFUSED:
                continue
            operation = item.operation
            if (
                isinstance(operation, Put | Supersede)
                and item.outcome.result is not OperationResult.DUPLICATE
            ):
                self.changes[operation.stored.record] += 1
                self._show([operation.stored])
            elif isinstance(operation, JobFinished):
                self.changes[operation.job] += 1
                self._show(operation.stored)
        for record in self.replica.state.erased:
            self.shown.pop(record, None)

    def _show(self, stored: tuple[Stored, ...] | list[Stored]) -> None:
        records = self.replica.state.records
        self.shown.update({one.record: one.sealed for one in stored if one.record in records})

    async def start(self) -> None:
        await self.replica.reload()
        self.committer.start()

    async def store_index(self) -> None:
        """Store an index of what is known now."""
        state = self.replica.state
        builder = self.indexes.begin(_MODEL)
        erased = len(state.erased)
        for page in write_state(state):
            builder.add_page(page)
        builder.add(Part.VIEW, msgspec.msgpack.encode((self.changes, self.shown)))
        await self.indexes.publish(builder, _MODEL, builder.finish(), erased)

    async def erase(self) -> None:
        """Go on with every erasure that this relayer knows of and that is not confirmed, and with what came after it."""
        for known in list(self.replica.state.erasures.known):
            report = self.erasure.report_of(ACCOUNT, "sim", self.replica, known)
            seen = await self.reports.begin(report)
            if seen.report.stage is not self.erasure.ErasureStage.CONFIRMED:
                await self.eraser.run(seen)
        late = self.replica.state.erasures.last_late
        if late > self._tidied and await self.eraser.tidy():
            self._tidied = late

    async def request(self, work: Awaitable[Any]) -> Any:
        """Run a client's request inside this process: it dies with it."""
        task = asyncio.ensure_future(work)
        self.tasks[task] = None
        try:
            return await task
        finally:
            self.tasks.pop(task, None)
            if not task.done():
                task.cancel()

    def stop_care(self) -> None:
        """Do nothing more beside requests."""
        for task in list(self.tasks):
            task.cancel()

    def kill(self) -> None:
        self.dead = True
        self.stop_care()
        if self.committer._task is not None:
            self.committer._task.cancel()
