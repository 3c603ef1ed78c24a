"""Concurrency and load control: deadlines, single-flight, concurrent calls, backoff, rate limits, fair scheduling.

`Deadline` bounds each step of a request. `SingleFlight` lets concurrent callers share one run of an action, `together` and
`in_windows` run coroutines concurrently, and `Backoff` spaces out retries. `Buckets` limit how much an account may ask for.
Three classes divide a limited resource fairly among accounts: `FairSemaphore` long-lived requests, `FairExecutor` a background
thread for CPU-bound work, and `FairEmbedder` the embedding model. Work waits for the last two in a `FairQueue`.

Everything here belongs to one event loop and must be called on its thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any, Generic, TypeVar, cast

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.errors import AccountBusy, DeadlineExceeded, QueueFull, RelayerError
from relayer.ports import Clock, CrossEncoder, Embedder, EmbeddingModel, Randomness
from relayer.wire.calls import doubled


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which a request must be answered.

    Attributes:
        at: the deadline on the clock's monotonic scale, in seconds.
    """

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """Return the deadline that is ``seconds`` from now on ``clock``."""
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Return the remaining seconds, never less than 0."""
        return max(0.0, self.at - self.clock.monotonic())

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Cancel the block if it runs past the deadline; ``name`` says what it does in the error message.

        Raises:
            DeadlineExceeded: the time is up, or the block raised a `TimeoutError` of its own.
        """
        try:
            async with asyncio.timeout(self.remaining()):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(name) from error


class SingleFlight:
    """Shares the runs of an action among concurrent callers, one run at a time.

    A caller never joins a run that is already in progress: that run may have read too early to see what the caller must
    see. It waits for that run to end, and shares the next one with all callers that waited.

    The action runs in the task of one of its callers. If that task is cancelled, the next waiting caller starts a run of
    its own, so cancelling one request does not fail another.
    """

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._failed = 0
        self._failure: RelayerError | None = None

    async def run(self) -> None:
        """Return after a run that started after this call; raises `RelayerError`: what that run raised."""
        wanted = self._begun + 1
        async with self._turn:
            if self._done >= wanted:
                return
            if self._failed >= wanted and self._failure is not None:
                raise self._failure.with_traceback(None)
            self._begun += 1
            number = self._begun
            try:
                await self._action()
            except RelayerError as error:
                self._failed, self._failure = number, error
                raise
            self._done = number


AT_ONCE = 16  # store requests in progress at the same time on behalf of one caller

T = TypeVar("T")
U = TypeVar("U")


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results in order.

    If one of them fails, the others are cancelled and its error is raised, not an exception group. If several fail at the
    same time, a `RelayerError` is preferred, because that is what callers handle.
    """
    if len(works) == 1:
        return [await works[0]]  # the common case needs no task
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [task.result() for task in tasks]


async def in_windows(
    work: Callable[[U], Coroutine[Any, Any, T]], items: Iterable[U], size: int = AT_ONCE
) -> list[T]:
    """Call a coroutine function for every item and return the results in order.

    A batch of ``size`` items runs concurrently, and the next one starts when all of it has ended. Raises as `together`;
    later batches are then not started.
    """
    rest, results = list(items), list[T]()
    for start in range(0, len(rest), size):
        results += await together([work(item) for item in rest[start : start + size]])
    return results


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines with results of different types, as `together` does."""
    first, second = await together([one, other])
    return cast("T", first), cast("U", second)


async def cancel_all(works: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all have ended, whatever they raise then."""
    works = list(works)
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    for error in errors.exceptions:
        if isinstance(error, RelayerError):
            return error
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


def fraction(randomness: Randomness) -> float:
    """Draw a number from [0, 1)."""
    return int.from_bytes(randomness.bytes(4), "big") / 2**32


def uneven(randomness: Randomness) -> float:
    """Draw a factor from [0.5, 1.5) to multiply a pause by, so that replicas do not act in lockstep."""
    return 0.5 + fraction(randomness)


class Backoff:
    """Computes delays between attempts of writers that compete for the same object.

    Uses exponential backoff with full jitter: each delay is drawn from zero to a limit that starts at 50 ms and doubles up
    to 2 s. Of the variants simulated in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), this one spreads
    competing writers best.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._failures = 0

    def reset(self) -> None:
        """Start over with short delays, after a success."""
        self._failures = 0

    def next_delay(self, at_least: float = 0.0) -> float:
        """Count a failed attempt and return the seconds to wait before the next one.

        The seconds ``at_least`` for which the store asked are added to the random delay.
        """
        cap = doubled(_FIRST_SECONDS, self._failures, _LONGEST_SECONDS)
        self._failures += 1
        return at_least + cap * fraction(self._randomness)


@dataclass(frozen=True, slots=True)
class Limit:
    """The parameters of a token bucket.

    Attributes:
        capacity: tokens in a full bucket, which is the largest possible burst.
        per_second: tokens added each second, which is the sustained rate.
    """

    capacity: float
    per_second: float


class Buckets:
    """Rate limiters that share one `Limit`: a token bucket for each name, full at first.

    Of ``most`` names, the least recently used one is forgotten, and its bucket is full again.
    """

    def __init__(self, limit: Limit, *, most: int = 20_000) -> None:
        self._limit = limit
        # The tokens of each bucket, and the time at which they were counted.
        self._levels: LRUCache[str, tuple[float, float]] = LRUCache(most)

    def wait(self, name: str, cost: float, now: float) -> float:
        """Return the seconds until a bucket holds ``cost`` tokens, 0 if it does. ``now`` is monotonic, in seconds.

        A cost above the capacity only waits for a full bucket, so that an expensive request is delayed but not refused for
        ever.
        """
        return self.wait_at(self.level(name, now), cost)

    def wait_at(self, level: float, cost: float) -> float:
        """Return the seconds to wait as `wait` does, for a bucket that holds ``level`` tokens."""
        lacking = min(cost, self._limit.capacity) - level
        # Refilling adds rounding errors, and a caller that waited exactly the returned time must be let in.
        return lacking / self._limit.per_second if lacking > 1e-6 else 0.0

    def spend(self, name: str, cost: float, now: float) -> None:
        """Take tokens, down to an empty bucket; a negative cost returns tokens, up to a full one."""
        self.leave(name, self.level(name, now) - cost, now)

    def leave(self, name: str, level: float, now: float) -> None:
        """Set the tokens of a bucket; a negative ``level`` counts as 0."""
        self._levels[name] = (max(0.0, level), now)

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, name: str, now: float) -> float:
        """Return how many tokens a bucket holds."""
        level, at = self._levels.get(name, (self._limit.capacity, now))
        return min(self._limit.capacity, level + max(0.0, now - at) * self._limit.per_second)


def take(buckets: Sequence[tuple[Buckets, str]], cost: float, now: float) -> float:
    """Take ``cost`` tokens from each of several buckets, or from none of them.

    Args:
        buckets: pairs of a set of buckets and a name in it, for example an account's bucket and its agent's.
        cost: in tokens.
        now: monotonic, in seconds.

    Returns:
        0 if the tokens were taken, else the seconds after which it can be tried again.
    """
    levels = [table.level(name, now) for table, name in buckets]
    wait = max([table.wait_at(level, cost) for (table, _), level in zip(buckets, levels, strict=True)])
    if not wait:
        for (table, name), level in zip(buckets, levels, strict=True):
            table.leave(name, level - cost, now)
    return wait


_RETRY_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class OpenRequestSlot:
    """The right to keep a long-lived request open. Once it is ``lost``, the request must respond soon with what it has."""

    lost: bool = False


class FairSemaphore:
    """Limits how many long-lived requests are open, in total and for each account.

    If all permits are taken, the oldest permit of the account that holds the most is revoked in favour of an account that
    holds fewer. A revoked request is not interrupted: it has to look at `OpenRequestSlot.lost`.

    ``what`` names the requests in the error message ("polls").
    """

    def __init__(self, what: str, *, most: int, per_account: int) -> None:
        self._what = what
        self._most = most
        self._per_account = per_account
        # The permits of each account, oldest first. Accounts without permits are removed.
        self._taken: dict[str, list[OpenRequestSlot]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    @contextmanager
    def place(self, account: str) -> Iterator[OpenRequestSlot]:
        """Hold a permit while the block runs.

        Raises:
            QueueFull: the account has its share, or all permits are taken and no account has noticeably more.
        """
        own = len(self._taken.get(account, ()))
        if own >= self._per_account or (len(self) >= self._most and not self._displace(own)):
            raise QueueFull(f"too many {self._what} are open", retry_after=_RETRY_SECONDS)
        place = OpenRequestSlot()
        self._taken.setdefault(account, []).append(place)
        try:
            yield place
        finally:
            self._give_back(account, place)

    def _displace(self, own: int) -> bool:
        richest = max(self._taken, key=lambda account: len(self._taken[account]))
        oldest = self._taken[richest][0]
        # The other account must still have at least as many permits afterwards, or two accounts would evict each other for
        # ever.
        if len(self._taken[richest]) <= own + 1:
            return False
        oldest.lost = True
        self._give_back(richest, oldest)
        return True

    def _give_back(self, account: str, place: OpenRequestSlot) -> None:
        places = self._taken.get(account, [])
        if place in places:
            places.remove(place)
        if not places:
            self._taken.pop(account, None)


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester on whose behalf the current task works.

    Attributes:
        account: the id of an account, empty for the relayer itself.
        interactive: whether the task is interactive: a user waits for the result, as for a query but not for a capture.
    """

    account: str = ""
    interactive: bool = False


current_requester: ContextVar[Requester] = ContextVar("current_requester", default=Requester())  # noqa: B039 - frozen


# After this many interactive items in a row, a waiting background item goes first.
_INTERACTIVE_IN_A_ROW = 8
# Beyond this number of accounts, those that have used no more than the others are forgotten.
_MOST_ACCOUNTS = 1024


class FairQueue(Generic[T]):
    """Items that wait for a limited resource, and are taken from the queue in fair order.

    Interactive items go before background items. Among items of one kind, the account that has used the resource least goes
    first, and the items of one requester keep their order. Usage is counted in virtual time: an account that was idle starts
    at the current virtual time, so it neither saves up for later nor pays for having been alone.
    """

    def __init__(self) -> None:
        # Requesters without items are removed.
        self._items: dict[Requester, deque[T]] = {}
        self._used: dict[str, float] = {}
        self._now = 0.0
        self._in_a_row = 0

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def waiting(self, account: str) -> int:
        """Return the number of items of an account."""
        return sum(len(self._items.get(Requester(account, kind), ())) for kind in (True, False))

    def put(self, requester: Requester, item: T) -> None:
        """Add an item behind the others of its requester."""
        self._items.setdefault(requester, deque()).append(item)

    def discard(self, requester: Requester, item: T) -> None:
        """Remove an item, unless it has been taken."""
        if item in self._items.get(requester, ()):
            self._items[requester].remove(item)
            self._drop_empty(requester)

    def take(
        self, may_run: Callable[[Requester, T], bool] = lambda _, __: True
    ) -> tuple[Requester, T] | None:
        """Remove and return the next item, with its requester; None if no item may be taken.

        Args:
            may_run: returns whether the first item of a requester may be taken now.
        """
        first = self._in_a_row < _INTERACTIVE_IN_A_ROW
        for interactive in (first, not first):
            ready = [
                requester
                for requester, items in self._items.items()
                if requester.interactive is interactive and may_run(requester, items[0])
            ]
            if ready:
                chosen = min(ready, key=lambda requester: self._used.get(requester.account, 0.0))
                item = self._items[chosen].popleft()
                self._drop_empty(chosen)
                self._in_a_row = self._in_a_row + 1 if interactive else 0
                return chosen, item
        return None

    def charge(self, account: str, cost: float) -> None:
        """Record that an account starts to use the resource; the unit of ``cost`` is the caller's."""
        start = max(self._used.get(account, 0.0), self._now)
        self._now = start
        self._used[account] = start + cost
        if len(self._used) > _MOST_ACCOUNTS:
            self._used = {name: used for name, used in self._used.items() if used > start}

    def _drop_empty(self, requester: Requester) -> None:
        if not self._items[requester]:
            del self._items[requester]


# Work of at most this weight is done on the event loop, where it takes well under a millisecond: ordinary requests.
_INLINE = 1024
# Text beyond ASCII takes several times as long to normalise and classify.
_OTHER_SCRIPTS = 8


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """Limits of a `FairExecutor`; weights are in characters, see `weight`, and include the work in progress.

    Attributes:
        account_works: unfinished works of one account.
        account_weight: their total weight; a single work may exceed it.
        works: unfinished works in total.
        weight: their total weight.
        slice_seconds: how long one work runs before the next one's turn; a piece is never interrupted.
        rest_seconds: how long the thread pauses for queries at most, and then no longer than it has worked in between.
        idle_seconds: how long the thread stays alive without work.
        retry_after: seconds after which a refused caller may try again.
    """

    account_works: int = 32
    account_weight: int = 32 * 1024 * 1024
    works: int = 1024
    weight: int = 256 * 1024 * 1024
    slice_seconds: float = 0.005
    rest_seconds: float = 0.1
    idle_seconds: float = 60.0
    retry_after: float = 1.0


def weight(texts: Iterable[str]) -> int:
    """Estimate the CPU time that processing texts takes, in characters of ASCII text."""
    return sum(len(text) if text.isascii() else len(text) * _OTHER_SCRIPTS for text in texts)


class _Queries:
    """Counts the queries in progress, for which the thread pauses; the context manager of each query, on the event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = threading.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    def rest(self, seconds: float) -> float:
        """Wait until no query is in progress, for ``seconds`` at most, and return the seconds waited."""
        if seconds <= 0 or self._none.is_set():
            return 0.0
        begun = perf_counter()
        self._none.wait(seconds)
        return perf_counter() - begun


@dataclass(slots=True, eq=False)
class _Work:
    """The pieces that are still to be computed, and the results so far."""

    pieces: Iterator[Any]
    account: str
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    made: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    abandoned: bool = False


class FairExecutor:
    """Computes pieces of work on one background thread, fairly among accounts.

    A work is an iterator whose items take CPU time. The thread computes items of one work for a time slice and then takes the
    next work from a `FairQueue`, which counts time slices; the works of one account take turns.

    A query needs Python's global interpreter lock a dozen times, and would each time wait until the thread gives it up. So
    the thread pauses while a block ``with pool.queries`` runs, within `ExecutorLimits.rest_seconds`.

    ``on_used`` is called on the event loop with an account and the CPU seconds that a work of it took.
    """

    def __init__(
        self, limits: ExecutorLimits | None = None, on_used: Callable[[str, float], None] = lambda _, __: None
    ) -> None:
        self._limits = limits or ExecutorLimits()
        self._on_used = on_used
        self._came = threading.Condition(threading.Lock())
        self._waiting: FairQueue[_Work] = FairQueue()
        # Number and total weight of the unfinished works of each account.
        self._held: dict[str, tuple[int, int]] = {}
        self._running = False
        self.queries = _Queries()
        # The seconds for which the thread may still pause; used by the thread alone.
        self._rest = self._limits.rest_seconds

    def __len__(self) -> int:
        return sum(works for works, _ in self._held.values())

    async def make(self, account: str, pieces: Iterable[T], weight: int) -> list[T]:
        """Return the pieces as a list, computed on the thread unless they cost next to nothing.

        If the caller is cancelled, for example by its deadline, only the piece that is being computed is finished.

        Usually, ``pieces`` is a generator; the thread may turn to another work between two pieces. ``weight`` is the estimated
        work in characters of ASCII text, see the function `weight`. Raises `QueueFull`: too much work is waiting, of this
        account or in total.
        """
        if weight <= _INLINE:
            return list(pieces)
        loop = asyncio.get_running_loop()
        work = _Work(iter(pieces), account, loop, loop.create_future())
        self._hold(account, 1, weight)
        try:
            with self._came:
                if not self._running:
                    # The thread lives while there is work, and `idle_seconds` longer, so it need not be stopped at shutdown.
                    # It is started before there is work for it, because starting a thread waits until it runs, and a thread
                    # with work takes its time to give up the interpreter.
                    self._running = True
                    threading.Thread(target=self._work, name="texts", daemon=True).start()
                self._waiting.put(Requester(account), work)
                self._came.notify()
            await work.done
        finally:
            work.abandoned = True
            self._hold(account, -1, -weight)
            self._on_used(account, work.seconds)
        return cast("list[T]", work.made)

    def _hold(self, account: str, works: int, weight: int) -> None:
        count, size = self._held.get(account, (0, 0))
        limits = self._limits
        if works > 0 and (
            count >= limits.account_works
            or (count and size + weight > limits.account_weight)
            or len(self) >= limits.works
            or sum(held for _, held in self._held.values()) + weight > limits.weight
        ):
            raise QueueFull("too many texts wait to be read", limits.retry_after)
        self._held[account] = (count + works, size + weight)
        if not count + works:
            del self._held[account]

    def _work(self) -> None:
        while (work := self._next()) is not None:
            failure: BaseException | None = None
            before = thread_time()
            try:
                over = self._advanced(work)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller of `make`
                over, failure = True, error
            work.seconds += thread_time() - before
            if over:
                # If the loop was closed in the meantime, no caller waits for the result.
                with suppress(RuntimeError):
                    work.loop.call_soon_threadsafe(_tell, work.done, failure)
            else:
                with self._came:
                    self._waiting.put(Requester(work.account), work)

    def _advanced(self, work: _Work) -> bool:
        """Compute pieces for one time slice; return whether the work is finished or abandoned."""
        worked = 0.0
        while not work.abandoned:
            self._rest -= self.queries.rest(self._rest)
            begun = perf_counter()
            try:
                work.made.append(next(work.pieces))
            except StopIteration:
                return True
            took = perf_counter() - begun
            self._rest = min(self._rest + took, self._limits.rest_seconds)
            worked += took
            if worked >= self._limits.slice_seconds:
                return work.abandoned
        return True

    def _next(self) -> _Work | None:
        """Take a work of the account whose turn it is; None after an idle time."""
        with self._came:
            self._came.wait_for(lambda: self._waiting, self._limits.idle_seconds)
            taken = self._waiting.take()
            if taken is None:
                self._running = False
                return None
            self._waiting.charge(taken[0].account, 1)
            return taken[1]


def _tell(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


# The cost of a call is counted in characters: a fixed part, and the length of each text up to what the model reads (256
# tokens are about 1,024 characters).
_CALL_COST = 128
_READ_CHARACTERS = 1024
# A query of at most 128 characters may run alongside a capture of the same account. Even if the account then occupies both
# slots, others wait for a few milliseconds only.
_SHORT = _CALL_COST + 128
# For this long after a query, one slot is kept free for the next one.
_ASKED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EmbeddingLimits:
    """Limits of `FairEmbedder`.

    Attributes:
        at_once: calls of the model in progress.
        of_account: calls of one account in progress; below ``at_once``, so that a query of another account finds the model
            free.
        waiting: calls that may wait in total.
        waiting_of_account: calls of one account that may wait.
        one_by_one: whether each text of a call is scheduled by itself, so that no call waits for longer than one text takes.
            False for a remote endpoint, which is sent all texts of a call at once.
    """

    at_once: int = 2
    of_account: int = 1
    waiting: int = 1024
    waiting_of_account: int = 64
    one_by_one: bool = True


class FairEmbedder:
    """An `Embedder` that schedules the calls of another one fairly among accounts.

    Calls wait in a `FairQueue`, which counts the characters that the model reads. The requester of a call is
    `current_requester`.
    """

    def __init__(self, embedder: Embedder, limits: EmbeddingLimits | None = None) -> None:
        self._embedder = embedder
        self._limits = limits or EmbeddingLimits()
        # Each call by its cost and the future that is set when it may start.
        self._queue: FairQueue[tuple[int, asyncio.Future[None]]] = FairQueue()
        self._running: defaultdict[Requester, int] = defaultdict(int)
        # The number of background calls in progress, and the time of the last query on the event loop's clock.
        self._bulk = 0
        self._asked = float("-inf")

    @property
    def model(self) -> EmbeddingModel:
        """The model of the embedder."""
        return self._embedder.model

    @property
    def waiting(self) -> int:
        """The number of calls that wait for the model."""
        return len(self._queue)

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """Embed texts as `Embedder.embed` does, when it is the account's turn.

        Returns:
            One row for each text, of shape (texts, dimension); of a prompt as the port defines.

        Raises:
            AccountBusy: too many calls of this account wait.
            QueueFull: too many calls wait in total.
            EmbedderUnavailable: raised by the embedder.
        """
        if len(texts) <= 1 or not self._limits.one_by_one:
            async with self.turn(texts):
                return await self._embedder.embed(texts, query=query, prompt=prompt)
        rows: list[NDArray[np.float32]] = []
        for text in texts:
            async with self.turn([text], admitted=bool(rows)):
                rows.append((await self._embedder.embed([text], query=query, prompt=prompt))[0])
        return np.stack(rows)

    async def close(self) -> None:
        """Close the embedder."""
        await self._embedder.close()

    @asynccontextmanager
    async def turn(self, texts: Sequence[str], *, admitted: bool = False) -> AsyncIterator[None]:
        """Wait for a slot of the model and hold it while the block runs; raises as `embed`.

        A call that was ``admitted``, because it has started with an earlier text, is not refused.
        """
        who = current_requester.get()
        cost = _CALL_COST + sum(min(len(text), _READ_CHARACTERS) for text in texts)
        if who.interactive:
            self._asked = asyncio.get_running_loop().time()
        if self._may_run(who, cost) and not self._queue:
            self._begin(who, cost)
        else:
            if not admitted and self._queue.waiting(who.account) >= self._limits.waiting_of_account:
                raise AccountBusy("too many texts of this account wait for the embedder", retry_after=1.0)
            if not admitted and len(self._queue) >= self._limits.waiting:
                raise QueueFull("too many texts wait for the embedder", retry_after=1.0)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.put(who, (cost, turn))
            # This call can start immediately if the waiting calls are of accounts that already run as many as they may.
            self._next()
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    # The slot was granted in the same step of the event loop in which the caller was cancelled.
                    self._end(who)
                else:
                    self._queue.discard(who, (cost, turn))
                raise
        try:
            yield
        finally:
            self._end(who)

    def _may_run(self, who: Requester, cost: int) -> bool:
        limits, running = self._limits, self._running
        if sum(running.values()) >= limits.at_once:
            return False
        own = running.get(who, 0)
        if not who.interactive or cost > _SHORT:
            own += running.get(Requester(who.account, not who.interactive), 0)
        if own >= limits.of_account:
            return False
        # Background work must leave one slot free while queries are coming in, or the next query would wait for a whole text
        # to be embedded.
        asked = asyncio.get_running_loop().time() < self._asked + _ASKED_SECONDS
        return who.interactive or not asked or self._bulk < max(1, limits.at_once - 1)

    def _begin(self, who: Requester, cost: int) -> None:
        self._queue.charge(who.account, cost)
        self._running[who] += 1
        self._bulk += not who.interactive

    def _end(self, who: Requester) -> None:
        self._running[who] -= 1
        self._bulk -= not who.interactive
        if not self._running[who]:
            del self._running[who]
        self._next()

    def _next(self) -> None:
        """Start waiting calls as long as one can start."""
        while (taken := self._queue.take(lambda who, call: self._may_run(who, call[0]))) is not None:
            who, (cost, turn) = taken
            if not turn.cancelled():
                self._begin(who, cost)
                turn.set_result(None)


class FairCrossEncoder:
    """A `CrossEncoder` that takes the same turns as the embedder whose layers it shares."""

    def __init__(self, embedder: FairEmbedder, encoder: CrossEncoder) -> None:
        self._embedder = embedder
        self._encoder = encoder

    async def scores(self, prompt: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Read as `CrossEncoder.scores` does, when it is the account's turn; raises as `FairEmbedder.embed`."""
        async with self._embedder.turn([prompt, *texts]):
            return await self._encoder.scores(prompt, texts)
