"""What waits to be committed: a bounded queue of operations, answered one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from relayer.domain.entry import MAX_ENTRY, MAX_RECORD
from relayer.domain.operations import JobFinished, Operation, Put, Supersede, encode_operation
from relayer.domain.outcomes import Outcome
from relayer.domain.state import EXPIRY_GRACE_MS
from relayer.errors import QueueFull, Refused
from relayer.wire.sealing import OVERHEAD

__all__ = ["CommitterLimits", "Pending", "Submission", "SubmissionQueue"]

# The fields of an entry beside its operations, and the seal: less than this.
_ENTRY_FRAME = 512 + OVERHEAD


@dataclass(frozen=True, slots=True)
class CommitterLimits:
    """How much a committer takes, and how long it tries. Times are in seconds.

    Attributes:
        queue_operations: operations that may wait, those being written included.
        queue_bytes: their encoded size.
        entry_bytes: stored size of one entry at most.
        entry_operations: operations of one entry at most.
        record_bytes: sealed size of one record at most.
        give_up_after: how long a submission may wait for the store.
        fresh_for: how old the view of the log's head may be before a write reads the next slot first.
        retry_after: what a caller is told when the queue is full.
        most_skew_ms: how far the store's clock may be from this machine's before nothing is written; an entry from
            the future would make `apply` refuse what comes after it as expired (I8), long after the clocks are right.
    """

    queue_operations: int = 4096
    queue_bytes: int = 32 * 1024 * 1024
    entry_bytes: int = MAX_ENTRY
    entry_operations: int = 1024
    record_bytes: int = MAX_RECORD
    give_up_after: float = 30.0
    fresh_for: float = 2.0
    retry_after: float = 1.0
    most_skew_ms: int = EXPIRY_GRACE_MS


# Two of these are made for nearly every write: a struct is made in a third of the time that a dataclass takes.
class Submission(msgspec.Struct, eq=False):
    """One caller's operations and where its answer goes."""

    deadline: float
    answer: asyncio.Future[list[Outcome]]
    outcomes: list[Outcome | None]
    waiting: int
    written_perhaps: bool = False
    dropped: bool = False


class Pending(msgspec.Struct, eq=False):
    """One operation of a submission, encoded."""

    operation: Operation
    raw: bytes
    submission: Submission
    index: int


class SubmissionQueue:
    """Submissions in the order in which they came."""

    def __init__(self, limits: CommitterLimits) -> None:
        self._limits = limits
        self._items: deque[Pending] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, operations: Sequence[Operation], deadline: float) -> Submission:
        """Queue a submission.

        Raises:
            Refused: ``too_large``, an operation or record is beyond the limits or all together never fit the queue.
            QueueFull: come back later.
        """
        encoded = [encode_operation(operation) for operation in operations]
        size = sum(map(len, encoded))
        self._check_sizes(operations, encoded, size)
        if (
            len(self._items) + len(encoded) > self._limits.queue_operations
            or self._bytes + size > self._limits.queue_bytes
        ):
            raise QueueFull("too many writes wait for this namespace", self._limits.retry_after)
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        submission = Submission(deadline, answer, [None] * len(encoded), len(encoded))
        for index, (operation, raw) in enumerate(zip(operations, encoded, strict=True)):
            self._items.append(Pending(operation, raw, submission, index))
        self._bytes += size
        return submission

    def _check_sizes(self, operations: Sequence[Operation], encoded: Sequence[bytes], size: int) -> None:
        limits = self._limits
        for operation, raw in zip(operations, encoded, strict=True):
            # An operation holds its records: where it is small enough for one, so are they.
            if len(raw) > limits.record_bytes and any(
                record > limits.record_bytes for record in _record_sizes(operation)
            ):
                raise Refused("too_large", f"a memory takes at most {limits.record_bytes} sealed bytes")
            if len(raw) > limits.entry_bytes - _ENTRY_FRAME:
                raise Refused(
                    "too_large", f"an operation takes at most {limits.entry_bytes - _ENTRY_FRAME} bytes"
                )
        if size > limits.queue_bytes or len(encoded) > limits.queue_operations:
            raise Refused("too_large", "a request holds more than this relayer takes at once; split it")

    def next_batch(self) -> list[Pending]:
        """Return what the next entry holds, and leave it queued.

        A submission is split only if it does not fit an entry of its own.
        """
        batch: list[Pending] = []
        room = self._limits.entry_bytes - _ENTRY_FRAME
        for item in self._items:
            room -= len(item.raw)
            if batch and (room < 0 or len(batch) == self._limits.entry_operations):
                return _unsplit(batch, item.submission)
            batch.append(item)
        return batch

    def answer(
        self, decide: Callable[[Operation], Outcome | None], among: Sequence[Pending]
    ) -> list[Pending]:
        """Answer and remove what ``decide`` knows of ``among``, the head of the queue; return the rest."""
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
        """Return what waits, each submission once, in order."""
        return list({id(item.submission): item.submission for item in self._items}.values())

    def _replace_head(self, count: int, rest: Sequence[Pending]) -> None:
        for _ in range(count):
            self._bytes -= len(self._items.popleft().raw)
        for item in reversed(rest):
            self._items.appendleft(item)
            self._bytes += len(item.raw)


def _unsplit(batch: list[Pending], cut: Submission) -> list[Pending]:
    whole = [item for item in batch if item.submission is not cut]
    return whole or batch


def _answer(item: Pending, outcome: Outcome) -> None:
    submission = item.submission
    submission.outcomes[item.index] = outcome
    submission.waiting -= 1
    if submission.waiting == 0 and not submission.answer.done():
        submission.answer.set_result([outcome for outcome in submission.outcomes if outcome is not None])


def _record_sizes(operation: Operation) -> Iterator[int]:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            yield stored.size
        case JobFinished(stored=results):
            yield from (stored.size for stored in results)
        case _:
            return
