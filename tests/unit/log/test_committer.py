import asyncio
import dataclasses

import pytest
from doubles.faulty_store import Faults, FaultyStore
from doubles.stepping_store import Fate, SteppingStore
from log_world import World, compact, drop_slots, entry, put, settle, store_entry

from relayer.domain.operations import (
    Close,
    Entry,
    JobAccepted,
    JobFinished,
    OperationResult,
    Origin,
    Put,
    Refusal,
    Stored,
    decode_entry,
    encode_stored,
)
from relayer.errors import (
    NamespaceClosed,
    QueueFull,
    Refused,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRequired,
)
from relayer.log.namespace_log import CommitterLimits
from relayer.log.replica import Replica
from relayer.ports import CreateOutcome, Found, Throttled
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.fields import Consistency


class FailingOnce:
    """Raises ``error`` at the first create, and lets everything else through."""

    def __init__(self, inner, error: Exception) -> None:
        self._inner = inner
        self._error: Exception | None = error

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return await self._inner.create(key, data)


async def entries(world: World, replica: Replica) -> list[Entry]:
    """Return what is in the log, as stored."""
    found: list[Entry] = []
    while isinstance(answer := await world.memory.get(replica.slots.key(len(found) + 1)), Found):
        place = replica.slots._place(len(found) + 1)
        found.append(decode_entry(replica.slots._sealer.unseal(place, answer.data)))
    return found


async def gated(world: World, limits: CommitterLimits | None = None):
    """Return a writer whose requests wait for the test from now on."""
    store, replica = await world.gated()
    committer = world.committer(replica, store, limits)
    committer.start()
    return store, replica, committer


async def test_what_is_queued_during_a_create_goes_into_the_next_entry_together(world: World) -> None:
    store, replica, committer = await gated(world)
    first = asyncio.create_task(committer.submit([put()]))
    await store.wait_for()
    later = [asyncio.create_task(committer.submit([put()])) for _ in range(5)]
    await settle()
    assert [request.operation for request in store.pending] == ["create"]  # one in flight

    await store.step()
    await store.wait_for()
    assert first.done()
    await store.step()
    await asyncio.gather(*later)
    assert [len(made.operations) for made in await entries(world, replica)] == [1, 5]


async def test_i1_of_two_writers_of_a_slot_one_gets_it_and_the_other_the_next(world: World) -> None:
    store_a, replica_a, a = await gated(world)
    store_b, replica_b, b = await gated(world)
    ours, theirs = put(), put()
    first = asyncio.create_task(a.submit([ours]))
    second = asyncio.create_task(b.submit([theirs]))
    await store_a.wait_for()
    await store_b.wait_for()
    assert store_a.pending[0].key == store_b.pending[0].key
    store_b.open_gates()
    await second
    store_a.open_gates()
    await first

    assert [list(made.operations) for made in await entries(world, replica_a)] == [
        [encode_stored(theirs)],
        [encode_stored(ours)],
    ]
    await replica_b.catch_up()
    assert replica_a.state == replica_b.state


async def test_two_replicas_that_race_store_everything_once_and_agree(world: World) -> None:
    slow = FaultyStore(world.memory, clock=world.clock, seed=1, faults=Faults(latency=(0.001, 0.01)))
    writers = [await world.clock.run(world.writer(slow)) for _ in range(2)]
    operations = [[put() for _ in range(20)] for _ in writers]

    async def send(committer, mine: list[Put]) -> list[OperationResult]:
        return [(await committer.submit([operation]))[0].result for operation in mine]

    async def race() -> list[list[OperationResult]]:
        return await asyncio.gather(*(send(w[1], mine) for w, mine in zip(writers, operations, strict=True)))

    results = await world.clock.run(race())
    assert {result for row in results for result in row} == {OperationResult.STORED}
    for replica, _ in writers:
        await world.clock.run(replica.catch_up())
    assert writers[0][0].state == writers[1][0].state
    assert len(writers[0][0].state.records) == 40
    assert sum(len(made.operations) for made in await entries(world, writers[0][0])) == 40


async def test_i3_dead_slot_is_not_acknowledged(world: World) -> None:
    store, _, committer = await gated(world)
    operation = put()
    answer = asyncio.create_task(committer.submit([operation]))
    await store.wait_for()
    # While the create is under way, the slot is taken, compacted and collected; the create then succeeds.
    other, others = await world.writer()
    await others.submit([put()])
    await compact(world, other)
    await drop_slots(world)
    world.clock.jump(3700)
    store.open_gates()

    assert (await answer)[0].seq == 2
    await other.catch_up()
    assert other.state.outcome_of(operation) == (await answer)[0]


async def test_i3_a_recent_answer_of_the_manifest_saves_the_check(world: World) -> None:
    store = RecordingStore(world.memory)
    _, committer = await world.writer(store)
    store.clear()
    await committer.submit([put()])
    assert [call.operation for call in store.calls] == ["create"]


async def test_i3_an_entry_whose_check_failed_is_answered_from_the_log(world: World) -> None:
    store, replica, committer = await gated(world)
    answer = asyncio.create_task(committer.submit([put()]))
    await store.wait_for()
    world.clock.jump(3700)
    await store.step()  # created
    await store.wait_for()
    await store.step(fate=Fate.LOST)  # the manifest cannot be read
    assert not answer.done()
    store.open_gates()
    assert (await world.clock.run(_wait(answer)))[0].result is OperationResult.STORED
    assert len(await entries(world, replica)) == 1


async def _wait(task):
    return await task


async def test_i5_nothing_is_answered_before_it_is_applied(world: World) -> None:
    store, replica, committer = await gated(world)
    operation = put()
    told: list[bool] = []
    answer = asyncio.create_task(committer.submit([operation]))
    replica.subscribe(lambda _: told.append(answer.done()), lambda _: None)
    await store.wait_for()
    store.open_gates()
    await answer
    assert told == [False]
    assert operation.stored.record in replica.state.records


@pytest.mark.parametrize("fate", [Fate.APPLIED_UNANSWERED, Fate.LOST, Fate.DELAYED])
async def test_i5_an_unknown_outcome_neither_loses_nor_doubles(world: World, fate: Fate) -> None:
    store, replica, committer = await gated(world)
    operation = put()
    answer = asyncio.create_task(committer.submit([operation]))
    await store.wait_for()
    await store.step(fate=fate)
    assert not answer.done()
    store.open_gates()

    assert (await world.clock.run(_wait(answer)))[0].result is OperationResult.STORED
    while store.delayed:
        await store.apply_delayed()
    made = await entries(world, replica)
    assert [list(one.operations) for one in made] == [[encode_stored(operation)]]


async def test_i5_a_late_write_that_wins_the_slot_answers_only_what_it_holds(world: World) -> None:
    store, replica, committer = await gated(world)
    early, late = put(), put()
    first = asyncio.create_task(committer.submit([early]))
    await store.wait_for()
    await store.step(fate=Fate.DELAYED)
    second = asyncio.create_task(committer.submit([late]))
    await store.wait_for()
    await store.step()  # the slot is absent
    await settle()
    await world.clock.advance(0.1)
    await store.wait_for()
    assert store.pending[0].operation == "create"
    await store.apply_delayed()
    store.open_gates()

    await world.clock.run(_wait(asyncio.gather(first, second)))
    assert [list(one.operations) for one in await entries(world, replica)] == [
        [encode_stored(early)],
        [encode_stored(late)],
    ]


async def test_i6_a_cancelled_request_does_not_cancel_its_commit(world: World) -> None:
    store, replica, committer = await gated(world)
    in_flight, queued = put(), put()
    first = asyncio.create_task(committer.submit([in_flight]))
    await store.wait_for()
    second = asyncio.create_task(committer.submit([queued]))
    await settle()
    first.cancel()
    second.cancel()
    store.open_gates()
    await settle()

    assert {in_flight.stored.record, queued.stored.record} <= replica.state.records.keys()
    assert (await committer.submit([put()]))[0].result is OperationResult.STORED


async def test_i7_a_repeated_operation_gets_its_first_outcome_and_writes_nothing(world: World) -> None:
    replica, committer = await world.writer()
    operation = put()
    first = await committer.submit([operation])
    again = put("something else", nonce=operation.origin.nonce)
    assert await committer.submit([again]) == first
    assert len(await entries(world, replica)) == 1


async def test_i7_a_repeat_through_another_replica_gets_the_first_outcome(world: World) -> None:
    _, a = await world.writer()
    _, b = await world.writer()
    operation = put()
    assert await a.submit([operation]) == await b.submit([operation])


async def test_i7_a_repeated_idempotency_key_gets_the_first_outcome_or_a_conflict(world: World) -> None:
    _, committer = await world.writer()
    first = await committer.submit([put("tea", key=b"k")])
    assert await committer.submit([put("tea", key=b"k")]) == first
    assert (await committer.submit([put("coffee", key=b"k")]))[0].refusal is Refusal.IDEMPOTENCY_CONFLICT


async def test_i10_every_attempt_has_a_batch_id_of_its_own(world: World) -> None:
    store, replica, committer = await gated(world)
    answer = asyncio.create_task(committer.submit([put()]))
    batches = set()
    for _ in range(3):
        while not store.pending or store.pending[0].operation != "create":
            await settle()
            await world.clock.advance(1)
            if store.pending and store.pending[0].operation == "get":
                await store.step()
        place = replica.slots._place(1)
        batches.add(decode_entry(replica.slots._sealer.unseal(place, store.pending[0].data)).batch)
        await store.step(fate=Fate.LOST)
    assert len(batches) == 3
    store.open_gates()
    await world.clock.run(_wait(answer))


async def test_i11_entry_times_are_the_stores_and_never_go_back(world: World) -> None:
    replica, committer = await world.writer()
    times = []
    for jump in (0, 100, -5000, 10):
        world.clock.jump(jump)
        await world.clock.advance(3)  # so that the next slot is read, and with it the time
        await committer.submit([put()])
        times.append((await entries(world, replica))[-1].time)
    assert times == sorted(times)
    assert times[1] - times[0] == 103_000
    assert times[2] == times[1]


async def test_a_view_older_than_two_seconds_reads_the_next_slot_before_it_writes(world: World) -> None:
    _, other = await world.writer()
    store = RecordingStore(world.memory)
    _, committer = await world.writer(store)
    await other.submit([put()])
    await world.clock.advance(2.1)
    store.clear()

    await committer.submit([put()])
    assert [call.operation for call in store.calls] == ["get", "get", *["get"] * 15, "create"]


async def test_i12_a_replica_that_needs_an_upgrade_does_not_append(world: World) -> None:
    replica, committer = await world.writer()
    await store_entry(world, replica, entry(replica, b"\x91\xa5grant"))
    for _ in range(2):
        with pytest.raises(UpgradeRequired):
            await committer.submit([put()])
    assert not isinstance(await world.memory.get(replica.slots.key(2)), Found)


async def test_an_operation_that_does_not_decode_is_refused_and_blocks_nobody(world: World) -> None:
    _, committer = await world.writer()
    wrong = Put(Origin(b"a", b"n"), Stored(record="text", content=b"c", sealed=b"s"))
    outcomes = await committer.submit([wrong, put()])
    assert [outcome.refusal for outcome in outcomes] == [Refusal.MALFORMED, None]


async def test_the_end_of_an_unknown_job_is_refused_once_and_for_all(world: World) -> None:
    _, committer = await world.writer()
    outcome = (await committer.submit([JobFinished(b"nobody")]))[0]
    assert outcome.refusal is Refusal.JOB_OVER
    assert await committer.submit([JobFinished(b"nobody")]) == [outcome]


async def test_after_a_close_everything_is_refused_without_an_entry(world: World) -> None:
    replica, committer = await world.writer()
    await committer.submit([Close(Origin(b"a", b"n"))])
    outcomes = await committer.submit([put(), JobAccepted(Origin(b"a", b"m"), b"job", "extract")])
    assert {outcome.refusal for outcome in outcomes} == {Refusal.CLOSED}
    assert len(await entries(world, replica)) == 1


async def test_a_vanished_manifest_is_not_written_past(world: World) -> None:
    replica, committer = await world.writer()
    await world.memory.delete(replica.manifest._key)
    await world.clock.advance(601)
    with pytest.raises(NamespaceClosed):
        await committer.submit([put()])


async def test_the_operations_of_a_submission_share_an_entry_and_keep_their_order(world: World) -> None:
    replica, committer = await world.writer()
    operations = [put() for _ in range(30)]
    outcomes = await committer.submit(operations)
    assert [outcome.subject for outcome in outcomes] == [operation.stored.record for operation in operations]
    assert [len(made.operations) for made in await entries(world, replica)] == [30]


async def test_a_submission_too_large_for_an_entry_goes_in_order_over_several(world: World) -> None:
    limits = CommitterLimits(entry_bytes=4096)
    replica, committer = await world.writer(limits=limits)
    operations = [put(size=1000) for _ in range(7)]
    outcomes = await committer.submit(operations)

    assert [outcome.subject for outcome in outcomes] == [operation.stored.record for operation in operations]
    made = await entries(world, replica)
    assert [raw for one in made for raw in one.operations] == [encode_stored(one) for one in operations]
    assert len(made) > 1
    for seq in range(1, len(made) + 1):
        answer = await world.memory.get(replica.slots.key(seq))
        assert isinstance(answer, Found)
        assert len(answer.data) <= limits.entry_bytes


async def test_a_submission_that_fits_an_entry_is_not_split(world: World) -> None:
    store, replica, committer = await gated(world, CommitterLimits(entry_operations=4))
    first = asyncio.create_task(committer.submit([put()]))
    await store.wait_for()
    later = [asyncio.create_task(committer.submit([put() for _ in range(3)])) for _ in range(2)]
    await settle()
    store.open_gates()
    await asyncio.gather(first, *later)
    assert [len(made.operations) for made in await entries(world, replica)] == [1, 3, 3]


@pytest.mark.parametrize("kind", ["record", "result of a job", "operation", "all together"])
async def test_what_never_fits_is_refused_as_too_large_before_anything_is_written(
    world: World, kind: str
) -> None:
    limits = CommitterLimits(record_bytes=1000, entry_bytes=4000, queue_operations=3)
    replica, committer = await world.writer(limits=limits)
    stored = Stored(b"r", b"c", b"x" * 1001)
    operations = {
        "record": [Put(Origin(b"a", b"n"), stored)],
        "result of a job": [JobFinished(b"job", stored=(stored,))],
        "operation": [JobAccepted(Origin(b"a", b"n"), b"job", "extract", sealed=b"x" * 4000)],
        "all together": [put() for _ in range(4)],
    }[kind]
    with pytest.raises(Refused) as caught:
        await committer.submit(operations)
    assert caught.value.code == "too_large"
    assert await entries(world, replica) == []


@pytest.mark.parametrize("limits", [CommitterLimits(queue_operations=3), CommitterLimits(queue_bytes=700)])
async def test_a_full_queue_asks_to_come_back_and_what_waits_is_committed(
    world: World, limits: CommitterLimits
) -> None:
    store, replica, committer = await gated(world, limits)
    waiting = [asyncio.create_task(committer.submit([put()])) for _ in range(3)]
    await settle()
    with pytest.raises(QueueFull) as caught:
        await committer.submit([put(size=200)])
    assert caught.value.retry_after > 0
    store.open_gates()
    await asyncio.gather(*waiting)
    await committer.submit([put()])
    assert len(replica.state.records) == 4


@pytest.mark.parametrize("error", [StoreFull("no room"), StoreMisconfigured("no permission")])
async def test_a_store_that_needs_an_operator_fails_that_batch_alone(world: World, error: Exception) -> None:
    store = SteppingStore(world.memory)
    failing = FailingOnce(store, error)
    replica = await world.reloaded(world.memory)
    committer = world.committer(replica, failing)
    committer.start()
    first = asyncio.create_task(committer.submit([put()]))
    with pytest.raises(type(error)):
        await first
    store.open_gates()
    assert (await committer.submit([put()]))[0].result is OperationResult.STORED


async def test_who_queued_during_a_failing_create_is_not_failed_with_it(world: World) -> None:
    faulty = FaultyStore(world.memory, clock=world.clock, seed=0)
    store = SteppingStore(faulty)
    replica = await world.reloaded(world.memory)
    committer = world.committer(replica, store)
    committer.start()
    faulty.full = True
    first = asyncio.create_task(committer.submit([put()]))
    await store.wait_for()
    second = asyncio.create_task(committer.submit([put()]))
    await settle()
    await store.step()
    with pytest.raises(StoreFull):
        await first
    faulty.full = False
    store.open_gates()
    assert (await second)[0].result is OperationResult.STORED


async def test_a_defect_reaches_the_submitter_and_does_not_end_the_committer(world: World) -> None:
    replica = await world.reloaded(world.memory)
    committer = world.committer(replica, FailingOnce(world.memory, ZeroDivisionError()))
    committer.start()
    with pytest.raises(ZeroDivisionError):
        await committer.submit([put()])
    assert (await committer.submit([put()]))[0].result is OperationResult.STORED


async def test_a_store_that_stays_down_is_given_up_on_in_bounded_time_and_no_promise_is_made(
    world: World,
) -> None:
    store = FaultyStore(world.memory, clock=world.clock, seed=0)
    _, committer = await world.writer(store)
    store.down = True
    started = world.clock.monotonic()
    with pytest.raises(StoreUnavailable, match="outcome is unknown, and a retry with the same key is safe"):
        await world.clock.run(committer.submit([put()]))
    assert 30 <= world.clock.monotonic() - started < 33
    store.down = False
    assert (await world.clock.run(committer.submit([put()])))[0].result is OperationResult.STORED


async def test_a_store_that_only_throttles_is_said_to_have_written_nothing(world: World) -> None:
    store = FaultyStore(world.memory, clock=world.clock, seed=0)
    _, committer = await world.writer(store)
    store.faults = Faults(throttled=1.0)
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        await world.clock.run(committer.submit([put()]))


async def test_a_throttled_write_waits_as_long_as_the_store_asks(world: World) -> None:
    class Busy(FailingOnce):
        async def create(self, key: str, data: bytes) -> CreateOutcome:
            if self._error is not None:
                self._error = None
                return Throttled(5.0)
            return await self._inner.create(key, data)

    replica = await world.reloaded(world.memory)
    committer = world.committer(replica, Busy(world.memory, StoreUnavailable("busy")))
    committer.start()
    started = world.clock.monotonic()
    await world.clock.run(committer.submit([put()]))
    assert 5.0 <= world.clock.monotonic() - started < 8.0


async def test_close_commits_what_is_queued_and_takes_nothing_more(world: World) -> None:
    store, replica, committer = await gated(world)
    waiting = [asyncio.create_task(committer.submit([put()])) for _ in range(3)]
    await store.wait_for()
    closing = asyncio.create_task(committer.close(5))
    await settle()
    with pytest.raises(StoreUnavailable):
        await committer.submit([put()])
    store.open_gates()
    await closing
    assert all(task.result()[0].result is OperationResult.STORED for task in waiting)
    assert len(replica.state.records) == 3


async def test_close_does_not_wait_for_ever_and_says_that_the_outcome_is_unknown(world: World) -> None:
    store, _, committer = await gated(world)
    waiting = asyncio.create_task(committer.submit([put()]))
    await store.wait_for()
    await committer.close(0.01)
    with pytest.raises(StoreUnavailable, match="outcome is unknown"):
        await waiting


async def test_nothing_is_taken_before_the_start(world: World) -> None:
    replica = await world.reloaded()
    with pytest.raises(StoreUnavailable):
        await world.committer(replica).submit([put()])


async def test_an_empty_submission_is_answered_at_once(world: World) -> None:
    _, committer = await world.writer()
    assert await committer.submit([]) == []


async def test_done_means_recallable_through_another_replica(world: World) -> None:
    _, committer = await world.writer()
    other = await world.reloaded()
    for _ in range(5):
        operation = put()
        await committer.submit([operation])
        await other.read(Consistency.STRONG)
        assert operation.stored.record in other.state.records


class AnotherClock:
    """Answers reads with times that are ``ahead_ms`` off."""

    def __init__(self, inner, ahead_ms: int) -> None:
        self._inner = inner
        self.ahead_ms = ahead_ms

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def get(self, key: str, **options: object):
        answer = await self._inner.get(key, **options)
        return dataclasses.replace(answer, store_time=answer.store_time + self.ahead_ms)


@pytest.mark.parametrize("ahead_ms", [301_000, -301_000])
async def test_while_the_store_s_clock_is_minutes_away_nothing_is_written_and_later_all_is_well(
    world: World, ahead_ms: int
) -> None:
    store = AnotherClock(world.memory, 0)
    replica, committer = await world.writer(store)
    store.ahead_ms = ahead_ms
    await replica.catch_up()
    with pytest.raises(StoreMisconfigured, match="clock") as caught:
        await committer.submit([put()])
    assert caught.value.code == "clock"
    assert not await entries(world, replica)

    store.ahead_ms = 299_000
    await replica.catch_up()
    assert [outcome.result for outcome in await committer.submit([put()])] == [OperationResult.STORED]


async def test_i8_a_log_that_is_ahead_of_the_clock_takes_what_is_signed_now_and_nothing_older(
    world: World,
) -> None:
    world.clock.jump(365 * 86_400)
    replica, committer = await world.writer()
    await committer.submit([put(expires=world.clock.now_ms() + 60_000)])
    ahead = replica.state.last_time
    world.clock.jump(-365 * 86_400)
    later, second = await world.writer()

    signed = put(nonce=b"n" * 16, expires=world.clock.now_ms() + 60_000)
    long_over = put(expires=world.clock.now_ms() - 301_000)
    fresh = await second.submit([signed])
    assert [outcome.result for outcome in fresh] == [OperationResult.STORED]
    assert await second.submit([signed]) == fresh
    assert [outcome.refusal for outcome in await second.submit([long_over])] == [Refusal.EXPIRED]
    assert later.state.last_time == ahead


async def test_a_log_of_its_clock_keeps_what_was_signed_as_it_came(world: World) -> None:
    replica, committer = await world.writer()
    operation = put(expires=world.clock.now_ms() + 60_000)
    await committer.submit([operation])
    [entry] = await entries(world, replica)
    assert entry.operations == (encode_stored(operation),)
