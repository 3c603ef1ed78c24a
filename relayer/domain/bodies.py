"""The sealed bodies inside encoded operations: where they are, and which of them the log still needs.

A body is a part of an operation that is sealed under the namespace key: a memory's text, its vectors, or a job's input.
The rest of an operation is its outer form, and every outcome is decided from the outer form alone. So a body that is not
needed any more can be left out, and replaying the log still gives the same state. `reduce` leaves out such bodies;
`take_out` and `put_back` separate the bodies from the outer form and join them again, because a segment stores them apart.

Operations are edited as arrays, not as the types of `relayer.domain.operations`: a field that a newer version
appended survives here, although this version does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from relayer.domain.operations import (
    JobAccepted,
    JobFinished,
    MalformedBody,
    Operation,
    Origin,
    Put,
    Stored,
    Supersede,
    decode_operation,
)
from relayer.domain.state import NamespaceState

_Array = list[Any]
_STORED_FIELDS = [field.encode_name for field in msgspec.structs.fields(Stored)]
_LEFT_OUT = _STORED_FIELDS.index("left_out")
_SEALED, _VECTOR, _CONTEXT = (_STORED_FIELDS.index(name) for name in ("sealed", "vector", "context_vector"))
_CONTENT_MACS = [_STORED_FIELDS.index(name) for name in ("content", "likeness")]
_ORIGIN_FIELDS = [field.encode_name for field in msgspec.structs.fields(Origin)]
_ORIGIN_MACS = [_ORIGIN_FIELDS.index(name) for name in ("idempotency", "body")]
_DEFAULTS: _Array = list(msgspec.to_builtins(Stored(b"", b"", b""), builtin_types=(bytes,)))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[_Array] = msgspec.msgpack.Decoder(list)

# Indexes in an operation's array: of a Stored, of its origin, of a job's id and input, of its vector sets, and of its stored results.
_STORED_AT = {"put": 2, "supersede": 3}
_ORIGIN = 1
_JOB = 2
_JOB_INPUT = 5
_JOB_VECTORS = 3
_JOB_STORED = 4


class Section(Enum):
    """The section of a segment that a body goes to. They are separate so that building a vector index reads no texts."""

    TEXTS = "texts"
    VECTORS = "vectors"


def take_out(raw: bytes) -> tuple[bytes, list[tuple[Section, bytes]]]:
    """Split an operation, as `reduce` returned it, into its outer form and its bodies, in a fixed order.

    Returns:
        The encoded outer form, in which all bodies are empty, and the bodies with their sections. A body that is absent is
        returned as an empty one.
    """
    items = _decode(raw)
    bodies = []
    for section, array, index in _bodies(items):
        bodies.append((section, array[index]))
        array[index] = b""
    return (_ENCODER.encode(items) if bodies else raw), bodies


def put_back(outer: bytes, take: Callable[[Section], bytes]) -> bytes:
    """Reverse `take_out`. ``take`` is called with the section of each body, in the same order, and returns the body."""
    items = _decode(outer)
    places = list(_bodies(items))
    for section, array, index in places:
        array[index] = take(section)
    return _ENCODER.encode(items) if places else outer


def reduce(raw: bytes, seq: int, state: NamespaceState) -> bytes:
    """Return an operation without the bodies that are not needed any more.

    Args:
        raw: an encoded operation of an entry that ``state`` has applied; it may have been reduced before.
        seq: the slot of that entry.
        state: a state of the log after that entry, of any later time: a body that is not needed now is never needed again.

    Raises:
        UpgradeRequired: the operation is of a newer version; such a log is not compacted (I12).
    """
    operation = decode_operation(raw)
    if isinstance(operation, MalformedBody):
        return b""  # no bytes are malformed as well, so the outcome stays the same
    items = _DECODER.decode(raw)
    changed = [_leave_out(array, index) for array, index in _unneeded(items, operation, seq, state)]
    return _ENCODER.encode(items) if any(changed) else raw


class Resealing(NamedTuple):
    """Functions that return what was sealed, or a MAC, under other keys.

    They get the id of a record or a job and its sealed text or input; the id of a record, ``own`` or ``context``, and its sealed
    vector; the MAC of a content; and the MAC of an idempotency key or of the digest of a body.
    """

    record: Callable[[bytes, bytes], bytes]
    vector: Callable[[bytes, str, bytes], bytes]
    content_mac: Callable[[bytes], bytes]
    idempotency_mac: Callable[[bytes], bytes]


def reseal(raw: bytes, keys: Resealing) -> bytes:
    """Return an operation, as `reduce` returned it, with all bodies and MACs under other keys; its outer form stays the same.

    Raises:
        Exception: what ``keys`` raises for a body that does not open.
    """
    items = _decode(raw)
    if not items:
        return raw
    for section, array, index in _bodies(items):
        if not array[index]:
            continue
        if section is Section.TEXTS:
            name = array[_JOB if array is items else 0]
            array[index] = keys.record(name, array[index])
        else:
            which = "own" if index in {1, _VECTOR} else "context"
            array[index] = keys.vector(array[0], which, array[index])
    stored = [items[_STORED_AT[items[0]]]] if items[0] in _STORED_AT else []
    if items[0] == "job_finished":
        stored = _arrays(items, _JOB_STORED)
    else:
        _renew(items[_ORIGIN], _ORIGIN_MACS, keys.idempotency_mac)
    for array in stored:
        _renew(array, _CONTENT_MACS, keys.content_mac)
    return _ENCODER.encode(items)


def _renew(array: _Array, places: Sequence[int], renew: Callable[[bytes], bytes]) -> None:
    for place in places:
        if place < len(array):
            array[place] = renew(array[place])


def _unneeded(
    items: _Array, operation: Operation, seq: int, state: NamespaceState
) -> Iterator[tuple[_Array, int]]:
    """Yield the bodies that can be left out: an array and an index in it; `_LEFT_OUT` means all bodies of a Stored."""
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            array = items[_STORED_AT[items[0]]]
            if not _was_stored(stored, seq, state):
                yield array, _LEFT_OUT
            elif stored.context_of in state.erased:
                yield array, _CONTEXT
        case JobAccepted(job=job, sealed=sealed):
            known = state.jobs.get(job)
            if known is None or known.sealed != sealed:
                yield items, _JOB_INPUT
        case JobFinished():
            yield from _unneeded_results(items, operation, seq, state)


def _unneeded_results(
    items: _Array, operation: JobFinished, seq: int, state: NamespaceState
) -> Iterator[tuple[_Array, int]]:
    job = state.jobs.get(operation.job)
    ended_here = job is not None and job.outcome is not None and job.outcome.seq == seq
    for array, vectors in zip(_arrays(items, _JOB_VECTORS), operation.vectors, strict=True):
        if not ended_here or vectors.record not in state.records:
            yield from ((array, index) for index in (1, 2))
        elif vectors.context_of in state.erased:
            yield array, 2
    for array, stored in zip(_arrays(items, _JOB_STORED), operation.stored, strict=True):
        if not ended_here or not _was_stored(stored, seq, state):
            yield array, _LEFT_OUT
        elif stored.context_of in state.erased:
            yield array, _CONTEXT


def _was_stored(stored: Stored, seq: int, state: NamespaceState) -> bool:
    """Return whether the state holds the record because of an operation of this entry.

    Two operations of one entry may name the same record. It is not known which of them stored it, so both keep their bodies.
    """
    record = state.records.get(stored.record)
    return record is not None and record.seq == seq


def _leave_out(array: _Array, index: int) -> bool:
    """Empty a body, or all bodies of a Stored; return whether anything was changed.

    The size of a Stored's bodies is added to ``left_out``, because the state counts it.
    """
    places = (_SEALED, _VECTOR, _CONTEXT) if index == _LEFT_OUT else (index,)
    size = sum(len(array[place]) for place in places if place < len(array))
    if not size:
        return False
    if index in {_LEFT_OUT, _CONTEXT}:
        array.extend(_DEFAULTS[len(array) :])
        array[_LEFT_OUT] += size
    for place in places:
        array[place] = b""
    return True


def _decode(raw: bytes) -> _Array:
    return _DECODER.decode(raw) if raw else []


def _bodies(items: _Array) -> Iterator[tuple[Section, _Array, int]]:
    kind = items[0] if items else ""
    if kind in _STORED_AT:
        yield from _bodies_of_stored(items[_STORED_AT[kind]])
    elif kind == "job_accepted" and len(items) > _JOB_INPUT:
        yield Section.TEXTS, items, _JOB_INPUT
    elif kind == "job_finished":
        for array in _arrays(items, _JOB_VECTORS):
            yield from ((Section.VECTORS, array, index) for index in (1, 2) if index < len(array))
        for array in _arrays(items, _JOB_STORED):
            yield from _bodies_of_stored(array)


def _arrays(items: _Array, index: int) -> list[_Array]:
    """Return the arrays in a field that older versions may not have written."""
    return items[index] if index < len(items) else []


def _bodies_of_stored(array: _Array) -> Iterator[tuple[Section, _Array, int]]:
    yield Section.TEXTS, array, _SEALED
    for index in (_VECTOR, _CONTEXT):
        if index < len(array):
            yield Section.VECTORS, array, index
