"""The amount that an account keeps: counted from the store, and as a small object in which all processes add up what they write.

The object is approximate: a process that dies takes with it what it has not added yet. A count from pointers, manifests and the
entries after them takes up to three requests a namespace, so no request of a client waits for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec

from relayer.domain.namespace import Pointer, PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.lib.work import in_windows
from relayer.log.creation import list_pointers
from relayer.log.objects import Layout, LogPorts, ManifestView, ObjectSealer, Place
from relayer.ports import Created, Found, Swapped, Throttled
from relayer.wire.sealing import ObjectType

_FORMAT = 1
# A memory takes no less in an entry: its seal alone takes 104 bytes, ids and times the rest.
_LEAST_BYTES = 200
# A smaller entry has no memory with a vector: it forgets or erases, or ends a promise.
_USUAL_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Usage:
    """Namespaces, memories (all versions, forgotten ones included), and the bytes that they take in the store."""

    namespaces: int = 0
    memories: int = 0
    bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.namespaces + other.namespaces, self.memories + other.memories, self.bytes + other.bytes
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.namespaces - other.namespaces, self.memories - other.memories, self.bytes - other.bytes
        )

    def not_negative(self) -> Usage:
        """Return the same with 0 in place of negative numbers."""
        return Usage(max(0, self.namespaces), max(0, self.memories), max(0, self.bytes))


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    namespaces: int
    memories: int
    bytes: int
    counted_at: int


@dataclass(frozen=True, slots=True)
class SeenUsage:
    """The object as the store showed it.

    Attributes:
        usage: the sum.
        counted_at: when it was last compared with the store, in ms of the store's time; 0 for never.
        etag: of the object, None when there is none.
        store_time: of the answer, in ms.
    """

    usage: Usage
    counted_at: int
    etag: str | None
    store_time: int


async def read_usage(ports: LogPorts, account: str) -> SeenUsage:
    """Read an account's object; one that does not open is as good as none, except for its etag.

    Raises:
        StoreError: the store did not answer.
    """
    place = _place_of(ports, account)
    found = await ports.store.get(ports.layout.at(place.key))
    if not isinstance(found, Found):
        return SeenUsage(Usage(), 0, None, found.store_time)
    try:
        stored = msgspec.msgpack.decode(ObjectSealer(ports).unseal(place, found.data), type=_Stored)
    except (CorruptNamespace, msgspec.MsgspecError):
        return SeenUsage(Usage(), 0, found.etag, found.store_time)
    usage = Usage(stored.namespaces, stored.memories, stored.bytes)
    return SeenUsage(usage, stored.counted_at, found.etag, found.store_time)


async def write_usage(
    ports: LogPorts, account: str, usage: Usage, counted_at: int, etag: str | None
) -> SeenUsage | None:
    """Replace an account's object if it still has ``etag`` (None: if there is none); None when it was not replaced for sure.

    Raises:
        StoreError: the store did not answer.
    """
    place = _place_of(ports, account)
    stored = _Stored(_FORMAT, usage.namespaces, usage.memories, usage.bytes, counted_at)
    data = ObjectSealer(ports).seal(place, msgspec.msgpack.encode(stored))
    at, store = ports.layout.at(place.key), ports.store
    outcome = await (store.create(at, data) if etag is None else store.swap(at, data, etag))
    if isinstance(outcome, Throttled):
        await ports.clock.sleep(outcome.retry_after)
    if isinstance(outcome, Created | Swapped):
        return SeenUsage(usage, counted_at, outcome.etag, outcome.store_time)
    return None


def _place_of(ports: LogPorts, account: str) -> Place:
    return Place(ObjectType.CONSTANT, "", b"", Layout.usage(ports.keys.tag("account", account)))


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """What a store holds of an account: an entry that no segment holds yet may have several memories, and is not read for that.

    Attributes:
        usage: namespaces and bytes, and about the fewest memories that there can be.
        most_memories: that there can be.
    """

    usage: Usage = Usage()
    most_memories: int = 0

    def __add__(self, other: CountedUsage) -> CountedUsage:
        return CountedUsage(self.usage + other.usage, self.most_memories + other.most_memories)

    def corrects(self, sum_before: Usage) -> Usage:
        """Return the difference to a sum of what was written: of memories, only as far as that cannot be right."""
        memories = min(max(sum_before.memories, self.usage.memories), self.most_memories)
        return Usage(self.usage.namespaces, memories, self.usage.bytes) - sum_before


async def count_usage(ports: LogPorts, account: str) -> CountedUsage:
    """Count what an account keeps: one listing, and up to three requests for each namespace.

    Raises:
        CorruptNamespace: a pointer does not open in its place.
        StoreError: the store did not answer.
    """
    pointers = [
        pointer for pointer in await list_pointers(ports, account) if pointer.state is not PointerState.ERASED
    ]
    total = CountedUsage(Usage(namespaces=len(pointers)))
    for usage in await in_windows(partial(_usage_of, ports, account), pointers):
        total += usage
    return total


async def _usage_of(ports: LogPorts, account: str, pointer: Pointer) -> CountedUsage:
    incarnation = pointer.incarnation
    try:
        manifest = await ManifestView(ports, account, incarnation).read()
    except (CorruptNamespace, UpgradeRequired, NamespaceClosed):
        return CountedUsage()  # nothing is written to it either, until an operator looked at it
    fewest = most = manifest.live_count
    size = manifest.live_bytes
    async for row in ports.store.list(ports.layout.at(ports.layout.entries(incarnation))):
        if int(row.key.rpartition("/")[2]) > manifest.snap_seq:
            fewest += row.size >= _USUAL_BYTES
            most += 1 + row.size // _LEAST_BYTES
            size += row.size
    return CountedUsage(Usage(0, fewest, size), most)
