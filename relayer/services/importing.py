"""Import: memories from elsewhere, with the times they had there, and stored once however often they come.

What says of itself that the user said it, that it is pinned or important, is only what somebody wrote: it holds where the
caller restores a backup, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from relayer.domain.record import Audience, Kind, Trust
from relayer.domain.standing import Standing
from relayer.extraction.normal_text import normal_text
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft, given_source
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position, remembered
from relayer.services.redaction import without_secrets_in
from relayer.services.remember import append_drafts
from relayer.wire.transfer import Imported, ImportItem, ImportRequest, ImportResponse

__all__ = ["import_memories"]

_USUAL: Final = 0.5
"""The importance of a memory of which nothing is said."""


async def import_memories(
    ctx: Context, access: Access, request: ImportRequest, deadline: Deadline
) -> ImportResponse:
    """Store a page of memories. Old versions, forgotten and expired ones are skipped; every memory gets a new id.

    Raises:
        Refused: ``idempotency_conflict``.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log.
    """
    now = ctx.clock.now_ms()
    codes = [_reason_to_skip(item, now) for item in request.memories]
    taken = [item for item, code in zip(request.memories, codes, strict=True) if code is None]
    if not taken:
        return ImportResponse(memories=tuple(Imported(status="skipped", code=code) for code in codes))
    drafts = [await _draft(ctx, access, item, taken[:number]) for number, item in enumerate(taken)]
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


async def _draft(ctx: Context, access: Access, item: ImportItem, before: Sequence[ImportItem]) -> Draft:
    # The ids of elsewhere mean nothing here; what was said before is known by its place in the page.
    context = [
        number for number, one in enumerate(before) if one.id is not None and one.id == item.context_of
    ]
    return Draft(
        text=await without_secrets_in(ctx, access.account, item.text),
        kind=Kind(item.kind),
        audience=Audience(item.audience),
        trust=Trust(item.trust),
        suspect=item.suspect,
        pinned=item.pinned,
        importance=item.importance,
        lang=item.lang,
        created_at=None if item.created_at is None else min(item.created_at, ctx.clock.now_ms()),
        occurred_at=item.occurred_at,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
        expires_at=item.expires_at,
        context_draft=context[0] if context else None,
        source=given_source(item.source, access.principal.certificate.agent),
    )
