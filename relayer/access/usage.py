"""The usage of an account: a shared sum of what all processes write, and the exact count from the store.

`read_usage` and `write_usage` access the sum, a small object for each account. It is approximate: if a process dies, the
writes that it has not added yet are missing. `count_usage` counts pointers, manifests and the entries after them, which
takes up to three store requests for each namespace, so no client's request waits for it. `relayer.access.quotas` compares
the two in the background.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec

from relayer.domain.namespace import Pointer, PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.lib.work import in_windows
from relayer.log.creation import list_pointers
from relayer.log.objects import Layout, LogPorts, ManifestView, ObjectLocation, ObjectSealer
from relayer.ports import Created, Found, Swapped, Throttled
from relayer.wire.sealing import ObjectType

_FORMAT = 1
# The least size of a memory in an entry: its seal alone takes 104 bytes, ids and times the rest.
_LEAST_BYTES = 200
# A smaller entry does not contain a memory with a vector: it forgets or erases memories, or ends a job.
_USUAL_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of namespaces and memories (all versions, including forgotten ones), and the bytes they take in the store."""

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
        """Return a copy with 0 in place of negative numbers."""
        return Usage(max(0, self.namespaces), max(0, self.memories), max(0, self.bytes))


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    namespaces: int
    memories: int
    bytes: int
    counted_at: int


@dataclass(frozen=True, slots=True)
class SeenUsage:
    """The shared object as read from the store.

    Attributes:
        usage: the sum.
        counted_at: when it was last compared with the store, in ms of the store's time; 0 for never.
        etag: the etag of the object; None if there is no object.
        store_time: the store's time at its response, in ms.
    """

    usage: Usage
    counted_at: int
    etag: str | None
    store_time: int


async def read_usage(ports: LogPorts, account: str) -> SeenUsage:
    """Read an account's shared object. One that cannot be decrypted counts as empty, but its etag is returned.

    Raises:
        StoreError: the store did not respond.
    """
    place = _place_of(ports, account)
    found = await ports.store.get(ports.layout.store_key(place.key))
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
    """Replace an account's shared object if its etag is still ``etag`` (None: create it if there is none).

    Returns:
        The new object, or None if it is not certain that it was replaced.

    Raises:
        StoreError: the store did not respond.
    """
    place = _place_of(ports, account)
    stored = _Stored(_FORMAT, usage.namespaces, usage.memories, usage.bytes, counted_at)
    data = ObjectSealer(ports).seal(place, msgspec.msgpack.encode(stored))
    at, store = ports.layout.store_key(place.key), ports.store
    outcome = await (store.create(at, data) if etag is None else store.swap(at, data, etag))
    if isinstance(outcome, Throttled):
        await ports.clock.sleep(outcome.retry_after)
    if isinstance(outcome, Created | Swapped):
        return SeenUsage(usage, counted_at, outcome.etag, outcome.store_time)
    return None


def _place_of(ports: LogPorts, account: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.CONSTANT, "", b"", Layout.usage(ports.keys.tag("account", account)))


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """The usage of an account as counted from the store.

    The number of memories is a range, because entries that are not in a segment yet are not read to count theirs.

    Attributes:
        usage: namespaces, bytes, and about the least possible number of memories.
        most_memories: the greatest possible number of memories.
    """

    usage: Usage = Usage()
    most_memories: int = 0

    def __add__(self, other: CountedUsage) -> CountedUsage:
        return CountedUsage(self.usage + other.usage, self.most_memories + other.most_memories)

    def corrects(self, sum_before: Usage) -> Usage:
        """Return the correction of a sum of writes; its number of memories changes only if it is outside of the range."""
        memories = min(max(sum_before.memories, self.usage.memories), self.most_memories)
        return Usage(self.usage.namespaces, memories, self.usage.bytes) - sum_before


async def count_usage(ports: LogPorts, account: str) -> CountedUsage:
    """Count the usage of an account with one listing, and up to three requests for each namespace.

    Raises:
        CorruptNamespace: a pointer cannot be decrypted at its key.
        StoreError: the store did not respond.
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
        return CountedUsage()  # nothing can be written to it either until an operator has repaired it
    fewest = most = manifest.live_count
    size = manifest.live_bytes
    async for row in ports.store.list(ports.layout.store_key(ports.layout.entries(incarnation))):
        if int(row.key.rpartition("/")[2]) > manifest.snap_seq:
            fewest += row.size >= _USUAL_BYTES
            most += 1 + row.size // _LEAST_BYTES
            size += row.size
    return CountedUsage(Usage(0, fewest, size), most)
