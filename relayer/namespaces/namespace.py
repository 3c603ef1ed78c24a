"""One open namespace: its log, its keys, and its decrypted memories.

`OpenNamespace` connects a `NamespaceLog`, which holds the sealed operations, with a `NamespaceView`, which holds the
records and the search indexes. The log reports the operations that it has applied in one step of the event loop. Small
batches are indexed in the same step; large ones are indexed by a task that yields to the event loop in between, and every
read waits for that task. So operations are indexed in order, the event loop is not blocked, and a write that was
acknowledged can be recalled.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from dataclasses import InitVar, dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.crypto import NamespaceKeys
from relayer.domain.containers import Pinned
from relayer.domain.erasures import Erasure
from relayer.domain.namespace import LogPosition, Manifest
from relayer.domain.operations import (
    Close,
    Erase,
    JobState,
    Operation,
    Outcome,
    Record,
    RecordState,
    stored_in,
)
from relayer.domain.snapshot import write_state
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.extraction.persons import other_person
from relayer.extraction.requests import is_for_today, is_one_off
from relayer.lib.marking_words import Essential, marked
from relayer.lib.scheduler import Turns
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.log.compactor import Compaction, CompactionLimits
from relayer.log.namespace_log import Allowance, NamespaceLog
from relayer.log.objects import LogPorts, ReadAhead
from relayer.log.replica import Replica, StartingState
from relayer.namespaces.labels import fields_of, labels_of
from relayer.namespaces.projection import CalibratedModel, Change, Mark, NamespaceView, PinnedView
from relayer.namespaces.records import OpenedMemory, RenderedMemory, ReplacedSpan, Wish, ids_of
from relayer.namespaces.stored import blocks_of, read_view, write_view
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.essentials import essential_of
from relayer.search.index import MemoryIndex
from relayer.search.rows import KeyMask
from relayer.search.terms import named_in, names_any
from relayer.wire.fields import Consistency, Position, Status
from relayer.wire.schemas import RecallRequest, Selection

_WORD = re.compile(r"\w+")
# The fewest characters of a part of a group's name by which a query may mention the group.
_SHORTEST_PART = 3
# The filters that apply to turns stored verbatim as they apply to memories.
_OF_TURNS = frozenset({"sessions", "hosts", "audiences", "created_after", "created_before"})
# Indexing takes about 0.1 ms for a memory and as much for each KiB of its text, up to the length that is searched. After
# this many bytes the indexing task yields to the event loop.
SLICE_BYTES = 6 * 1024
_MEMORY_BYTES = 1024
# The size of an open namespace without memories. Measured, with its tasks and the tables of its log.
_EMPTY_BYTES = 24 * 1024
# The size of the cache of vectors of texts that were embedded alone, and the overhead of one entry in addition to its numbers.
_VECTORS_BYTES = 256 * 1024
_VECTOR_BYTES = 250
# The number of records that are decrypted for a filter before other tasks run: about two milliseconds.
_FILTERED = 64
# The number of cached results of `essential_of`, and the size of one entry in bytes.
_ESSENTIALS = 100_000
_ESSENTIAL_BYTES = 200


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """A stored index that was written.

    Attributes:
        named: whether the manifest names it.
        seq: the last log entry that it covers.
    """

    named: bool
    seq: int
    records: int
    nbytes: int


# At most this many contradicting memories are listed before a memory, to leave the rest of a recall to the query itself.
_MOST_BESIDE = 2


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenNamespace:
    """A namespace that is open while a key for it is live.

    All other modules read the content of a namespace through this class; log and view are details of it.

    Attributes:
        key_not_after: the time until which its keys may be held, in ms since the epoch.
        reserved: whether it was opened for requests, none of which has used it yet.
        trusts_indexes: whether to start from a stored index if there is one.
        newest: the model of which every memory is to have a vector.
        former: the model that it is searched by until then; None if there is no such model.
        from_index: the last log entry of the stored index that it was opened from; 0 without one.
        ignored: number of stored indexes that existed and could not be used.
        allowance: called before operations are appended, to check the quota; None permits everything.
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
    # Held by the task that maintains or writes the indexes, so that only one does.
    _tending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _maintained_at: LogPosition | None = None
    _restored: tuple[NamespaceState, NamespaceView] | None = None
    # Vectors of texts that were embedded alone, by a keyed digest of model and text, so that no text is stored and none can
    # be looked up. Each namespace has a cache of its own: response times reveal nothing about the queries of another one.
    _vectors: LRUCache[bytes, NDArray[np.float32]] = field(init=False)
    _vectors_key: bytes = field(init=False, repr=False)
    _essentials: LRUCache[tuple[bytes, ...], Essential | None] = field(
        default_factory=lambda: LRUCache(_ESSENTIALS)
    )

    def __post_init__(self, ahead: ReadAhead | None) -> None:
        self._indexed.set()
        self._vectors_key = self.keys.idempotency_mac("cache of vectors")
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
        self.replica.subscribe(self._on_applied, self._on_reset)

    def _new_view(self) -> NamespaceView:
        view = self._view_of(self.former or self.newest)
        if self.former is not None:
            view.prepare(self.newest)
        return view

    def _view_of(self, model: CalibratedModel) -> NamespaceView:
        return NamespaceView(self.keys, model, self.ports.randomness)

    # Identity.

    @property
    def account(self) -> str:
        """The id of the account that owns the namespace."""
        return self.namespace.account

    @property
    def name(self) -> str:
        """The name of the namespace in its account."""
        return self.namespace.pointer.name

    @property
    def incarnation(self) -> bytes:
        """The incarnation, which differs if a namespace is created again under the same name."""
        return self.namespace.pointer.incarnation

    @property
    def keys(self) -> NamespaceKeys:
        """The keys of the incarnation."""
        return self.namespace.keys

    @property
    def position(self) -> LogPosition:
        """The position in the log that has been applied."""
        return self.replica.state.position

    @property
    def last_time(self) -> int:
        """The latest timestamp of an entry, in ms."""
        return self.replica.state.last_time

    @property
    def broken(self) -> bool:
        """Return whether the namespace has to be opened again before requests can use it."""
        return self._failure is not None or self.replica.broken or self.replica.state.closed

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        kept = int(self._vectors.currsize) + len(self._essentials) * _ESSENTIAL_BYTES
        return _EMPTY_BYTES + self.replica.nbytes + self.view.nbytes + kept

    # State in the log.

    def ids(self) -> list[bytes]:
        """Return the ids of all records in log order, including verbatim turns and records that cannot be decrypted."""
        return list(self.replica.state.records)

    def state(self, record: bytes) -> RecordState | None:
        """Return the state of a record in the log; None if there is none."""
        return self.replica.state.records.get(record)

    def states(self, *, newest_first: bool = False) -> Iterator[RecordState]:
        """Yield the states of all records, in log order unless ``newest_first``. The caller must not await while iterating."""
        known = self.replica.state.records.values()
        return reversed(known) if newest_first else iter(known)

    def is_live(self, record: bytes) -> bool:
        """Return whether a record exists and is neither superseded nor forgotten; its validity may have ended."""
        state = self.state(record)
        return state is not None and state.status is Status.LIVE

    def jobs(self) -> list[JobState]:
        """Return all jobs, in log order."""
        return list(self.replica.state.jobs.values())

    def job(self, job: bytes) -> JobState | None:
        """Return a job; None if there is none with this id."""
        return self.replica.state.jobs.get(job)

    def erasures(self) -> list[Erasure]:
        """Return all erasures, in log order."""
        return list(self.replica.state.erasures.known.values())

    def erasure(self, erasure: bytes) -> Erasure | None:
        """Return an erasure; None if there is none with this id."""
        return self.replica.state.erasures.known.get(erasure)

    def erasure_of(self, record: bytes) -> Erasure | None:
        """Return the erasure that deleted a record permanently; None if there is none."""
        return self.replica.state.erasures.erasure_of(record)

    def seen_before(self, access: Access) -> dict[int, Outcome]:
        """Return the outcomes of this request's operations if it was received before, by index; call `refresh` first.

        A request whose operations depend on the content of the namespace is evaluated only once: when it is sent again,
        memories stored after the first response are not among those that its author meant.
        """
        return self.replica.state.known.of_request(access.principal.author, access.principal.nonce)

    def of_the_same_text(self, record: bytes) -> tuple[bytes, ...]:
        """Return the records that have the same text as this one, including itself."""
        state = self.replica.state
        return state.duplicates.of_text(state.records[record].content)

    def duplicate_of(self, key: bytes) -> RecordState | None:
        """Return the newest record of which a new one would be a duplicate; ``key`` is from `NamespaceKeys.likeness_mac`."""
        return self.state(self.replica.state.duplicates.newest(key))

    def was_taken_back(self, content: bytes) -> bool:
        """Return whether a text was forgotten or erased; ``content`` is its `NamespaceKeys.content_mac`."""
        return self.replica.state.was_taken_back(content)

    # Records and memories.

    def record(self, record: bytes) -> Record | None:
        """Decrypt a record; None if there is none, or it cannot be decrypted."""
        return self.view.get(record)

    def memory(self, record: bytes) -> OpenedMemory | None:
        """Decrypt a memory; None if there is none, or it cannot be decrypted."""
        return self._memory(self.view.get(record))

    def memories(self, wanted: Selection | None = None) -> Iterator[OpenedMemory]:
        """Yield the memories that pass every filter, oldest first, including superseded and forgotten ones."""
        ids = frozenset() if wanted is None else ids_of(wanted)
        for record in self.ids():
            memory = self.memory(record) if not ids or record in ids else None
            if memory is not None and (wanted is None or memory.passes(wanted)):
                yield memory

    def hit(self, number: int) -> OpenedMemory:
        """Decrypt a search hit, given its key in the index; raises `CorruptNamespace` if it can no longer be decrypted."""
        memory = self._memory(self.view.records.get(number))
        if memory is None:
            raise CorruptNamespace("a hit of a search does not open, or is not in the log")
        return memory

    def shown(
        self, number: int, show: Callable[[OpenedMemory, int | None], RenderedMemory]
    ) -> RenderedMemory:
        """Return a hit as rendered for a response. Live memories are cached until their state changes.

        ``show`` renders a memory, given the time in ms at which its validity ends (None: it does not). Raises
        `CorruptNamespace`: as `hit`.
        """
        record = self.view.table.id_of(number)
        state = self.replica.state.records[record]
        replaced = [(by, self._stands(by)) for by, *_ in self.view.table.replaced(record)]
        made_of = (
            state.supersedes,
            state.reinforced,
            state.conflicts_with,
            self._is_searchable(record),
            replaced,
        )
        is_live = state.status is Status.LIVE
        known = self.view.records.shown(number, made_of) if is_live else None
        if known is None:
            memory = self.hit(number)
            known = show(memory, self.ended_at(memory))
            if is_live:
                self.view.records.keep_shown(number, made_of, known)
        return known

    def turn(self, record: bytes) -> OpenedMemory | None:
        """Decrypt a turn that was stored verbatim; None if there is none, or it cannot be decrypted."""
        number = self.view.table.dialogues.number_of(record)
        return None if number is None else self._memory(self.view.records.get(number))

    def turns(self, session: str | None = None) -> Iterator[OpenedMemory]:
        """Yield the verbatim turns of a session, or of all sessions, oldest first."""
        for record in self.view.table.dialogues.ids(session):
            turn = self.turn(record)
            if turn is not None:
                yield turn

    def select_turns(self, wanted: Selection) -> Iterator[OpenedMemory]:
        """Yield the verbatim turns that pass every filter; none if a filter is for a property that only memories have.

        A turn may only repeat what was said in another session before. The memories that refer to it are then not of its
        own session.
        """
        if wanted.filters <= _OF_TURNS:
            yield from (turn for turn in self.turns() if turn.passes(wanted))

    def _memory(self, record: Record | None) -> OpenedMemory | None:
        state = None if record is None else self.state(record.id)
        if record is None or state is None:
            return None
        replaced = [ReplacedSpan(*given) for given in record.left_out]
        replaced += [
            ReplacedSpan(start, end, by)
            for by, start, end in self.view.table.replaced(record.id)
            if self._stands(by)
        ]
        return OpenedMemory(record, state, self._is_searchable(record.id), tuple(sorted(set(replaced))))

    def _stands(self, record: bytes) -> bool:
        """Return whether what a record replaced is over: it was not forgotten or erased, though it may have been replaced itself."""
        state = self.replica.state.records.get(record)
        return state is not None and state.status is not Status.FORGOTTEN

    def _is_searchable(self, record: bytes) -> bool:
        """Return whether a record has a vector; passages of a long one may still lack theirs."""
        return record not in self.view.space.lacking or self.view.has_vector(record)

    def essential(self, record: bytes) -> Essential | None:
        """Return the `Essential` of a memory, None if it has none; cached for what is left of it, because a record never changes."""
        left = record, *(by for by, *_ in self.view.table.replaced(record) if self._stands(by))
        if left not in self._essentials:
            memory = self.memory(record)
            if memory is None:
                return None
            read = memory.record.essential
            gone = " ".join(memory.record.text[start:end] for start, end, _ in memory.replaced)
            # The model read the whole text. A danger is over with its part, and who someone is may be in any part.
            if gone and (read == "style" or (read == "harm" and essential_of(gone) == "harm")):
                read = ""
            essential = essential_of(memory.text, read)
            left_out = essential == "style" and (is_one_off(memory.text) or is_for_today(memory.text))
            if essential in {"style", "identity"}:
                # How a manager wants mails, or where an aunt lives, says nothing of the speaker; the name of a wife does.
                person = other_person(memory.text)
                left_out = left_out or (person != "" and essential not in marked(person))
            self._essentials[left] = None if left_out else essential
        return self._essentials[left]

    def is_memory(self, record: bytes, kinds: Sequence[str] = ()) -> bool:
        """Return whether a readable memory with this id exists, of one of the kinds if any are given; does not decrypt it."""
        return record in self.view and (not kinds or self.view.table.is_of_kind(record, kinds))

    def is_turn(self, record: bytes) -> bool:
        """Return whether an id is that of a conversation turn that was stored verbatim, and not of a memory."""
        return record in self.view.table.dialogues

    def last_of_session(self, session: str) -> bytes:
        """Return the id of the newest record of a host's chat session, empty if there is none.

        The first turn of a capture refers to it as its context.
        """
        return self.view.table.last_of_session(session) or b""

    def ended_at(self, memory: OpenedMemory) -> int | None:
        """Return the time at which a memory's validity ends, in ms; None if it does not. See `OpenedMemory.ended_by`."""
        return memory.ended_by(self.record(memory.state.superseded_by))

    def changes_after(self, mark: Mark) -> list[Change]:
        """Return the changes of memories after a cursor, in log order."""
        return [change for change in self.view.journal.after(mark) if not self.is_turn(change.record)]

    # Search.

    @property
    def model(self) -> EmbeddingModel:
        """The model whose vectors are searched."""
        return self.view.space.by.model

    @property
    def converting(self) -> bool:
        """Return whether it is searched by the former model while vectors of the new one are computed."""
        return self.view.coming is not None

    @property
    def lacking(self) -> dict[bytes, None]:
        """The ids of the memories that have no vector of the newest model yet, oldest first."""
        return self.view.newest.lacking

    @property
    def repeats_texts(self) -> bool:
        """Return whether several records may have the same text, because the audience or the speaker differs."""
        return self.replica.state.duplicates.repeats

    def index(self, *, past: bool = False) -> MemoryIndex:
        """Return the index of live memories, or of superseded and forgotten ones; call `wait_indexed` before a search."""
        return self.view.past if past else self.view.index

    def places_in(self, query: str) -> list[str]:
        """Return the groups that a query mentions by a word of their name, such as ``harbour`` for ``slack:#harbour``.

        Words of fewer than three characters do not count.
        """
        words = set(_WORD.findall(query.casefold()))
        named = (
            (place, [part for part in _WORD.findall(place.casefold()) if len(part) >= _SHORTEST_PART])
            for place in self.view.table.places()
        )
        return [place for place, parts in named if not words.isdisjoint(parts)]

    def wishes(
        self, audiences: Sequence[str], trusts: Sequence[str], now: int, prompt: str = ""
    ) -> list[Wish]:
        """Return the live wishes not to be reminded, without those whose subject a prompt names; "" names nothing.

        Only wishes for these audiences and of these trusts count, with empty filters all. ``now`` is in ms.
        """
        known = self.view.table.wishes(audiences, trusts, now)
        of_prompt = named_in(prompt)
        return [(wish, about) for wish, about in known if not names_any(about, of_prompt)]

    def all_but(self, allowed: KeyMask | None, keys: Iterable[int]) -> KeyMask:
        """Return the allowed keys (None: all) without some."""
        flags = self.view.index.present.copy() if allowed is None else allowed.flags.copy()
        flags[[*keys]] = False
        return KeyMask(flags)

    def id_of_hit(self, number: int) -> bytes:
        """Return the record id of a hit."""
        return self.view.table.id_of(number)

    def state_of_hit(self, number: int) -> RecordState:
        """Return the state of a hit in the log, without decrypting the record."""
        return self.replica.state.records[self.view.table.id_of(number)]

    def allowed(self, request: RecallRequest, now: int) -> KeyMask | None:
        """Return the keys of the records that pass a recall's filters; None if all do. ``now`` is in ms."""
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
        return KeyMask.from_keys(number for number in numbers if self._held_at(number, request.as_of))

    async def passing(self, where: Mapping[str, Any] | None) -> KeyMask | None:
        """Return the keys of the records that pass a filter; None if there is no filter.

        The first filter on a field decrypts every record, and other tasks run meanwhile; later ones decrypt new records only. The
        result covers all records at the time of the return.
        """
        if where is None:
            return None
        fields = fields_of(where)
        while True:
            table, labels = self.view.table, self.view.labels
            covered = labels.covered(where)
            if covered >= len(table):
                return KeyMask(labels.passing(where))
            for number in range(covered, min(covered + _FILTERED, len(table))):
                is_record = table.id_of(number) in table.numbers
                record = self.view.records.get(number) if is_record else None
                labels.append(number, None if record is None else labels_of(record), fields)
            # The view may be another one after this, and a record may be erased.
            await asyncio.sleep(0)

    def key_of(self, record: bytes) -> int | None:
        """Return the key of a record, which `allowed` and `passing` return; None if there is no such record."""
        return self.view.table.numbers.get(record)

    def newer_beside(self, number: int) -> list[int]:
        """Return the keys of the memories that contradict or follow a memory: at most two that were said after it, newest first."""
        related = {one for one in self.view.table.newer(number) if self.is_live(self.view.table.id_of(one))}
        if not related:
            return []
        said = {each: (self.hit(each).record.said_at, each) for each in (*related, number)}
        newer = sorted((each for each in related if said[each] > said[number]), key=said.__getitem__)
        return newer[: -_MOST_BESIDE - 1 : -1]

    def replaced_by(self, number: int) -> list[int]:
        """Return the keys of the memories that a memory replaced, wholly or in part, or may have replaced: those that it follows."""
        numbers = self.view.table.numbers
        older = (self.state_of_hit(number).supersedes, *self.hit(number).record.follows)
        return [*(numbers[one] for one in older if one in numbers), *self.view.table.replaced_by(number)]

    def parts_replaced_by(self, numbers: Container[int]) -> dict[int, tuple[int, int, int]]:
        """Return for each of some memories the key of one of which it replaced a statement, with its start and end."""
        return self.view.table.parts_replaced_by(numbers)

    def replacing(self, number: int) -> list[int]:
        """Return the keys of the live memories that replaced a memory, or statements of it; fewer while the index lags."""
        record = self.view.table.id_of(number)
        state = self.state(record)
        newer = [one for one, *_ in self.view.table.replaced(record)]
        if state is not None and state.status is Status.SUPERSEDED:
            newer.append(state.superseded_by)
        newest = (self._newest(one) for one in newer)
        return [
            key
            for one in dict.fromkeys(newest)
            if self.is_live(one) and (key := self.key_of(one)) is not None
        ]

    def _newest(self, record: bytes) -> bytes:
        state = self.state(record)
        while state is not None and state.status is Status.SUPERSEDED:
            record = state.superseded_by
            state = self.state(record)
        return record

    def holds(self, number: int) -> bool:
        """Return whether a memory is live, or its newest version is: no one has forgotten it."""
        return self.is_live(self._newest(self.view.table.id_of(number)))

    def _held_at(self, number: int, at: int) -> bool:
        """Return whether a memory was valid at a time in ms; its start is inclusive, its end exclusive."""
        memory = self._memory(self.view.records.get(number))
        if memory is None:
            return False
        until = self.ended_at(memory)
        return memory.record.holds_from <= at and (until is None or at < until)

    def past_numbers(self, statuses: AbstractSet[str], allowed: KeyMask | None) -> KeyMask:
        """Return the keys of past memories with these statuses, among those that are allowed (None: all)."""
        numbers = self.view.past.keys()
        past = KeyMask.from_keys(number for number in numbers if self.state_of_hit(number).status in statuses)
        return past if allowed is None else past.within(allowed.flags)

    async def embed(
        self, embedder: Embedder, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """Embed texts as `relayer.ports.Embedder.embed` does; the vector of a text that is embedded alone is cached."""
        if len(texts) != 1:
            return await embedder.embed(texts, query=query, prompt=prompt)
        data = f"{embedder.model.sha256} {query:d}{prompt:d} {texts[0]}".encode("utf-8", "surrogatepass")
        place, kept = hashlib.blake2b(data, key=self._vectors_key, digest_size=16).digest(), self._vectors
        known = kept.get(place)
        if known is None:
            known = (await embedder.embed(texts, query=query, prompt=prompt)).copy()
            # If an erasure replaced the cache while the model was running, this entry goes into the discarded one.
            kept[place] = known
        return known.copy()

    def _forget_vectors(self) -> None:
        self._vectors = LRUCache(_VECTORS_BYTES, getsizeof=lambda rows: rows.nbytes + _VECTOR_BYTES)

    async def measure_baseline(self) -> None:
        """Bring the baseline of relevance up to date, the same on every replica; call `read` first."""
        while self.view.index.null_is_due:
            async with self._measuring:
                await self.view.index.measure_null()
            await self.wait_indexed()

    # Reading, writing and waiting.

    async def start(self) -> None:
        """Read the log; close the namespace if that fails."""
        try:
            await self.log.start()
            self._catches_up = True
            await self.wait_indexed()
            self._catches_up = False
        except BaseException:
            await self.close()
            raise

    async def read(
        self, consistency: Consistency, min_position: Position | None = None, since: float | None = None
    ) -> None:
        """Bring log and view up to date as the consistency level requires; ``since`` as in `Replica.read`."""
        await self.read_log(consistency, min_position, since)
        await self.wait_indexed()

    async def read_log(
        self, consistency: Consistency, min_position: Position | None = None, since: float | None = None
    ) -> None:
        """Bring the log up to date as the consistency level requires, see `read`; the view may lag behind."""
        wanted = LogPosition(min_position.seq, bytes.fromhex(min_position.digest)) if min_position else None
        await self.replica.read(consistency, wanted, since)

    @property
    def lags(self) -> bool:
        """Return whether it is being opened and its log was read, but its view lags behind: a search finds only a part."""
        return self._catches_up and self._indexing is not None and self._failure is None

    async def refresh(self, deadline: Deadline) -> None:
        """Bring log and view up to date with every acknowledged write."""
        async with deadline.step("read"):
            await self.read(Consistency.STRONG)

    async def append(
        self,
        operations: Sequence[Operation],
        deadline: Deadline | None = None,
        plaintexts: Mapping[tuple[bytes, str, bytes], bytes] | None = None,
    ) -> list[Outcome]:
        """Append operations as `NamespaceLog.append` does, before the deadline if there is one.

        ``plaintexts`` are what the operations seal, by record, part and seal, so that the view need not decrypt them.
        """
        known = self.view.plaintexts
        known.update(plaintexts or {})
        try:
            async with deadline.step("append") if deadline is not None else nullcontext():
                return await self.log.append(operations)
        finally:
            if plaintexts:
                seals = tuple(plaintexts)

                def forget() -> None:
                    for seal in seals:
                        known.pop(seal, None)

                if self._indexing is None:
                    forget()
                else:
                    self._then.append(forget)

    async def wait_indexed(self) -> None:
        """Wait until the view has every operation that the log has applied.

        Raises:
            NamespaceClosed: the namespace was erased.
            CorruptNamespace: the view could not follow the log; the next request opens the namespace again.
        """
        while self._indexing is not None:
            await self._indexed.wait()
        if self._failure is not None:
            raise CorruptNamespace("the view could not follow the log; it is opened again") from self._failure
        if self.replica.state.closed:
            raise NamespaceClosed("the namespace was erased")
        if self.view.coming is not None:
            self.view.cut_over()

    async def changed(self, seconds: float) -> None:
        """Wait until the log changes, for ``seconds`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    # Background work.

    @property
    def replica(self) -> Replica:
        """The replica that follows the log, for background tasks that maintain the log."""
        return self.log.replica

    @property
    def last_late(self) -> int:
        """The newest entry that contains bodies of records that had been erased before it; 0 if there is none."""
        return self.replica.state.erasures.last_late

    @property
    def needs_maintenance(self) -> bool:
        """Return whether the log has changed since the last round of maintenance, or that one left work undone."""
        return bool(self.lacking) or self.position != self._maintained_at

    def note_maintained(self) -> None:
        """Record the end of a round of maintenance.

        The next one is needed when the log has changed. While jobs are pending, the position is not recorded, so that the
        next round looks at them again.
        """
        if not any(job.state == "pending" for job in self.jobs()):
            self._maintained_at = self.position

    async def tidy_indexes(self) -> None:
        """Bring the indexes up to date, and remove vectors of erased memories from them."""
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
        """Write one segment if a compaction is due, else return None; see `NamespaceLog.compact`."""
        return await self.log.compact(limits) if self.log.compaction_due(limits) else None

    @property
    def records_ever(self) -> int:
        """The number of records that the view has ever had, including erased ones."""
        return len(self.view.table)

    def records_up_to(self, seq: int) -> int:
        """Return the number of records from entries up to ``seq``.

        Counts the newer records instead, because the older ones may not be read yet.
        """
        if not seq:
            return 0
        records = self.replica.state.records
        return len(records) - sum(1 for _ in takewhile(lambda one: one.seq > seq, reversed(records.values())))

    async def indexed(self) -> int:
        """Return the last entry that the stored index for the newest model covers; 0 if there is no such index."""
        return await self.log.indexes.indexed(self.newest.model)

    async def write_index(self) -> WrittenIndex:
        """Write a stored index of the current content; requests are served meanwhile.

        Raises:
            RelayerError: it was not written, or it is unknown whether the manifest names it; both are harmless.
        """
        model, indexes = self.newest.model, self.log.indexes
        if self.view.space.by.calibration.probes:
            # A process that opens the index then need not measure the baseline before its first response.
            await self.measure_baseline()
        async with self._tending:
            view, state = await self._pinned(), self.replica.state
            try:
                # There is no await between these: everything that is pinned belongs to one position in the log.
                erased, records = len(state.erased), self.records_ever
                builder = indexes.begin(model, blocks_of(records))
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
        """Return whether its indexes are being maintained or written."""
        return self._tending.locked()

    async def _pinned(self) -> PinnedView:
        """Pin view and state at a moment when both are at the same position.

        Raises:
            CorruptNamespace: the view could not follow the log.
        """
        while True:
            await self.wait_indexed()
            view = self.view
            pinned = await view.pin()
            if self._indexing is None and self._failure is None and view is self.view:
                self.replica.state.pinned = Pinned()
                return pinned
            view.unpin()

    async def close(self, patience: float = 10.0) -> None:
        """Commit queued operations for at most ``patience`` seconds, stop, and release keys and memories."""
        try:
            await self.log.close(patience)
        finally:
            if self._indexing is not None:
                self._failure = NamespaceClosed("the namespace was closed while it was indexed")
                self._indexing.cancel()
                await asyncio.wait([self._indexing])
                # A task that is cancelled before its first step does not run its `finally` clause.
                self._end_indexing()
            # The log's subscribers are methods of this object. Without them only the users of the namespace refer to its keys.
            self.replica.unsubscribe()
            self._restored = None
            self._behind.clear()
            # Wake callers of `changed`: there will be no more changes here.
            self._wake()
            self._forget_vectors()

    async def _begin(self, manifest: Manifest) -> StartingState | None:
        """Read the index that the manifest names; None if there is no usable one."""
        self._restored = None
        self.from_index = 0
        if not self.trusts_indexes:
            return None
        for model in (self.newest, self.former):
            start = None if model is None else await self._begin_with(manifest, model)
            if start is not None:
                return start
        return None

    async def _begin_with(self, manifest: Manifest, model: CalibratedModel) -> StartingState | None:
        """Read the index that the manifest names if it was built for this model, else return None."""
        reader = None
        try:
            reader = await self.log.indexes.open(manifest, model.model)
            if reader is None:
                return None
            start = await reader.state()
            view = self._view_of(model)
            await read_view(reader, view, self.keys)
        except CorruptNamespace:
            # The log has everything that an index has; reading it only takes longer.
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
            # A vector reveals its text, and the cache does not know which of its vectors are those of erased texts.
            self._forget_vectors()
        if self.replica.state.closed:
            # The namespace was erased and must not be served any more: release its content now, not when its key expires.
            self._behind.clear()
            self.view = self._new_view()
            self._wake()
            return
        if self._indexing is None and sum(map(_weight, applied)) <= SLICE_BYTES:
            self.view.apply(self.replica.state, applied)
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
                # At least one operation, and then more while they fit.
                part, room = list[Applied](), SLICE_BYTES
                while self._behind and room > 0:
                    part.append(self._behind.popleft())
                    room -= _weight(part[-1])
                self.view.apply(self.replica.state, part)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - after any failure, the view must not be used
            self._failure = error
        finally:
            self._end_indexing()

    def _end_indexing(self) -> None:
        self._indexing = None
        then, self._then = self._then, []
        for do in then:
            do()
        self._indexed.set()


def _weight(item: Applied) -> int:
    """Return the indexing work of an operation, in bytes of its sealed text."""
    return sum(_MEMORY_BYTES + len(stored.sealed) for stored in stored_in(item.operation))
