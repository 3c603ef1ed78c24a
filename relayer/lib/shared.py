"""What the workers of one relayer know together: pages of memory that a process and those it forks have in common.

Made before the fork, by the process that forks; a worker that is started later finds in them what the others wrote. Nothing
here is ever waited for longer than a few milliseconds: the callers are steps of an event loop.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from relayer.errors import QueueFull

# A holder needs some microseconds. One that takes longer was stopped in the middle; if it dies, the kernel lets go for it.
_LOCK_TRIES = 100
_LOCK_PAUSE = 0.0001
_RETRY_SECONDS = 1.0
CLIENT_DRIFT = 300
"""Seconds that the clock of a MemWal client may be off: as far as MemWal's own relayer lets it be."""


class SharedLock:
    """Excludes processes from each other. The kernel gives back what a process held that died."""

    def __init__(self) -> None:
        # A lock of fcntl(2) belongs to a process, so that forked ones, which share the descriptor, exclude each other all the same.
        self._descriptor = os.memfd_create("memrelay-lock", os.MFD_CLOEXEC)
        self._threads = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; raises `QueueFull` when a process that was stopped has it."""
        with self._threads:
            self._take()
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _take(self) -> None:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOCK_PAUSE)
            else:
                return
        raise QueueFull("another worker of this relayer holds a lock", retry_after=_RETRY_SECONDS)


_ITEM = 16
# The slice, how many digests it has, the latest slice that was forgotten on the way forwards, and others that were later than that.
_HEAD = struct.Struct("=QQQ4Q")
_FORGOTTEN, _LATER = 16, 24


class SharedSlices:
    """Sets of digests, one for each slice of time; a slice is forgotten when its place is needed for another one.

    Usually that one is ``places`` later. After a clock was ahead, it is an earlier one. A slice that was forgotten stays closed either way,
    and so do those before one that was forgotten on the way forwards.

    Each process keeps a set of its own and reads on in the shared page of the slice, where digests stand in the order in which they
    were added: what is looked up often is found in memory that is its own, and what others added is read once.

    Args:
        places: how many slices there are at a time.
        most: digests of a slice.
    """

    def __init__(self, *, places: int, most: int) -> None:
        self._most = most
        # Pages that nobody writes to take no memory, however large this is.
        self._stride = (_HEAD.size + most * _ITEM + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        self._pages = mmap.mmap(-1, places * self._stride)
        self._places = places
        self._lock = SharedLock()
        self._own: dict[int, tuple[int, set[bytes]]] = {}

    def add(self, at: int, *parts: bytes) -> bool:
        """Add to slice ``at``, a number above 0; False when some process added the same before.

        Raises:
            QueueFull: the slice is full, or was forgotten.
        """
        digest = hashlib.blake2b(b"".join(parts), digest_size=_ITEM).digest()
        start = at % self._places * self._stride
        with self._lock.held():
            count = self._count(at, start)
            read, seen = self._own.get(at, (0, set()))
            if read < count:
                new = self._pages[start + _HEAD.size + read * _ITEM : start + _HEAD.size + count * _ITEM]
                seen.update(new[item : item + _ITEM] for item in range(0, len(new), _ITEM))
            self._own[at] = count, seen
            if digest in seen:
                return False
            if count >= self._most:
                raise QueueFull("too many requests are remembered", retry_after=_RETRY_SECONDS)
            place = start + _HEAD.size + count * _ITEM
            self._pages[place : place + _ITEM] = digest
            # Last: of a process that is killed before this, the request was not answered either.
            self._put(start + 8, count + 1)
            seen.add(digest)
            self._own[at] = count + 1, seen
        return True

    def _count(self, at: int, start: int) -> int:
        """Return how many a slice has, having made its place its own; raises `QueueFull` for one that was forgotten."""
        held, count, forgotten, *later = _HEAD.unpack_from(self._pages, start)
        if held == at:
            return int(count)
        free = next((place for place, number in enumerate(later) if number <= forgotten), None)
        if at <= forgotten or at in later or (held > at and free is None):
            raise QueueFull("a slice of time is over already", retry_after=_RETRY_SECONDS)
        # First: of a process that is killed before the rest, the slice is closed, and its digests are still there.
        if held < at:
            self._put(start + _FORGOTTEN, max(forgotten, held))
        elif free is not None:
            self._put(start + _LATER + 8 * free, held)
        self._put(start + 8, 0)
        self._put(start, at)
        for over in [own for own in self._own if own <= at - self._places]:
            del self._own[over]
        return 0

    def _put(self, place: int, number: int) -> None:
        struct.pack_into("=Q", self._pages, place, number)


_LEVEL = struct.Struct("=16sdd")
_WAYS = 8
_Level: TypeAlias = tuple[float, float]


class SharedLevels:
    """Two numbers by name, as `relayer.lib.work.Buckets` keep them: how much is there, and when that was.

    Nobody waits for anybody: two processes that write one name in the same microsecond lose one of the two changes, which a rate
    can bear and a lock would cost more than. Where too many names fall together, the one that was written longest ago is forgotten.

    Args:
        most: names, about.
    """

    def __init__(self, most: int = 65_536) -> None:
        self._rows = max(1, most // _WAYS)
        self._pages = mmap.mmap(-1, self._rows * _WAYS * _LEVEL.size)

    def named(self, table: str) -> LevelsTable:
        """Return the numbers of one table: the same name in two of them is two names."""
        return LevelsTable(self, table)

    def get(self, name: str) -> _Level | None:
        """Return the numbers of a name, or None."""
        digest, row = self._place(name)
        for offset in row:
            known, level, at = _LEVEL.unpack_from(self._pages, offset)
            if known == digest:
                return level, at
        return None

    def put(self, name: str, numbers: _Level) -> None:
        """Write the numbers of a name."""
        digest, row = self._place(name)
        oldest, oldest_at = row[0], float("inf")
        for offset in row:
            known, _, at = _LEVEL.unpack_from(self._pages, offset)
            if known == digest:
                oldest = offset
                break
            # A row that was never written has the digest of nothing, and goes first.
            age = float("-inf") if not any(known) else at
            if age < oldest_at:
                oldest, oldest_at = offset, age
        _LEVEL.pack_into(self._pages, oldest, digest, *numbers)

    def _place(self, name: str) -> tuple[bytes, range]:
        digest = hashlib.blake2b(name.encode(), digest_size=_ITEM).digest()
        start = int.from_bytes(digest[:8], "big") % self._rows * _WAYS * _LEVEL.size
        return digest, range(start, start + _WAYS * _LEVEL.size, _LEVEL.size)


@dataclass(frozen=True, slots=True)
class LevelsTable:
    """The numbers of one table among those that share a `SharedLevels`."""

    levels: SharedLevels
    table: str

    def get(self, name: str, otherwise: _Level) -> _Level:
        """Return the numbers of a name, or what it has while nobody wrote any."""
        return self.levels.get(f"{self.table}/{name}") or otherwise

    def __setitem__(self, name: str, numbers: _Level) -> None:
        """Write the numbers of a name."""
        self.levels.put(f"{self.table}/{name}", numbers)

    def __len__(self) -> int:
        """How many names there may be: nobody counts, so it is never none."""
        return 1


_NOBODY = 2**63


class SharedCounts:
    """A number for each worker, which it writes and all read; whose worker is away has none."""

    def __init__(self, workers: int) -> None:
        self._pages = mmap.mmap(-1, workers * 8)
        self._numbers = memoryview(self._pages).cast("Q")
        for worker in range(workers):
            self.away(worker)

    def away(self, worker: int) -> None:
        """Say that a worker is not there."""
        self._numbers[worker] = _NOBODY

    def put(self, worker: int, number: int) -> None:
        """Write a worker's number."""
        self._numbers[worker] = number

    def least(self) -> int:
        """Return the smallest number that a worker has."""
        return min(self._numbers)


# A read's signature ends within four minutes of its arrival, in slices of a minute.
_READ_PLACES = 8
_MOST_OF_A_SLICE = 400_000


@dataclass(frozen=True, slots=True)
class Shared:
    """Everything that the workers of one relayer know together; made before the first of them.

    Attributes:
        workers: how many there are.
        drift: seconds that the clock of a MemWal client may be off.
        reads: signatures of reads that were answered.
        compat: nonces of MemWal's clients.
        levels: what rates and budgets have left.
        connections: how many each worker has.
    """

    workers: int
    drift: int = CLIENT_DRIFT
    reads: SharedSlices = field(
        default_factory=lambda: SharedSlices(places=_READ_PLACES, most=_MOST_OF_A_SLICE)
    )
    compat: SharedSlices = field(init=False)
    levels: SharedLevels = field(default_factory=SharedLevels)
    connections: SharedCounts = field(init=False)

    def __post_init__(self) -> None:
        """Make what depends on how many there are."""
        object.__setattr__(self, "connections", SharedCounts(self.workers))
        # A nonce counts as long as its stamp could: from one drift ahead of it to one behind.
        places = 2 * self.drift // 60 + 4
        object.__setattr__(self, "compat", SharedSlices(places=places, most=_MOST_OF_A_SLICE))


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place among the others.

    Attributes:
        number: from 0; the first one also does what one of them is enough for.
        shared: what they know together.
        anew: whether the relayer is being started, and not a worker in an ended one's place or beside the first.
    """

    number: int
    shared: Shared
    anew: bool = True

    @property
    def is_first(self) -> bool:
        """Whether this worker does what one of them is enough for."""
        return self.number == 0

    def has(self, connections: int) -> None:
        """Say how many connections this worker has."""
        self.shared.connections.put(self.number, connections)

    def is_crowded(self, connections: int) -> bool:
        """Whether another worker has fewer connections, and should get the next one."""
        return connections > self.shared.connections.least()
