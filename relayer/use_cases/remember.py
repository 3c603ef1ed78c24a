"""Remember: store items as given, or imported; durable and recallable when it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from relayer.access.principal import Access
from relayer.domain.operations import JobAccepted, Operation
from relayer.domain.outcomes import Outcome
from relayer.domain.record import Trust
from relayer.domain.standing import Standing
from relayer.extraction.normal_text import normal_text
from relayer.lib.deadline import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.service import Imported, ImportItem, ImportRequest, ImportResponse
from relayer.writing.drafts import Draft, Sealed, draft_of, embed_job, parse_vector, seal_drafts
from relayer.writing.present import position, remembered
from relayer.writing.redact import without_secrets, without_secrets_in


async def remember(
    ctx: Context, access: Access, request: schemas.RememberRequest, deadline: Deadline
) -> schemas.RememberResponse:
    """Store items.

    Raises:
        Refused: ``bad_vector`` or ``idempotency_conflict``.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use` and the log.
    """
    request = await without_secrets(ctx, access.account, request)
    drafts = [_draft(ctx, access, item) for item in request.items]
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        sealed, outcomes, job, _ = await append_drafts(
            ctx, opened, access, drafts, idempotency_key=request.idempotency_key, deadline=deadline
        )
        return schemas.RememberResponse(
            memories=remembered(outcomes, sealed.records),
            position=position(opened.log.position),
            degraded=bool(sealed.without_vector),
            job_id=job,
        )


async def append_drafts(
    ctx: Context,
    opened: OpenNamespace,
    access: Access,
    drafts: list[Draft],
    *,
    idempotency_key: str | None,
    deadline: Deadline,
    promise: Callable[[Sealed], JobAccepted | None] = lambda _: None,
) -> tuple[Sealed, list[Outcome], str | None, bytes]:
    """Seal drafts and append them in one entry, with the job that ``promise`` makes of what was sealed.

    Returns what was sealed, an outcome for each draft, the id of the job for vectors, and that of the promised job,
    empty without one.
    """
    await opened.settle()
    sealed = await seal_drafts(
        ctx, opened, access, drafts, idempotency_key=idempotency_key, deadline=deadline
    )
    operations: list[Operation] = list(sealed.operations)
    if sealed.without_vector:
        operations.append(embed_job(ctx, opened, access, sealed, idempotency_key))
    promised = promise(sealed)
    if promised is not None:
        operations.append(promised)
    with opened.view.unsealed.holding(sealed.contents):
        async with deadline.step("append"):
            outcomes = await opened.log.append(operations)
    count = len(sealed.operations)
    embedding = outcomes[count].subject if sealed.without_vector else b""
    job = ulid.render(embedding) if embedding else None
    return sealed, outcomes[:count], job, outcomes[-1].subject if promised is not None else b""


def _draft(ctx: Context, access: Access, item: schemas.MemoryItem) -> Draft:
    return replace(
        draft_of(item, access.principal.certificate.agent),
        expires_at=ctx.clock.now_ms() + item.ttl_seconds * 1000 if item.ttl_seconds else None,
        vector=parse_vector(item.vector, ctx.embedder.model) if item.vector is not None else None,
        context_of=ulid.parse(item.context_of) if item.context_of else b"",
    )


_USUAL: Final = 0.5
"""The importance of a memory of which nothing is said."""


async def import_memories(
    ctx: Context, access: Access, request: ImportRequest, deadline: Deadline
) -> ImportResponse:
    """Store a page of memories. Old versions, forgotten and expired ones are skipped; every memory gets a new id.

    Raises:
        Refused: ``idempotency_conflict``.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use` and the log.
    """
    now = ctx.clock.now_ms()
    codes = [_reason_to_skip(item, now) for item in request.memories]
    taken = [item for item, code in zip(request.memories, codes, strict=True) if code is None]
    if not taken:
        return ImportResponse(memories=tuple(Imported(status="skipped", code=code) for code in codes))
    drafts = [await _imported(ctx, access, item, taken[:number]) for number, item in enumerate(taken)]
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        if not request.as_backup:
            drafts = [_as_imported(opened, draft) for draft in drafts]
        sealed, outcomes, job, _ = await append_drafts(
            ctx, opened, access, drafts, idempotency_key=request.idempotency_key, deadline=deadline
        )
        stored = iter(remembered(outcomes, sealed.records))
        return ImportResponse(
            memories=tuple(
                Imported(status="skipped", code=code)
                if code
                else Imported.model_validate(next(stored).model_dump())
                for code in codes
            ),
            position=position(opened.log.position),
            degraded=bool(sealed.without_vector),
            job_id=job,
        )


def _reason_to_skip(item: ImportItem, now: int) -> str | None:
    if item.state != "live":
        return f"is_{item.state}"
    return "is_expired" if item.expires_at is not None and item.expires_at <= now else None


def _as_imported(opened: OpenNamespace, draft: Draft) -> Draft:
    """Return a draft that claims nothing; what the user is known to have said already stays a repetition of that."""
    return replace(
        draft,
        trust=Trust.IMPORTED if draft.trust is Trust.USER and not _is_known(opened, draft) else draft.trust,
        pinned=False,
        importance=min(draft.importance, _USUAL),
    )


def _is_known(opened: OpenNamespace, draft: Draft) -> bool:
    normal = normal_text(draft.text)
    like = opened.keys.likeness_mac(normal, draft.audience, draft.trust, suspect=draft.suspect)
    state = opened.log.state
    record = state.records.get(state.twins.like(like))
    return record is not None and record.standing is Standing.LIVE


async def _imported(ctx: Context, access: Access, item: ImportItem, before: Sequence[ImportItem]) -> Draft:
    # The ids of elsewhere mean nothing here; what was said before is known by its place in the page.
    context = [
        number for number, one in enumerate(before) if one.id is not None and one.id == item.context_of
    ]
    return replace(
        draft_of(item, access.principal.certificate.agent),
        text=await without_secrets_in(ctx, access.account, item.text),
        created_at=None if item.created_at is None else min(item.created_at, ctx.clock.now_ms()),
        expires_at=item.expires_at,
        context_draft=context[0] if context else None,
    )
