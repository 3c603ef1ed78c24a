"""The sealed bodies inside encoded operations: where they are, and which of them the log still needs.

A body is what is sealed under the namespace key: a memory's text, its vectors, a job's input. Everything else of an
operation is its outer form, from which alone every outcome is decided; so a body that nobody will ever open again can be
left out, and the log still says the same.

Operations are edited as plain arrays, not as the types of `relayer.domain.operations`: a field that a newer version
appended survives here, although this version does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import msgspec

from relayer.domain.operations import (
    JobAccepted,
    JobFinished,
    Malformed,
    Operation,
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
_DEFAULTS: _Array = list(msgspec.to_builtins(Stored(b"", b"", b""), builtin_types=(bytes,)))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[_Array] = msgspec.msgpack.Decoder(list)

# Where an operation's array holds arrays of the type Stored, vector sets, and a job's input.
_STORED_AT = {"put": 2, "supersede": 3}
_JOB_INPUT = 5
_JOB_VECTORS = 3
_JOB_STORED = 4


class Section(Enum):
    """Which part of a segment a body goes to: whoever builds an index of vectors does not read texts."""

    TEXTS = "texts"
    VECTORS = "vectors"


def take_out(raw: bytes) -> tuple[bytes, list[tuple[Section, bytes]]]:
    """Part an operation, as `reduce` returned it, into its outer form and its bodies, in a fixed order.

    A body that is absent is an empty one. The bodies of the outer form are empty.
    """
    items = _decode(raw)
    bodies = []
    for section, array, index in _bodies(items):
        bodies.append((section, array[index]))
        array[index] = b""
    return (_ENCODER.encode(items) if bodies else raw), bodies


def put_back(outer: bytes, take: Callable[[Section], bytes]) -> bytes:
    """Undo `take_out`; ``take`` is called for each body, in the same order, with the section it went to."""
    items = _decode(outer)
    places = list(_bodies(items))
    for section, array, index in places:
        array[index] = take(section)
    return _ENCODER.encode(items) if places else outer


def reduce(raw: bytes, seq: int, state: NamespaceState) -> bytes:
    """Return an operation without the bodies that nothing needs any more.

    Args:
        raw: an operation of an entry that ``state`` has applied; one that was reduced before is fine.
        seq: that entry's slot.
        state: what the log says, so far or later: what is not needed now never will be.

    Raises:
        UpgradeRequired: the operation is of a newer version; such a log is not compacted (I12).
    """
    operation = decode_operation(raw)
    if isinstance(operation, Malformed):
        return b""  # as malformed as before, whatever it held
    items = _DECODER.decode(raw)
    changed = [_leave_out(array, index) for array, index in _unneeded(items, operation, seq, state)]
    return _ENCODER.encode(items) if any(changed) else raw


def _unneeded(
    items: _Array, operation: Operation, seq: int, state: NamespaceState
) -> Iterator[tuple[_Array, int]]:
    """Yield what can go: the array and the place in it, or the last place of a Stored for all of its bodies."""
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
        case _:
            return


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
    """Whether the state holds the record because of an operation of this entry.

    Two operations of one entry may name one record; which of them made it is not known, so both keep their bodies.
    """
    record = state.records.get(stored.record)
    return record is not None and record.seq == seq


def _leave_out(array: _Array, index: int) -> bool:
    """Empty a body, or all of a Stored's; whose size stays known in either case, because the state counts it."""
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
    """Yield the place of every body: section, array, index."""
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
