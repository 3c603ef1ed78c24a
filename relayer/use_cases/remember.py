"""The remember use case: store memories as the client wrote them, or import them from an export.

`remember` stores items as they are. `import_memories` stores a page of exported memories under new ids, with reduced trust unless
the request says that they are a backup. Both remove secrets unless the request keeps them, and return once the memories are
durable and can be recalled.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.access.accounts import Access
from relayer.domain.operations import Record
from relayer.extraction.normal_text import normal_text
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import Status, Trust
from relayer.wire.service import Imported, ImportItem, ImportRequest, ImportResponse
from relayer.writing.drafts import Draft, append_drafts, parse_vector, record_of, voice_of, without_secrets
from relayer.writing.present import position, remembered


async def remember(
    ctx: Context, access: Access, request: schemas.RememberRequest, deadline: Deadline
) -> schemas.RememberResponse:
    """Store items; raises `Refused`: ``bad_vector`` or ``idempotency_conflict``."""
    items = request.items
    if not request.keep_secrets:
        items = await without_secrets(ctx, access.account, items)
    drafts = [_draft(ctx, access, item, request.idempotency_key) for item in items]
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        written = await append_drafts(
            ctx, opened, access, drafts, idempotency_key=request.idempotency_key, deadline=deadline
        )
        return schemas.RememberResponse(
            memories=remembered(written.outcomes, written.records),
            position=position(opened.position),
            degraded=written.degraded,
            job_id=written.job_id,
        )


def _draft(ctx: Context, access: Access, item: schemas.MemoryItem, key: str | None) -> Draft:
    record = msgspec.structs.replace(
        record_of(item, access, key),
        expires_at=ctx.clock.now_ms() + item.ttl_seconds * 1000 if item.ttl_seconds else None,
        context_of=ulid.parse(item.context_of) if item.context_of else b"",
    )
    return Draft(record, parse_vector(item.vector, ctx.embedder.model) if item.vector is not None else None)


async def import_memories(
    ctx: Context, access: Access, request: ImportRequest, deadline: Deadline
) -> ImportResponse:
    """Store a page of exported memories. Old versions, forgotten and expired ones are skipped; every memory gets a new id.

    Raises:
        Refused: ``idempotency_conflict``.
    """
    now = ctx.clock.now_ms()
    codes = [_reason_to_skip(item, now) for item in request.memories]
    taken = tuple(item for item, code in zip(request.memories, codes, strict=True) if code is None)
    if not taken:
        return ImportResponse(memories=tuple(Imported(status="skipped", code=code) for code in codes))
    key = request.idempotency_key
    if not request.keep_secrets:
        taken = await without_secrets(ctx, access.account, taken)
    drafts = [_imported(ctx, access, item, taken[:number], key) for number, item in enumerate(taken)]
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        if not request.as_backup:
            drafts = [_as_imported(opened, draft) for draft in drafts]
        written = await append_drafts(ctx, opened, access, drafts, idempotency_key=key, deadline=deadline)
        stored = iter(remembered(written.outcomes, written.records))
        return ImportResponse(
            memories=tuple(
                Imported(status="skipped", code=code)
                if code
                else Imported.model_validate(next(stored).model_dump())
                for code in codes
            ),
            position=position(opened.position),
            degraded=written.degraded,
            job_id=written.job_id,
        )


def _reason_to_skip(item: ImportItem, now: int) -> str | None:
    if item.state != "live":
        return f"is_{item.state}"
    return "is_expired" if item.expires_at is not None and item.expires_at <= now else None


def _as_imported(opened: OpenNamespace, draft: Draft) -> Draft:
    """Return a draft with reduced trust: not pinned, of default importance at most, and not said by the user.

    A text that is already live as the user's own keeps its trust, so that it counts as a repetition of that memory.
    """
    record = draft.record
    is_claim = record.trust is Trust.USER and not _is_known(opened, record)
    claims_nothing = msgspec.structs.replace(
        record,
        trust=Trust.IMPORTED if is_claim else record.trust,
        pinned=False,
        importance=min(record.importance, 0.5),  # the default, so that it ranks above no other
    )
    return msgspec.structs.replace(draft, record=claims_nothing)


def _is_known(opened: OpenNamespace, new: Record) -> bool:
    normal, voice = normal_text(new.text), voice_of(new)
    like = opened.keys.likeness_mac(normal, new.audience, new.trust, *voice, suspect=new.suspect)
    known = opened.duplicate_of(like)
    return known is not None and known.status is Status.LIVE


def _imported(
    ctx: Context, access: Access, item: ImportItem, before: Sequence[ImportItem], key: str | None
) -> Draft:
    # Ids of the exporting namespace do not exist here, so the context of a memory is found by its index in the page.
    context = [
        number for number, one in enumerate(before) if one.id is not None and one.id == item.context_of
    ]
    return Draft(
        msgspec.structs.replace(record_of(item, access, key), expires_at=item.expires_at),
        created_at=None if item.created_at is None else min(item.created_at, ctx.clock.now_ms()),
        context_draft=context[0] if context else None,
    )
