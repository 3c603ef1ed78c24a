"""A world in which relayers follow one log over a store that fails: everything is decided by a seed.

The relayers are the real committer, replica, state, compactor and collector. Time is virtual; a request takes a while to
reach the store and its answer a while to come back, so that anything may happen in between: a crash, a stall of many
minutes, a write of somebody else, a collection. Clients send each operation until it is answered, to whichever relayer is
there; a witness in front of the objects remembers every entry that ever was, and has the last word.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import virtual_time
from sim_store import LinkToStore, Violation, Witness
from virtual_time import VirtualClock, WrongClock

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.namespace import Custody, Position, genesis
from relayer.domain.operations import Erase, Forget, JobAccepted, JobFinished, Operation, Origin, Put, Stored
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import QueueFull, StoreError
from relayer.log import creation
from relayer.log.collector import Collector
from relayer.log.committer import Committer
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.erasure import MemoryEraser, report_of
from relayer.log.erasure_reports import ErasureReports, Stage
from relayer.log.log_ports import LogPorts
from relayer.log.replica import Consistency, Replica
from relayer.log.slots import FoundSlot
from relayer.log.submissions import CommitterLimits
from relayer.testing.faulty_store import Faults, FaultyStore
from relayer.testing.seeded_randomness import SeededRandomness

ACCOUNT = "0x" + "ab" * 32
KEYS = RelayerKeys.derive(b"\x07" * 32)
# Wrong clocks are let write here: nothing may depend on them.
LIMITS = CommitterLimits(give_up_after=20.0, entry_operations=4, most_skew_ms=10**12)


# A collector does not trust the times of a listing to the second.
_SKEW = 10.0
_HOURS = 8  # collections that an erasure may need at the end of a schedule

# Virtual seconds; the slowest schedules take a few thousand.
PATIENCE = 100_000.0
SHARED_JOB = b"shared"
SHARED_CONTENT = b"same"


@dataclass(frozen=True)
class Parts:
    """The classes that run; a negative control puts a wrong one in."""

    replica: type[Any] = Replica
    committer: type[Any] = Committer
    compactor: type[Any] = Compactor
    collector: type[Any] = Collector
    eraser: type[Any] = MemoryEraser
    strong: Any = Consistency.STRONG


@dataclass(frozen=True)
class Plan:
    """What happens how often. Times are in seconds.

    Attributes:
        stall: how often a request, on its way there or back, takes up to ``stall_for``.
        freeze: how often a relayer that the chaos meets is stopped for that long, and not killed.
        pause: longest time that a client thinks, now and then.
        trust: for how long an answer of the manifest vouches for slots.
        grace: how long a collector waits.
        compact, collect: how long until a relayer looks again whether there is something to do.
    """

    relayers: int
    clients: int
    faults: Faults
    operations: int = 5
    crash_every: float = 12.0
    stall: float = 0.004
    stall_for: float = 900.0
    freeze: float = 0.0
    pause: float = 0.0
    trust: float = 600.0
    grace: float = 3600.0
    entries: int = 2
    most_small: int = 1
    compact: float = 3.0
    collect: float = 3.0
    workers_first: bool = False

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Few relayers with many clients, many with few, stores that answer late by little or by much."""
        rng = random.Random(seed)
        relayers = rng.choice((1, 2, 2, 3))
        alone = relayers == 1
        trust = rng.choice((2.0, 10.0, 600.0))
        return cls(
            relayers=relayers,
            clients=8 if alone else 3,
            operations=3 if alone else 5,
            crash_every=60.0 if alone else rng.choice((12.0, 40.0)),
            faults=Faults(
                throttled=0.04,
                unanswered=rng.choice((0.02, 0.15)),
                lost=0.06,
                delayed=0.3 if alone else rng.choice((0.05, 0.2)),
                delay=1.0 if alone else rng.choice((1.0, 30.0)),
                unavailable=rng.choice((0.01, 0.08)),
            ),
            stall=rng.choice((0.004, 0.03)),
            stall_for=rng.choice((60.0, 900.0)),
            freeze=rng.choice((0.0, 0.3)),
            pause=rng.choice((0.0, 30.0, 120.0)),
            trust=trust,
            grace=trust * rng.choice((1.5, 6.0)),
            entries=rng.choice((1, 1, 2, 3)),
            most_small=rng.choice((0, 1, 3)),
            compact=rng.choice((2.0, 8.0)),
            collect=rng.choice((3.0, 15.0)),
        )


# One relayer whose queue is never empty and whose writes often land late.
CROWDED = Plan(relayers=1, clients=8, operations=3, crash_every=120.0, faults=Faults(delayed=0.4, delay=0.6))
# Several workers that end the same job at the same moment.
WORKERS = Plan(relayers=3, clients=6, operations=2, workers_first=True, faults=Faults(unanswered=0.1))
# Relayers that stop for longer than a collector waits, between any two requests, while others go on and collect.
STALLED = Plan(
    relayers=3,
    clients=4,
    operations=6,
    crash_every=15.0,
    faults=Faults(delayed=0.1, delay=20.0),
    stall=0.06,
    stall_for=60.0,
    freeze=0.6,
    pause=10.0,
    trust=4.0,
    grace=6.0,
    entries=1,
    most_small=0,
    compact=1.0,
    collect=1.0,
)

# Relayers that trust an answer for a minute, beside a collector that waits little longer.
TRUSTING = Plan(
    relayers=2,
    clients=4,
    operations=6,
    crash_every=25.0,
    faults=Faults(delayed=0.05, delay=20.0),
    stall=0.02,
    stall_for=120.0,
    freeze=0.3,
    pause=20.0,
    trust=60.0,
    grace=66.0,
    entries=1,
    most_small=0,
    compact=0.5,
    collect=5.0,
)
# Compactors that are stopped between their upload and the swap for longer than anybody waits.
LATE = Plan(
    relayers=4,
    clients=3,
    operations=6,
    crash_every=60.0,
    faults=Faults(delayed=0.05, delay=20.0),
    stall=0.1,
    stall_for=40.0,
    pause=30.0,
    trust=20.0,
    grace=22.0,
    entries=1,
    most_small=0,
    compact=0.5,
    collect=20.0,
)


class Process:
    """One relayer, from its start to its death."""

    def __init__(
        self, ports: LogPorts, incarnation: bytes, parts: Parts, plan: Plan, link: LinkToStore | None = None
    ) -> None:
        limits = CompactionLimits(entries=plan.entries, most_small=plan.most_small)
        self.replica = parts.replica(ports, ACCOUNT, incarnation)
        self.committer = parts.committer(ports, self.replica, LIMITS)
        self.compactor = parts.compactor(ports, self.replica, limits)
        self.collector = parts.collector(ports, ACCOUNT, incarnation, int(plan.grace * 1000))
        self.eraser = parts.eraser(ports, self.replica, self.collector.run, int(plan.grace * 1000))
        self.reports = ErasureReports(ports)
        self.changes: Counter[bytes] = Counter()
        self.shown: dict[bytes, bytes] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.link = link
        self.dead = False
        self.replica.subscribe(self._on_applied, self._on_reset)

    def _on_reset(self, _: object) -> None:
        self.changes.clear()
        self.shown.clear()

    def _on_applied(self, applied: list[Applied]) -> None:
        for item in applied:
            if item.repeated or item.outcome.result is Result.REFUSED:
                continue
            if isinstance(item.operation, Put) and item.outcome.result is Result.STORED:
                self.changes[item.operation.stored.record] += 1
                self.shown[item.operation.stored.record] = item.operation.stored.sealed
            elif isinstance(item.operation, JobFinished):
                self.changes[item.operation.job] += 1

    async def start(self) -> None:
        await self.replica.reload()
        self.committer.start()

    async def erase(self) -> None:
        """Go on with every erasure that this relayer knows of and that is not confirmed."""
        for erasure in list(self.replica.state.erasures.known):
            report = report_of(ACCOUNT, "sim", self.replica, erasure)
            seen = await self.reports.begin(report)
            if seen.report.stage is not Stage.CONFIRMED:
                await self.eraser.run(seen)

    async def request(self, work: Awaitable[Any]) -> Any:
        """Run a client's request inside this process: it dies with it."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        try:
            return await task
        finally:
            self.tasks.discard(task)
            if not task.done():
                task.cancel()

    def stop_care(self) -> None:
        """Do nothing more beside requests."""
        for task in self.tasks:
            task.cancel()

    def kill(self) -> None:
        self.dead = True
        for task in self.tasks:
            task.cancel()
        if self.committer._task is not None:
            self.committer._task.cancel()


class World:
    def __init__(self, seed: int, plan: Plan, parts: Parts) -> None:
        self.rng = random.Random(seed)
        self.plan = plan
        self.parts = parts
        self.clock = VirtualClock()
        self.memory = Witness(self.clock, ACCOUNT, KEYS)
        self.faulty = FaultyStore(self.memory, clock=self.clock, seed=seed, faults=plan.faults)
        self.processes: list[Process | None] = [None] * plan.relayers
        self.answers: list[tuple[Operation, Outcome]] = []
        self.seed = seed
        self.started = 0
        self.acknowledged = 0
        self.failure: Exception | None = None
        self.incarnation = b""

    def ports(self, store: Any) -> LogPorts:
        """A process's surroundings: its clock is wrong, and jumps."""
        self.started += 1
        return LogPorts(
            store,
            WrongClock(self.clock, random.Random(self.seed * 1000 + self.started)),
            SeededRandomness(self.seed * 1000 + self.started),
            KEYS,
            trust_ms=int(self.plan.trust * 1000),
        )

    async def run(self) -> None:
        new = creation.NewNamespace(ACCOUNT, "sim", Custody.AGENT)
        opened = await creation.open_or_create(self.ports(self.memory), new, b"s" * 32)
        self.incarnation = opened.pointer.incarnation
        first = Process(self.ports(self.memory), self.incarnation, Parts(), self.plan)
        await first.start()
        await first.committer.submit([JobAccepted(Origin(b"w" * 32, b"first"), SHARED_JOB, "extract")])
        await first.committer.close(1.0)
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self.client(number)) for number in range(self.plan.clients)]
            chaos = group.create_task(self.chaos())
            _, unfinished = await asyncio.wait(clients, timeout=PATIENCE)
            chaos.cancel()
            if unfinished:
                raise Violation(f"seed {self.seed}: a client was never answered")
        await self.check()

    async def chaos(self) -> None:
        while True:
            await self.clock.sleep(self.rng.uniform(0.5, self.plan.crash_every))
            victim = self.rng.randrange(self.plan.relayers)
            process = self.processes[victim]
            if process is None:
                continue
            if process.link is not None and self.rng.random() < self.plan.freeze:
                process.link.frozen_until = self.clock.monotonic() + self.rng.uniform(1, self.plan.stall_for)
                continue
            self.processes[victim] = None
            process.kill()

    async def process(self) -> Process:
        """Return a relayer that runs, starting it if its place is empty."""
        place = self.rng.randrange(self.plan.relayers)
        found = self.processes[place]
        if found is not None and not found.dead:
            return found
        link = LinkToStore(self.faulty, self.clock, self.rng, self.plan.stall, self.plan.stall_for)
        process = Process(self.ports(link), self.incarnation, self.parts, self.plan, link)
        while True:
            try:
                await process.start()
                break
            except StoreError:
                await self.clock.sleep(self.rng.uniform(0.1, 1.0))
        current = self.processes[place]
        if current is not None and not current.dead:
            process.kill()
            return current
        self.processes[place] = process
        for work, every in (
            (process.compactor.run, self.plan.compact),
            (process.collector.run, self.plan.collect),
            (process.erase, self.plan.collect),
        ):
            process.tasks.add(asyncio.ensure_future(self.again(work, every)))
        return process

    async def again(self, work: Callable[[], Awaitable[Any]], every: float) -> None:
        """Do what a relayer does beside its requests, until it dies."""
        while True:
            await self.clock.sleep(self.rng.uniform(0.2, 2 * every))
            try:
                await work()
            except StoreError:
                continue
            except Exception as error:  # noqa: BLE001 - nobody waits for this work: the schedule remembers it
                self.failure = self.failure or error
                return

    def raise_failure(self) -> None:
        failure = self.failure or self.memory.violation
        if failure is not None:
            raise failure

    async def client(self, number: int) -> None:
        author = bytes([number]) * 32
        mine: list[bytes] = []
        for step in range(self.plan.operations):
            if self.rng.random() < 0.3:
                await self.clock.sleep(self.rng.uniform(0, self.plan.pause))
            self.raise_failure()
            operation = self.operation(author, number, step, mine)
            outcome = await self.send(operation)
            if isinstance(operation, Put) and outcome.result is Result.STORED:
                mine.append(operation.stored.record)
                await self.recall(operation.stored.record)

    def operation(self, author: bytes, number: int, step: int, mine: list[bytes]) -> Operation:
        nonce = number.to_bytes(8, "big") + step.to_bytes(8, "big")
        origin = Origin(author=author, nonce=nonce, idempotency=b"k" + nonce, body=b"b")
        kind = self.rng.random()
        if kind < 0.1 and mine:
            return Forget(origin, mine.pop())
        if kind < 0.2 and mine:
            return Erase(origin, (mine.pop(),))
        if kind < 0.3:
            return JobAccepted(origin, b"job" + nonce, "extract")
        if kind < 0.4 or (step == 0 and self.plan.workers_first):
            # Every client finishes the same job, as workers on several relayers would.
            return JobFinished(SHARED_JOB, stored=(Stored(b"r" + nonce, b"c" + nonce, b"x"),))
        content = SHARED_CONTENT if kind < 0.5 else b"c" + nonce
        return Put(origin, Stored(record=b"p" + nonce, content=content, sealed=b"x" * 40 + nonce))

    async def send(self, operation: Operation) -> Outcome:
        """Send until answered: to another relayer after an error, a crash or when patience ends."""
        while True:
            process = await self.process()
            patience = self.rng.random() < 0.15
            try:
                request = process.request(process.committer.submit([operation]))
                if patience:
                    outcome = await self.impatient(request)
                else:
                    outcome = (await request)[0]
            except (StoreError, QueueFull):
                if process.committer._task.done() and not process.dead:
                    raise Violation(
                        f"seed {self.seed}: somebody's request stopped everybody's commits"
                    ) from None
                await self.clock.sleep(self.rng.uniform(0.0, 2.0))
                continue
            except asyncio.CancelledError:
                if not process.dead:
                    raise
                continue
            if outcome is None:
                continue
            self.answers.append((operation, outcome))
            self.acknowledged = max(self.acknowledged, outcome.seq)
            self.expect(operation, outcome)
            return outcome

    def expect(self, operation: Operation, outcome: Outcome) -> None:
        """Whatever happened on the way, a client gets the result of its one and only request."""
        match operation:
            case Put(stored=stored):
                expected = (
                    {Result.STORED, Result.DUPLICATE} if stored.content == SHARED_CONTENT else {Result.STORED}
                )
            case Forget():
                expected = {Result.FORGOTTEN}
            case Erase():
                expected = {Result.ERASED}
            case JobAccepted():
                expected = {Result.ACCEPTED}
            case _:
                expected = {Result.FINISHED}
        if outcome.result not in expected:
            raise Violation(f"seed {self.seed}: a repeated request met its own first attempt")

    async def impatient(self, request: Awaitable[list[Outcome]]) -> Outcome | None:
        """Hang up after a moment, as a client does; the commit goes on without it."""
        task = asyncio.ensure_future(request)
        timer = asyncio.ensure_future(self.clock.sleep(self.rng.uniform(0.0, 0.5)))
        await asyncio.wait([task, timer], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        if task.done():
            return (await task)[0]
        task.cancel()
        await asyncio.wait([task])
        return None

    async def recall(self, record: bytes) -> None:
        """Done means recallable, through any relayer, now."""
        process = await self.process()
        acknowledged = self.acknowledged
        try:
            await process.request(process.replica.read(self.parts.strong))
        except StoreError:
            return
        except asyncio.CancelledError:
            if not process.dead:
                raise
            return
        if record not in process.replica.state.records or record not in process.shown:
            raise Violation(f"seed {self.seed}: acknowledged and not recallable")
        if process.replica.state.position.seq < acknowledged:
            raise Violation(f"seed {self.seed}: a strong read missed what was acknowledged before it")

    async def check(self) -> None:
        self.faulty.faults = Faults()
        await self.faulty.apply_delayed()
        self.raise_failure()
        whole, bodies = await self.witnessed()
        fresh = Process(self.ports(self.memory), self.incarnation, self.parts, self.plan)
        await fresh.replica.reload()
        state = fresh.replica.state
        if not same(state, whole):
            raise Violation(f"seed {self.seed}: the log says something else than its entries said")
        if any(fresh.shown[record] != bodies[record] for record in state.records if record in bodies):
            raise Violation(f"seed {self.seed}: a memory lost its text")
        for operation, outcome in self.answers:
            if state.outcome_of(operation) != outcome:
                raise Violation(f"seed {self.seed}: an answer differs from what the log says")
        self.check_once(fresh)
        await self.check_erasures(fresh)
        for process in self.processes:
            if process is None:
                continue
            await process.replica.catch_up()
            if not same(process.replica.state, state):
                raise Violation(f"seed {self.seed}: two relayers disagree")
            self.check_once(process)
            process.kill()

    async def witnessed(self) -> tuple[NamespaceState, dict[bytes, bytes]]:
        """Replay the entries as they were first written, without replica, segments or manifest."""
        slots = Replica(self.ports(self.memory), ACCOUNT, self.incarnation).slots
        state = NamespaceState(Position(0, genesis(self.incarnation)))
        bodies: dict[bytes, bytes] = {}
        while (data := self.memory.entries.get(slots.key(state.next_seq))) is not None:
            linked = await slots.link(FoundSlot(state.next_seq, data), state.position)
            for item in state.apply(linked.entry, linked.digest):
                if isinstance(item.operation, Put) and item.outcome.result is Result.STORED:
                    bodies.setdefault(item.operation.stored.record, item.operation.stored.sealed)
        return state, bodies

    async def check_erasures(self, fresh: Process) -> None:
        """When everybody else is dead, every erasure is confirmed in the end, and nothing of it is left."""
        for process in self.processes:
            if process is not None:
                process.stop_care()
        for _ in range(_HOURS):
            await fresh.erase()
            if not await fresh.reports.pending():
                break
            await self.clock.sleep(max(self.plan.grace, _SKEW) + 1)
        else:
            raise Violation(f"seed {self.seed}: an erasure was never confirmed")
        self.raise_failure()
        erased = fresh.replica.state.erased
        if any(self.memory.bodies_of(self.incarnation, erased)):
            raise Violation(f"seed {self.seed}: an erased memory has a body in the store")

    def check_once(self, process: Process) -> None:
        if any(count != 1 for count in process.changes.values()):
            raise Violation(f"seed {self.seed}: something was applied twice")


def same(left: NamespaceState, right: NamespaceState) -> bool:
    """Compare by content: a negative control's classes are not the source's."""
    return left == right or _content(left) == _content(right)


def _content(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _content(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: _content(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_content(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def simulate(seed: int, plan: Plan | None = None, parts: Parts | None = None) -> World:
    """Run one schedule; raises `Violation` if a promise was broken in it."""
    world = World(seed, plan or Plan.of(seed), parts or Parts())

    try:
        virtual_time.run(world.run())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return world
