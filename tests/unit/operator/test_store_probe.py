"""The probe passes what keeps the promises and names the one that a store breaks."""

from __future__ import annotations

import asyncio

import pytest
from doubles.faulty_store import Faults, FaultyStore
from doubles.seeded_randomness import SeededRandomness

from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.errors import BrokenPromise, StoreMisconfigured, StoreUnavailable, VersionsHidden
from relayer.log.objects import LogPorts
from relayer.operator.probe import KEPT_MS, RACERS, ROUNDS, probe, probe_erasure, probe_unless_known
from relayer.ports import Changed, Created, CreateOutcome, Exists, Found, GetOutcome, SwapOutcome, Swapped
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import RecordingStore

CLOCK = FakeClock()


class IgnoresCreateConditions(MemoryStore):
    async def create(self, key: str, data: bytes) -> CreateOutcome:
        await self.delete(key)
        return await super().create(key, data)


class IgnoresSwapConditions(MemoryStore):
    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        await self.delete(key)
        created = await super().create(key, data)
        assert isinstance(created, Created)
        return Swapped(created.etag, created.store_time)


class RacyCreate(MemoryStore):
    """Looks first and writes later, as a server without a lock does."""

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        if isinstance(await self.get(key), Found):
            return Exists(0)
        await asyncio.sleep(0)
        await self.delete(key)
        return await super().create(key, data)


class RacySwap(MemoryStore):
    """Compares first and writes later."""

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        found = await self.get(key)
        if not isinstance(found, Found) or found.etag != etag:
            return Changed(0)
        await asyncio.sleep(0)
        current = await self.get(key)
        assert isinstance(current, Found)
        return await super().swap(key, data, current.etag)


class SwapsWhatIsAbsent(MemoryStore):
    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        outcome = await super().swap(key, data, etag)
        return Swapped("etag", 0) if not await self.versions(key) else outcome


class ForgetsNothing(MemoryStore):
    async def delete(self, key: str) -> None:
        return


class LosesWrites(MemoryStore):
    async def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = await super().create(key, data)
        await self.delete(key)
        return outcome


class FindsWhatIsAbsent(MemoryStore):
    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        outcome = await super().get(key, byte_range=byte_range, if_none_match=if_none_match)
        return outcome if isinstance(outcome, Found) else Found(b"", "", 0)


class NobodyWins(MemoryStore):
    async def create(self, key: str, data: bytes) -> CreateOutcome:
        return Exists(0)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (IgnoresCreateConditions, "8 of 8 concurrent creates of one name succeeded"),
        (IgnoresSwapConditions, "a swap of an absent object answers swapped"),
        (RacyCreate, "concurrent creates of one name succeeded"),
        (RacySwap, "concurrent swaps from one etag succeeded"),
        (SwapsWhatIsAbsent, "a swap of an absent object answers swapped"),
        (ForgetsNothing, "a read of a deleted object answers found"),
        (LosesWrites, "succeeded|does not give what"),
        (FindsWhatIsAbsent, "a read of an object that was never written answers found"),
        (NobodyWins, "none of 8 concurrent creates"),
    ],
)
async def test_a_broken_promise_is_named(broken: type[MemoryStore], promise: str) -> None:
    store = broken(CLOCK)
    with pytest.raises(StoreMisconfigured, match=promise):
        await probe(store, SeededRandomness(1))
    assert broken is ForgetsNothing or [info.key async for info in store.list("")] == []


async def test_a_correct_store_passes_and_is_left_clean() -> None:
    store = RecordingStore(MemoryStore(CLOCK))
    report = await probe(store, SeededRandomness(1))
    assert (report.store, report.races, report.undecided) == ("memory", 2 * ROUNDS, 0)
    assert report.requests > 2 * ROUNDS * RACERS
    assert store.count() == store.count(prefix="probe/")
    assert [info.key async for info in store.list("")] == []


@pytest.mark.parametrize("seed", range(5))
async def test_missing_answers_never_make_a_correct_store_look_broken(seed: int) -> None:
    store = FaultyStore(
        MemoryStore(CLOCK), clock=CLOCK, seed=seed, faults=Faults(unanswered=0.2, lost=0.1, throttled=0.0)
    )
    report = await probe(store, SeededRandomness(seed))
    assert report.races == 2 * ROUNDS
    assert report.undecided > 0


async def test_a_store_that_answers_nothing_is_unavailable_not_broken() -> None:
    store = FaultyStore(MemoryStore(CLOCK), clock=CLOCK, seed=1, faults=Faults(lost=1))
    with pytest.raises(StoreUnavailable, match="no clear answer"):
        await probe(store, SeededRandomness(1))


class HidesVersions(MemoryStore):
    kept = False

    async def versions(self, key: str) -> int:
        raise VersionsHidden("may not be listed", kept=self.kept)


class HidesKeptVersions(HidesVersions):
    kept = True


class KeepsVersionsForEver(MemoryStore):
    async def versions(self, key: str) -> int:
        return 2 * await super().versions(key)

    async def purge(self, key: str) -> int:
        raise StoreMisconfigured("access denied")


class PurgesTheNewestOnly(MemoryStore):
    async def versions(self, key: str) -> int:
        return await super().versions(key) + 1


async def test_rights_over_versions_that_are_missing_but_not_needed_yet_are_reported_and_not_refused() -> (
    None
):
    missing = await probe_erasure(HidesVersions(CLOCK), SeededRandomness(1))
    assert missing == "may not be listed"
    assert (await probe(HidesVersions(CLOCK), SeededRandomness(1))).missing == missing


@pytest.mark.parametrize("store", [HidesKeptVersions, KeepsVersionsForEver])
async def test_versions_that_cannot_be_destroyed_are_refused(store: type[MemoryStore]) -> None:
    with pytest.raises(StoreMisconfigured, match="keeps versions") as caught:
        await probe_erasure(store(CLOCK), SeededRandomness(1))
    assert caught.value.code == "versions_stay"
    assert "s3:DeleteObjectVersion" in caught.value.fix


async def test_a_purge_that_leaves_versions_is_a_broken_promise() -> None:
    with pytest.raises(BrokenPromise, match="versions left"):
        await probe_erasure(PurgesTheNewestOnly(CLOCK), SeededRandomness(1))


async def test_nothing_is_missing_where_everything_can_be_destroyed() -> None:
    store = MemoryStore(CLOCK)
    assert await probe_erasure(store, SeededRandomness(1)) is None
    assert [info.key async for info in store.list("")] == []


# A passed probe counts for a week, for one server and one version; a failed one never.
def _ports(store, clock: FakeClock, key: bytes = b"k" * 32) -> LogPorts:
    return LogPorts(store, clock, SeededRandomness(1), RelayerKeys.derive(key))


async def test_a_second_start_within_a_week_asks_once(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    assert await probe_unless_known(ports, "1.0") is not None
    clock.jump(KEPT_MS / 1000 - 1)
    store.clear()
    assert await probe_unless_known(ports, "1.0") is None
    assert store.count() == 1


async def test_after_a_week_it_is_probed_again_and_recorded_anew(
    store: RecordingStore, clock: FakeClock
) -> None:
    ports = _ports(store, clock)
    await probe_unless_known(ports, "1.0")
    clock.jump(KEPT_MS / 1000)
    assert await probe_unless_known(ports, "1.0") is not None
    assert await probe_unless_known(ports, "1.0") is None


async def test_a_record_of_the_future_does_not_count(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    clock.jump(60)
    await probe_unless_known(ports, "1.0")
    clock.jump(-60)
    assert await probe_unless_known(ports, "1.0") is not None


async def test_another_version_or_another_key_asks_anew(store: RecordingStore, clock: FakeClock) -> None:
    await probe_unless_known(_ports(store, clock), "1.0")
    assert await probe_unless_known(_ports(store, clock), "1.1") is not None
    assert await probe_unless_known(_ports(store, clock, b"x" * 32), "1.0") is not None


async def test_always_means_always(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    for _ in range(2):
        assert await probe_unless_known(ports, "1.0", always=True) is not None


async def test_a_failed_probe_is_not_remembered(clock: FakeClock) -> None:
    store = IgnoresCreateConditions(clock)
    for _ in range(2):
        with pytest.raises(BrokenPromise):
            await probe_unless_known(_ports(store, clock), "1.0")
    assert [info.key async for info in store.list("")] == []


async def test_a_forged_record_does_not_count(store: RecordingStore, clock: FakeClock) -> None:
    ports = _ports(store, clock)
    await probe_unless_known(ports, "1.0")
    [key] = [info.key async for info in store.list("probed/")]
    found = await store.get(key)
    assert isinstance(found, Found)
    await store.swap(key, found.data[:-1] + bytes([found.data[-1] ^ 1]), found.etag)
    assert await probe_unless_known(ports, "1.0") is not None
    # The forgery was replaced.
    assert await probe_unless_known(ports, "1.0") is None


async def test_only_the_record_stays_and_everything_is_below_its_prefixes(
    store: RecordingStore, clock: FakeClock
) -> None:
    await probe_unless_known(_ports(store, clock), "1.0")
    assert store.count() == store.count(prefix="probe") > 0
    [key] = [info.key async for info in store.list("")]
    assert key.startswith("probed/")


async def test_each_kept_promise_is_told_as_it_is_kept(clock: FakeClock) -> None:
    told: list[str] = []
    with pytest.raises(BrokenPromise):
        await probe(IgnoresCreateConditions(clock), SeededRandomness(1), kept=told.append)
    assert len(told) == 1
    await probe(MemoryStore(clock), SeededRandomness(1), kept=told.append)
    assert len(told) == 6
