"""What tests of erasure look at: every body that a store holds, in old versions too, whoever might still name it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from itertools import count
from typing import Any

import msgspec
from doubles.stepping_store import Fate, SteppingStore
from log_world import ACCOUNT, World, settle

from relayer.adapters.memory_store import MemoryStore
from relayer.domain.bodies import take_out
from relayer.domain.operations import Erase, Origin, Put, Stored, decode_entry
from relayer.errors import StoreUnavailable
from relayer.log.collector import GRACE_MS, Collector
from relayer.log.erasure import ErasureReports, MemoryEraser, SeenReport, report_of
from relayer.log.objects import Layout, LogPorts, ObjectLocation, ObjectSealer
from relayer.log.replica import Replica
from relayer.log.segments import open_pack, pack_place
from relayer.ports import Created, CreateOutcome, ObjectStore, SwapOutcome, Swapped
from relayer.testing.fake_clock import FakeClock
from relayer.wire.sealing import ObjectType

HOUR = GRACE_MS / 1000
CANARY = b"canary"

_numbers = count(1)


class VersionedStore(MemoryStore):
    """A memory store that keeps what is replaced or deleted, as a bucket with versions does, until it is purged."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.history: dict[str, list[bytes]] = defaultdict(list)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = await super().create(key, data)
        if isinstance(outcome, Created):
            self.history[key].append(data)
        return outcome

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        outcome = await super().swap(key, data, etag)
        if isinstance(outcome, Swapped):
            self.history[key].append(data)
        return outcome

    async def versions(self, key: str) -> int:
        return len(self.history.get(key, ()))

    async def purge(self, key: str) -> int:
        await super().purge(key)
        return len(self.history.pop(key, ()))


class ErasingWorld(World):
    """A namespace over a store with versions."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: VersionedStore = VersionedStore(self.clock)

    def eraser(self, replica: Replica, ports: LogPorts | None = None) -> MemoryEraser:
        ports = ports or self.ports()
        return MemoryEraser(ports, replica, Collector(ports, ACCOUNT, self.incarnation).run)

    async def begin(self, replica: Replica, erasure: bytes) -> SeenReport:
        return await ErasureReports(self.ports()).begin(report_of(ACCOUNT, "research", replica, erasure))

    async def resumed(self, store: ObjectStore | None = None) -> SeenReport:
        """Go on with the one report there is, on a relayer that has just started."""
        ports = self.ports(store)
        reports = ErasureReports(ports)
        (key,) = await reports.pending()
        seen = await reports.read(key)
        assert seen is not None
        replica = Replica(ports, ACCOUNT, self.incarnation)
        await replica.reload()
        return await self.eraser(replica, ports).run(seen)

    def bodies(self) -> dict[str, list[bytes]]:
        """Return every body of every version of every object of the log, by key."""
        sealer = ObjectSealer(self.ports())
        found: dict[str, list[bytes]] = {}
        for key, versions in self.memory.history.items():
            for data in versions:
                raws: list[bytes] = []
                if key.startswith(Layout.entries(self.incarnation)):
                    place = ObjectLocation(ObjectType.ENTRY, ACCOUNT, self.incarnation, key)
                    raws += decode_entry(sealer.unseal(place, data)).operations
                if key.startswith(Layout.segments(self.incarnation)):
                    pack = pack_place(sealer, ACCOUNT, self.incarnation, key)
                    raws += [raw for linked in open_pack(data, pack) for raw in linked.entry.operations]
                bodies = [body for raw in raws for _, body in take_out(raw)[1] if body]
                found.setdefault(key, []).extend(bodies)
        return found

    def holding(self, body: bytes = CANARY) -> list[str]:
        """Return the keys of which a version holds a body with these bytes in it."""
        return [key for key, bodies in self.bodies().items() if any(body in one for one in bodies)]


async def crashed(work: Coroutine[Any, Any, object], store: SteppingStore, after: int, fate: Fate) -> bool:
    """Run a relayer over a store, killed after so many requests; whether it came to its end before."""
    working = asyncio.create_task(work)
    for number in range(after + 1):
        waiting = asyncio.create_task(store.wait_for())
        await asyncio.wait([waiting, working], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            waiting.cancel()
            return working.exception() is None
        await store.step(fate=Fate.PROCEED if number < after else fate)
    await settle()
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled() or isinstance(working.exception(), StoreUnavailable | None)
    return False


def canary(text: str = "secret", **changes: object) -> Put:
    """Return a memory that is to be erased."""
    number = b"\xff" + next(_numbers).to_bytes(15, "big")
    stored = Stored(number, text.encode(), CANARY + b" text", CANARY + b" vector")
    return Put(Origin(b"author", number), msgspec.structs.replace(stored, **changes))


def erase(*puts: Put) -> Erase:
    number = b"\xfe" + next(_numbers).to_bytes(15, "big")
    return Erase(Origin(b"author", number), tuple(put.stored.record for put in puts))
