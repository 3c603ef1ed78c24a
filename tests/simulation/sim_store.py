"""What stands between a simulated relayer and the objects: a slow link, and a witness who sees every entry."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from virtual_time import VirtualClock

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.entry import decode_entry
from relayer.domain.operations import JobFinished, Put, decode_operation
from relayer.log.erasure_reports import ErasureReport
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer, Place
from relayer.log.segment_pack import PackPlace, open_pack
from relayer.ports import Clock, Created, CreateOutcome, Found, ObjectInfo
from relayer.testing.faulty_store import FaultyStore
from relayer.testing.seeded_randomness import SeededRandomness
from relayer.wire.sealing import ObjectType, context, unseal


class Violation(AssertionError):
    """A promise was broken in this schedule."""


class Witness(MemoryStore):
    """The objects, and what was ever written to a slot for the first time.

    Attributes:
        entries: by key, the bytes that a slot was first created with.
        violation: a slot that was created a second time although its entry still counted (I1, I2), or an erasure that
            was confirmed too early.
    """

    def __init__(self, clock: Clock, account: str, keys: RelayerKeys) -> None:
        super().__init__(clock)
        self.entries: dict[str, bytes] = {}
        self.violation: Violation | None = None
        self._account = account
        self._keys = keys
        self._sealer = ObjectSealer(LogPorts(self, clock, SeededRandomness(0), keys))

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = await super().create(key, data)
        if isinstance(outcome, Created) and key.startswith("erased/"):
            self._check_report(key, data)
        if isinstance(outcome, Created) and "/wal/" in key:
            if key in self.entries and await self._watermark(key) < int(key.rpartition("/")[2]):
                self.violation = Violation(f"{key}: a slot was used twice")
            self.entries.setdefault(key, data)
        return outcome

    def _check_report(self, key: str, data: bytes) -> None:
        """What is confirmed leaves no body in any object that was there when the store was last looked at."""
        plain = unseal(
            self._keys.metadata, ObjectType.ERASURE, context(ObjectType.ERASURE, "", b"", key), data
        )
        report = msgspec.msgpack.decode(plain, type=ErasureReport)
        gone = {*report.records, *report.derived}
        if any(self.bodies_of(report.incarnation, gone, before=report.confirmed_at)):
            self.violation = Violation(f"{key}: confirmed, and a body is left")

    def bodies_of(
        self, incarnation: bytes, records: AbstractSet[bytes], before: int | None = None
    ) -> Iterator[str]:
        """Yield the keys of objects that hold a body of one of these records."""
        for key, stored in self._objects.items():
            if before is not None and stored.modified >= before:
                continue
            for raw in self._operations(incarnation, key, stored.data):
                operation = decode_operation(raw)
                if isinstance(operation, Put):
                    stored_here = [operation.stored]
                else:
                    stored_here = list(operation.stored) if isinstance(operation, JobFinished) else []
                if any(one.record in records and one.sealed for one in stored_here):
                    yield key

    def _operations(self, incarnation: bytes, key: str, data: bytes) -> Iterator[bytes]:
        if key.startswith(Layout.entries(incarnation)):
            place = Place(ObjectType.ENTRY, self._account, incarnation, key)
            yield from decode_entry(self._sealer.unseal(place, data)).operations
        if key.startswith(Layout.segments(incarnation)):
            pack = PackPlace(self._sealer, self._account, incarnation, key)
            for linked in open_pack(data, pack):
                yield from linked.entry.operations

    async def _watermark(self, key: str) -> int:
        incarnation = bytes.fromhex(key.split("/")[1])
        at = Layout.manifest(incarnation)
        found = await self.get(at)
        assert isinstance(found, Found)
        return self._sealer.unseal_manifest(self._account, incarnation, at, found.data).gc_watermark


class LinkToStore:
    """One process's way to the store: slow in both directions, sometimes very.

    Attributes:
        frozen_until: nothing passes before this time; the process is stopped, and does not know.
    """

    def __init__(
        self, inner: FaultyStore, clock: VirtualClock, rng: random.Random, stall: float, stall_for: float
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._stall = stall
        self._stall_for = stall_for
        self.frozen_until = 0.0
        self.description = inner.description

    async def _lag(self) -> None:
        if self._rng.random() < self._stall:
            await self._clock.sleep(self._rng.uniform(1, self._stall_for))
        else:
            await self._clock.sleep(self._rng.uniform(0.001, 0.2))
        while (left := self.frozen_until - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)

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

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._lag()
        async for row in self._inner.list(prefix):
            yield row
        await self._lag()

    async def versions(self, key: str) -> int:
        return await self._pass(self._inner.versions(key))

    async def purge(self, key: str) -> int:
        return await self._pass(self._inner.purge(key))

    async def close(self) -> None:
        return None
