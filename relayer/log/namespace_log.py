"""The log of one namespace as the services use it: a replica that follows it and a committer that appends to it.

`NamespaceLog` is the interface; `Committer` writes entries, and `SubmissionQueue` has the operations that wait. Only one
create request is in flight at a time, and the operations that are queued meanwhile go into the next entry. An operation is
acknowledged once it is in the applied state, with the first outcome that is recorded there (I5). It does not matter which
entry it came from, this one or an earlier attempt that was thought lost: batches are never acknowledged as such. The
committer has its own task, so that a cancelled request does not cancel a commit (I6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import msgspec

from relayer.domain.namespace import LogPosition, Manifest, Pointer
from relayer.domain.operations import (
    ENTRY_VERSION,
    MAX_ENTRY,
    MAX_RECORD,
    Entry,
    JobFinished,
    Operation,
    OperationResult,
    Outcome,
    Refusal,
    encode_stored,
    stored_in,
)
from relayer.domain.state import EXPIRY_GRACE_MS, NamespaceState
from relayer.errors import (
    NamespaceClosed,
    QueueFull,
    Refused,
    StoreFull,
    StoreMisconfigured,
    StoreThrottled,
    StoreUnavailable,
)
from relayer.lib.work import Backoff
from relayer.log.compactor import Compaction, CompactionLimits, Compactor
from relayer.log.index_file import FIRST_BYTES, IndexObjects, model_tag
from relayer.log.objects import Layout, LinkedEntry, LogPorts, ReadAhead, SeenManifest, digest_of
from relayer.log.replica import Begin, Replica
from relayer.log.segments import windows
from relayer.ports import Created, CreateOutcome, EmbeddingModel, Exists, Throttled, Unknown
from relayer.wire.sealing import OVERHEAD

# An upper bound of the bytes that an entry's other fields and the seal take in addition to its operations.
_ENTRY_FRAME = 512 + OVERHEAD


# The maximum age of the view of the log's head; if it is older, a write reads the next slot first.
_FRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CommitterLimits:
    """The limits of a committer. Times are in seconds, except for ``most_skew_ms``.

    Attributes:
        queue_operations: the maximum number of operations that wait, including those being written.
        queue_bytes: the maximum encoded size of these operations in bytes.
        entry_bytes: the maximum stored size of an entry in bytes.
        entry_operations: the maximum number of operations in an entry.
        record_bytes: the maximum sealed size of a record in bytes.
        give_up_after: how long a submission may wait for the store.
        retry_after: the delay that a caller gets when the queue is full.
        most_skew_ms: the maximum difference between the clocks of the store and this machine, in ms. Beyond it nothing is
            written: an entry with a time in the future would make `apply` refuse later operations as expired (I8), long
            after the clocks are right again.
    """

    queue_operations: int = 4096
    queue_bytes: int = 32 * 1024 * 1024
    entry_bytes: int = MAX_ENTRY
    entry_operations: int = 1024
    record_bytes: int = MAX_RECORD
    give_up_after: float = 30.0
    retry_after: float = 1.0
    most_skew_ms: int = EXPIRY_GRACE_MS


# Nearly every write creates one of each of these two, and creating a struct takes a third of the time of a dataclass.
class Submission(msgspec.Struct, eq=False):
    """The operations of one caller, with the future that gets their outcomes.

    ``deadline`` is by the clock's `monotonic`. ``waiting`` is the number of outcomes that are missing. ``written_perhaps``
    says whether an entry with one of the operations may have been written.
    """

    deadline: float
    answer: asyncio.Future[list[Outcome]]
    outcomes: list[Outcome | None]
    waiting: int
    written_perhaps: bool = False
    dropped: bool = False


class Pending(msgspec.Struct, eq=False):
    """An operation of a submission that waits to be committed, with its encoded bytes."""

    operation: Operation
    raw: bytes
    submission: Submission
    index: int


class SubmissionQueue:
    """The queue of submissions, in the order in which they arrived."""

    def __init__(self, limits: CommitterLimits) -> None:
        self._limits = limits
        self._small = min(limits.record_bytes, limits.entry_bytes - _ENTRY_FRAME, limits.queue_bytes)
        self._items: deque[Pending] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, operations: Sequence[Operation], deadline: float) -> Submission:
        """Queue a submission.

        Raises:
            Refused: ``too_large``: an operation or a record exceeds the limits, or all of them together exceed the queue's.
            QueueFull: there is no capacity now; the caller may retry later.
        """
        encoded = [encode_stored(operation) for operation in operations]
        size = len(encoded[0]) if len(encoded) == 1 else sum(map(len, encoded))
        # If all operations together are small enough, each of them is. This is true of most submissions.
        if size > self._small or len(encoded) > self._limits.queue_operations:
            self._check_sizes(operations, encoded, size)
        if (
            len(self._items) + len(encoded) > self._limits.queue_operations
            or self._bytes + size > self._limits.queue_bytes
        ):
            raise QueueFull("too many writes wait for this namespace", self._limits.retry_after)
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        submission = Submission(deadline, answer, [None] * len(encoded), len(encoded))
        for index, raw in enumerate(encoded):
            self._items.append(Pending(operations[index], raw, submission, index))
        self._bytes += size
        return submission

    def _check_sizes(self, operations: Sequence[Operation], encoded: Sequence[bytes], size: int) -> None:
        limits = self._limits
        for operation, raw in zip(operations, encoded, strict=True):
            # An operation contains its records, so if its size is within the limit of a record, theirs is too.
            if len(raw) > limits.record_bytes and any(
                record.size > limits.record_bytes for record in stored_in(operation)
            ):
                raise Refused("too_large", f"a memory takes at most {limits.record_bytes} sealed bytes")
            if len(raw) > limits.entry_bytes - _ENTRY_FRAME:
                raise Refused(
                    "too_large", f"an operation takes at most {limits.entry_bytes - _ENTRY_FRAME} bytes"
                )
        if size > limits.queue_bytes or len(encoded) > limits.queue_operations:
            raise Refused("too_large", "a request holds more than this relayer takes at once; split it")

    def next_batch(self) -> list[Pending]:
        """Return the operations for the next entry, which stay in the queue.

        A submission is split only if it does not fit into one entry.
        """
        batch: list[Pending] = []
        room = self._limits.entry_bytes - _ENTRY_FRAME
        for item in self._items:
            room -= len(item.raw)
            if batch and (room < 0 or len(batch) == self._limits.entry_operations):
                return [whole for whole in batch if whole.submission is not item.submission] or batch
            batch.append(item)
        return batch

    def answer(
        self, decide: Callable[[Operation], Outcome | None], among: Sequence[Pending]
    ) -> list[Pending]:
        """Resolve and remove the operations in ``among``, the head of the queue, that have an outcome; return the rest.

        ``decide`` returns the outcome of an operation, or None if it has none yet.
        """
        rest = []
        for item in among:
            outcome = decide(item.operation)
            if outcome is None:
                rest.append(item)
            else:
                _answer(item, outcome)
        if len(rest) < len(among):
            self._replace_head(len(among), rest)
        return rest

    def answer_all(self, head: Sequence[Pending], outcomes: Sequence[Outcome]) -> None:
        """Resolve and remove the operations at the head of the queue, each with its outcome."""
        for item, outcome in zip(head, outcomes, strict=True):
            _answer(item, outcome)
        self._replace_head(len(head), ())

    def fail(self, error_of: Callable[[Submission], Exception | None]) -> None:
        """Fail the submissions for which ``error_of`` returns an error, and remove all of their operations."""
        for submission in self.submissions():
            error = error_of(submission)
            if error is not None:
                submission.dropped = True
                if not submission.answer.done():
                    submission.answer.set_exception(error)
        self._items = deque(item for item in self._items if not item.submission.dropped)
        self._bytes = sum(len(item.raw) for item in self._items)

    def submissions(self) -> list[Submission]:
        """Return the submissions in the queue, each once, in order."""
        return list({id(item.submission): item.submission for item in self._items}.values())

    def _replace_head(self, count: int, rest: Sequence[Pending]) -> None:
        if count == len(self._items) and not rest:
            # All queued operations were written, and none was added in the meantime.
            self._items.clear()
            self._bytes = 0
            return
        for _ in range(count):
            self._bytes -= len(self._items.popleft().raw)
        for item in reversed(rest):
            self._items.appendleft(item)
            self._bytes += len(item.raw)


def _answer(item: Pending, outcome: Outcome) -> None:
    submission = item.submission
    submission.outcomes[item.index] = outcome
    submission.waiting -= 1
    if submission.waiting == 0 and not submission.answer.done():
        # No outcome is None any more, but the type does not express that.
        submission.answer.set_result(cast("list[Outcome]", submission.outcomes))


BATCH_ID_SIZE = 16
# If the log's time is ahead of the store's by less than this, a signature that was valid on arrival is valid to the log too.
_AHEAD_MS = EXPIRY_GRACE_MS // 2
_TURNS = 3
# Sealing and hashing this many bytes takes half a millisecond.
_SEALED_AT_ONCE = 128 * 1024


class Committer:
    """The only writer of a replica. Call `start` after the replica was loaded, and `close` at the end."""

    def __init__(self, ports: LogPorts, replica: Replica, limits: CommitterLimits) -> None:
        self._store = ports.store
        self._clock = ports.clock
        self._random = ports.randomness
        self._replica = replica
        self._limits = limits
        self._writer = ports.randomness.bytes(BATCH_ID_SIZE)
        self._queue = SubmissionQueue(limits)
        self._in_hand: list[Pending] = []
        self._backoff = Backoff(ports.randomness)
        self._work = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that commits submitted operations; a second call does nothing.

        Must be called on the running event loop.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="committer")

    async def submit(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Commit operations and return their outcomes, in the same order.

        They are written in one entry, or, if they are too large for one, in several, in order. An operation that is in the
        log already, or repeats an idempotency key, gets its first outcome. Cancelling the caller does not cancel them.

        Raises:
            Refused: ``too_large``; nothing was written.
            QueueFull: nothing was written.
            StoreFull, StoreMisconfigured: an operator must act.
            StoreUnavailable: not committed in time; the message says whether something may have been written. Sending
                the same operations again is safe.
            CorruptNamespace, UpgradeRequired, NamespaceClosed: the namespace cannot be served.
        """
        self._replica.refuse_if_broken()
        if self._task is None or self._task.done() or self._closing:
            raise StoreUnavailable("the log is not open for writing; nothing was written")
        if not operations:
            return []
        submission = self._queue.add(operations, self._clock.monotonic() + self._limits.give_up_after)
        if not self._work.is_set():
            self._work.set()
        return await submission.answer

    async def close(self, grace: float) -> None:
        """Accept nothing more, commit what is queued for at most ``grace`` seconds, and stop.

        Operations that are still queued then fail with `StoreUnavailable`.
        """
        self._closing = True
        self._work.set()
        if self._task is None:
            return
        _, running = await asyncio.wait([self._task], timeout=grace)
        if running:
            self._task.cancel()
            await asyncio.wait(running)

    async def _run(self) -> None:
        try:
            while self._queue or not self._closing:
                if self._queue:
                    await self._guarded_attempt()
                else:
                    self._work.clear()
                    await self._work.wait()
        finally:
            self._queue.fail(lambda submission: _gave_up(submission, "the relayer stopped"))

    async def _guarded_attempt(self) -> None:
        """Make one attempt, and decide what a failure means for the waiting submissions."""
        try:
            if await self._attempt():
                self._backoff.reset()
            else:
                await self._pause(0.0)
        except StoreThrottled as error:
            await self._pause(error.retry_after)
        except StoreUnavailable:
            await self._pause(0.0)
        except (StoreFull, StoreMisconfigured) as error:
            self._fail_batch(error)
        except Exception as error:  # noqa: BLE001 - even a bug must be reported to the callers, and not end the committer
            failure = error
            self._queue.fail(lambda _: failure)

    async def _attempt(self) -> bool:
        """Try to commit the head of the queue; returns whether there was progress in the log or in the queue."""
        replica = self._replica
        replica.refuse_if_broken()
        # Callers whose outcomes were just set may submit more now, and these operations can share this entry instead of
        # waiting for the next. This yields to the event loop and does not wait for a time, so with one writer it costs
        # microseconds (docs/performance.md).
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self._in_hand = self._queue.next_batch()
        seen = self._replica.seen_at
        if seen is None or self._clock.monotonic() - seen > _FRESH_SECONDS:
            await self._replica.catch_up()
        batch = self._in_hand = self._answer(self._in_hand)
        if not batch:
            return True
        skew = self._replica.store_time - self._clock.now_ms()
        if abs(skew) > self._limits.most_skew_ms:
            raise StoreMisconfigured(
                f"the store's clock is {abs(skew) // 1000} s {'ahead of' if skew > 0 else 'behind'} this machine's: "
                "nothing is written until they agree",
                code="clock",
                fix="set the clock that is wrong, this machine's or the store's",
            )
        built_on = replica.state.position
        state = self._replica.state
        ahead = state.last_time - self._replica.store_time
        entry = Entry(
            version=ENTRY_VERSION,
            seq=state.position.seq + 1,
            previous=state.position.digest,
            batch=self._random.bytes(BATCH_ID_SIZE),  # unique to this attempt (I10)
            writer=self._writer,
            time=max(state.last_time, self._replica.store_time),
            operations=tuple(item.raw if ahead < _AHEAD_MS else _postponed(item, ahead) for item in batch),
        )
        sealed, digest = await self._sealed(entry)
        outcome = await self._create(entry, sealed, batch)
        if isinstance(outcome, Throttled):
            raise StoreThrottled("the store asks for patience", outcome.retry_after)
        if isinstance(outcome, Created):
            replica.store_time = outcome.store_time
            # The collector may have moved the watermark past this slot between the last read and the create (I3).
            alive = await replica.vouched(entry.seq, (outcome.store_time,))
            if alive and replica.state.position == built_on:
                linked = LinkedEntry(entry, digest, len(sealed))
                applied = replica.apply(linked)
                replica.keep_written(linked)
                replica.seen_at = self._clock.monotonic()
                # These outcomes are the same as a lookup in the state would give (I5): a repeated operation was applied with
                # its first outcome.
                self._queue.answer_all(batch, [one.outcome for one in applied])
                return True
        await replica.catch_up()
        return len(self._answer(batch)) < len(batch) or replica.state.position != built_on

    async def _sealed(self, entry: Entry) -> tuple[bytes, bytes]:
        """Return a sealed entry and its digest; a large one is computed in a thread, since ciphers and hashes release the GIL."""

        def seal() -> tuple[bytes, bytes]:
            sealed = self._replica.slots.seal(entry)
            return sealed, digest_of(sealed)

        large = sum(map(len, entry.operations)) > _SEALED_AT_ONCE
        return await asyncio.to_thread(seal) if large else seal()

    async def _create(self, entry: Entry, sealed: bytes, batch: Sequence[Pending]) -> CreateOutcome:
        # This is set before the request, because a relayer that is stopped during it does not know the outcome either.
        newly = [item.submission for item in batch if not item.submission.written_perhaps]
        _mark(newly, written_perhaps=True)
        try:
            outcome = await self._store.create(self._replica.slots.key(entry.seq), sealed)
        except StoreUnavailable as error:
            return Unknown(str(error))
        except (StoreFull, StoreMisconfigured):
            _mark(newly, written_perhaps=False)
            raise
        if isinstance(outcome, Throttled | Exists):
            _mark(newly, written_perhaps=False)
        return outcome

    def _answer(self, batch: list[Pending]) -> list[Pending]:
        """Resolve the operations of a batch, the head of the queue, that are in the state; return the rest."""
        state = self._replica.state
        # Most operations are new, and one check for all of them is faster than a lookup for each.
        if not state.closed and not state.knows_any([item.operation for item in batch]):
            return batch
        return self._queue.answer(self._known, batch)

    def _known(self, operation: Operation) -> Outcome | None:
        state = self._replica.state
        outcome = state.outcome_of(operation)
        if outcome is None and state.closed:
            # The log ends with a close, so the refusal needs no entry.
            return Outcome(OperationResult.REFUSED, seq=state.position.seq, refusal=Refusal.CLOSED)
        return outcome

    def _fail_batch(self, error: StoreFull | StoreMisconfigured) -> None:
        failed = {id(item.submission) for item in self._in_hand}

        def refusal(submission: Submission) -> Exception | None:
            if id(submission) not in failed:
                return None
            return _gave_up(submission, str(error)) if submission.written_perhaps else error

        self._queue.fail(refusal)

    async def _pause(self, at_least: float) -> None:
        """Fail the submissions whose deadline has passed, and wait before the next attempt for at least ``at_least`` seconds."""
        now = self._clock.monotonic()
        self._queue.fail(
            lambda submission: (
                _gave_up(submission, "the store did not take it in time")
                if submission.deadline <= now
                else None
            )
        )
        waiting = self._queue.submissions()
        if waiting:
            left = min(submission.deadline for submission in waiting) - now
            await self._clock.sleep(min(self._backoff.next_delay(at_least), left))


def _postponed(item: Pending, ahead_ms: int) -> bytes:
    """Encode an operation for a log whose time is ahead of the store's clock by ``ahead_ms``.

    The store's clock was ahead once, and times in a log never go back, so every new signature would count as expired. Adding
    the difference to its expiry makes it valid for as long as it would have been (I8).
    """
    operation = item.operation
    if isinstance(operation, JobFinished) or not operation.origin.expires:
        return item.raw
    origin = msgspec.structs.replace(operation.origin, expires=operation.origin.expires + ahead_ms)
    return encode_stored(msgspec.structs.replace(operation, origin=origin))


def _mark(submissions: Sequence[Submission], *, written_perhaps: bool) -> None:
    for submission in submissions:
        submission.written_perhaps = written_perhaps


def _gave_up(submission: Submission, why: str) -> StoreUnavailable:
    if submission.written_perhaps:
        return StoreUnavailable(f"{why}: the outcome is unknown, and a retry with the same key is safe")
    return StoreUnavailable(f"{why}: nothing was written, and a retry is safe")


# Called before operations are appended; raises to refuse them. It returns a function that is called with their outcomes, or
# with an empty list if appending failed.
Allowance: TypeAlias = Callable[[Sequence[Operation]], Awaitable[Callable[[Sequence[Outcome]], None]]]


def begin_reads(
    ahead: ReadAhead, models: Iterable[EmbeddingModel], incarnation: bytes, manifest: Manifest
) -> None:
    """Begin to read the objects that opening a log needs: its index, the segments after the index, and the next slot.

    Opening reads them one after the other, because each could show that a different object is needed next. That is almost
    never the case, so reading all of them at the same time saves time.

    The log is then opened with ``ahead``. ``models`` are those whose index is usable, and the ``manifest`` was just read.
    """
    known = 0
    if manifest.index_key and manifest.index_model in map(model_tag, models):
        ahead.begin(manifest.index_key, (0, FIRST_BYTES))
        known = manifest.index_seq
    missing = [row for row in manifest.segments if row.last_seq > known]
    first = next(windows(missing), [])
    # The client has not proved yet that it has the namespace's key, so large segments are not read in advance. Their transfer
    # takes longer than the latency that this would save.
    if sum(row.size for row in first) <= FIRST_BYTES:
        for row in first:
            ahead.begin(row.key)
    ahead.begin(Layout.entry(incarnation, max(known, manifest.snap_seq) + 1))


class NamespaceLog:
    """A replica of one incarnation and the committer that appends to it.

    Use: construct, subscribe projections to the replica, `start`, then `append` and read the replica, finally `close`.

    Attributes:
        replica: follows the log; only the log changes its state.
        indexes: the stored states and views of this log.
    """

    def __init__(
        self,
        ports: LogPorts,
        account: str,
        pointer: Pointer,
        *,
        limits: CommitterLimits | None = None,
        begin: Begin | None = None,
        seen: SeenManifest | None = None,
        ahead: ReadAhead | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.pointer = pointer
        self._allowance = allowance
        self._ports = ports
        self.replica = Replica(ports, account, pointer.incarnation, begin, seen, ahead=ahead)
        self.indexes = IndexObjects(ports, account, self.replica, ahead)
        self._committer = Committer(ports, self.replica, limits or CommitterLimits())

    @property
    def state(self) -> NamespaceState:
        """Return the state that this process has applied so far; only the log changes it."""
        return self.replica.state

    async def start(self) -> LogPosition:
        """Read the log and accept appends. After an error nothing is running, and `start` may be called again.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `Replica.reload`.
        """
        position = await self.replica.reload()
        self._committer.start()
        return position

    async def append(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Append operations and return their outcomes; see `Committer.submit` for limits and errors.

        Raises:
            NamespaceClosed: the log has ended. A caller that retries gets the current incarnation of the name, if any.
            Refused: ``quota_exceeded``.
            StoreUnavailable: the store's clock passed the end of the request's signature before the entry was written. The caller
                signs the request again; an answer that lists refused memories would be taken for a delivery.
        """
        outcomes: list[Outcome] = []
        settle = await self._allowance(operations) if self._allowance is not None else None
        try:
            outcomes = await self._committer.submit(operations)
        finally:
            if settle is not None:
                settle(outcomes)
        for outcome in outcomes:
            if outcome.refusal is Refusal.CLOSED:
                raise NamespaceClosed("the namespace was erased")
            if outcome.refusal is Refusal.EXPIRED:
                raise StoreUnavailable(
                    "the store's clock has passed the end of this signature: nothing was written; sign the request again"
                )
        return outcomes

    def compaction_due(self, limits: CompactionLimits) -> bool:
        """Return whether the tail is long enough to be compacted, as far as this process knows."""
        self.replica.tidy_written()
        return Compactor(self._ports, self.replica, limits).due

    async def compact(self, limits: CompactionLimits) -> Compaction | None:
        """Write one segment if needed; see `Compactor.run`. Appends and reads are possible meanwhile."""
        return await Compactor(self._ports, self.replica, limits).run()

    async def close(self, grace: float = 10.0) -> None:
        """Commit the queued operations for at most ``grace`` seconds and stop; those not committed by then fail."""
        await self._committer.close(grace)
