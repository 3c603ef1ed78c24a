"""How the work of requests is done together: within its time, once for all who ask, again after a pause, and in fair shares."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any, TypeVar, cast

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.errors import AccountBusy, DeadlineExceeded, QueueFull, RelayerError
from relayer.ports import Clock, Embedder, EmbeddingModel, Randomness
from relayer.wire.retries import doubled


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the clock's monotonic scale, in seconds."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """Make a deadline that many seconds from now."""
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self.clock.monotonic())

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Bound a step; raises `DeadlineExceeded` with its name when the time is up, or what is inside raises `TimeoutError`."""
        try:
            async with asyncio.timeout(self.remaining()):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(name) from error


class SingleFlight:
    """Runs ``action`` for its callers, one run at a time, in the task of one of them.

    A cancelled caller cancels nobody else: the next one that waits takes over.
    """

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._failed = 0
        self._failure: RelayerError | None = None

    async def run(self) -> None:
        """Return after a run that began after this call; raises what that run raised."""
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


AT_ONCE = 16  # requests to the store on behalf of one caller

T = TypeVar("T")
U = TypeVar("U")


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time and return their results in order.

    The first error cancels the others and is raised itself, not in a group; one of the relayer's own if there is one.
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
    """Do the work for every item, ``size`` of them at the same time; results in order, raises as `together`."""
    rest, results = list(items), list[T]()
    for start in range(0, len(rest), size):
        results += await together([work(item) for item in rest[start : start + size]])
    return results


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines of different results as `together` does."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other)
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return tasks[0].result(), tasks[1].result()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    for error in errors.exceptions:
        if isinstance(error, RelayerError):
            return error
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


def fraction(randomness: Randomness) -> float:
    """Return something from 0 to below 1."""
    return int.from_bytes(randomness.bytes(4), "big") / 2**32


def uneven(randomness: Randomness) -> float:
    """Return something between a half and one and a half: what a pause is multiplied by, so that replicas drift apart."""
    return 0.5 + fraction(randomness)


class Backoff:
    """Counts failed attempts of writers that compete, and says how long to wait after each.

    Full jitter (a uniform draw from zero to the cap of the attempt) spreads competitors best, as simulated in "Exponential
    Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._failures = 0

    def reset(self) -> None:
        """Start over after a success."""
        self._failures = 0

    def next_delay(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now; ``at_least`` is what the store asked for."""
        cap = doubled(_FIRST_SECONDS, self._failures, _LONGEST_SECONDS)
        self._failures += 1
        return at_least + cap * fraction(self._randomness)


@dataclass(frozen=True, slots=True)
class Limit:
    """Room for ``capacity`` tokens, of which ``per_second`` come back each second."""

    capacity: float
    per_second: float


class Buckets:
    """One bucket per name, full at first sight.

    Args:
        limit: of each.
        most: names; beyond, the one unused for longest is forgotten.
    """

    def __init__(self, limit: Limit, *, most: int = 20_000) -> None:
        self._limit = limit
        # What is in them, and the time of that.
        self._levels: LRUCache[str, tuple[float, float]] = LRUCache(most)

    def wait(self, name: str, cost: float, now: float) -> float:
        """Return the seconds until ``cost`` tokens are there; 0 when they are. ``now`` is monotonic, in seconds.

        A cost above the capacity waits for a full bucket, and then gets through.
        """
        return self.wait_at(self.level(name, now), cost)

    def wait_at(self, level: float, cost: float) -> float:
        """Return what `wait` does, for a bucket with so many tokens."""
        lacking = min(cost, self._limit.capacity) - level
        # Refilling adds rounding errors; a caller that waited exactly as told must get in.
        return lacking / self._limit.per_second if lacking > 1e-6 else 0.0

    def spend(self, name: str, cost: float, now: float) -> None:
        """Take tokens, down to an empty bucket; a cost below zero gives them back, up to a full one."""
        self.leave(name, self.level(name, now) - cost, now)

    def leave(self, name: str, level: float, now: float) -> None:
        """Put so many tokens into a bucket, none for less than none."""
        self._levels[name] = (max(0.0, level), now)

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, name: str, now: float) -> float:
        """Return how many tokens there are."""
        level, at = self._levels.get(name, (self._limit.capacity, now))
        return min(self._limit.capacity, level + max(0.0, now - at) * self._limit.per_second)


def take(buckets: Sequence[tuple[Buckets, str]], cost: float, now: float) -> float:
    """Take ``cost`` tokens from every bucket, or from none: returns the seconds to wait, 0 when taken."""
    levels = [table.level(name, now) for table, name in buckets]
    wait = max([table.wait_at(level, cost) for (table, _), level in zip(buckets, levels, strict=True)])
    if not wait:
        for (table, name), level in zip(buckets, levels, strict=True):
            table.leave(name, level - cost, now)
    return wait


_RETRY_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class Place:
    """A place that is taken; when it is ``lost``, whoever has it is to stop waiting soon and answer what there is."""

    lost: bool = False


class Shares:
    """At most so many places, and so many of one account; where all are taken, an account with fewer gets one of another's.

    Args:
        what: waits in them, for the text of the refusal.
        most: places in all.
        per_account: of one account.
    """

    def __init__(self, what: str, *, most: int, per_account: int) -> None:
        self._what = what
        self._most = most
        self._per_account = per_account
        # The places of each account, the oldest first.
        self._taken: dict[str, list[Place]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    @contextmanager
    def place(self, account: str) -> Iterator[Place]:
        """Take a place for as long as the context lasts.

        Raises:
            QueueFull: the account has its share.
        """
        place = self._take(account)
        try:
            yield place
        finally:
            self._give_back(account, place)

    def _take(self, account: str) -> Place:
        own = len(self._taken.get(account, ()))
        if own >= self._per_account or (len(self) >= self._most and not self._displace(own)):
            raise QueueFull(f"too many {self._what} are open", retry_after=_RETRY_SECONDS)
        place = Place()
        self._taken.setdefault(account, []).append(place)
        return place

    def _displace(self, own: int) -> bool:
        richest = max(self._taken, key=lambda account: len(self._taken[account]))
        oldest = self._taken[richest][0]
        # One less there and one more here must be fairer than before, or two accounts would take turns for ever.
        if len(self._taken[richest]) <= own + 1:
            return False
        oldest.lost = True
        self._give_back(richest, oldest)
        return True

    def _give_back(self, account: str, place: Place) -> None:
        places = self._taken.get(account, [])
        if place in places:
            places.remove(place)
        if not places:
            self._taken.pop(account, None)


# What is done at once, without the thread: ordinary requests, in well under a millisecond.
_INLINE = 1024
# Characters beyond ASCII take several times as long to fold and to judge.
_OTHER_SCRIPTS = 8


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How much may wait, that under way included: works, and what they weigh, of one account and in all.

    Attributes:
        slice_seconds: how long one work keeps others from their turn; a piece of it is never cut.
        rest_seconds: how long it rests for queries at most, and then no longer than it has worked since.
        idle_seconds: how long the thread waits for more.
        retry_after: seconds after which who was refused may come back.
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
    """Return about how much work texts are: their characters, those of other scripts more than once."""
    return sum(len(text) if text.isascii() else len(text) * _OTHER_SCRIPTS for text in texts)


class _Queries:
    """Counts the queries under way, while which the thread rests; a context manager for each of them, on the event loop."""

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
        """Wait until there are none, for so long at most; returns for how long it was."""
        if seconds <= 0 or self._none.is_set():
            return 0.0
        begun = perf_counter()
        self._none.wait(seconds)
        return perf_counter() - begun


@dataclass(slots=True, eq=False)
class _Work:
    """Pieces still to be made, and those that are there."""

    pieces: Iterator[Any]
    account: str
    weight: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    made: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    abandoned: bool = False


class WorkPool:
    """Makes things piece by piece, fairly: accounts take turns, and so do the works of one account.

    A query needs the interpreter a dozen times, and would wait each time until this thread lets go of it: ``with pool.queries``
    it has it for itself.

    Args:
        limits: of what may wait.
        on_used: told, on the event loop, of an account and the seconds of CPU that a work of its took.
    """

    def __init__(
        self, limits: PoolLimits | None = None, on_used: Callable[[str, float], None] = lambda _, __: None
    ) -> None:
        self._limits = limits or PoolLimits()
        self._on_used = on_used
        self._came = threading.Condition(threading.Lock())
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()
        # Works of each account that are not over, and their weight.
        self._held: dict[str, tuple[int, int]] = {}
        self._running = False
        self.queries = _Queries()
        # How long the thread may still rest.
        self._rest = self._limits.rest_seconds

    def __len__(self) -> int:
        """How many works are not over."""
        return sum(works for works, _ in self._held.values())

    async def make(self, account: str, pieces: Iterable[T], weight: int) -> list[T]:
        """Return the pieces, each made on the thread unless they weigh next to nothing.

        Who stops waiting, because the deadline passed for example, has no more made than the piece under way.

        Args:
            account: for whom.
            pieces: an iterator that makes them; others get their turn between two.
            weight: about how much work that is, in characters of plain text.

        Raises:
            QueueFull: too much waits, of this account or in all.
        """
        if weight <= _INLINE:
            return list(pieces)
        loop = asyncio.get_running_loop()
        work = _Work(iter(pieces), account, weight, loop, loop.create_future())
        self._hold(account, 1, weight)
        try:
            with self._came:
                if not self._running:
                    # For as long as there is work, and a while: nothing is left to be stopped. Not for each work, and before
                    # there is any: whoever starts a thread waits until it runs, and a thread with work lets go late.
                    self._running = True
                    threading.Thread(target=self._work, name="texts", daemon=True).start()
                self._waiting.setdefault(account, deque()).append(work)
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
            except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
                over, failure = True, error
            work.seconds += thread_time() - before
            if over:
                # A loop that is closed has nobody waiting.
                with suppress(RuntimeError):
                    work.loop.call_soon_threadsafe(_tell, work.done, failure)
            else:
                with self._came:
                    self._waiting.setdefault(work.account, deque()).append(work)

    def _advanced(self, work: _Work) -> bool:
        """Make pieces for a slice; says whether there are no more, or nobody waits for them."""
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
        """Take the next work of the account whose turn it is, which goes behind the others; None when none came for a while."""
        with self._came:
            if not self._came.wait_for(lambda: self._waiting, self._limits.idle_seconds):
                self._running = False
                return None
            account, works = self._waiting.popitem(last=False)
            work = works.popleft()
            if works:
                self._waiting[account] = works
            return work


def _tell(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


# What a call costs whatever it holds, and the most that the model reads of a text, both in characters: 256 tokens.
_CALL_COST = 128
_READ_CHARACTERS = 1024
# So many queries may go before a capture that waits.
_QUERIES_IN_A_ROW = 8
# A query up to here, of 128 characters, goes beside a capture of its own account: whoever finds both places taken by one
# account waits for some milliseconds at most.
_SHORT = _CALL_COST + 128
# For so long after a query one place is kept for the next.
_ASKED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class OnBehalfOf:
    """Whose work is being done now, and whether somebody waits for it before they can go on: a query, not a capture."""

    account: str = ""
    urgent: bool = False


on_behalf_of: ContextVar[OnBehalfOf] = ContextVar("on_behalf_of", default=OnBehalfOf())  # noqa: B039 - frozen


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """How much of the model there is, and how much of it one account may take.

    Attributes:
        at_once: calls of the model under way.
        of_account: those of one account; below ``at_once``, so that another one's query finds the model free.
        waiting: calls that may wait in all.
        waiting_of_account: those of one account.
        one_by_one: whether each text of a call waits for its turn, so that nobody waits longer than one text takes; else a
            call has its turn as a whole, and the embedder all its texts at once.
    """

    at_once: int = 2
    of_account: int = 1
    waiting: int = 1024
    waiting_of_account: int = 64
    one_by_one: bool = True


_Waiting = deque[tuple[int, asyncio.Future[None]]]


class EmbeddingShares:
    """An `Embedder` that divides another one fairly among accounts.

    Args:
        embedder: does the work; closed by whoever made it.
        limits: see `ShareLimits`.
    """

    def __init__(self, embedder: Embedder, limits: ShareLimits | None = None) -> None:
        self._embedder = embedder
        self._limits = limits or ShareLimits()
        # By urgency and account; an empty queue is none.
        self._queues: dict[bool, dict[str, _Waiting]] = {True: {}, False: {}}
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._running: defaultdict[OnBehalfOf, int] = defaultdict(int)
        # What each account had of the model; who comes new begins where the others are.
        self._had: dict[str, float] = {}
        self._now = 0.0
        self._in_a_row = 0
        # Calls under way for which nobody waits, and when the last query came, on the event loop's clock.
        self._bulk = 0
        self._asked = float("-inf")

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model in use."""
        return self._embedder.model

    @property
    def waiting(self) -> int:
        """How many calls wait for the model."""
        return sum(self._waiting.values())

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Embed texts as `Embedder.embed`, when it is the account's turn.

        Raises:
            AccountBusy: as many calls of this account wait as may.
            QueueFull: as many calls wait as may.
            EmbedderUnavailable: as the embedder.
        """
        if len(texts) <= 1 or not self._limits.one_by_one:
            async with self._turn(texts):
                return await self._embedder.embed(texts, query=query)
        vectors = np.empty((len(texts), self.model.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            async with self._turn([text], admitted=row > 0):
                vectors[row] = (await self._embedder.embed([text], query=query))[0]
        return vectors

    async def close(self) -> None:
        """Release what the embedder holds."""
        await self._embedder.close()

    @asynccontextmanager
    async def _turn(self, texts: Sequence[str], *, admitted: bool = False) -> AsyncIterator[None]:
        """Wait until the account may have the model, and have it until the block ends; a call that had begun is not refused."""
        who = on_behalf_of.get()
        cost = _CALL_COST + sum(min(len(text), _READ_CHARACTERS) for text in texts)
        if who.urgent:
            self._asked = asyncio.get_running_loop().time()
        if self._may_run(who, cost) and not self.waiting:
            self._begin(who, cost)
        else:
            if not admitted:
                self._admit(who)
            await self._wait(who, cost)
        try:
            yield
        finally:
            self._end(who)

    def _admit(self, who: OnBehalfOf) -> None:
        if self._waiting.get(who.account, 0) >= self._limits.waiting_of_account:
            raise AccountBusy("too many texts of this account wait for the embedder", retry_after=1.0)
        if self.waiting >= self._limits.waiting:
            raise QueueFull("too many texts wait for the embedder", retry_after=1.0)

    async def _wait(self, who: OnBehalfOf, cost: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queues = self._queues[who.urgent]
        queues.setdefault(who.account, deque()).append((cost, turn))
        self._waiting[who.account] += 1
        # It may be this account's turn although others wait: theirs run already.
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # Its turn came in the very moment in which it was given up.
                self._end(who)
            elif (cost, turn) in queues.get(who.account, ()):
                queues[who.account].remove((cost, turn))
                self._left(who.urgent, who.account)
            raise

    def _may_run(self, who: OnBehalfOf, cost: int) -> bool:
        limits, running = self._limits, self._running
        if sum(running.values()) >= limits.at_once:
            return False
        own = running.get(who, 0)
        if not who.urgent or cost > _SHORT:
            own += running.get(OnBehalfOf(who.account, not who.urgent), 0)
        if own >= limits.of_account:
            return False
        # Two captures, or one and what is done for nobody, would have the next query wait until a text is through.
        return who.urgent or self._bulk < max(1, limits.at_once - 1) or not self._is_asked()

    def _is_asked(self) -> bool:
        return asyncio.get_running_loop().time() < self._asked + _ASKED_SECONDS

    def _begin(self, who: OnBehalfOf, cost: int) -> None:
        # Virtual time: nobody saves up what they did not use, and nobody pays twice for having been alone.
        start = max(self._had.get(who.account, 0.0), self._now)
        self._now = start
        self._had[who.account] = start + cost
        self._running[who] += 1
        self._bulk += not who.urgent
        if len(self._had) > self._limits.waiting:
            self._had = {name: had for name, had in self._had.items() if had > start}

    def _end(self, who: OnBehalfOf) -> None:
        self._running[who] -= 1
        self._bulk -= not who.urgent
        if not self._running[who]:
            del self._running[who]
        self._next()

    def _next(self) -> None:
        """Give free places to whoever is to have them next."""
        while (chosen := self._chosen()) is not None:
            urgent, account = chosen
            self._in_a_row = self._in_a_row + 1 if urgent else 0
            cost, turn = self._queues[urgent][account].popleft()
            self._left(urgent, account)
            if not turn.cancelled():
                self._begin(OnBehalfOf(account, urgent), cost)
                turn.set_result(None)

    def _chosen(self) -> tuple[bool, str] | None:
        first = self._in_a_row < _QUERIES_IN_A_ROW
        for urgent in (first, not first):
            ready = [
                account
                for account, waiting in self._queues[urgent].items()
                if self._may_run(OnBehalfOf(account, urgent), waiting[0][0])
            ]
            if ready:
                return urgent, min(ready, key=lambda account: self._had.get(account, 0.0))
        return None

    def _left(self, urgent: bool, account: str) -> None:  # noqa: FBT001 - a key of the queues
        self._waiting[account] -= 1
        if not self._waiting[account]:
            del self._waiting[account]
        if not self._queues[urgent][account]:
            del self._queues[urgent][account]
