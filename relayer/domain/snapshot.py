"""A namespace's state as bytes, so that a log need not be replayed from its first entry.

The state is written as pages: what there is once, then records and requests, so many to a page. It is only ever the
state that `NamespaceState.apply` made; a log whose snapshot is lost says the same without it.

All are MessagePack arrays by position. Whoever changes what `apply` decides raises `SNAPSHOT_FORMAT`: older snapshots
are then ignored, and the log is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from relayer.domain.erasures import Erased, Erasure, Traces
from relayer.domain.namespace import Position
from relayer.domain.operations import OperationId
from relayer.domain.outcomes import Outcome
from relayer.domain.state import JobState, NamespaceState, RecordState, Remembered
from relayer.domain.twins import Twins
from relayer.errors import CorruptNamespace

__all__ = ["SNAPSHOT_FORMAT", "StateReader", "write_state"]

SNAPSHOT_FORMAT = 1
# Read in about a millisecond.
_PAGE_ITEMS = 512


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The first page. ``older_twins`` are records that `Twins.like` does not return: others, alike, came later."""

    position: Position
    last_time: int
    closed: bool
    repeats: bool
    records: int
    requests: int
    jobs: list[JobState]
    erased: list[bytes]
    erased_texts: list[bytes]
    older_twins: list[bytes]
    outcomes: list[tuple[int, OperationId, Outcome]]
    erasures: list[Erasure]
    late: list[int]
    traces: dict[bytes, tuple[int, ...]]


class _Request(msgspec.Struct, frozen=True, array_like=True):
    """What became of the operations of a request with an idempotency key."""

    key: bytes
    body: bytes
    outcomes: list[tuple[int, Outcome]]


_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(_Head)
_RECORDS = msgspec.msgpack.Decoder(list[RecordState])
_REQUESTS = msgspec.msgpack.Decoder(list[_Request])


def write_state(state: NamespaceState) -> list[bytes]:
    """Return the pages of a state, in one step, because the next entry would change it: about 1 ms for 1,000 records."""
    remembered = state.remembered()
    records = list(state.records.values())
    requests = [
        _Request(key, body, list(outcomes.items()))
        for key, (body, outcomes) in remembered.idempotency.items()
    ]
    like = remembered.twins.like
    head = _Head(
        position=state.position,
        last_time=state.last_time,
        closed=state.closed,
        repeats=remembered.twins.repeats,
        records=len(records),
        requests=len(requests),
        jobs=list(state.jobs.values()),
        erased=sorted(state.erased),
        erased_texts=sorted(remembered.twins.erased_texts),
        older_twins=[record.record for record in records if like(record.likeness) != record.record],
        outcomes=list(remembered.outcomes),
        erasures=list(state.erasures.known.values()),
        late=list(state.erasures.late),
        traces=state.erasures.traces.slots,
    )
    return [_ENCODER.encode(head), *map(_ENCODER.encode, (*_cut(records), *_cut(requests)))]


class StateReader:
    """Rebuilds a state from its pages, one at a time, so that others get their turn in between."""

    def __init__(self, head: bytes) -> None:
        """Begin with the first page; raises `CorruptNamespace`."""
        try:
            self._head = _HEAD.decode(head)
        except _UNDECODABLE as error:
            raise CorruptNamespace("a stored state does not begin as one") from error
        self._older = set(self._head.older_twins)
        self._records: dict[bytes, RecordState] = {}
        self._requests: dict[bytes, tuple[bytes, dict[int, Outcome]]] = {}
        self._twins = Twins(repeats=self._head.repeats)
        self._twins.restore_erased(self._head.erased_texts)

    def add(self, page: bytes) -> None:
        """Take the next page; raises `CorruptNamespace`."""
        try:
            if len(self._records) < self._head.records:
                self._add_records(_RECORDS.decode(page))
            else:
                for request in _REQUESTS.decode(page):
                    self._requests[request.key] = (request.body, dict(request.outcomes))
        except _UNDECODABLE as error:
            raise CorruptNamespace("a page of a stored state holds something else") from error

    def finish(self) -> NamespaceState:
        """Return the state; raises `CorruptNamespace` when pages are missing."""
        head = self._head
        if (len(self._records), len(self._requests)) != (head.records, head.requests):
            raise CorruptNamespace("a stored state lacks pages")
        state = NamespaceState(
            head.position,
            last_time=head.last_time,
            closed=head.closed,
            records=self._records,
            jobs={job.job: job for job in head.jobs},
            erased=set(head.erased),
            erasures=Erased(
                {erasure.erasure: erasure for erasure in head.erasures},
                dict.fromkeys(head.late),
                Traces(head.traces),
            ),
        )
        state.remember(Remembered(self._twins, tuple(head.outcomes), self._requests))
        return state

    def _add_records(self, records: Sequence[RecordState]) -> None:
        ids = [item.record for item in records]
        self._records.update(zip(ids, records, strict=True))
        self._twins.restore(
            ids,
            texts=[item.content for item in records],
            likenesses=[item.likeness for item in records],
            older=self._older,
        )


def _cut(items: Sequence[object]) -> Iterator[list[object]]:
    rest = iter(items)
    while page := list(islice(rest, _PAGE_ITEMS)):
        yield page
