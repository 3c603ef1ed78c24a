"""Remember: store items as given; durable and recallable when it answers."""

from __future__ import annotations

from collections.abc import Callable

from relayer.domain.operations import JobAccepted, Operation
from relayer.domain.outcomes import Outcome
from relayer.domain.record import Audience, Kind, Trust
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft, given_source
from relayer.services.drafting import Sealed, embed_job, parse_vector, seal_drafts
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position, remembered
from relayer.services.redaction import without_secrets
from relayer.wire import schemas, ulid

__all__ = ["append_drafts", "remember"]


async def remember(
    ctx: Context, access: Access, request: schemas.RememberRequest, deadline: Deadline
) -> schemas.RememberResponse:
    """Store items.

    Raises:
        Refused: ``bad_vector`` or ``idempotency_conflict``.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log.
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
    return Draft(
        text=item.text,
        kind=Kind(item.kind),
        audience=Audience(item.audience),
        trust=Trust(item.trust),
        suspect=item.suspect,
        pinned=item.pinned,
        importance=item.importance,
        lang=item.lang,
        occurred_at=item.occurred_at,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
        expires_at=ctx.clock.now_ms() + item.ttl_seconds * 1000 if item.ttl_seconds else None,
        vector=parse_vector(item.vector, ctx.embedder.model) if item.vector is not None else None,
        context_of=ulid.parse(item.context_of) if item.context_of else b"",
        source=given_source(item.source, access.principal.certificate.agent),
    )
