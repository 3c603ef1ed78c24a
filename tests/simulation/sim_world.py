"""A world in which relayers follow one log over a store that fails: everything is decided by a seed.

The relayers are the real committer, replica and state. Time is virtual; a request takes a while to reach the
store and its answer a while to come back, so that anything may happen in between: a crash, a stall of many minutes, a
write of somebody else. Clients send each operation until it is answered, to whichever relayer is there.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import virtual_time
from virtual_time import VirtualClock

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.domain.operations import Erase, Forget, JobAccepted, JobFinished, Operation, Origin, Put, Stored
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.state import Applied
from relayer.errors import QueueFull, StoreError
from relayer.log import creation
from relayer.log.committer import Committer
from relayer.log.log_ports import LogPorts
from relayer.log.replica import Consistency, Replica
from relayer.log.submissions import CommitterLimits
from relayer.ports import ObjectInfo
from relayer.testing.faulty_store import Faults, FaultyStore
from relayer.testing.seeded_randomness import SeededRandomness

ACCOUNT = "0x" + "ab" * 32
KEYS = RelayerKeys.derive(b"\x07" * 32)
LIMITS = CommitterLimits(give_up_after=20.0, entry_operations=4)


# Virtual seconds; the slowest schedules take a few thousand.
PATIENCE = 100_000.0
SHARED_JOB = b"shared"
SHARED_CONTENT = b"same"


class Violation(AssertionError):
    """A promise was broken in this schedule."""


@dataclass(frozen=True)
class Parts:
    """The classes that run; a negative control puts a wrong one in."""

    replica: type[Any] = Replica
    committer: type[Any] = Committer
    strong: Any = Consistency.STRONG


@dataclass(frozen=True)
class Plan:
    relayers: int
    clients: int
    faults: Faults
    operations: int = 5
    crash_every: float = 12.0
    stall: float = 0.004
    workers_first: bool = False

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Few relayers with many clients, many with few, stores that answer late by little or by much."""
        rng = random.Random(seed)
        relayers = rng.choice((1, 2, 2, 3))
        alone = relayers == 1
        return cls(
            relayers=relayers,
            clients=8 if alone else 3,
            operations=3 if alone else 5,
            crash_every=60.0 if alone else 12.0,
            faults=Faults(
                throttled=0.04,
                unanswered=rng.choice((0.02, 0.15)),
                lost=0.06,
                delayed=0.3 if alone else rng.choice((0.05, 0.2)),
                delay=1.0 if alone else rng.choice((1.0, 30.0)),
                unavailable=rng.choice((0.01, 0.08)),
            ),
        )


# One relayer whose queue is never empty and whose writes often land late.
CROWDED = Plan(relayers=1, clients=8, operations=3, crash_every=120.0, faults=Faults(delayed=0.4, delay=0.6))
# Several workers that end the same job at the same moment.
WORKERS = Plan(relayers=3, clients=6, operations=2, workers_first=True, faults=Faults(unanswered=0.1))


class LinkToStore:
    """One process's way to the store: slow in both directions, sometimes very."""

    def __init__(self, inner: FaultyStore, clock: VirtualClock, rng: random.Random, stall: float) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._stall = stall
        self.description = inner.description

    async def _lag(self) -> None:
        if self._rng.random() < self._stall:
            await self._clock.sleep(self._rng.uniform(1, 900))
        else:
            await self._clock.sleep(self._rng.uniform(0.001, 0.2))

    async def _pass(self, request: Awaitable[Any]) -> Any:
        try:
            await self._lag()
        except BaseException:
            request.close()  # the process died before the request reached the store
            raise
        answer = await request
        await self._lag()
        return answer

    async def get(self, key: str, *, byte_range=None, if_none_match=None):
        return await self._pass(self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match))

    async def create(self, key: str, data: bytes):
        return await self._pass(self._inner.create(key, data))

    async def swap(self, key: str, data: bytes, etag: str):
        return await self._pass(self._inner.swap(key, data, etag))

    async def delete(self, key: str) -> None:
        await self._pass(self._inner.delete(key))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def versions(self, key: str) -> int:
        return await self._pass(self._inner.versions(key))

    async def purge(self, key: str) -> int:
        return await self._pass(self._inner.purge(key))

    async def close(self) -> None:
        return None


class Process:
    """One relayer, from its start to its death."""

    def __init__(self, ports: LogPorts, incarnation: bytes, parts: Parts) -> None:
        self.replica = parts.replica(ports, ACCOUNT, incarnation)
        self.committer = parts.committer(ports, self.replica, LIMITS)
        self.changes: Counter[bytes] = Counter()
        self.shown: set[bytes] = set()
        self.requests: set[asyncio.Task[Any]] = set()
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
                self.shown.add(item.operation.stored.record)
            elif isinstance(item.operation, JobFinished):
                self.changes[item.operation.job] += 1

    async def start(self) -> None:
        await self.replica.reload()
        self.committer.start()

    async def request(self, work: Awaitable[Any]) -> Any:
        """Run a client's request inside this process: it dies with it."""
        task = asyncio.ensure_future(work)
        self.requests.add(task)
        try:
            return await task
        finally:
            self.requests.discard(task)
            if not task.done():
                task.cancel()

    def kill(self) -> None:
        self.dead = True
        for task in self.requests:
            task.cancel()
        if self.committer._task is not None:
            self.committer._task.cancel()


class World:
    def __init__(self, seed: int, plan: Plan, parts: Parts) -> None:
        self.rng = random.Random(seed)
        self.plan = plan
        self.parts = parts
        self.clock = VirtualClock()
        self.memory = MemoryStore(self.clock)
        self.faulty = FaultyStore(self.memory, clock=self.clock, seed=seed, faults=plan.faults)
        self.processes: list[Process | None] = [None] * plan.relayers
        self.answers: list[tuple[Operation, Outcome]] = []
        self.seed = seed
        self.started = 0
        self.incarnation = b""

    def ports(self, store: Any) -> LogPorts:
        self.started += 1
        return LogPorts(store, self.clock, SeededRandomness(self.seed * 1000 + self.started), KEYS)

    async def run(self) -> None:
        new = creation.NewNamespace(ACCOUNT, "sim", Custody.AGENT)
        opened = await creation.open_or_create(self.ports(self.memory), new, b"s" * 32)
        self.incarnation = opened.pointer.incarnation
        first = Process(self.ports(self.memory), self.incarnation, Parts())
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
            process, self.processes[victim] = self.processes[victim], None
            if process is not None:
                process.kill()

    async def process(self) -> Process:
        """Return a relayer that runs, starting it if its place is empty."""
        place = self.rng.randrange(self.plan.relayers)
        found = self.processes[place]
        if found is not None and not found.dead:
            return found
        link = LinkToStore(self.faulty, self.clock, self.rng, self.plan.stall)
        process = Process(self.ports(link), self.incarnation, self.parts)
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
        return process

    async def client(self, number: int) -> None:
        author = bytes([number]) * 32
        mine: list[bytes] = []
        for step in range(self.plan.operations):
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
        return Put(origin, Stored(record=b"p" + nonce, content=content, sealed=b"x" * 40))

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

    async def check(self) -> None:
        self.faulty.faults = Faults()
        await self.faulty.apply_delayed()
        fresh = Process(self.ports(self.memory), self.incarnation, self.parts)
        await fresh.replica.reload()
        state = fresh.replica.state
        for operation, outcome in self.answers:
            if state.outcome_of(operation) != outcome:
                raise Violation(f"seed {self.seed}: an answer differs from what the log says")
        self.check_once(fresh)
        for process in self.processes:
            if process is None:
                continue
            await process.replica.catch_up()
            if process.replica.state != state:
                raise Violation(f"seed {self.seed}: two relayers disagree")
            self.check_once(process)
            process.kill()

    def check_once(self, process: Process) -> None:
        if any(count != 1 for count in process.changes.values()):
            raise Violation(f"seed {self.seed}: something was applied twice")


def simulate(seed: int, plan: Plan | None = None, parts: Parts | None = None) -> World:
    """Run one schedule; raises `Violation` if a promise was broken in it."""
    world = World(seed, plan or Plan.of(seed), parts or Parts())

    try:
        virtual_time.run(world.run())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return world
