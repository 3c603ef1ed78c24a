"""A world in which relayers follow one log over a store that fails: everything is decided by a seed.

The relayers are the real committer, replica, state, compactor, collector, erasure and stored indexes. Time is virtual; a
request takes a while to reach the store and its answer a while to come back, so that anything may happen in between: a
crash, a stall of many minutes, a write of somebody else, a collection. Clients send each operation until it is answered, to
whichever relayer is there; a witness in front of the objects remembers every entry that ever was, and has the last word.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import msgspec
import virtual_time
from doubles.faulty_store import Faults, FaultyStore
from doubles.seeded_randomness import SeededRandomness
from sim_memories import SHARED_JOB, Memories
from sim_plans import Plan
from sim_process import ACCOUNT, KEYS, Parts, Process
from sim_store import LinkToStore, Violation, Witness
from virtual_time import VirtualClock, WrongClock

from relayer.domain.namespace import Custody, LogPosition, genesis
from relayer.domain.operations import JobAccepted, Operation, OperationResult, Origin, Outcome, Put, Supersede
from relayer.domain.state import NamespaceState
from relayer.errors import QueueFull, StoreError
from relayer.log import creation
from relayer.log.collector import CollectionStage
from relayer.log.objects import FoundSlot, LogPorts
from relayer.log.replica import Replica

__all__ = ["World", "repeatable", "same", "simulate"]

# A collector does not trust the times of a listing to the second.
_SKEW = 10.0
_HOURS = 12  # collections that may be needed at the end of a schedule

# Virtual seconds; the slowest schedules take a few thousand.
PATIENCE = 100_000.0
WORKERS_AT = 30.0  # seconds into a schedule: the relayers run by then


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

    @property
    def digest(self) -> str:
        """What two runs of one schedule have in common: every request that reached the store, in order, with its time."""
        return self.memory.trace.hexdigest()

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
            (process.collector.tidy, 10 * self.plan.collect),
            (process.erase, self.plan.collect),
            (process.store_index, self.plan.index),
        ):
            process.tasks[asyncio.ensure_future(self.again(work, every))] = None
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
        memories = Memories(number, self.rng)
        if self.plan.workers_first:
            # All at one instant: a job has two ends in the log only where they share an entry.
            await self.process()
            await self.clock.sleep(max(0.0, WORKERS_AT - self.clock.monotonic()))
        for step in range(self.plan.operations):
            if self.rng.random() < 0.3:
                await self.clock.sleep(self.rng.uniform(0, self.plan.pause))
            self.raise_failure()
            wish = memories.wish(step, job_first=self.plan.workers_first)
            outcome = await self.send(wish.operation)
            if outcome.result not in wish.told:
                # Whatever happened on the way, a client gets the result of its one and only request.
                raise Violation(f"seed {self.seed}: a repeated request met its own first attempt")
            before = set(memories.live)
            wish.then()
            for record in memories.live:
                if record not in before:
                    await self.recall(record)

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
            return outcome

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
        state = NamespaceState(LogPosition(0, genesis(self.incarnation)))
        bodies: dict[bytes, bytes] = {}
        while (data := self.memory.entries.get(slots.key(state.position.seq + 1))) is not None:
            linked = await slots.link(FoundSlot(state.position.seq + 1, data), state.position)
            for item in state.apply(linked.entry, linked.digest):
                operation = item.operation
                if isinstance(operation, Put | Supersede) and item.outcome.result in {
                    OperationResult.STORED,
                    OperationResult.SUPERSEDED,
                }:
                    bodies.setdefault(operation.stored.record, operation.stored.sealed)
        return state, bodies

    async def check_erasures(self, fresh: Process) -> None:
        """When everybody else is dead, every erasure is confirmed in the end, and nothing of it is left."""
        for process in self.processes:
            if process is not None:
                process.stop_care()
        for _ in range(_HOURS):
            await fresh.erase()
            tidied = await fresh.collector.tidy()
            over = tidied.stage.value == CollectionStage.NOTHING.value and not tidied.slots + tidied.objects
            if over and not await fresh.reports.pending():
                break
            await self.clock.sleep(max(self.plan.grace, _SKEW) + 1)
        else:
            raise Violation(f"seed {self.seed}: an erasure was never confirmed, or a collection never over")
        self.raise_failure()
        erased = fresh.replica.state.erased
        if set(fresh.shown) & erased:
            raise Violation(f"seed {self.seed}: an erased memory is shown")
        if any(self.memory.bodies_of(self.incarnation, erased)):
            raise Violation(f"seed {self.seed}: an erased memory has a body in the store")

    def check_once(self, process: Process) -> None:
        if any(count != 1 for count in process.changes.values()):
            raise Violation(f"seed {self.seed}: something was applied twice")


def same(left: NamespaceState, right: NamespaceState) -> bool:
    """Compare by content: a negative control's classes are not the source's."""
    return left == right or _content(left._said()) == _content(right._said())


def _content(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return {name: _content(getattr(value, name)) for name in fields}
    if isinstance(value, msgspec.Struct):
        return {name: _content(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_content(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def simulate(seed: int, plan: Plan | None = None, parts: Parts | None = None) -> World:
    """Run one schedule; raises `Violation` if a promise was broken in it, with the command that repeats it."""
    world = World(seed, plan or Plan.of(seed), parts or Parts())
    with repeatable(seed, f"--plan {world.plan.name}"):
        virtual_time.run(world.run())
    return world


@contextmanager
def repeatable(seed: int, options: str) -> Iterator[None]:
    """Have what a schedule raises say how to run the same one again, and let nothing be collected in the middle of it.

    A schedule makes little garbage, and looking for it again and again takes a fifth of its time.
    """
    gc.disable()
    try:
        yield
    except Exception as error:
        first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        again = f"PYTHONPATH=tests/simulation python tests/simulation/replay.py {options} {seed}"
        first.add_note(f"seed {seed}; the same schedule again: {again}")
        raise first from error
    finally:
        gc.enable()
