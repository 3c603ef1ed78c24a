"""The dependencies of all use cases, and helpers that they share.

`Context` is created once in each process and holds ports, models and the open namespaces. `ChatWork` and `FactWork` are
its language models with their budgets. `look_up` opens the namespace of a memory, and the remaining functions create the
refusals that several use cases return.
"""

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
from relayer.lib.work import Deadline, FairExecutor, FairSemaphore
from relayer.log.collector import GRACE_MS
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.erasures import Erasures
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
from relayer.wire.errors import Malformed


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
        collect_after_ms: see `relayer.maintenance.compaction.LogMaintenanceLimits`.
        former: the embedder of the previous model, as long as namespaces are searched by it.
        relations: reads captured statements together with existing ones; None for an embedder without such a reader.
        messages: reads messages before statements are extracted; None for an embedder without such a reader.
        cross: reads a prompt together with the memories that it would get; None for an embedder without such a reader.
        texts: runs CPU-bound work on texts outside of the event loop.
        polls: limits the requests that wait for an event.
        lent: the queue of pending jobs that wait for a gateway's model.
        recalls: number of recalls by outcome: with memories (``answered``), without (``empty``), or by terms alone or from
            a part of the memories (``degraded``).
        verdicts: number of captured turns by `relayer.wire.memories.Verdict.reason`: stored, or why not.
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
