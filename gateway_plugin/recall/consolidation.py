"""Scheduled consolidation: pin memories that turns need often, and propose which memories to merge or remove.

It is off unless ``consolidation.enabled`` is set. `RecallCounts` counts which memories turns were given, and `Consolidator`
runs when its schedule is due. A run has three phases for each namespace, named after those of memory-core's dreaming:

- *light* reads the counts: how often turns were given a memory, and for how many different queries;
- *REM* has the relayer compare the live memories, and propose those that repeat, replace or contradict another one;
- *deep* promotes, that is pins, the memories that passed every threshold, and carries out the proposals of REM if
  ``consolidation.apply`` is set.

The report of a run is stored sealed until the next run; ``memrelay-gateway consolidate --last`` shows it. ``unpin`` and
``restore`` undo its changes.
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

from gateway_plugin.calls.clock import Clock
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, NamespaceRef, typed
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable, RevisionConflict, ValueUpdate
from gateway_plugin.recall.sharing import SharedHit
from gateway_plugin.sessions import folded
from gateway_plugin.settings.model import ConsolidationSettings, next_time
from gateway_plugin.turn.status import notify
from relayer.wire.schemas import RecallHit, SupersedeRequest
from relayer.wire.service import (
    MAX_TAKEN,
    ConsolidationRequest,
    ProposalView,
    ReplacedView,
    TakenView,
    TakeRequest,
)

SECONDS: Final = 30.0
"""The deadline of a consolidation call, in seconds: with many memories, the relayer takes seconds to compare a page."""

_COUNTS, _PLACES = "consolidation-counts", "consolidation-places"
_RUN, _REPORT = "consolidation-run", "consolidation-report"
# Bound the counts of a namespace to some kilobytes. The memories that were recalled longest ago are dropped first.
_MAX_COUNTED: Final = 500
_MAX_PLACES: Final = 200
_MAX_UNWRITTEN: Final = 1000
# One recall may be chance, and two a repetition; three different queries show that a memory is needed regularly.
LEAST_RECALLS: Final = 3
LEAST_QUESTIONS: Final = 3
# Minimum relevance of a hit that is counted: a less relevant hit only accompanied a better one and was not needed.
_LEAST_RELEVANCE: Final = 0.5
# How many different queries are distinguished for a memory; more make no difference.
MAX_QUESTIONS: Final = 16
# Interval of checking the schedule, in seconds: so a machine that slept, or whose clock was set, notices soon.
_LOOK_SECONDS: Final = 5.0


class Counted(BaseModel):
    """The counts of one memory.

    Attributes:
        relevance: the sum of its relevance in those turns, each 0..1.
        questions: digests of the different queries, at most `MAX_QUESTIONS`.
        last: the time of the last recall, in seconds since the epoch.
    """

    model_config = ConfigDict(extra="forbid")

    recalls: int = 0
    relevance: float = 0.0
    questions: list[str] = []
    last: float = 0.0

    @property
    def passes(self) -> bool:
        """Return whether enough turns and enough different queries needed the memory."""
        return self.recalls >= LEAST_RECALLS and len(self.questions) >= LEAST_QUESTIONS


class Promoted(BaseModel):
    """A memory that was pinned.

    Attributes:
        id: the id of its new version.
        recalls: how often turns were given it.
        questions: for how many different queries.
    """

    id: str
    recalls: int
    questions: int
    score: float


class ConsolidationReport(BaseModel):
    """The report of a run in one namespace. It contains no texts of memories.

    Attributes:
        at: the time of the run, in seconds since the epoch.
        given: the number of memories with counts, which are those that turns were given and no run has promoted yet.
        examined: the number of memories that were compared.
        proposals: the ids of the proposals that could be carried out without a decision.
        conflicts: the number of contradictions, which a person has to decide.
        taken: the ids of the proposals that were carried out.
        promoted: the memories that were pinned.
    """

    at: float
    given: int
    examined: int
    proposals: list[str]
    conflicts: int
    taken: list[str]
    promoted: list[Promoted]


@dataclass(frozen=True, slots=True)
class Difference:
    """The proposals for a whole namespace.

    Attributes:
        examined: the number of memories that were compared.
        expired: the number of live memories whose expiry time has passed, so that they are not recalled any more.
        replaced: what captures replaced lately, newest first.
    """

    proposals: tuple[ProposalView, ...]
    examined: int
    expired: int
    replaced: tuple[ReplacedView, ...] = ()

    @property
    def takeable(self) -> list[ProposalView]:
        """Return the proposals that need no decision by a person, which are all but conflicts."""
        return [proposal for proposal in self.proposals if proposal.reason != "conflict"]


async def difference(client: RelayerClient, identity: Identity) -> Difference:
    """Have the relayer compare all live memories of a namespace, page by page. Raises as `RelayerClient.proposals`."""
    proposals: list[ProposalView] = []
    replaced: list[ReplacedView] = []
    examined = expired = 0
    request = ConsolidationRequest()
    while True:
        page = await client.proposals(identity, request, deadline=SECONDS)
        proposals += page.proposals
        examined += page.examined
        expired += page.expired
        replaced += page.replaced
        if page.next_cursor is None:
            return Difference(tuple(proposals), examined, expired, tuple(replaced))
        request = ConsolidationRequest(cursor=page.next_cursor)


async def take(client: RelayerClient, identity: Identity, wanted: Sequence[str]) -> tuple[TakenView, ...]:
    """Carry out the proposals with these ids, in batches. Raises as `RelayerClient.take_proposals`."""
    taken: list[TakenView] = []
    for start in range(0, len(wanted), MAX_TAKEN):
        batch = TakeRequest(proposals=tuple(wanted[start : start + MAX_TAKEN]))
        taken += (await client.take_proposals(identity, batch, deadline=SECONDS)).proposals
    return tuple(taken)


def last_report(outbox: Outbox, owner: NamespaceRef) -> ConsolidationReport | None:
    """Return the report of the last run in a namespace, or None if there is none. Raises `OutboxUnavailable`."""
    try:
        return ConsolidationReport.model_validate_json(outbox.get(owner, _REPORT).value)
    except ValidationError:
        return None


class RecallCounts:
    """Counts of the memories that turns were given, by namespace.

    They are stored sealed in the outbox's database, so all processes of this gateway share them.
    """

    def __init__(self, outbox: Outbox, gateway: NamespaceRef, clock: Clock) -> None:
        self._outbox = outbox
        self._gateway = gateway
        self._clock = clock
        self._unwritten: list[tuple[NamespaceRef, str, float, str]] = []
        self._used: set[NamespaceRef] = set()
        self._listed: set[NamespaceRef] = set()
        self._lock = threading.Lock()
        # A thread that calls `persist` while another one writes waits, because it may read the stored counts afterwards.
        self._persisting = threading.Lock()

    def saw(self, owner: NamespaceRef, hits: Iterable[RecallHit], question: str) -> None:
        """Record the hits that a turn was given, in memory; `persist` stores them.

        Hits that are not relevant enough, already pinned, or from another namespace are not counted.
        """
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
        """Add the recorded hits to the stored counts. Raises `OutboxUnavailable`; the next call tries again."""
        with self._persisting:
            with self._lock:
                noted, self._unwritten = self._unwritten, []
                unlisted = self._used - self._listed
            try:
                for owner in unlisted:
                    self._list(owner)
                for owner in dict.fromkeys(one[0] for one in noted):
                    self._add(owner, [one for one in noted if one[0] == owner])
                    noted = [one for one in noted if one[0] != owner]
            finally:
                with self._lock:
                    self._unwritten = [*noted, *self._unwritten]

    def counts(self, owner: NamespaceRef) -> dict[str, Counted]:
        """Return the stored counts of a namespace, by memory id. Raises `OutboxUnavailable`."""
        return self._read(owner)[1]

    def drop(self, owner: NamespaceRef, memories: Iterable[str]) -> None:
        """Remove the counts of memories that were promoted or do not exist any more. Raises `OutboxUnavailable`."""
        gone = set(memories)
        revision, known = self._read(owner)
        left = {memory: counted for memory, counted in known.items() if memory not in gone}
        self._set(owner, _COUNTS, _dumped(left), revision)

    def places(self) -> tuple[NamespaceRef, ...]:
        """Return the namespaces that turns recalled from, at most 200. Raises `OutboxUnavailable`."""
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
        # If another process of this gateway wrote at the same time, this update is dropped: missing a turn changes little.
        with contextlib.suppress(RevisionConflict):
            self._outbox.compare_and_set(ValueUpdate(owner, name, value, revision))


class Consolidator:
    """Runs consolidation when its schedule is due, in one process of a gateway at a time."""

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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start waiting for the next run, in a background task."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait(), name="memrelay-consolidation")

    async def aclose(self) -> None:
        """Stop the background task. Changes that a run has already made remain."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _wait(self) -> None:
        since = self._clock.now()
        # A run that was due while no gateway ran is made up for.
        with contextlib.suppress(OutboxUnavailable):
            since = await asyncio.to_thread(self._last_run, since)
        while True:
            if self._clock.now() >= next_time(self._settings.schedule, since):
                since = self._clock.now()
                await self._due(since)
            # So that commands, which are other processes, see the counts of the last seconds.
            with contextlib.suppress(OutboxUnavailable):
                await asyncio.to_thread(self._counts.persist)
            await self._clock.sleep(_LOOK_SECONDS)

    async def _due(self, now: float) -> None:
        try:
            if await asyncio.to_thread(self._claimed, now):
                await asyncio.to_thread(self._counts.persist)
                for owner in await asyncio.to_thread(self._counts.places):
                    await self._run(owner, now)
        except OutboxUnavailable as error:
            notify(f"memrelay: consolidation was skipped: {error}")

    def _last_run(self, begun: float) -> float:
        """Return the time of the last run, in seconds since the epoch; if there was none, store ``begun`` as that time."""
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
        """Store that a run starts now, and return True; return False if another process has already started it."""
        found = self._outbox.get(self._gateway, _RUN)
        known = _loaded(found.value)
        if isinstance(known, int | float) and next_time(self._settings.schedule, float(known)) > now:
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
        """Consolidate one namespace. An error is reported and does not affect the other namespaces."""
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
            f"memrelay: consolidation of {typed(owner.namespace)}: light: {report.given} memories were recalled in turns; REM: {report.examined} compared, {can_go} can go, {report.conflicts} conflicts; "
            f"deep: {len(report.promoted)} promoted, {len(report.taken)} taken; see: memrelay-gateway consolidate --last"
        )

    async def _phases(self, identity: Identity, owner: NamespaceRef, now: float) -> ConsolidationReport:
        counted = await asyncio.to_thread(self._counts.counts, owner)
        found = await difference(self._client, identity)
        wanted = [proposal.id for proposal in found.takeable]
        taken = await take(self._client, identity, wanted) if self._settings.apply else ()
        gone = {one.id.partition("-")[0] for one in taken if one.status == "taken"}
        passed = {memory: count for memory, count in counted.items() if memory not in gone and count.passes}
        promoted = [one for one in [await self._promote(identity, *item) for item in passed.items()] if one]
        await asyncio.to_thread(self._counts.drop, owner, {*gone, *passed})
        return ConsolidationReport(
            at=now,
            given=len(counted),
            examined=found.examined,
            proposals=wanted,
            conflicts=len(found.proposals) - len(wanted),
            taken=[one.id for one in taken if one.status == "taken"],
            promoted=promoted,
        )

    async def _promote(self, identity: Identity, memory: str, count: Counted) -> Promoted | None:
        """Pin a memory; return None if it was changed or removed since it was recalled."""
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
