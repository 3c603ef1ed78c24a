"""One open namespace: its log, its keys, and its memories in clear.

The log tells what it applied in one step of the event loop. What is small is indexed in the same step; what is large is
indexed by a task that gives others a turn in between, and every read waits for it: the order is kept, the loop is not
held, and done still means recallable.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import takewhile

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.crypto import NamespaceKeys
from relayer.domain.erasures import Erasure
from relayer.domain.namespace import Manifest, Position
from relayer.domain.operations import (
    Close,
    Erase,
    JobFinished,
    JobState,
    Operation,
    Outcome,
    Put,
    Record,
    RecordState,
    Status,
    Supersede,
)
from relayer.domain.pinned import Pinned
from relayer.domain.snapshot import write_state
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.extraction.changes import Statement
from relayer.lib.n_grams import PromptReading
from relayer.lib.turns import Turns
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.log.compactor import Compaction, CompactionLimits
from relayer.log.erasure.memories import report_of
from relayer.log.erasure.reports import ErasureReport
from relayer.log.namespace_log import Allowance, Consistency, NamespaceLog
from relayer.log.objects import LogPorts, ReadAhead
from relayer.log.replica import Replica, Start
from relayer.namespaces.projection import CalibratedModel, Change, Mark, NamespaceView, PinnedView
from relayer.namespaces.records import Memory, Shown, ids_of
from relayer.namespaces.stored import blocks_of, read_view, write_view
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.essentials import Essential, essential_of
from relayer.search.index import QueryWords
from relayer.search.key_mask import KeyMask
from relayer.search.ranking import SearchResult
from relayer.search.rows import Vector
from relayer.wire import schemas
from relayer.wire.memories import RecallRequest, Selection

_WORD = re.compile(r"\w+")
# Characters of a place's part that a query may name it by.
_SHORTEST_PART = 3
# What a turn that was kept word for word has as memories have it.
_OF_TURNS = frozenset({"sessions", "hosts", "audiences", "created_after", "created_before"})
# Indexing takes about 0.1 ms for a memory and as much for a KiB of its text, up to what is searched of one; after this
# much the others get a turn.
SLICE_BYTES = 6 * 1024
_MEMORY_BYTES = 1024
# What an open namespace takes without a memory in it: measured, the tasks and the log's tables included.
_EMPTY_BYTES = 24 * 1024
# Vectors that are kept of what was embedded alone, and what one takes beside its numbers.
_VECTORS_BYTES = 256 * 1024
_VECTOR_BYTES = 250
# Memories of which it is known whether they always matter, and what an entry takes.
_ESSENTIALS = 100_000
_ESSENTIAL_BYTES = 200


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """A stored index: whether the manifest names it, the entry it goes up to, its records and its bytes."""

    named: bool
    seq: int
    records: int
    nbytes: int


# Of those that contradict one memory, as many are told before it: the rest of a recall is for what was asked.
_MOST_BESIDE = 2


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenNamespace:
    """A namespace while a key for it is live; ``users`` counts the requests in it.

    What there is in it is asked of this object alone; nobody else knows how it is kept.

    Attributes:
        key_not_after: until when it may be held, in ms since the epoch.
        reserved: whether it was opened for requests of which none has come to use it yet.
        trusts_indexes: whether to begin with a stored index if there is one.
        newest: the model that every memory is to have a vector of.
        former: what it is searched by until then; None when nothing is left of it.
        from_index: the entry up to which a stored index was begun with, 0 without one.
        ignored: stored indexes that were there and could not be used.
        allowance: asked before anything is appended; None lets everything be.
        ahead: what the log is read with when it is opened.
    """

    ports: LogPorts
    namespace: creation.OpenedNamespace
    newest: CalibratedModel
    secret: bytes = field(repr=False)
    key_not_after: int = 0
    trusts_indexes: bool = True
    former: CalibratedModel | None = None
    reserved: bool = True
    users: int = 0
    from_index: int = 0
    ignored: int = 0
    allowance: Allowance | None = None
    ahead: InitVar[ReadAhead | None] = None
    log: NamespaceLog = field(init=False)
    view: NamespaceView = field(init=False)
    _failure: Exception | None = None
    _catches_up: bool = False
    _behind: deque[Applied] = field(default_factory=deque)
    _indexing: asyncio.Task[None] | None = None
    _indexed: asyncio.Event = field(default_factory=asyncio.Event)
    _then: list[Callable[[], None]] = field(default_factory=list)
    _measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    # Held by whoever needs the indexes to be maintained by nobody else.
    _tending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _maintained_at: Position | None = None
    _restored: tuple[NamespaceState, NamespaceView] | None = None
    # Vectors of what was embedded alone, by a keyed digest of model and text: no text stays, and none can be looked up.
    # They are one namespace's: whoever asks in another learns nothing from how long his own answer takes.
    _vectors: LRUCache[bytes, NDArray[np.float32]] = field(init=False)
    _essentials: LRUCache[bytes, Essential | None] = field(default_factory=lambda: LRUCache(_ESSENTIALS))

    def __post_init__(self, ahead: ReadAhead | None) -> None:
        self._indexed.set()
        self._forget_vectors()
        self.view = self._new_view()
        self.log = NamespaceLog(
            self.ports,
            self.account,
            self.namespace.pointer,
            begin=self._begin,
            seen=self.namespace.seen,
            ahead=ahead,
            allowance=self.allowance,
        )
        self.log.subscribe(self._on_applied, self._on_reset)

    def _new_view(self) -> NamespaceView:
        view = self._view_of(self.former or self.newest)
        if self.former is not None:
            view.prepare(self.newest)
        return view

    def _view_of(self, model: CalibratedModel) -> NamespaceView:
        return NamespaceView(self.keys, model, self.ports.randomness)

    # What it is.

    @property
    def account(self) -> str:
        """Whose it is."""
        return self.namespace.account

    @property
    def name(self) -> str:
        """Its name in the account."""
        return self.namespace.pointer.name

    @property
    def incarnation(self) -> bytes:
        """Which life of the name this is."""
        return self.namespace.pointer.incarnation

    @property
    def keys(self) -> NamespaceKeys:
        """The keys of the current epoch."""
        return self.namespace.keys

    @property
    def position(self) -> Position:
        """Where it stands in the log."""
        return self.log.position

    @property
    def last_time(self) -> int:
        """The latest time of an entry, in ms."""
        return self.log.state.last_time

    @property
    def broken(self) -> bool:
        """Whether it has to be opened anew to be served."""
        return self._failure is not None or self.log.broken or self.log.state.closed

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        kept = len(self._vectors) * self._vector_bytes + len(self._essentials) * _ESSENTIAL_BYTES
        return _EMPTY_BYTES + self.log.nbytes + self.view.nbytes + kept

    # What the log says.

    def ids(self) -> list[bytes]:
        """Return the ids of all records, kept turns and what does not open included, in the order of the log."""
        return list(self.log.state.records)

    def state(self, record: bytes) -> RecordState | None:
        """Return what the log says of a record."""
        return self.log.state.records.get(record)

    def states(self, *, newest_first: bool = False) -> Iterator[RecordState]:
        """Yield what the log says of all records, in its order; nothing may be awaited meanwhile."""
        known = self.log.state.records.values()
        return reversed(known) if newest_first else iter(known)

    def is_live(self, record: bytes) -> bool:
        """Whether a record is there, and neither superseded nor forgotten; it may be over."""
        state = self.state(record)
        return state is not None and state.status is Status.LIVE

    def jobs(self) -> list[JobState]:
        """Return all promises, in the order of the log."""
        return list(self.log.state.jobs.values())

    def job(self, job: bytes) -> JobState | None:
        """Return a promise."""
        return self.log.state.jobs.get(job)

    def erasures(self) -> list[Erasure]:
        """Return all erasures, in the order of the log."""
        return list(self.log.state.erasures.known.values())

    def erasure(self, erasure: bytes) -> Erasure | None:
        """Return an erasure."""
        return self.log.state.erasures.known.get(erasure)

    def erasure_of(self, record: bytes) -> Erasure | None:
        """Return the erasure that destroyed a record."""
        return self.log.state.erasures.erasure_of(record)

    def report_of(self, erasure: Erasure) -> ErasureReport:
        """Return the report that an erasure begins with."""
        return report_of(self.account, self.name, self.log.replica, erasure.erasure)

    def seen_before(self, access: Access) -> dict[int, Outcome]:
        """Return what became of the operations of this very request when it came before, by index; `refresh` first.

        A request whose operations depend on what is there is evaluated once. What was stored after the first answer is
        not what its author meant, whoever sends it again.
        """
        return self.log.state.outcomes_of(access.principal.author, access.principal.nonce)

    def of_the_same_text(self, record: bytes) -> tuple[bytes, ...]:
        """Return the records that have this one's text, itself included."""
        return self.log.state.of_the_same_text(record)

    def duplicate_of(self, key: bytes) -> RecordState | None:
        """Return the newest record that says this, by what `NamespaceKeys.likeness_mac` makes of it."""
        return self.state(self.log.state.duplicates.newest(key))

    def was_taken_back(self, content: bytes) -> bool:
        """Whether somebody forgot or erased a text, by its `NamespaceKeys.content_mac`."""
        return self.log.state.was_taken_back(content)

    # What is in it.

    def record(self, record: bytes) -> Record | None:
        """Open a record, if there is one that can be opened."""
        return self.view.get(record)

    def memory(self, record: bytes) -> Memory | None:
        """Open a memory."""
        return self._memory(self.view.get(record))

    def memories(self, wanted: Selection | None = None) -> Iterator[Memory]:
        """Yield the memories that pass every filter, oldest first, whatever became of them."""
        ids = frozenset() if wanted is None else ids_of(wanted)
        for record in self.ids():
            memory = self.memory(record) if not ids or record in ids else None
            if memory is not None and (wanted is None or memory.passes(wanted)):
                yield memory

    def hit(self, number: int) -> Memory:
        """Open what a search found; raises `CorruptNamespace` if it does not open any more."""
        record = self.view.by_number(number)
        return Memory(record, self.log.state.records[record.id], self._is_searchable(record.id))

    def shown(self, number: int, show: Callable[[Memory, int | None], Shown]) -> Shown:
        """Return what ``show`` makes of a hit and of until when it holds; of a live one that is kept until something of it changes.

        Raises:
            CorruptNamespace: as `hit`.
        """
        record = self.view.table.id_of(number)
        state = self.log.state.records[record]
        made_of = (state.supersedes, state.reinforced, state.conflicts_with, self._is_searchable(record))
        is_live = state.status is Status.LIVE
        known = self.view.records.shown(number, made_of) if is_live else None
        if known is None:
            memory = self.hit(number)
            known = show(memory, self.ended_at(memory))
            if is_live:
                self.view.records.keep_shown(number, made_of, known)
        return known

    def turn(self, record: bytes) -> Memory | None:
        """Open a turn that was kept word for word."""
        number = self.view.table.dialogues.number_of(record)
        return None if number is None else self._memory(self.view.records.get(number))

    def turns(self, session: str | None = None) -> Iterator[Memory]:
        """Yield the kept turns of a session, or all, oldest first."""
        for record in self.view.table.dialogues.ids(session):
            turn = self.turn(record)
            if turn is not None:
                yield turn

    def select_turns(self, wanted: Selection) -> Iterator[Memory]:
        """Yield the kept turns that pass every filter, none where one asks for what only memories have.

        A turn may only repeat what another session said before: then it hangs on memories that are not of its session.
        """
        if wanted.filters <= _OF_TURNS:
            yield from (turn for turn in self.turns() if turn.passes(wanted))

    def _memory(self, record: Record | None) -> Memory | None:
        state = None if record is None else self.state(record.id)
        if record is None or state is None:
            return None
        return Memory(record, state, self._is_searchable(record.id))

    def _is_searchable(self, record: bytes) -> bool:
        """Whether a record has a vector; passages of a long one may still lack theirs."""
        return record not in self.view.space.lacking or self.view.has_vector(record)

    def essential(self, record: bytes) -> Essential | None:
        """Return what a memory says of what always matters; told once, since a record never changes."""
        if record not in self._essentials:
            memory = self.view.get(record)
            if memory is None:
                return None
            self._essentials[record] = essential_of(memory.text)
        return self._essentials[record]

    def is_memory(self, record: bytes, kinds: Sequence[str] = ()) -> bool:
        """Whether there is such a memory, of one of these kinds if any are given, that can be opened; it is not."""
        return record in self.view and (not kinds or self.view.table.is_of_kind(record, kinds))

    def is_turn(self, record: bytes) -> bool:
        """Whether it is a turn that was kept word for word."""
        return record in self.view.table.dialogues

    def last_of_session(self, session: str) -> bytes:
        """Return the newest record of a host's chat session, empty without one: what a first turn's context refers to."""
        return self.view.table.last_of_session(session) or b""

    def ended_at(self, memory: Memory) -> int | None:
        """Return until when a memory holds, in ms: as stated, or until the one in its place does; None when it does."""
        return memory.ended_by(self.record(memory.state.superseded_by))

    def changes_after(self, mark: Mark) -> list[Change]:
        """Return what became of memories after a mark, in the log's order."""
        return [change for change in self.view.journal.after(mark) if not self.is_turn(change.record)]

    # What a search finds.

    @property
    def model(self) -> EmbeddingModel:
        """What it is searched by."""
        return self.view.space.model

    @property
    def converting(self) -> bool:
        """Whether it is searched by the former model, and collects vectors of the new one."""
        return self.view.coming is not None

    @property
    def lacking(self) -> dict[bytes, None]:
        """Ids of what has no vector of the newest model yet, oldest first."""
        return self.view.newest.lacking

    @property
    def repeats_texts(self) -> bool:
        """Whether several records may hold the same text, said among others or by another voice."""
        return self.log.state.repeats_texts

    def search(
        self,
        vector: Vector | None,
        query: str | QueryWords | None,
        count: int,
        *,
        allowed: KeyMask | None = None,
        floor: float = 0.0,
        past: bool = False,
        topic: Vector | None = None,
        reading: PromptReading | None = None,
    ) -> SearchResult:
        """Search what is live, or what is superseded or forgotten, as `MemoryIndex.search`; `wait_indexed` first."""
        index = self.view.past if past else self.view.index
        return index.search(vector, query, count, allowed=allowed, floor=floor, topic=topic, reading=reading)

    def places_in(self, query: str) -> list[str]:
        """Return the groups that a query names by a part of their place, of three characters or more: ``slack:#harbour``."""
        words = set(_WORD.findall(query.casefold()))
        named = (
            (place, [part for part in _WORD.findall(place.casefold()) if len(part) >= _SHORTEST_PART])
            for place in self.view.table.places()
        )
        return [place for place, parts in named if not words.isdisjoint(parts)]

    def speakers(self, query: str) -> list[str]:
        """Return the names of speakers in a query, as they stand there."""
        return self.view.index.speakers(query)

    def id_of_hit(self, number: int) -> bytes:
        """Return the id of what a search found."""
        return self.view.table.id_of(number)

    def state_of_hit(self, number: int) -> RecordState:
        """Return what the log says of what a search found, which is not opened for that."""
        return self.log.state.records[self.view.table.id_of(number)]

    def statement(self, number: int, longest: int) -> Statement:
        """Return what a memory says of a state that may change: nothing, if it has more characters than ``longest``."""
        text = self.hit(number).record.text
        return self.view.records.statement(number, text if len(text) <= longest else "")

    def vector_of_hit(self, number: int) -> Vector | None:
        """Return the vector that a live memory is found by."""
        return self.view.index.row(number)

    def number(self, record: bytes) -> int | None:
        """Return a memory's number in a search: in the order of the log."""
        return self.view.table.numbers.get(record)

    def allowed(self, request: RecallRequest, now: int) -> KeyMask | None:
        """Return the numbers of what passes a recall's filters at a time in ms; None when everything does."""
        allowed = self.view.table.allowed(
            kinds=request.kinds,
            audiences=request.audiences,
            trusts=request.trusts,
            suspect=request.include_suspect,
            now=now,
        )
        if request.occurred_after is not None or request.occurred_before is not None:
            inside = self.view.table.between(request.occurred_after, request.occurred_before)
            allowed = inside if allowed is None else inside.within(allowed.flags)
        if request.as_of is None:
            return allowed
        numbers = self.view.table.numbers.values() if allowed is None else allowed.keys().tolist()
        return KeyMask.of(number for number in numbers if self._held_at(number, request.as_of))

    def newer_beside(self, number: int) -> list[int]:
        """Return the numbers of what contradicts a memory and was said after it, newest first; of many the newest two."""
        beside = {one for one in self.view.table.beside(number) if self.is_live(self.view.table.id_of(one))}
        if not beside:
            return []
        said = {each: (self.hit(each).record.said_at, each) for each in (*beside, number)}
        newer = sorted((each for each in beside if said[each] > said[number]), key=said.__getitem__)
        return newer[: -_MOST_BESIDE - 1 : -1]

    def _held_at(self, number: int, at: int) -> bool:
        """Whether a memory held at a time in ms; its first instant counts, its last does not."""
        memory = self._memory(self.view.records.get(number))
        if memory is None:
            return False
        until = self.ended_at(memory)
        return memory.record.holds_from <= at and (until is None or at < until)

    def past_numbers(self, statuses: AbstractSet[str], allowed: KeyMask | None) -> KeyMask:
        """Return the numbers of past memories of these statuses, among those that are allowed (None: all)."""
        numbers = self.view.past.keys()
        past = KeyMask.of(number for number in numbers if self.state_of_hit(number).status in statuses)
        return past if allowed is None else past.within(allowed.flags)

    async def embed(
        self, embedder: Embedder, texts: Sequence[str], *, query: bool = False
    ) -> NDArray[np.float32]:
        """Embed texts of this namespace as `relayer.ports.Embedder.embed` does; what was asked alone is asked once."""
        if len(texts) != 1:
            return await embedder.embed(texts, query=query)
        data = f"{embedder.model.sha256} {query:d} {texts[0]}".encode("utf-8", "surrogatepass")
        key = self.keys.idempotency_mac("cache of vectors")
        place, kept = hashlib.blake2b(data, key=key, digest_size=16).digest(), self._vectors
        known = kept.get(place)
        if known is None:
            known = (await embedder.embed(texts, query=query)).copy()
            # What is erased meanwhile takes this cache along.
            kept[place] = known
        return known.copy()

    def _forget_vectors(self) -> None:
        self._vectors = LRUCache(_VECTORS_BYTES // self._vector_bytes)

    @property
    def _vector_bytes(self) -> int:
        return 4 * self.newest.model.dimension + _VECTOR_BYTES

    @property
    def null_is_due(self) -> bool:
        """Whether relevance is judged by another null than what is there by now; see `measure_baseline`."""
        return self.view.index.null_is_due

    async def measure_baseline(self) -> None:
        """Bring the null that relevance is judged by up to date, as every replica has it; `read` first."""
        while self.null_is_due:
            async with self._measuring:
                await self.view.index.measure_null()
            await self.wait_indexed()

    # Reading, writing, waiting.

    async def start(self) -> None:
        """Read the log; on an error it is closed."""
        try:
            await self.log.start()
            self._catches_up = True
            await self.wait_indexed()
            self._catches_up = False
        except BaseException:
            await self.close()
            raise

    async def read(
        self,
        consistency: schemas.Consistency,
        min_position: schemas.Position | None = None,
        since: float | None = None,
    ) -> None:
        """Bring log and view up to what the consistency asks for; ``since`` as `Replica.read` takes it."""
        await self.read_log(consistency, min_position, since)
        await self.wait_indexed()

    async def read_log(
        self,
        consistency: schemas.Consistency,
        min_position: schemas.Position | None = None,
        since: float | None = None,
    ) -> None:
        """Bring the log up to what the consistency asks for, see `read`; the view may lag behind."""
        wanted = Position(min_position.seq, bytes.fromhex(min_position.digest)) if min_position else None
        await self.log.read(Consistency(consistency.value), wanted, since)

    @property
    def lags(self) -> bool:
        """Whether it is being opened, its log is read, and its view has not caught up: a search finds a part of what there is."""
        return self._catches_up and self._indexing is not None and self._failure is None

    async def refresh(self, deadline: Deadline) -> None:
        """Bring log and view up to every write that was acknowledged."""
        async with deadline.step("read"):
            await self.read(schemas.Consistency.STRONG)

    async def append(
        self,
        operations: Sequence[Operation],
        deadline: Deadline | None = None,
        plaintexts: Mapping[tuple[bytes, str, bytes], bytes] | None = None,
    ) -> list[Outcome]:
        """Append operations, as `NamespaceLog.append`; ``plaintexts`` are what they seal, which need not be opened again."""
        known = self.view.plaintexts
        known.update(plaintexts or {})
        try:
            async with deadline.step("append") if deadline is not None else nullcontext():
                return await self.log.append(operations)
        finally:
            if plaintexts:
                self._once_indexed(partial(_without, known, tuple(plaintexts)))

    def _once_indexed(self, then: Callable[[], None]) -> None:
        """Do something now, or when the view has caught up with what the log has applied."""
        if self._indexing is None:
            then()
        else:
            self._then.append(then)

    async def wait_indexed(self) -> None:
        """Wait until the view has everything that the log has applied.

        Raises:
            NamespaceClosed: the namespace was erased.
            CorruptNamespace: it could not follow; the next request opens the namespace anew.
        """
        while self._indexing is not None:
            await self._indexed.wait()
        if self._failure is not None:
            raise CorruptNamespace("the view could not follow the log; it is opened anew") from self._failure
        if self.log.state.closed:
            raise NamespaceClosed("the namespace was erased")
        self.view.cut_over()

    async def changed(self, seconds: float) -> None:
        """Wait until the log moves, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    # What is done beside the requests.

    @property
    def replica(self) -> Replica:
        """The copy that this follows the log with: for what looks after the log beside the requests."""
        return self.log.replica

    @property
    def last_late(self) -> int:
        """The newest entry with bodies of what was erased before; 0 without one."""
        return self.log.state.erasures.last_late

    @property
    def needs_maintenance(self) -> bool:
        """Whether the log has moved since the last round, or that one left something undone."""
        return bool(self.lacking) or self.position != self._maintained_at

    def note_maintained(self) -> None:
        """Note the end of a round: until the log moves there is no need of another, unless something is still promised."""
        if not any(job.state == "pending" for job in self.jobs()):
            self._maintained_at = self.position

    async def tidy_indexes(self) -> None:
        """Bring the indexes up to date; what was erased leaves no vector in them."""
        async with self._tending:
            view = self.view
            purge, view.purge_due = view.purge_due, False
            try:
                await view.read_long()
                for index in (view.index, view.past):
                    await index.maintain(purge=purge)
            except BaseException:
                view.purge_due = purge or view.purge_due
                raise

    async def compact(self, limits: CompactionLimits) -> Compaction | None:
        """Make one segment if there is need; see `NamespaceLog.compact`."""
        return await self.log.compact(limits) if self.log.compaction_due(limits) else None

    @property
    def records_ever(self) -> int:
        """How many records there ever were, as far as the view knows."""
        return len(self.view.table)

    def records_up_to(self, seq: int) -> int:
        """Return how many records are of entries up to one; only the newest are looked at: the others are not read yet."""
        if not seq:
            return 0
        records = self.log.state.records
        return len(records) - sum(1 for _ in takewhile(lambda one: one.seq > seq, reversed(records.values())))

    @property
    def own_index(self) -> int:
        """The entry up to which there was a stored index for the newest model when it was opened; 0 if it began without one."""
        return self.from_index if self.former is None else 0

    async def indexed(self) -> int:
        """Return the entry up to which there is a stored index for the newest model, 0 without one."""
        return await self.log.indexes.indexed(self.newest.model)

    async def write_index(self) -> WrittenIndex:
        """Write a stored index of what there is now; the namespace goes on meanwhile.

        Raises:
            RelayerError: it was not written, or it is not known whether it is named; both are harmless.
        """
        model, indexes = self.newest.model, self.log.indexes
        if self.view.space.calibration.probes:
            # Whoever opens the index need not measure it again before the first answer.
            await self.measure_baseline()
        async with self._tending:
            view, state = await self._pinned(), self.log.state
            try:
                # All in one step: what is pinned is of one position.
                erased, records = len(state.erased), self.records_ever
                builder = indexes.begin(model, self.keys.epoch, blocks_of(records))
                pages = write_state(state, state.pinned)
                turns = Turns()
                for page in pages:
                    builder.add_page(page)
                    await turns.give()
                await write_view(view, builder, self.keys, self.ports.randomness)
            finally:
                state.pinned = None
                self.view.unpin()
            del view, pages
            data = builder.finish()
        named = await indexes.publish(builder, model, data, erased)
        return WrittenIndex(named, builder.position.seq, records, len(data))

    @property
    def being_tended(self) -> bool:
        """Whether its indexes are being maintained or written down."""
        return self._tending.locked()

    async def _pinned(self) -> PinnedView:
        """Pin the view and the state when both are of one position.

        Raises:
            CorruptNamespace: the view could not follow the log.
        """
        while True:
            await self.wait_indexed()
            view = self.view
            pinned = await view.pin()
            if self._indexing is None and self._failure is None and view is self.view:
                self.log.state.pinned = Pinned()
                return pinned
            view.unpin()

    async def close(self, patience: float = 10.0) -> None:
        """Commit what is queued for at most ``patience`` seconds, stop, and let go of keys and memories."""
        try:
            await self.log.close(patience)
        finally:
            if self._indexing is not None:
                self._failure = NamespaceClosed("the namespace was let go of while it was indexed")
                self._indexing.cancel()
                await asyncio.wait([self._indexing])
                # A task that is cancelled before its first step says nothing itself.
                self._end_indexing()
            # The log's projections are methods of this object: without them nothing holds the keys but their users.
            self.log.unsubscribe()
            self._restored = None
            self._behind.clear()
            # Whoever waits for a change here waits in vain.
            self._wake()
            self._forget_vectors()

    async def _begin(self, manifest: Manifest) -> Start | None:
        """Read the index that the manifest names; None when there is none that can be used."""
        self._restored = None
        self.from_index = 0
        if not self.trusts_indexes:
            return None
        for model in (self.newest, self.former):
            start = None if model is None else await self._begin_with(manifest, model)
            if start is not None:
                return start
        return None

    async def _begin_with(self, manifest: Manifest, model: CalibratedModel) -> Start | None:
        """Read the named index if it was made for this model."""
        reader = None
        try:
            reader = await self.log.indexes.open(manifest, model.model, self.keys.epoch)
            if reader is None:
                return None
            start = await reader.state()
            view = self._view_of(model)
            await read_view(reader, view, self.keys)
        except CorruptNamespace:
            # The log has all that an index has: it takes longer, and that is all.
            self.ignored += 1
            return None
        finally:
            if reader is not None:
                await reader.close()
        if model is not self.newest:
            view.prepare(self.newest)
        self.from_index = start.state.position.seq
        self._restored = (start.state, view)
        return start

    def _on_applied(self, applied: list[Applied]) -> None:
        if any(isinstance(item.operation, Erase | Close) for item in applied):
            # A vector stands for its text, and nobody knows here which were made of what is erased.
            self._forget_vectors()
        if self.log.state.closed:
            # Nobody may be answered from this any more: let go of it now, not when its key ends.
            self._behind.clear()
            self.view = self._new_view()
            self._wake()
            return
        if self._indexing is None and sum(map(_weight, applied)) <= SLICE_BYTES:
            self.view.apply(self.log.state, applied)
        else:
            self._behind.extend(applied)
            if self._indexing is None:
                self._indexed.clear()
                self._indexing = asyncio.create_task(self._index())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _on_reset(self, state: NamespaceState) -> None:
        self._behind.clear()
        restored, self._restored = self._restored, None
        if restored is not None and restored[0] is state:
            self.view = restored[1]
        else:
            self.view = self._new_view()

    async def _index(self) -> None:
        try:
            while self._behind:
                self.view.apply(self.log.state, list(self._slice()))
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be answered from this view
            self._failure = error
        finally:
            self._end_indexing()

    def _end_indexing(self) -> None:
        self._indexing = None
        then, self._then = self._then, []
        for do in then:
            do()
        self._indexed.set()

    def _slice(self) -> Iterable[Applied]:
        """Take from what is behind at least one operation, and no more than a slice after it."""
        room = SLICE_BYTES
        while self._behind and room > 0:
            item = self._behind.popleft()
            room -= _weight(item)
            yield item


def _without(known: dict[tuple[bytes, str, bytes], bytes], seals: Iterable[tuple[bytes, str, bytes]]) -> None:
    for seal in seals:
        known.pop(seal, None)


def _weight(item: Applied) -> int:
    """How much there is to index in an operation, in bytes of its sealed text."""
    match item.operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return _MEMORY_BYTES + len(stored.sealed)
        case JobFinished(stored=results):
            return sum(_MEMORY_BYTES + len(stored.sealed) for stored in results)
        case _:
            return 0
