"""The conversion of records and outcomes to the models of the API; no other module does it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from pydantic import BaseModel

from relayer.domain import namespace as domain
from relayer.domain.operations import OperationResult, Outcome, Refusal
from relayer.namespaces.context import idempotency_conflict, nonce_reused
from relayer.namespaces.records import MemoryOrigin, OpenedMemory, RenderedMemory
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import Position, SourceInfo, Status, render_time
from relayer.wire.labels import decode_metadata

# The maximum size of a page of memories, in bytes of JSON. A hundred of the longest memories would be six times as large, and
# larger with many quotes.
PAGE_BYTES = 1024 * 1024

A = TypeVar("A", bound=BaseModel)


def encoded_size(answer: BaseModel) -> int:
    """Return the encoded size of a part of a response in bytes."""
    return len(answer.__pydantic_serializer__.to_json(answer))


def page_of(shown: Iterable[A], room: int = PAGE_BYTES) -> tuple[A, ...]:
    """Return as many of the first elements as fit into ``room`` bytes; at least one."""
    page: list[A] = []
    for one in shown:
        room -= encoded_size(one)
        if page and room < 0:
            break
        page.append(one)
    return tuple(page)


def position(value: domain.LogPosition) -> Position:
    """Return a position for a response."""
    return Position(seq=value.seq, digest=value.digest.hex())


def memory_fields(memory: OpenedMemory, until: int | None = None) -> dict[str, object]:
    """Return the fields that every view of a memory has, for a schema to validate.

    ``until`` is the time at which a superseded memory ended, if it is known more exactly than from the log.
    """
    record, state = memory.record, memory.state
    ended = state.changed_at if until is None else until
    return {
        "id": ulid.render(record.id),
        "text": memory.text,
        "kind": record.kind,
        "audience": record.audience,
        "trust": record.trust,
        "suspect": record.suspect,
        "pinned": record.pinned,
        "importance": record.importance,
        "lang": record.lang,
        "created_at": record.created_at,
        "occurred_at": record.occurred_at,
        "valid_from": record.valid_from,
        "valid_to": ended if state.status is Status.SUPERSEDED else record.valid_to,
        "expires_at": record.expires_at,
        "state": state.status,
        "supersedes": tuple(map(ulid.render, record.supersedes or filter(None, (state.supersedes,)))),
        "superseded_by": ulid.render(state.superseded_by) if state.superseded_by else None,
        "reinforced": state.reinforced,
        "context_of": ulid.render(record.context_of) if record.context_of else None,
        "contradicts": tuple(map(ulid.render, (*record.contradicts, *filter(None, (state.conflicts_with,))))),
        "follows": tuple(map(ulid.render, record.follows)),
        "replaced": tuple(
            {
                "text": record.text[gone.start : gone.end],
                "by": ulid.render(gone.by),
                "followed": memory.is_followed(gone),
            }
            for gone in memory.replaced
        ),
        "searchable": memory.searchable,
        "source": {name: getattr(record.source, name) for name in SourceInfo.model_fields},
        "extractor": "/".join(filter(None, (record.extractor.name, record.extractor.version))),
        "embedding": record.embedding.name,
        "tags": record.tags,
        "metadata": decode_metadata(record.metadata),
        "unmentioned": record.unmentioned,
    }


def encode_memory(memory: OpenedMemory, until: int | None) -> RenderedMemory:
    """Return one memory encoded as `schemas.Memory`, without validation, because it was validated when it was stored."""
    fields, record = memory_fields(memory, until), memory.record
    for name in ("created_at", "occurred_at", "valid_from", "valid_to", "expires_at"):
        at = fields[name]
        fields[name] = render_time(at) if isinstance(at, int) else None
    origin = MemoryOrigin(record.kind, record.trust, record.source.transcript, record.source.reference)
    return RenderedMemory(msgspec.json.encode(fields), len(memory.text.encode()), origin)


def show(memory: OpenedMemory, until: int | None = None) -> schemas.Memory:
    """Return one memory for a response; see `memory_fields`."""
    return schemas.Memory.model_validate(memory_fields(memory, until))


def remembered(outcomes: list[Outcome], asked: list[bytes]) -> tuple[schemas.Remembered, ...]:
    """Return the outcomes of items for a response, in the requested order.

    Raises:
        Refused: the whole request is refused, because its idempotency key was used with another body.
    """
    shown = []
    for outcome, record in zip(outcomes, asked, strict=True):
        if outcome.refusal is Refusal.IDEMPOTENCY_CONFLICT:
            raise idempotency_conflict()
        if outcome.result not in {OperationResult.STORED, OperationResult.DUPLICATE, OperationResult.REFUSED}:
            raise nonce_reused()
        subject = ulid.render(outcome.subject or record)
        shown.append(schemas.Remembered(id=subject, status=outcome.result.value, code=outcome.refusal))
    return tuple(shown)
