"""Does this store keep the promises that the log rests on?

"S3-compatible" does not imply correct conditional writes: servers exist that ignore the condition and servers on which
racers both win. A store that fails here would lose acknowledged memories, silently, so it is refused at the start.
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
from relayer.log.objects import Layout, LogPorts, ObjectSealer, Place
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

# Racy servers of the field were caught within two rounds of eight; four leave room.
RACERS = 8
ROUNDS = 4
# A probe must end: what is refused or unanswered this often in a row is a store that is down.
_ATTEMPTS = 8

W = TypeVar("W", CreateOutcome, SwapOutcome)


@dataclass(slots=True)
class ProbeReport:
    """What a passed probe saw.

    Attributes:
        store: where the objects are, for people.
        races: how many races had exactly one winner.
        undecided: how many racers were throttled or got no answer, which is allowed.
        requests: requests made, cleaning up not included.
        missing: what erasing would need and the store refuses, although it keeps no versions now; None if nothing.
    """

    store: str
    races: int = 0
    undecided: int = 0
    requests: int = 0
    missing: str | None = None


async def probe(
    store: ObjectStore,
    randomness: Randomness,
    *,
    prefix: str = "probe",
    kept: Callable[[str], None] = lambda _: None,
) -> ProbeReport:
    """Race creates and swaps on fresh keys below ``prefix`` and remove them again; ``kept`` is told each kept promise.

    Raises `BrokenPromise` with its name, `StoreUnavailable` if the store refuses or leaves unanswered so
    much that nothing can be said, and whatever else the store raises.
    """
    async with _probing(store, randomness, prefix) as run:
        for promise, check in (
            ("what was never written is absent, and cannot be swapped", run.absence),
            (f"of {RACERS} creates of one name, one wins ({ROUNDS} rounds)", run.races_of_creates),
            (f"of {RACERS} swaps from one etag, one wins ({ROUNDS} rounds)", run.races_of_swaps),
            ("a deleted name is absent at once, and free", run.create_after_delete),
        ):
            await check()
            kept(promise)
        run.report.missing = await run.erasure()
        if run.report.missing is None:
            kept("what is purged is gone with all its versions")
    return run.report


async def probe_erasure(store: ObjectStore, randomness: Randomness, *, prefix: str = "probe") -> str | None:
    """Try only whether an object can be destroyed with all its versions: a few requests, for every start.

    Returns what is missing for it on a store that keeps no versions now, None if nothing is. Raises
    `StoreMisconfigured` where versions are kept and cannot be destroyed, and otherwise as `probe`.
    """
    async with _probing(store, randomness, prefix) as run:
        return await run.erasure()


@asynccontextmanager
async def _probing(store: ObjectStore, randomness: Randomness, prefix: str) -> AsyncIterator[_Probe]:
    """Remove the keys in the end as far as possible: what stays is a few bytes of noise below the prefix."""
    run = _Probe(store, randomness, f"{prefix}/{randomness.bytes(8).hex()}")
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
        """Of many creates of one name, one wins, and its bytes are what everybody reads."""
        for number in range(ROUNDS):
            key = self._key(f"create-{number}")
            late = await self._race(key, partial(self._store.create, key), Created, "creates of one name")
            self._expect(late, Exists, "a create of a taken name")

    async def races_of_swaps(self) -> None:
        """Of many swaps from one etag, one wins, and the etag is used up."""
        for number in range(ROUNDS):
            key = self._key(f"swap-{number}")
            swap = partial(self._store.swap, key, etag=(await self._created(key)).etag)
            late = await self._race(key, swap, Swapped, "swaps from one etag")
            self._expect(late, Changed, "a swap with an old etag")

    async def _race(self, key: str, write: Callable[[bytes], Awaitable[W]], won: type, race: str) -> W:
        """Let many write at once, and one when it is over; returns that one's outcome."""
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
        """What is purged is gone with all its versions; returns what is missing where there are none to destroy."""
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
                    f"{error}. This bucket keeps versions, and what is erased would stay in them",
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
        """Create ``key`` and return it as read back."""
        body = self._bytes()
        outcome = await self._settled(lambda: self._store.create(key, body))
        found = await self._read(key)
        # Exists is right after an earlier attempt that was applied and left unanswered.
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
        """Repeat a write until the store answers it; raises `StoreUnavailable` if it does not."""
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
_FORMAT = 1


class _Record(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What is kept: the format, and the store's time of the probe in ms."""

    format: int
    probed_at: int


async def probe_unless_known(ports: LogPorts, version: str, *, always: bool = False) -> ProbeReport | None:
    """Probe the store, or return None if a probe of the last seven days is on record.

    Args:
        ports: the store and its place, and the key that seals the record.
        version: of memrelay: another version asks anew.
        always: whether to probe in any case.

    Raises:
        BrokenPromise: the store cannot hold the log.
        StoreError: nothing could be found out.
    """
    key = Layout.probed(ports.keys.tag("probe", ports.store.description, version))
    found = await ports.get(key)
    if not always and found is not None and _counts(ports, key, found):
        return None
    report = await probe(ports.store, ports.randomness, prefix=ports.layout.at("probe"))
    # Nobody must have been in the way: whoever comes next may probe again.
    with suppress(StoreError):
        await _keep(ports, key)
    return report


async def _keep(ports: LogPorts, key: str) -> None:
    at = ports.layout.at(key)
    found = await ports.store.get(at)
    record = msgspec.msgpack.encode(_Record(_FORMAT, found.store_time))
    data = ObjectSealer(ports).seal(Place(ObjectType.CONSTANT, "", b"", key), record)
    if isinstance(found, Absent):
        await ports.store.create(at, data)
    elif isinstance(found, Found):
        await ports.store.swap(at, data, found.etag)


def _counts(ports: LogPorts, key: str, found: Found) -> bool:
    try:
        opened = ObjectSealer(ports).unseal(Place(ObjectType.CONSTANT, "", b"", key), found.data)
        record = msgspec.msgpack.decode(opened, type=_Record)
    except (CorruptNamespace, msgspec.MsgspecError):
        return False
    return record.format == _FORMAT and 0 <= found.store_time - record.probed_at < KEPT_MS
