"""A namespace over a memory store, for tests of the log."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
from doubles.seeded_randomness import SeededRandomness
from doubles.stepping_store import SteppingStore

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import MANIFEST_FORMAT, Custody, LogPosition, Manifest, Pointer, genesis
from relayer.domain.operations import ENTRY_VERSION, Entry, Origin, Put, Stored
from relayer.domain.state import NamespaceState
from relayer.log import creation
from relayer.log.compactor import Compaction, CompactionLimits, Compactor
from relayer.log.namespace_log import Committer, CommitterLimits
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.log.replica import Replica
from relayer.ports import Found, ObjectStore
from relayer.testing.fake_clock import FakeClock

ACCOUNT = "0x" + "ab" * 32
OTHER_ACCOUNT = "0x" + "cd" * 32
SECRET = bytes(range(32))
KEYS = RelayerKeys.derive(b"\x07" * 32)

_numbers = count()


def new(
    name: str = "research", account: str = ACCOUNT, custody: Custody = Custody.AGENT
) -> creation.NewNamespace:
    return creation.NewNamespace(account, name, custody)


def put(text: str = "", *, nonce: bytes = b"", size: int = 40, expires: int = 0, key: bytes = b"") -> Put:
    number = next(_numbers).to_bytes(16, "big")
    origin = Origin(b"author" * 5, nonce or number, expires=expires, idempotency=key, body=text.encode())
    return Put(origin, Stored(record=number, content=text.encode() or b"c" + number, sealed=b"x" * size))


async def settle(turns: int = 50) -> None:
    """Let every task run until it waits for something."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def ends(task: asyncio.Task[object]) -> bool:
    """Let a task run until it waits for something; whether it came to its end."""
    await settle(20)
    return task.done()


class World:
    """One store and clock; as many processes over it as a test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        self.pointer: Pointer | None = None
        self._seed = 0
        self._committers: list[Committer] = []

    def ports(self, store: ObjectStore | None = None) -> LogPorts:
        self._seed += 1
        return LogPorts(store or self.memory, self.clock, SeededRandomness(self._seed), KEYS)

    async def create(self) -> Pointer:
        opened = await creation.open_or_create(self.ports(), new(), SECRET)
        self.pointer = opened.pointer
        return opened.pointer

    @property
    def incarnation(self) -> bytes:
        assert self.pointer is not None
        return self.pointer.incarnation

    def replica(self, store: ObjectStore | None = None) -> Replica:
        return Replica(self.ports(store), ACCOUNT, self.incarnation)

    async def reloaded(self, store: ObjectStore | None = None) -> Replica:
        """Return a replica that has read the log."""
        replica = self.replica(store)
        await replica.reload()
        return replica

    async def gated(self) -> tuple[SteppingStore, Replica]:
        """Return a replica that has read the log, and whose requests wait for the test from now on."""
        store = SteppingStore(self.memory)
        replica = self.replica(store)
        loading = asyncio.create_task(replica.reload())
        while not await ends(loading):
            store.release_all()
        return store, replica

    def committer(
        self, replica: Replica, store: ObjectStore | None = None, limits: CommitterLimits | None = None
    ) -> Committer:
        made = Committer(self.ports(store), replica, limits or CommitterLimits())
        self._committers.append(made)
        return made

    async def writer(
        self, store: ObjectStore | None = None, limits: CommitterLimits | None = None
    ) -> tuple[Replica, Committer]:
        """Return a replica that has caught up through the memory store and its running committer over ``store``."""
        replica = await self.reloaded(store)
        committer = self.committer(replica, store, limits)
        committer.start()
        return replica, committer

    async def stop(self) -> None:
        for committer in self._committers:
            await committer.close(0)


def entry(
    replica: Replica, *operations: bytes, seq: int = 0, previous: bytes = b"", version: int = ENTRY_VERSION
) -> bytes:
    """Seal an entry that follows what ``replica`` has applied, or one that does not."""
    state = replica.state
    made = Entry(
        version=version,
        seq=seq or state.position.seq + 1,
        previous=previous or state.position.digest,
        batch=b"b" * 16,
        writer=b"w" * 16,
        time=state.last_time + 1,
        operations=operations,
    )
    return replica.slots.seal(made)


async def store_entry(world: World, replica: Replica, data: bytes, seq: int = 0) -> None:
    await world.memory.create(replica.slots.key(seq or replica.state.position.seq + 1), data)


async def write_manifest(world: World, manifest: Manifest) -> None:
    incarnation = world.incarnation
    key = Layout.manifest(incarnation)
    found = await world.memory.get(key)
    assert isinstance(found, Found)
    sealed = ObjectSealer(world.ports()).seal_manifest(ACCOUNT, incarnation, key, manifest)
    await world.memory.swap(key, sealed, found.etag)


def manifest_of(world: World, **changes: object) -> Manifest:
    return msgspec.structs.replace(
        Manifest(MANIFEST_FORMAT, chain_digest=genesis(world.incarnation)), **changes
    )


async def manifest_in(world: World) -> Manifest:
    """Return the manifest that the store holds."""
    return await world.replica().manifest.read()


async def compact(world: World, replica: Replica, entries: int = 1, **limits: int) -> list[Compaction]:
    """Compact until there is nothing to do; every segment has at least ``entries`` entries."""
    compactor = Compactor(world.ports(), replica, CompactionLimits(entries=entries, **limits))
    done = []
    while (compaction := await compactor.run()) is not None:
        done.append(compaction)
    return done


async def drop_slots(world: World) -> None:
    """Move the watermark to the last segment's end and delete what it covers, as a collector would in the end."""
    manifest = await manifest_in(world)
    await write_manifest(
        world,
        msgspec.structs.replace(
            manifest, gc_watermark=manifest.snap_seq, gc_epoch=manifest.gc_epoch + 1, gc_moved_at=1
        ),
    )
    replica = world.replica()
    for seq in range(1, manifest.snap_seq + 1):
        await world.memory.delete(replica.slots.key(seq))


async def plain(world: World) -> NamespaceState:
    """Replay the slots that the store holds, all of them, without replica or segments."""
    slots = world.replica().slots
    state = NamespaceState(LogPosition(0, genesis(world.incarnation)))
    while (tail := await slots.read(state.position.seq + 1, 1)).slots:
        linked = await slots.link(tail.slots[0], state.position)
        state.apply(linked.entry, linked.digest)
    return state
