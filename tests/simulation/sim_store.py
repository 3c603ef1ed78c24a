"""What stands between a simulated relayer and the objects: a slow link, a record of requests, a witness of every entry."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import msgspec
from doubles.faulty_store import FaultyStore
from doubles.seeded_randomness import SeededRandomness
from virtual_time import VirtualClock

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.operations import JobFinished, Put, Supersede, decode_entry, decode_operation
from relayer.log.erasure import ErasureKind, ErasureReport
from relayer.log.objects import Layout, LogPorts, ObjectLocation, ObjectSealer
from relayer.log.segments import open_pack, pack_place
from relayer.ports import Clock, Created, CreateOutcome, Found, GetOutcome, ObjectInfo, SwapOutcome, Swapped
from relayer.wire.sealing import ObjectType, context, unseal


class Violation(AssertionError):
    """A promise was broken in this schedule."""


def body_of(record: bytes) -> bytes:
    """Return what stands for the text of a record, wherever it is kept."""
    return b"x" * 40 + record[1:]


@dataclass(frozen=True)
class Kept:
    """A version of an object."""

    data: bytes
    modified: int


class Witness(MemoryStore):
    """The objects with all their versions, and what was ever written to a slot for the first time.

    Attributes:
        entries: by key, the bytes that a slot was first created with.
        kept: by key, the versions that nobody purged.
        trace: grows with every request that reached the store, when it did, and what it brought.
        violation: a slot that was created a second time although its entry still counted (I1, I2), or an erasure that
            was confirmed too early.
    """

    def __init__(self, clock: Clock, account: str, keys: RelayerKeys) -> None:
        super().__init__(clock)
        self.entries: dict[str, bytes] = {}
        self.kept: dict[str, list[Kept]] = {}
        self.trace = hashlib.sha256()
        self.violation: Violation | None = None
        self._account = account
        self._keys = keys
        self._sealer = ObjectSealer(LogPorts(self, clock, SeededRandomness(0), keys))

    def _note(self, what: str, key: str, data: bytes = b"") -> None:
        self.trace.update(f"{self._clock.monotonic():.9f} {what} {key} ".encode())
        self.trace.update(hashlib.sha256(data).digest())

    def _keep(self, key: str, data: bytes) -> None:
        self.kept.setdefault(key, []).append(Kept(data, self._clock.now_ms()))

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        self._note("get", key, str((byte_range, if_none_match)).encode())
        return await super().get(key, byte_range=byte_range, if_none_match=if_none_match)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        self._note("swap", key, data + etag.encode())
        outcome = await super().swap(key, data, etag)
        if isinstance(outcome, Swapped):
            self._keep(key, data)
        return outcome

    async def delete(self, key: str) -> None:
        self._note("delete", key)
        await super().delete(key)

    async def versions(self, key: str) -> int:
        self._note("versions", key)
        return len(self.kept.get(key, ()))

    async def purge(self, key: str) -> int:
        self._note("purge", key)
        await super().purge(key)
        return len(self.kept.pop(key, ()))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self._note("list", prefix)
        async for row in super().list(prefix):
            yield row

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        self._note("create", key, data)
        outcome = await super().create(key, data)
        if isinstance(outcome, Created):
            self._keep(key, data)
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
        below = Layout.incarnation(report.incarnation)
        if report.what is ErasureKind.NAMESPACE and any(
            found.startswith(below) and version.modified < report.confirmed_at
            for found, versions in self.kept.items()
            for version in versions
        ):
            self.violation = Violation(f"{key}: confirmed, and something of the namespace is left")
        gone = {*report.records, *report.derived}
        if any(self.bodies_of(report.incarnation, gone, before=report.confirmed_at)):
            self.violation = Violation(f"{key}: confirmed, and a body is left")

    def bodies_of(
        self, incarnation: bytes, records: AbstractSet[bytes], before: int | None = None
    ) -> Iterator[str]:
        """Yield the keys of objects of which a version holds a body of one of these records."""
        for key, versions in self.kept.items():
            for version in versions:
                if before is not None and version.modified >= before:
                    continue
                if key.startswith(Layout.indexes(incarnation)):
                    # What a simulated relayer stores of its view is not sealed.
                    if any(body_of(record) in version.data for record in records):
                        yield key
                elif any(
                    self._holds(raw, records) for raw in self._operations(incarnation, key, version.data)
                ):
                    yield key

    def _holds(self, raw: bytes, records: AbstractSet[bytes]) -> bool:
        match decode_operation(raw):
            case Put(stored=one) | Supersede(stored=one):
                stored = (one,)
            case JobFinished(stored=several):
                stored = several
            case _:
                return False
        return any(one.record in records and one.sealed for one in stored)

    def _operations(self, incarnation: bytes, key: str, data: bytes) -> Iterator[bytes]:
        if key.startswith(Layout.entries(incarnation)):
            place = ObjectLocation(ObjectType.ENTRY, self._account, incarnation, key)
            yield from decode_entry(self._sealer.unseal(place, data)).operations
        if key.startswith(Layout.segments(incarnation)):
            pack = pack_place(self._sealer, self._account, incarnation, key)
            for linked in open_pack(data, pack):
                yield from linked.entry.operations

    async def _watermark(self, key: str) -> int:
        incarnation = bytes.fromhex(key.split("/")[1])
        at = Layout.manifest(incarnation)
        found = await self.get(at)
        if not isinstance(found, Found):
            return sys.maxsize  # it was erased: nothing in it counts
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
