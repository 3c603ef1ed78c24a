"""A probe that checks whether a store has the guarantees that the log depends on, and times that are recorded in the store.

"S3-compatible" does not imply correct conditional writes: some servers ignore the condition, and on others two concurrent writers
both succeed. Such a store would silently lose acknowledged memories, so it is rejected at the start. `probe` runs all checks on
fresh keys, `probe_erasure` only checks whether objects can be deleted with all their versions, and `probe_unless_known` skips the
probe if one of the last seven days is recorded in the store.

`stamp` records the present time under a key of the store, and `read_stamp` reads it. Every relayer of the store can therefore
report the last backup, on whichever machine it was made.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from relayer.errors import (
    BrokenPromise,
    CorruptNamespace,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    VersionsHidden,
)
from relayer.log.objects import Layout, LogPorts, ObjectLocation, ObjectSealer
from relayer.ports import (
    Absent,
    Changed,
    Created,
    CreateOutcome,
    Exists,
    Found,
    ObjectStore,
    Randomness,
    SwapOutcome,
    Swapped,
    Throttled,
    Unknown,
)
from relayer.wire.sealing import ObjectType

_FORMAT = 1


class Stamp(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The stored record: its format, and the time, in ms of the store's time."""

    format: int
    at: int


async def stamp(ports: LogPorts, key: str) -> None:
    """Record the store's present time under a key; raises `StoreError`: the record could not be written."""
    found = await ports.store.get(key)
    data = ObjectSealer(ports).seal(_location(key), msgspec.msgpack.encode(Stamp(_FORMAT, found.store_time)))
    outcome = (
        await ports.store.swap(key, data, found.etag)
        if isinstance(found, Found)
        else await ports.store.create(key, data)
    )
    if isinstance(outcome, Created | Swapped):
        return
    # Another process may have recorded a time at the same moment, and its record is as good.
    if (await read_stamp(ports, key))[0] < found.store_time:
        raise StoreUnavailable(f"the time could not be recorded under {key}; try again")


async def read_stamp(ports: LogPorts, key: str) -> tuple[int, int]:
    """Return the time recorded under a key, 0 for none, and the store's time of its response; both in ms.

    An unreadable record counts as none. Raises `StoreError`: the store does not respond.
    """
    found = await ports.store.get(key)
    if not isinstance(found, Found):
        return 0, found.store_time
    try:
        known = msgspec.msgpack.decode(ObjectSealer(ports).unseal(_location(key), found.data), type=Stamp)
    except (CorruptNamespace, msgspec.MsgspecError):
        return 0, found.store_time
    return known.at if known.format == _FORMAT else 0, found.store_time


def _location(key: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.CONSTANT, "", b"", key)


async def last_backup(ports: LogPorts) -> int:
    """Return when the last complete backup ended, in ms of the store's time; 0 if none is recorded. Raises as `read_stamp`."""
    return (await read_stamp(ports, Layout.backed_up()))[0]


# Real servers with race conditions were caught within two rounds of eight writers, so four rounds leave a margin.
RACERS = 8
ROUNDS = 4
# After this many writes in a row without a clear response, the store counts as unavailable, so that the probe ends.
_ATTEMPTS = 8

W = TypeVar("W", CreateOutcome, SwapOutcome)


@dataclass(slots=True)
class ProbeReport:
    """The result of a probe that passed.

    Attributes:
        store: the location of the objects, for people.
        races: number of races with exactly one winner.
        undecided: number of writes that were throttled or got no response, which is allowed.
        requests: number of requests, without cleaning up.
        missing: what erasing would need and the store denies, although it keeps no versions now; None if nothing.
    """

    store: str
    races: int = 0
    undecided: int = 0
    requests: int = 0
    missing: str | None = None


async def probe(
    store: ObjectStore, randomness: Randomness, *, kept: Callable[[str], None] = lambda _: None
) -> ProbeReport:
    """Check a store by concurrent creates and swaps of fresh keys below ``probe/``, which are removed again.

    ``kept`` is called with a description of each guarantee that the store passed.

    Raises:
        BrokenPromise: the store lacks a guarantee, which the message names.
        StoreUnavailable: so many requests were throttled or got no response that there is no result.
        StoreError: as raised by the store.
    """
    async with _probing(store, randomness) as run:
        for promise, check in (
            ("an object that was never written is missing and cannot be swapped", run.absence),
            (
                f"of {RACERS} concurrent creates of a name, one succeeds ({ROUNDS} rounds)",
                run.races_of_creates,
            ),
            (
                f"of {RACERS} concurrent swaps from an etag, one succeeds ({ROUNDS} rounds)",
                run.races_of_swaps,
            ),
            ("a deleted object is missing at once, and its name can be used again", run.create_after_delete),
        ):
            await check()
            kept(promise)
        run.report.missing = await run.erasure()
        if run.report.missing is None:
            kept("a purged object is removed with all its versions")
    return run.report


async def probe_erasure(store: ObjectStore, randomness: Randomness) -> str | None:
    """Check only whether an object can be deleted with all its versions. This takes a few requests, and is done at every start.

    Returns:
        What is missing for it on a store that keeps no versions now; None if nothing is.

    Raises:
        StoreMisconfigured: the store keeps versions and they cannot be deleted.
        StoreError: as `probe`.
    """
    async with _probing(store, randomness) as run:
        return await run.erasure()


@asynccontextmanager
async def _probing(store: ObjectStore, randomness: Randomness) -> AsyncIterator[_Probe]:
    """Return a context with a probe, and remove its keys at the end as far as possible. What remains is a few random bytes."""
    run = _Probe(store, randomness, f"probe/{randomness.bytes(8).hex()}")
    try:
        yield run
    finally:
        for key in run.used:
            try:
                await store.purge(key)
            except StoreError:
                with suppress(StoreError):
                    await store.delete(key)


class _Probe:
    def __init__(self, store: ObjectStore, randomness: Randomness, folder: str) -> None:
        self.report = ProbeReport(store.description)
        self.used: list[str] = []
        self._store = store
        self._randomness = randomness
        self._folder = folder

    async def absence(self) -> None:
        key = self._key("absent")
        await self._expect_absent(key, "an object that was never written")
        outcome = await self._settled(lambda: self._store.swap(key, self._bytes(), "0" * 64))
        self._expect(outcome, Changed, "a swap of an absent object")
        await self._expect_absent(key, "an object whose swap was refused")

    async def races_of_creates(self) -> None:
        """Check that exactly one of many concurrent creates of a name succeeds, and that reads return its bytes."""
        for number in range(ROUNDS):
            key = self._key(f"create-{number}")
            late = await self._race(key, partial(self._store.create, key), Created, "creates of one name")
            self._expect(late, Exists, "a create of a taken name")

    async def races_of_swaps(self) -> None:
        """Check that exactly one of many concurrent swaps from one etag succeeds, and that the etag is invalid afterwards."""
        for number in range(ROUNDS):
            key = self._key(f"swap-{number}")
            swap = partial(self._store.swap, key, etag=(await self._created(key)).etag)
            late = await self._race(key, swap, Swapped, "swaps from one etag")
            self._expect(late, Changed, "a swap with an old etag")

    async def _race(self, key: str, write: Callable[[bytes], Awaitable[W]], won: type, race: str) -> W:
        """Run many writes concurrently, check that one succeeded, and return the outcome of one more write after them."""
        bodies = [self._bytes() for _ in range(RACERS)]
        self.report.requests += RACERS
        outcomes = await asyncio.gather(*map(write, bodies), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        await self._judge(key, bodies, outcomes, won, race)
        return await self._settled(lambda: write(self._bytes()))

    async def create_after_delete(self) -> None:
        key = self._key("reused")
        await self._created(key)
        self.report.requests += 1
        await self._store.delete(key)
        await self._expect_absent(key, "a deleted object")
        await self._created(key)

    async def erasure(self) -> str | None:
        """Check that a purged object is gone with all its versions; return what is missing for that if there are no versions."""
        key = self._key("purged")
        first = await self._created(key)
        await self._settled(lambda: self._store.swap(key, self._bytes(), first.etag))
        several = False
        try:
            self.report.requests += 2
            several = await self._store.versions(key) > 1
            await self._store.purge(key)
        except StoreMisconfigured as error:
            if several or (isinstance(error, VersionsHidden) and error.kept):
                raise StoreMisconfigured(
                    f"{error}. This bucket keeps versions, so erased data would remain in them",
                    code="versions_stay",
                    fix="grant s3:ListBucketVersions and s3:DeleteObjectVersion, or use a bucket without versions and "
                    "without object lock",
                ) from error
            return str(error)
        await self._expect_absent(key, "a purged object")
        if await self._store.versions(key):
            raise self._broken("a purged object has versions left")
        return None

    async def _judge(
        self, key: str, bodies: Sequence[bytes], outcomes: Sequence[object], won: type, race: str
    ) -> None:
        names = Counter(type(outcome) for outcome in outcomes)
        open_ones = names[Unknown] + names[Throttled]
        self.report.undecided += open_ones
        if names[won] > 1:
            raise self._broken(f"{names[won]} of {RACERS} concurrent {race} succeeded, not one")
        found = await self._read(key)
        counted = won if names[won] else Unknown
        winners = [
            body for body, outcome in zip(bodies, outcomes, strict=True) if isinstance(outcome, counted)
        ]
        if isinstance(found, Found) and found.data in winners:
            self.report.races += 1
        elif names[won]:
            raise self._broken(f"a read after {race} does not give what the winner wrote")
        elif open_ones:
            raise StoreUnavailable(f"{self._store.description}: none of {RACERS} {race} got a clear answer")
        else:
            raise self._broken(f"none of {RACERS} concurrent {race} succeeded")

    async def _created(self, key: str) -> Found:
        """Create ``key``, read it back and return it."""
        body = self._bytes()
        outcome = await self._settled(lambda: self._store.create(key, body))
        found = await self._read(key)
        # Exists is a correct outcome if an earlier attempt was applied and its response was lost.
        if isinstance(found, Found) and found.data == body:
            return found
        self._expect(outcome, Created, "a create of a free name")
        raise self._broken("a read after a create does not give what was written")

    async def _expect_absent(self, key: str, what: str) -> None:
        found = await self._read(key)
        self._expect(found, Absent, f"a read of {what}")

    def _expect(self, outcome: object, kind: type, what: str) -> None:
        if not isinstance(outcome, kind):
            raise self._broken(
                f"{what} answers {type(outcome).__name__.lower()}, not {kind.__name__.lower()}"
            )

    async def _read(self, key: str) -> object:
        self.report.requests += 1
        return await self._store.get(key)

    async def _settled(self, write: Callable[[], Awaitable[W]]) -> W:
        """Repeat a write until the store responds clearly; raises `StoreUnavailable` if it does not."""
        for _ in range(_ATTEMPTS):
            self.report.requests += 1
            outcome = await write()
            if not isinstance(outcome, Unknown | Throttled):
                return outcome
            self.report.undecided += 1
        raise StoreUnavailable(f"{self._store.description}: {_ATTEMPTS} writes in a row got no clear answer")

    def _key(self, name: str) -> str:
        key = f"{self._folder}/{name}"
        self.used.append(key)
        return key

    def _bytes(self) -> bytes:
        return self._randomness.bytes(32)

    def _broken(self, promise: str) -> BrokenPromise:
        return BrokenPromise(
            f"{self._store.description} cannot hold the log: {promise}. "
            "Use a store with exact conditional writes (docs/operations/s3.md)"
        )


KEPT_MS = 7 * 24 * 3_600_000


async def probe_unless_known(ports: LogPorts, version: str, *, always: bool = False) -> ProbeReport | None:
    """Probe the store, or return None if a probe of the last seven days is recorded in it.

    Another ``version`` of memrelay probes again, and so does ``always``.

    Raises:
        BrokenPromise: the store lacks a guarantee that the log needs.
        StoreError: the probe could not be completed.
    """
    key = Layout.probed(ports.keys.tag("probe", ports.store.description, version))
    probed_at, now = await read_stamp(ports, key)
    if not always and probed_at and 0 <= now - probed_at < KEPT_MS:
        return None
    report = await probe(ports.store, ports.randomness)
    # The record only saves time. If it cannot be written, the next start probes again.
    with suppress(StoreError):
        await stamp(ports, key)
    return report
