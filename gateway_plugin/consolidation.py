"""Consolidation by itself, on a schedule: what turns keep needing is promoted, and what could be tidied up is put before a person.

Off unless ``consolidation.enabled``. A run has three phases, per namespace, named as memory-core names those of its dreaming:

- *light* gathers which memories turns were given that asked for them, how often, and by how many different questions;
- *REM* has the relayer compare what is live: what repeats, replaces or contradicts another memory;
- *deep* promotes, that is pins, what passed every threshold, and where ``consolidation.apply`` says so takes the proposals of REM.

What was done is kept, sealed, until the next run; ``memrelay-gateway consolidate --last`` shows it. ``unpin`` and ``restore`` undo it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.identity import Identity, NamespaceRef, typed
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable, RevisionConflict, ValueUpdate
from gateway_plugin.schedule import next_time
from gateway_plugin.sessions import folded
from gateway_plugin.settings import ConsolidationSettings
from gateway_plugin.sharing import SharedHit
from gateway_plugin.status import notify
from relayer.wire.memories import RecallHit, SupersedeRequest
from relayer.wire.service import MAX_TAKEN, ConsolidationRequest, ProposalView, TakenView, TakeRequest

SECONDS: Final = 30.0
"""Comparing a page takes the relayer seconds where memories are many."""

_COUNTS, _PLACES, _RUN, _REPORT = (
    "consolidation-counts",
    "consolidation-places",
    "consolidation-run",
    "consolidation-report",
)
# A namespace's counts stay within a few kilobytes: what was recalled longest ago goes first.
_MAX_COUNTED: Final = 500
_MAX_PLACES: Final = 200
_MAX_UNWRITTEN: Final = 1000
# Once may be chance, twice a repetition; three different questions show that a memory is needed again and again.
_LEAST_RECALLS: Final = 3
_LEAST_QUESTIONS: Final = 3
# The relevance from which a turn counts for a memory: what came along with a better hit was not what was needed.
_LEAST_RELEVANCE: Final = 0.5
# How many different questions are told apart; more make no difference.
MAX_QUESTIONS: Final = 16
# A machine that slept, or whose clock was set, notices within this time.
_LOOK_SECONDS: Final = 5.0


class Counted(BaseModel):
    """How turns used a memory: how often, the sum of its relevance, digests of the questions, and when last (seconds since the epoch)."""

    model_config = ConfigDict(extra="forbid")

    recalls: int = 0
    relevance: float = 0.0
    questions: list[str] = []
    last: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether enough turns and enough different questions needed it."""
        return self.recalls >= _LEAST_RECALLS and len(self.questions) >= _LEAST_QUESTIONS


class Promoted(BaseModel):
    """A memory that was pinned: its new version, and why."""

    id: str
    recalls: int
    questions: int
    score: float


class Report(BaseModel):
    """What a run found and did in one namespace; ``at`` is in seconds since the epoch, texts are not in it."""

    at: float
    given: int
    examined: int
    proposals: list[str]
    conflicts: int
    taken: list[str]
    promoted: list[Promoted]


@dataclass(frozen=True, slots=True)
class Difference:
    """What all pages together propose."""

    proposals: tuple[ProposalView, ...]
    examined: int
    expired: int

    @property
    def takeable(self) -> list[ProposalView]:
        """Those that nobody has to decide."""
        return [proposal for proposal in self.proposals if proposal.reason != "conflict"]


async def difference(client: RelayerClient, identity: Identity) -> Difference:
    """Have the relayer compare all live memories of a namespace; raises as `RelayerClient.proposals`."""
    proposals: list[ProposalView] = []
    examined = expired = 0
    request = ConsolidationRequest()
    while True:
        page = await client.proposals(identity, request, deadline=SECONDS)
        proposals += page.proposals
        examined += page.examined
        expired += page.expired
        if page.next_cursor is None:
            return Difference(tuple(proposals), examined, expired)
        request = ConsolidationRequest(cursor=page.next_cursor)


async def take(client: RelayerClient, identity: Identity, wanted: Sequence[str]) -> tuple[TakenView, ...]:
    """Carry out proposals, by their ids; raises as `RelayerClient.take_proposals`."""
    taken: list[TakenView] = []
    for start in range(0, len(wanted), MAX_TAKEN):
        batch = TakeRequest(proposals=tuple(wanted[start : start + MAX_TAKEN]))
        taken += (await client.take_proposals(identity, batch, deadline=SECONDS)).proposals
    return tuple(taken)


def last_report(outbox: Outbox, owner: NamespaceRef) -> Report | None:
    """Return what the last run did in a namespace, or None; raises `OutboxUnavailable`."""
    try:
        return Report.model_validate_json(outbox.get(owner, _REPORT).value)
    except ValidationError:
        return None


class RecallCounts:
    """Which memories turns were given, by namespace; kept sealed beside the outbox, and shared by this gateway's processes.

    Args:
        outbox: where they are kept.
        gateway: an owner of no namespace, under which the list of namespaces is kept.
        clock: the time.
    """

    def __init__(self, outbox: Outbox, gateway: NamespaceRef, clock: Clock) -> None:
        self._outbox = outbox
        self._gateway = gateway
        self._clock = clock
        self._unwritten: list[tuple[NamespaceRef, str, float, str]] = []
        self._used: set[NamespaceRef] = set()
        self._listed: set[NamespaceRef] = set()
        self._lock = threading.Lock()
        # Who persists while another does so waits: it may read what is kept right afterwards.
        self._persisting = threading.Lock()

    def saw(self, owner: NamespaceRef, hits: Iterable[RecallHit], question: str) -> None:
        """Note what a turn was given; what is pinned already, or another's, has nothing to win."""
        digest = hashlib.blake2b(folded(question).encode(), digest_size=6).hexdigest()
        new = [
            (owner, hit.id, hit.relevance, digest)
            for hit in hits
            if hit.relevance >= _LEAST_RELEVANCE and not hit.pinned and not isinstance(hit, SharedHit)
        ]
        with self._lock:
            self._used.add(owner)
            self._unwritten = [*self._unwritten, *new][-_MAX_UNWRITTEN:]

    def persist(self) -> None:
        """Add what was noted to what is kept; raises `OutboxUnavailable`, and the next call tries again."""
        with self._persisting:
            self._write()

    def _write(self) -> None:
        with self._lock:
            noted, self._unwritten = self._unwritten, []
            unlisted = self._used - self._listed
        try:
            for owner in unlisted:
                self._list(owner)
            for owner in dict.fromkeys(one[0] for one in noted):
                mine = [one for one in noted if one[0] == owner]
                self._add(owner, mine)
                noted = [one for one in noted if one[0] != owner]
        finally:
            with self._lock:
                self._unwritten = [*noted, *self._unwritten]

    def of(self, owner: NamespaceRef) -> dict[str, Counted]:
        """Return what is kept of a namespace, by memory; raises `OutboxUnavailable`."""
        return self._read(owner)[1]

    def drop(self, owner: NamespaceRef, memories: Iterable[str]) -> None:
        """Forget what is known of memories that were promoted or are gone; raises `OutboxUnavailable`."""
        revision, known = self._read(owner)
        left = {memory: counted for memory, counted in known.items() if memory not in set(memories)}
        self._set(owner, _COUNTS, _dumped(left), revision)

    def places(self) -> tuple[NamespaceRef, ...]:
        """Return the namespaces that turns recalled from; raises `OutboxUnavailable`."""
        found = _loaded(self._outbox.get(self._gateway, _PLACES).value)
        return tuple(NamespaceRef(agent, space, int(number)) for agent, space, number in found or ())

    def _add(self, owner: NamespaceRef, noted: Iterable[tuple[NamespaceRef, str, float, str]]) -> None:
        revision, known = self._read(owner)
        for _, memory, relevance, question in noted:
            one = known.setdefault(memory, Counted())
            one.recalls += 1
            one.relevance += relevance
            one.last = self._clock.now()
            if question not in one.questions and len(one.questions) < MAX_QUESTIONS:
                one.questions.append(question)
        newest = sorted(known.items(), key=lambda item: -item[1].last)[:_MAX_COUNTED]
        self._set(owner, _COUNTS, _dumped(dict(newest)), revision)

    def _list(self, owner: NamespaceRef) -> None:
        places = self._outbox.get(self._gateway, _PLACES)
        listed = _loaded(places.value) or []
        place = [owner.agent, owner.namespace, owner.generation]
        if place not in listed:
            text = json.dumps([*listed, place][-_MAX_PLACES:])
            self._set(self._gateway, _PLACES, text.encode(), places.revision)
        self._listed.add(owner)

    def _read(self, owner: NamespaceRef) -> tuple[int, dict[str, Counted]]:
        found = self._outbox.get(owner, _COUNTS)
        try:
            counts = {name: Counted.model_validate(one) for name, one in (_loaded(found.value) or {}).items()}
        except (ValidationError, AttributeError):
            counts = {}
        return found.revision, counts

    def _set(self, owner: NamespaceRef, name: str, value: bytes, revision: int) -> None:
        # Another process of this gateway counted at the same moment: a turn that is not counted changes little.
        with contextlib.suppress(RevisionConflict):
            self._outbox.compare_and_set(ValueUpdate(owner, name, value, revision))


class Consolidator:
    """Runs when it is due, in one process of a gateway at a time.

    Args:
        client: the relayer.
        outbox: where the time of the last run and its reports are kept.
        counts: what turns were given.
        identity_of: finds the keys of a namespace; raises `IdentityError` when they are not held.
        settings: when, by which thresholds, and whether proposals are taken.
        clock: the time.
        gateway: an owner of no namespace.
    """

    def __init__(
        self,
        *,
        client: RelayerClient,
        outbox: Outbox,
        counts: RecallCounts,
        identity_of: Callable[[NamespaceRef], Identity],
        settings: ConsolidationSettings,
        clock: Clock,
        gateway: NamespaceRef,
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._counts = counts
        self._identity_of = identity_of
        self._settings = settings
        self._clock = clock
        self._gateway = gateway
        self._schedule = settings.schedule
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Wait for the next time in the background."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait(), name="memrelay-consolidation")

    async def aclose(self) -> None:
        """Stop; what a run did until then is done."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _wait(self) -> None:
        since = self._clock.now()
        # A time that passed while no gateway ran is made up for.
        with contextlib.suppress(OutboxUnavailable):
            since = await asyncio.to_thread(self._last_run, since)
        while True:
            if self._clock.now() >= next_time(self._schedule, since):
                since = self._clock.now()
                await self._due(since)
            await self._clock.sleep(_LOOK_SECONDS)

    async def _due(self, now: float) -> None:
        try:
            if await asyncio.to_thread(self._claimed, now):
                await asyncio.to_thread(self._counts.persist)
                for owner in await asyncio.to_thread(self._counts.places):
                    await self._run(owner, now)
        except OutboxUnavailable as error:
            notify(f"memrelay: consolidation was left out: {error}")

    def _last_run(self, begun: float) -> float:
        """Return when it ran last; the first process that asks begins the count."""
        found = self._outbox.get(self._gateway, _RUN)
        known = _loaded(found.value)
        if isinstance(known, int | float):
            return float(known)
        with contextlib.suppress(RevisionConflict):
            update = ValueUpdate(
                self._gateway, _RUN, json.dumps(begun).encode(), found.revision, lasting=True
            )
            self._outbox.compare_and_set(update)
        return begun

    def _claimed(self, now: float) -> bool:
        """Note that it runs now; False where another process was faster."""
        found = self._outbox.get(self._gateway, _RUN)
        known = _loaded(found.value)
        if isinstance(known, int | float) and next_time(self._schedule, float(known)) > now:
            return False
        try:
            value = json.dumps(now).encode()
            self._outbox.compare_and_set(
                ValueUpdate(self._gateway, _RUN, value, found.revision, lasting=True)
            )
        except RevisionConflict:
            return False
        return True

    async def _run(self, owner: NamespaceRef, now: float) -> None:
        """Consolidate one namespace; what fails is told, and the others go on."""
        try:
            report = await self._phases(self._identity_of(owner), owner, now)
        except GatewayError as error:
            notify(f"memrelay: consolidation of {typed(owner.namespace)} failed: {error}")
            return
        value = report.model_dump_json().encode()
        await asyncio.to_thread(
            self._outbox.compare_and_set, ValueUpdate(owner, _REPORT, value, lasting=True)
        )
        can_go = len(report.proposals)
        notify(
            f"memrelay: consolidation of {typed(owner.namespace)}: light: {report.given} memories were given to turns; "
            f"REM: {report.examined} compared, {can_go} can go, {report.conflicts} conflicts; "
            f"deep: {len(report.promoted)} promoted, {len(report.taken)} taken; see: memrelay-gateway consolidate --last"
        )

    async def _phases(self, identity: Identity, owner: NamespaceRef, now: float) -> Report:
        counted = await asyncio.to_thread(self._counts.of, owner)
        found = await difference(self._client, identity)
        wanted = [proposal.id for proposal in found.takeable]
        taken = await take(self._client, identity, wanted) if self._settings.apply else ()
        gone = {one.id.partition("-")[0] for one in taken if one.status == "taken"}
        passed = {memory: count for memory, count in counted.items() if memory not in gone and count.passes}
        promoted = [one for one in [await self._promote(identity, *item) for item in passed.items()] if one]
        await asyncio.to_thread(self._counts.drop, owner, {*gone, *passed})
        return Report(
            at=now,
            given=len(counted),
            examined=found.examined,
            proposals=wanted,
            conflicts=len(found.proposals) - len(wanted),
            taken=[one.id for one in taken if one.status == "taken"],
            promoted=promoted,
        )

    async def _promote(self, identity: Identity, memory: str, count: Counted) -> Promoted | None:
        """Pin a memory; None for one that changed or went since it was recalled."""
        try:
            answer = await self._client.supersede(identity, memory, SupersedeRequest(pinned=True))
        except RelayerRefused as error:
            if error.status in {404, 409}:
                return None
            raise
        score = round(count.relevance / count.recalls, 2)
        return Promoted(id=answer.id, recalls=count.recalls, questions=len(count.questions), score=score)


def _dumped(counts: Mapping[str, Counted]) -> bytes:
    return json.dumps({memory: one.model_dump() for memory, one in counts.items()}).encode()


def _loaded(value: bytes) -> Any:
    try:
        return json.loads(value) if value else None
    except ValueError:
        return None
