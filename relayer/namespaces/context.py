"""The dependencies of all use cases, helpers that they share, and the background work of erasures.

`Context` is created once in each process and holds ports, models and the open namespaces. `ChatWork` and `FactWork` are
its language models with their budgets. `look_up` opens the namespace of a memory, and the functions before it create the
refusals that several use cases return.

`Erasures` continues each erasure until it is confirmed. Those in progress are found by listing their reports in the store, so
it does not matter which process received the request, and no key of the namespace is needed. This process starts its own
erasures immediately, and leaves those of other processes to them for a minute. Several relayers may work on the same erasure:
each step is a compare-and-swap that one of them wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cachetools import LRUCache

from relayer.access.accounts import Access
from relayer.crypto import RelayerKeys
from relayer.domain.operations import EXTRACT, SUMMARISE, Erase, Forget, Origin, Refusal
from relayer.errors import NamespaceClosed, Refused, RelayerError
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.extraction.statements import Extractor
from relayer.lib.job_queue import JobQueue, ModelBudget
from relayer.lib.scheduler import OnError, Periodic, Wake
from relayer.lib.work import Deadline, FairExecutor, FairSemaphore
from relayer.log.collector import GRACE_MS, Collector
from relayer.log.creation import find
from relayer.log.erasure import (
    ErasureKind,
    ErasureReport,
    ErasureReports,
    ErasureStage,
    MemoryEraser,
    NamespaceEraser,
    SeenReport,
    still_has,
)
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import LogPorts
from relayer.log.replica import Replica
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.namespace import OpenNamespace
from relayer.ports import (
    ChatModel,
    Clock,
    CrossEncoder,
    Embedder,
    EmbeddingModel,
    MessageReader,
    Randomness,
    RelationReader,
)
from relayer.wire import codec as ulid
from relayer.wire.calls import doubled
from relayer.wire.codec import Malformed

_LOOK_SECONDS = 60.0
_LEAVE_SECONDS = 60.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_MOST_LATE = 4096


@dataclass(slots=True)
class _Due:
    """The schedule of an erasure in progress; times are monotonic, in seconds."""

    not_before: float
    failures: int = 0


class Erasures:
    """Carries out the erasures that this process knows of; the replicas of open namespaces are used if there are any.

    An erasure may be confirmed ``grace_ms`` after the deletion, by the store's time.

    Attributes:
        counts: numbers since the start: ``destroyed``, ``confirmed``, ``failures``.
    """

    def __init__(self, ports: LogPorts, namespaces: OpenNamespaces, grace_ms: int = GRACE_MS) -> None:
        self.counts: Counter[str] = Counter()
        self._ports = ports
        self._namespaces = namespaces
        self._grace_ms = grace_ms
        self._reports = ErasureReports(ports)
        self._due: dict[str, _Due] = {}
        self._tidied: LRUCache[bytes, int] = LRUCache(_MOST_LATE)
        self._look_at = float("-inf")
        self._wake = Wake()

    def note(self, report: ErasureReport) -> None:
        """Schedule an erasure that was requested from this process, to start immediately."""
        if report.stage is not ErasureStage.CONFIRMED:
            self._due[self._reports.key_of(report)] = _Due(self._ports.clock.monotonic())
            self._wake.set()

    async def erase_at_once(self, seen: SeenReport) -> SeenReport:
        """Run the first steps of a namespace's erasure before its request is answered, and schedule the rest.

        Raises:
            RelayerError: a step failed; the rest is scheduled all the same.
        """
        try:
            return await NamespaceEraser(self._ports, self._grace_ms).run(seen)
        finally:
            self.note(seen.report)

    @property
    def task(self) -> Periodic:
        """The periodic task for the scheduler."""
        return Periodic("erasing", self.round, _FIRST_PAUSE, wake=self._wake)

    async def round(self, on_error: OnError) -> None:
        """Run the steps that are due; a failure is passed to ``on_error`` and retried later."""
        clock = self._ports.clock
        if self._look_at <= clock.monotonic():
            await self._guarded(None, self._look(), on_error)
        for key, due in list(self._due.items()):
            if due.not_before <= clock.monotonic():
                await self._guarded(due, self._go_on(key, due), on_error)
        await self._guarded(None, self._tidy(), on_error)

    async def _look(self) -> None:
        """Find erasures that other processes started, or this one before it was restarted."""
        pending = await self._reports.pending()
        now = self._ports.clock.monotonic()
        first = self._look_at == float("-inf")
        for key in pending:
            self._due.setdefault(key, _Due(now if first else now + _LEAVE_SECONDS))
        self._look_at = now + _LOOK_SECONDS

    async def _guarded(self, due: _Due | None, work: Awaitable[None], on_error: OnError) -> None:
        try:
            await work
        except RelayerError as error:
            self.counts["failures"] += 1
            if due is not None:
                pause = doubled(_FIRST_PAUSE, due.failures, _LONGEST_PAUSE)
                due.failures += 1
                due.not_before = self._ports.clock.monotonic() + pause
            on_error(error)

    async def _go_on(self, key: str, due: _Due) -> None:
        seen = await self._reports.read(key)
        if seen is None:
            del self._due[key]  # another relayer confirmed it
            return
        before = seen.report.stage
        if seen.report.what is not ErasureKind.MEMORY:
            seen = await NamespaceEraser(self._ports, self._grace_ms).run(seen)
        else:
            seen = await self._erase_memories(seen)
        now = seen.report.stage
        if before is ErasureStage.ERASED and now is not ErasureStage.ERASED:
            self.counts["destroyed"] += 1
        if now is ErasureStage.CONFIRMED:
            self.counts["confirmed"] += 1
            del self._due[key]
            return
        due.failures = 0
        left = (self._grace_ms - (seen.store_time - seen.report.destroyed_at)) / 1000
        # A collection waits for the grace period twice at most.
        pause = (
            left + _FIRST_PAUSE if left > 0 else max(_FIRST_PAUSE, min(_LOOK_SECONDS, self._grace_ms / 4000))
        )
        due.not_before = self._ports.clock.monotonic() + pause

    async def _erase_memories(self, seen: SeenReport) -> SeenReport:
        report = seen.report
        try:
            # A replica of the log that contains the erasure: that of the open namespace, or else a new one.
            opened = self._namespaces.peek(report.account, report.namespace)
            if opened is not None and not opened.broken and opened.incarnation == report.incarnation:
                replica = opened.replica
                await replica.catch_up()
            else:
                replica = Replica(self._ports, report.account, report.incarnation)
                await replica.reload()
            if still_has(replica.state, report):
                await self._erase_again(report)
                await replica.catch_up()
            return await self._eraser(replica, report.account).run(seen)
        except NamespaceClosed:
            # The whole namespace was erased: once that erasure is confirmed, nothing is left of these memories either.
            whole = await self._reports.find(report.account, report.incarnation)
            if whole is None or whole.report.stage is not ErasureStage.CONFIRMED:
                return seen
            return await self._reports.confirmed(seen, 0, seen.store_time)

    async def _erase_again(self, report: ErasureReport) -> None:
        """Append an erasure again to a log that has lost it; several relayers that do so append it once (I7)."""
        pointer = await find(self._ports, report.account, report.namespace)
        if pointer is None or pointer.incarnation != report.incarnation:
            raise NamespaceClosed("the namespace was erased")
        log = NamespaceLog(self._ports, report.account, pointer)
        try:
            await log.start()
            origin = Origin(author=b"", nonce=report.erasure)
            await log.append([Erase(origin, (*report.records, *report.derived))])
        finally:
            await log.close(0)

    def _eraser(self, replica: Replica, account: str) -> MemoryEraser:
        collector = Collector(self._ports, account, replica.incarnation, self._grace_ms)
        return MemoryEraser(self._ports, replica, collector.run, self._grace_ms)

    async def _tidy(self) -> None:
        for opened in self._namespaces.all():
            late, incarnation = opened.last_late, opened.incarnation
            if late <= self._tidied.get(incarnation, 0) or opened.broken:
                continue
            if await self._eraser(opened.replica, opened.account).tidy():
                self._tidied[incarnation] = late


@dataclass(frozen=True, slots=True)
class ChatWork:
    """A language model that answers questions about memories.

    Attributes:
        budget: its calls and tokens by account.
        seconds: the timeout of one call.
        fallback: the model that is called while the first one is unavailable; None for no such model.
    """

    model: ChatModel
    budget: ModelBudget
    seconds: float = 60.0
    fallback: ChatModel | None = None


@dataclass(frozen=True, slots=True)
class FactWork:
    """The language model that extracts facts from captures, and its jobs.

    Attributes:
        budget: the calls and tokens of the model by account.
        seconds: the timeout of one call of the model.
        extracts: whether facts are extracted at all.
        summariser: summarises sessions that have ended; None if that is off.
    """

    extractor: LlmExtractor
    queue: JobQueue
    budget: ModelBudget
    seconds: float = 60.0
    extracts: bool = True
    summariser: Summariser | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The dependencies of use cases; one for each relayer process, created by `relayer.bootstrap`.

    Attributes:
        embedder: the embedder of the model of which every memory is to have a vector.
        facts: the language model for captures; None if there is none.
        chat: the language model for questions; None if there is none.
        redacts: whether secrets are removed from texts before they are stored.
        collect_after_ms: see `relayer.maintenance.logs.LogMaintenanceLimits`.
        former: the embedder of the previous model, as long as namespaces are searched by it.
        relations: reads captured statements together with existing ones; None for an embedder without such a reader.
        messages: reads messages before statements are extracted; None for an embedder without such a reader.
        cross: reads a prompt together with the memories that it would get; None for an embedder without such a reader.
        texts: runs CPU-bound work on texts outside of the event loop.
        polls: limits the requests that wait for an event.
        lent: the queue of pending jobs that wait for a gateway's model.
        recalls: number of recalls by outcome: with memories (``answered``), without (``empty``), or by terms alone or from
            a part of the memories (``degraded``).
        verdicts: number of captured turns by `relayer.wire.schemas.Verdict.reason`: stored, or why not.
    """

    ports: LogPorts
    embedder: Embedder
    extractor: Extractor
    namespaces: OpenNamespaces
    facts: FactWork | None = None
    chat: ChatWork | None = None
    redacts: bool = True
    collect_after_ms: int = GRACE_MS
    former: Embedder | None = None
    relations: RelationReader | None = None
    messages: MessageReader | None = None
    cross: CrossEncoder | None = None
    texts: FairExecutor = field(default_factory=FairExecutor)
    polls: FairSemaphore = field(default_factory=lambda: FairSemaphore("polls", most=1024, per_account=128))
    recalls: Counter[str] = field(default_factory=lambda: Counter(answered=0, empty=0, degraded=0))
    verdicts: Counter[str] = field(default_factory=Counter)
    erasures: Erasures = field(init=False)
    lent: JobQueue = field(init=False)

    def __post_init__(self) -> None:
        # The class is frozen, and these two are built from its other attributes.
        object.__setattr__(self, "erasures", Erasures(self.ports, self.namespaces, self.collect_after_ms))
        object.__setattr__(self, "lent", JobQueue(self.ports.clock))

    @property
    def own_works(self) -> frozenset[str]:
        """The kinds of jobs that this relayer's language model does.

        Other kinds wait for a relayer that does them, or for a gateway's model.
        """
        if self.facts is None:
            return frozenset()
        extracts = {EXTRACT} if self.facts.extracts else set()
        return frozenset(extracts | ({SUMMARISE} if self.facts.summariser is not None else set()))

    def embedder_of(self, model: EmbeddingModel) -> Embedder:
        """Return the embedder of the model by which a namespace is currently searched."""
        return self.former if self.former is not None and self.former.model == model else self.embedder

    @property
    def clock(self) -> Clock:
        """The process's clock."""
        return self.ports.clock

    @property
    def randomness(self) -> Randomness:
        """The source of random bytes."""
        return self.ports.randomness

    @property
    def keys(self) -> RelayerKeys:
        """The relayer's own keys."""
        return self.ports.keys


def no_such_memory() -> Refused:
    """Return the refusal for all ids that are unknown, malformed, erased, or of another namespace."""
    return Refused("not_found", "no such memory in this namespace")


def no_such_job() -> Refused:
    """Return the refusal for all ids of jobs that are unknown or malformed."""
    return Refused("not_found", "no such job in this namespace")


def nonce_reused() -> Refused:
    """Return the refusal for a signature whose nonce was already used with another operation."""
    return Refused("nonce_reused", "this signature's nonce belongs to another operation: sign again")


def idempotency_conflict() -> Refused:
    """Return the refusal for an idempotency key that was already used with another body."""
    return Refused(
        Refusal.IDEMPOTENCY_CONFLICT, "this idempotency_key was used with another body: use a new key"
    )


def evaluated(access: Access) -> Forget:
    """Return an operation that changes nothing, to record in the log that a request was evaluated and had nothing to do."""
    return Forget(access.origin(), b"")


def parse_id(text: str, refusal: Refused) -> bytes:
    """Return the bytes of an id; raises ``refusal`` if it is malformed."""
    try:
        return ulid.parse(text)
    except Malformed as error:
        raise refusal from error


@asynccontextmanager
async def look_up(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> AsyncIterator[tuple[OpenNamespace, bytes]]:
    """Open the namespace that a memory must be in, bring it up to date, and yield it with the parsed id.

    Raises:
        Refused: ``not_found``: the id is malformed, or the namespace does not exist.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    wanted = parse_id(memory_id, no_such_memory())
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_memory()
        await opened.refresh(deadline)
        yield opened, wanted
