"""What every use case gets handed: ports, keys and the open namespaces; and the way to one memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from relayer.access.accounts import Access
from relayer.crypto import RelayerKeys
from relayer.domain.operations import EXTRACT, SUMMARISE, Forget, Refusal
from relayer.errors import Refused
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.extraction.statements import Extractor
from relayer.lib.job_queue import JobQueue, ModelBudget
from relayer.lib.work import Deadline, Shares, WorkPool
from relayer.log.collector import GRACE_MS
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.erasures import Erasures
from relayer.namespaces.namespace import OpenNamespace
from relayer.ports import ChatModel, Clock, Embedder, EmbeddingModel, Randomness
from relayer.wire import codec as ulid
from relayer.wire.errors import Malformed


@dataclass(frozen=True, slots=True)
class ChatWork:
    """A language model for questions about memories; ``seconds`` bounds one call of it.

    ``fallback`` is asked such questions when the first one is not available.
    """

    model: ChatModel
    budget: ModelBudget
    seconds: float = 60.0
    fallback: ChatModel | None = None


@dataclass(frozen=True, slots=True)
class FactWork:
    """What it takes to have captures read by a language model.

    Attributes:
        extractor: reads turns for facts.
        queue: of the jobs.
        budget: of the model.
        seconds: bound one call of it.
        extracts: whether turns are read for facts at all.
        summariser: makes notes of sessions that end; None makes none.
    """

    extractor: LlmExtractor
    queue: JobQueue
    budget: ModelBudget
    seconds: float = 60.0
    extracts: bool = True
    summariser: Summariser | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """One per relayer process, made by the composition root.

    Attributes:
        embedder: of the model that every memory is to have a vector of.
        former: of the model before it, as long as namespaces are searched by that one.
        redacts: whether secrets are taken out of what is stored.
        collect_after_ms: see `relayer.maintenance.compaction.LogMaintenanceLimits`.
        texts: where work on texts is done that would hold the event loop.
        polls: places for requests that wait for something to happen.
        erasures: what this process does about erasures.
        lent: what it knows of promised jobs that wait for a gateway's model.
        recalls: how many were answered with memories, with none (``empty``), or by words alone or from a part of
            the memories (``degraded``).
        verdicts: how many turns this process kept and left, by `relayer.wire.memories.Verdict.reason`.
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
    texts: WorkPool = field(default_factory=WorkPool)
    polls: Shares = field(default_factory=lambda: Shares("polls", most=1024, per_account=128))
    recalls: Counter[str] = field(default_factory=lambda: Counter(answered=0, empty=0, degraded=0))
    verdicts: Counter[str] = field(default_factory=Counter)
    erasures: Erasures = field(init=False)
    lent: JobQueue = field(init=False)

    def __post_init__(self) -> None:
        # As everything here, it is made once; a context with other parts has its own.
        object.__setattr__(self, "erasures", Erasures(self.ports, self.namespaces, self.collect_after_ms))
        object.__setattr__(self, "lent", JobQueue(self.ports.clock))

    @property
    def own_works(self) -> frozenset[str]:
        """The works of a model that this relayer is set to do; others wait for one that is, or for a gateway's model."""
        if self.facts is None:
            return frozenset()
        extracts = {EXTRACT} if self.facts.extracts else set()
        return frozenset(extracts | ({SUMMARISE} if self.facts.summariser is not None else set()))

    def embedder_of(self, model: EmbeddingModel) -> Embedder:
        """Return the embedder of the model that a namespace is searched by now."""
        return self.former if self.former is not None and self.former.model == model else self.embedder

    @property
    def clock(self) -> Clock:
        """Local time."""
        return self.ports.clock

    @property
    def randomness(self) -> Randomness:
        """Random bytes."""
        return self.ports.randomness

    @property
    def keys(self) -> RelayerKeys:
        """The relayer's own keys."""
        return self.ports.keys


def no_such_memory() -> Refused:
    """Return the one answer for ids that are unknown, malformed, erased, or somebody else's."""
    return Refused("not_found", "no such memory in this namespace")


def nonce_reused() -> Refused:
    """Return the answer for a signature whose nonce was seen with another operation."""
    return Refused("nonce_reused", "this signature's nonce belongs to another operation: sign anew")


def idempotency_conflict() -> Refused:
    """Return the answer for an idempotency key that was seen with another body."""
    return Refused(
        Refusal.IDEMPOTENCY_CONFLICT, "this idempotency_key was used with another body: use a new key"
    )


def evaluated(access: Access) -> Forget:
    """Return an operation that changes nothing: it stands in the log for a request that found nothing to do."""
    return Forget(access.origin(), b"")


@asynccontextmanager
async def look_up(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> AsyncIterator[tuple[OpenNamespace, bytes]]:
    """Open the namespace that a memory must be in, up to date; gives it and the bytes of the id.

    Raises:
        Refused: ``not_found``: the id is none, or there is no such namespace.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    try:
        wanted = ulid.parse(memory_id)
    except Malformed as error:
        raise no_such_memory() from error
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_memory()
        await opened.refresh(deadline)
        yield opened, wanted
