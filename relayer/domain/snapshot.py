"""Snapshots of a namespace's state as bytes, so that a log need not be replayed from its first entry.

`write_state` encodes a state as blocks: first a head with everything that exists once, then records and requests, grouped
into pages and several pages to a block, and last the outcomes of the latest operations. `StateReader` rebuilds the state.
Pages are decoded when something in them is read, and written again as they are if nothing was. A snapshot has nothing but
the state that `NamespaceState.apply` computed, so a log whose snapshot is lost gives the same state.

All blocks are MessagePack arrays by position. A change to what `apply` decides must raise `SNAPSHOT_FORMAT`: older
snapshots are then ignored, and the log is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import msgspec

from relayer.domain.containers import Duplicates, PagedRows, Pinned, StoredDuplicates, column
from relayer.domain.erasures import Erased, Erasure
from relayer.domain.namespace import LogPosition
from relayer.domain.operations import UNDECODABLE, JobState, OperationId, Outcome, RecordState
from relayer.domain.state import KnownOutcomes, NamespaceState, RequestOutcomes
from relayer.errors import CorruptNamespace

SNAPSHOT_FORMAT = 1
# A page is decoded in less than a tenth of a millisecond, and `StateReader.add` takes about a millisecond for a block of pages.
_PAGE_ITEMS = 64
_BLOCK_PAGES = 16
# Fewer pages than in a block of records, because a request has up to a hundred outcomes.
_BLOCK_REQUEST_PAGES = 2
_BLOCK_OUTCOMES = 1024

V = TypeVar("V")
P = TypeVar("P")


class _SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    """The first block of a snapshot.

    ``older_twins`` are records that `Duplicates.newest` does not return because they have a newer duplicate. ``outcomes`` is
    the number of outcomes in the last blocks, which are lists of `_Outcome` and are not read before the next entry is applied.
    """

    position: LogPosition
    last_time: int
    closed: bool
    repeats: bool
    records: int
    requests: int
    jobs: list[JobState]
    erased: list[bytes]
    erased_texts: list[bytes]
    older_twins: list[bytes]
    outcomes: int
    erasures: list[Erasure]
    late: list[int]
    traces: dict[bytes, tuple[int, ...]]


class _RecordPage(msgspec.Struct, frozen=True, array_like=True):
    """A page of encoded records, with their ids and the `column` of their text MACs and of their likenesses."""

    ids: list[bytes]
    texts: bytes
    likenesses: bytes
    rows: bytes


class _RequestPage(msgspec.Struct, frozen=True, array_like=True):
    """A page of idempotency keys, with the encoded outcomes of the operations of these requests."""

    keys: list[bytes]
    rows: bytes


_Request = tuple[bytes, list[tuple[int, Outcome]]]
_Outcome = tuple[int, OperationId, Outcome]

_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(_SnapshotHead)
_RECORD_PAGES = msgspec.msgpack.Decoder(list[_RecordPage])
_REQUEST_PAGES = msgspec.msgpack.Decoder(list[_RequestPage])
_RECORDS = msgspec.msgpack.Decoder(list[RecordState])
_REQUESTS = msgspec.msgpack.Decoder(list[_Request])
_OUTCOMES = msgspec.msgpack.Decoder(list[_Outcome])


def write_state(state: NamespaceState, pinned: Pinned | None = None) -> Iterator[bytes]:
    """Return the blocks of a state as it is now. Each is encoded when the iterator reaches it: 1,024 records in about 1 ms.

    With the ``pinned`` of the state, that may change while blocks are encoded. Without it, it must not change before the last
    block.
    """
    duplicates, (count, outcomes) = state.duplicates, state.known.blocks(_BLOCK_OUTCOMES)
    records, requests = state.records.copy(), state.known.requests.copy()
    unchanged: Pinned = pinned or Pinned()
    head = _SnapshotHead(
        position=state.position,
        last_time=state.last_time,
        closed=state.closed,
        repeats=duplicates.repeats,
        records=len(records),
        requests=len(requests),
        jobs=list(state.jobs.values()),
        erased=sorted(state.erased),
        erased_texts=sorted(duplicates.erased_texts),
        older_twins=sorted(duplicates.older),
        outcomes=count,
        erasures=list(state.erasures.known.values()),
        late=list(state.erasures.late),
        traces=state.erasures.traces,
    )
    blocks = chain(
        _cut(_paged(records, partial(_record_page, unchanged)), _BLOCK_PAGES),
        _cut(_paged(requests, partial(_request_page, unchanged)), _BLOCK_REQUEST_PAGES),
        outcomes,
    )
    return chain([_ENCODER.encode(head)], map(_ENCODER.encode, blocks))


class StateReader:
    """A reader that rebuilds a state from its blocks, one at a time, so that other tasks can run in between."""

    def __init__(self, head: bytes) -> None:
        """Begin with the first block; raises `CorruptNamespace`."""
        try:
            self._head = _HEAD.decode(head)
        except UNDECODABLE as error:
            raise CorruptNamespace("a stored state does not begin as one") from error
        self._records: PagedRows[RecordState, _RecordPage] = PagedRows(_records_of)
        self._requests: PagedRows[RequestOutcomes, _RequestPage] = PagedRows(_requests_of)
        self._ids: list[bytes] = []
        self._texts = bytearray()
        self._likenesses = bytearray()
        self._outcomes: list[bytes] = []

    def add(self, block: bytes) -> None:
        """Add the next block; raises `CorruptNamespace`."""
        try:
            if len(self._records) < self._head.records:
                for page in _RECORD_PAGES.decode(block):
                    self._records.add_page(page.ids, page)
                    self._ids += page.ids
                    self._texts += page.texts
                    self._likenesses += page.likenesses
            elif len(self._requests) < self._head.requests:
                for known in _REQUEST_PAGES.decode(block):
                    self._requests.add_page(known.keys, known)
            else:
                self._outcomes.append(block)
        except UNDECODABLE as error:
            raise CorruptNamespace("a block of a stored state holds something else") from error

    def finish(self) -> NamespaceState:
        """Return the state; raises `CorruptNamespace` when blocks are missing."""
        head = self._head
        found = (len(self._records), len(self._requests), len(self._outcomes))
        if found != (head.records, head.requests, -(-head.outcomes // _BLOCK_OUTCOMES)):
            raise CorruptNamespace("a stored state has other blocks than it says")
        try:
            stored = StoredDuplicates(
                self._ids,
                bytes(self._texts),
                bytes(self._likenesses),
                self._records,
                frozenset(head.older_twins),
            )
        except ValueError as error:
            raise CorruptNamespace("a stored state does not know what its records say") from error
        outcomes = self._outcomes
        return NamespaceState(
            head.position,
            last_time=head.last_time,
            closed=head.closed,
            records=self._records,
            jobs={job.job: job for job in head.jobs},
            erased=set(head.erased),
            erasures=Erased(
                {erasure.erasure: erasure for erasure in head.erasures}, dict.fromkeys(head.late), head.traces
            ),
            duplicates=Duplicates(
                erased_texts=set(head.erased_texts),
                stored=stored,
                repeats=head.repeats,
                older=set(head.older_twins),
            ),
            known=KnownOutcomes(
                self._requests,
                (lambda: [row for block in outcomes for row in _decoded(_OUTCOMES, block)], head.outcomes),
            ),
        )


def _paged(rows: Mapping[bytes, V], encode: Callable[[list[bytes], list[V]], P]) -> Iterator[P]:
    """Yield all rows in pages; pages that were never decoded are passed on as they are."""
    if isinstance(rows, PagedRows):
        for keys, page in rows.pages(_PAGE_ITEMS):
            yield encode(keys, page) if isinstance(page, list) else page
        return
    items = iter(rows.items())
    while some := list(islice(items, _PAGE_ITEMS)):
        yield encode([key for key, _ in some], [value for _, value in some])


def _record_page(pinned: Pinned, ids: list[bytes], now: list[RecordState]) -> _RecordPage:
    records = [pinned.value_before(record) for record in now]
    texts = column([record.content for record in records])
    return _RecordPage(ids, texts, column([record.likeness for record in records]), _ENCODER.encode(records))


def _records_of(page: _RecordPage) -> Iterable[tuple[bytes, RecordState]]:
    return zip(page.ids, _decoded(_RECORDS, page.rows), strict=True)


def _request_page(pinned: Pinned, keys: list[bytes], requests: list[RequestOutcomes]) -> _RequestPage:
    rows = [(body, list(pinned.value_before(outcomes).items())) for body, outcomes in requests]
    return _RequestPage(keys, _ENCODER.encode(rows))


def _requests_of(page: _RequestPage) -> Iterator[tuple[bytes, RequestOutcomes]]:
    for key, (body, outcomes) in zip(page.keys, _decoded(_REQUESTS, page.rows), strict=True):
        yield key, (body, dict(outcomes))


def _decoded(decoder: msgspec.msgpack.Decoder[list[V]], rows: bytes) -> list[V]:
    try:
        return decoder.decode(rows)
    except UNDECODABLE as error:
        raise CorruptNamespace("a page of a stored state holds something else") from error


def _cut(pages: Iterator[P], size: int) -> Iterator[list[P]]:
    while block := list(islice(pages, size)):
        yield block
