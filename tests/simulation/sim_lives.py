"""The lives of a name: written to, erased and used again by whoever comes, while relayers crash and stall.

What is promised: what was acknowledged in a life that nobody asked to erase is there; once an erasure has answered, no
relayer shows anything of that life; and when it is confirmed, the store keeps nothing of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import virtual_time
from doubles.faulty_store import Faults, FaultyStore
from doubles.seeded_randomness import SeededRandomness
from sim_plans import Plan
from sim_process import ACCOUNT, KEYS, LIMITS
from sim_store import LinkToStore, Violation, Witness
from sim_world import repeatable
from virtual_time import VirtualClock, WrongClock

from relayer.domain.namespace import Custody, Pointer, PointerState
from relayer.domain.operations import OperationResult, Origin, Put, Stored
from relayer.errors import NamespaceClosed, QueueFull, StoreError
from relayer.log import creation
from relayer.log.collector import Collector
from relayer.log.compactor import CompactionLimits
from relayer.log.erasure import ErasureKind, ErasureReports, ErasureStage, NamespaceEraser, namespace_report
from relayer.log.namespace_log import NamespaceLog, begin_reads
from relayer.log.objects import Layout, LogPorts, ReadAhead
from relayer.wire.fields import Consistency

__all__ = ["Lives", "simulate_lives"]

T = TypeVar("T")

NAME = "sim"
SECRET = b"s" * 32
_NEW = creation.NewNamespace(ACCOUNT, NAME, Custody.AGENT)
_PATIENCE = 100_000.0
_HOURS = 8
_ERASURES = 3


class Closed(Exception):
    """Raised when the life that a request was in is over."""


@dataclass
class Relayer:
    """A process that serves the one name, whatever life it is in."""

    ports: LogPorts
    plan: Plan
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    dead: bool = False
    log: NamespaceLog | None = None
    begun: list[NamespaceLog] = field(default_factory=list)

    @property
    def grace_ms(self) -> int:
        return int(self.plan.grace * 1000)

    async def opened(self, *, create: bool) -> NamespaceLog | None:
        if self.log is not None and not self.log.replica.broken and not self.log.state.closed:
            return self.log
        self._let_go()
        ahead = ReadAhead(self.ports)
        try:
            found = await self._find(ahead, create=create)
            if found is None:
                return None
            log = NamespaceLog(
                self.ports, ACCOUNT, found.pointer, limits=LIMITS, seen=found.seen, ahead=ahead
            )
            self.begun.append(log)
            await log.start()
        finally:
            await ahead.end()
        self.log = log
        return log

    async def _find(self, ahead: ReadAhead, *, create: bool) -> creation.OpenedNamespace | None:
        on_manifest = partial(begin_reads, ahead, ())
        if create:
            return await creation.open_or_create(self.ports, _NEW, SECRET, on_manifest)
        pointer = await creation.find(self.ports, ACCOUNT, NAME)
        if pointer is None:
            return None
        return await creation.open_existing(self.ports, pointer, ACCOUNT, SECRET, on_manifest)

    async def put(self, operation: Put) -> bytes:
        """Write, and return the incarnation that took it."""
        log = await self.opened(create=True)
        assert log is not None
        [outcome] = await log.append([operation])
        if outcome.result is not OperationResult.STORED:
            raise Closed
        return log.pointer.incarnation

    async def read(self) -> tuple[bytes, set[bytes]]:
        """Return the life that is read, none as an empty id, and its records."""
        log = await self.opened(create=False)
        if log is None:
            return b"", set()
        await log.replica.read(Consistency.STRONG)
        if log.state.closed:
            raise Closed
        return log.pointer.incarnation, set(log.state.records)

    async def erase(self, pointer: Pointer) -> ErasureStage:
        """Do what the route does; returns how far it came."""
        seen = await ErasureReports(self.ports).begin(namespace_report(ACCOUNT, pointer, 0))
        return (await NamespaceEraser(self.ports, self.grace_ms).run(seen)).report.stage

    async def go_on(self) -> None:
        """Go on with erasures that are under way."""
        reports = ErasureReports(self.ports)
        for key in await reports.pending():
            seen = await reports.read(key)
            if seen is not None and seen.report.what is ErasureKind.NAMESPACE:
                await NamespaceEraser(self.ports, self.grace_ms).run(seen)

    async def walk(self) -> None:
        """Look below every life that is over, as a walk over what nobody has open does."""
        reports = ErasureReports(self.ports)
        async for row in self.ports.store.list(Layout.erased()):
            seen = await reports.read(row.key)
            if seen is not None:
                await NamespaceEraser(self.ports, self.grace_ms).tidy(seen.report)

    async def care(self) -> None:
        """Compact and collect what is open."""
        log = self.log
        if log is not None and not log.replica.broken:
            await log.compact(CompactionLimits(entries=self.plan.entries, most_small=self.plan.most_small))
            await Collector(self.ports, ACCOUNT, log.pointer.incarnation, self.grace_ms).run()

    async def request(self, work: Awaitable[T]) -> T:
        """Run a request inside this process: it dies with it."""
        task = asyncio.ensure_future(work)
        self.tasks[task] = None
        try:
            return await task
        finally:
            self.tasks.pop(task, None)

    def kill(self) -> None:
        self.dead = True
        for task in list(self.tasks):
            task.cancel()
        self._let_go()

    def _let_go(self) -> None:
        for log in self.begun:
            if (committing := log._committer._task) is not None:
                committing.cancel()
        self.log = None


class Lives:
    """One schedule.

    Attributes:
        doomed: lives that somebody asked to erase.
        gone: lives of which an erasure has answered.
    """

    def __init__(self, seed: int, plan: Plan) -> None:
        self.seed = seed
        self.plan = plan
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.memory = Witness(self.clock, ACCOUNT, KEYS)
        # Opening and closing a log takes many requests in a row: with more failures the eraser would only try again.
        faults = replace(plan.faults, throttled=0.01, unavailable=0.01, lost=0.03)
        self.faulty = FaultyStore(self.memory, clock=self.clock, seed=seed, faults=faults)
        self.relayers: list[Relayer | None] = [None] * plan.relayers
        self.links: dict[int, LinkToStore] = {}
        self.doomed: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.acknowledged: list[tuple[bytes, bytes]] = []
        self.failure: Exception | None = None
        self.started = 0

    @property
    def digest(self) -> str:
        return self.memory.trace.hexdigest()

    def relayer(self) -> Relayer:
        """Return a relayer that runs, starting it if its place is empty."""
        place = self.rng.randrange(self.plan.relayers)
        found = self.relayers[place]
        if found is not None:
            return found
        link = LinkToStore(self.faulty, self.clock, self.rng, self.plan.stall, self.plan.stall_for)
        made = self.relayers[place] = Relayer(self.ports(link), self.plan)
        self.links[place] = link
        # Rarely enough that a schedule of hours is not all care.
        slow = max(self.plan.collect, self.plan.grace / 30)
        for work, every in ((made.go_on, slow), (made.care, slow), (made.walk, 3 * slow)):
            made.tasks[asyncio.ensure_future(self.again(work, every))] = None
        return made

    def ports(self, store: Any) -> LogPorts:
        self.started += 1
        number = self.seed * 1000 + self.started
        clock = WrongClock(self.clock, random.Random(number))
        return LogPorts(store, clock, SeededRandomness(number), KEYS, trust_ms=int(self.plan.trust * 1000))

    async def again(self, work: Callable[[], Awaitable[Any]], every: float) -> None:
        while True:
            await self.clock.sleep(self.rng.uniform(0.2, 2 * every))
            try:
                await work()
            except (StoreError, NamespaceClosed):
                continue
            except Exception as error:  # noqa: BLE001 - nobody waits for this work: the schedule remembers it
                self.failure = self.failure or error
                return

    async def ask(self, what: Callable[[Relayer], Awaitable[T]]) -> T:
        """Ask until answered, one relayer after another."""
        while True:
            if self.failure is not None or self.memory.violation is not None:
                raise self.failure or self.memory.violation  # type: ignore[misc]
            relayer = self.relayer()
            try:
                return await relayer.request(what(relayer))
            except (StoreError, QueueFull, NamespaceClosed, Closed):
                await self.clock.sleep(self.rng.uniform(0.0, 2.0))
            except asyncio.CancelledError:
                if not relayer.dead:
                    raise

    async def writer(self, number: int) -> None:
        for step in range(self.plan.operations):
            await self.clock.sleep(self.rng.uniform(0.0, 1.0 + self.plan.pause))
            nonce = number.to_bytes(8, "big") + step.to_bytes(8, "big")
            operation = Put(Origin(b"w" * 32, nonce), Stored(b"p" + nonce, b"c" + nonce, b"x" * 40))
            life = await self.ask(lambda relayer, operation=operation: relayer.put(operation))
            self.acknowledged.append((life, operation.stored.record))
            gone = set(self.gone)
            shown, records = await self.ask(Relayer.read)
            if shown in gone:
                raise Violation(f"seed {self.seed}: an erased life was shown")
            if life not in self.doomed and operation.stored.record not in records:
                raise Violation(f"seed {self.seed}: acknowledged and not recallable")

    async def eraser(self) -> None:
        for _ in range(_ERASURES):
            await self.clock.sleep(self.rng.uniform(0.0, 5.0 + self.plan.pause))
            pointer = await self.ask(lambda relayer: creation.find(relayer.ports, ACCOUNT, NAME))
            if pointer is None or pointer.state is PointerState.ERASED:
                continue
            self.doomed.add(pointer.incarnation)

            async def erased(relayer: Relayer, pointer: Pointer = pointer) -> None:
                if await relayer.erase(pointer) is ErasureStage.ERASED:
                    raise Closed

            await self.ask(erased)
            self.gone.add(pointer.incarnation)
            shown, _ = await self.ask(Relayer.read)
            if shown in self.gone:
                raise Violation(f"seed {self.seed}: an erased life was shown")

    async def chaos(self) -> None:
        while True:
            await self.clock.sleep(self.rng.uniform(0.5, self.plan.crash_every))
            place = self.rng.randrange(self.plan.relayers)
            victim = self.relayers[place]
            if victim is None:
                continue
            if self.rng.random() < self.plan.freeze:
                until = self.clock.monotonic() + self.rng.uniform(1, self.plan.stall_for)
                self.links[place].frozen_until = until
                continue
            self.relayers[place] = None
            victim.kill()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self.writer(number)) for number in range(self.plan.clients)]
            clients.append(group.create_task(self.eraser()))
            chaos = group.create_task(self.chaos())
            _, unfinished = await asyncio.wait(clients, timeout=_PATIENCE)
            chaos.cancel()
            if unfinished:
                raise Violation(f"seed {self.seed}: a client was never answered")
        await self.check()

    async def check(self) -> None:
        for relayer in self.relayers:
            if relayer is not None:
                relayer.kill()
        self.faulty.faults = Faults()
        await self.faulty.apply_delayed()
        fresh = Relayer(self.ports(self.memory), self.plan)
        for _ in range(_HOURS):
            await fresh.go_on()
            if not await ErasureReports(fresh.ports).pending():
                break
            await self.clock.sleep(self.plan.grace + 1)
        else:
            raise Violation(f"seed {self.seed}: an erasure was never confirmed")
        if self.memory.violation is not None:
            raise self.memory.violation
        try:
            shown, records = await fresh.read()
        except NamespaceClosed:
            shown, records = b"", set()
        lost = [record for life, record in self.acknowledged if life not in self.doomed and life != shown]
        lost += [record for life, record in self.acknowledged if life == shown and record not in records]
        if shown in self.gone or lost:
            raise Violation(f"seed {self.seed}: the name leads to an erased life, or to nothing")
        await fresh.walk()
        if any(map(self._is_gone, self.memory.kept)):
            raise Violation(f"seed {self.seed}: something of an erased life is left")
        fresh.kill()

    def _is_gone(self, key: str) -> bool:
        return any(key.startswith(Layout.incarnation(life)) for life in self.gone)


def simulate_lives(seed: int, plan: Plan | None = None) -> Lives:
    """Run one schedule; raises `Violation` if a promise was broken in it, with the command that repeats it."""
    lives = Lives(seed, plan or Plan.of(seed))
    with repeatable(seed, f"--lives --plan {lives.plan.name}"):
        virtual_time.run(lives.run())
    return lives
