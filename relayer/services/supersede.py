"""Supersede: a new version takes a memory's place, and the old one stays in the history.

Nothing of a memory is changed in place: pinning it or letting it expire makes a version, too, so that the history says
who did what and `restore` can undo it.
"""

from __future__ import annotations

import msgspec

from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.record import Audience, Kind, Model, Record, Source, Trust
from relayer.domain.standing import RecordState
from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft
from relayer.services.drafting import parse_vector
from relayer.services.finding import look_up
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position
from relayer.services.redaction import without_secrets_in
from relayer.services.refusals import idempotency_conflict, no_such_memory, nonce_reused
from relayer.services.remember import append_drafts
from relayer.wire import life, ulid

__all__ = ["supersede"]

_TIMES = ("occurred_at", "valid_from", "valid_to")


async def supersede(
    ctx: Context, access: Access, memory_id: str, request: life.SupersedeRequest, deadline: Deadline
) -> life.SupersedeResponse:
    """Store a new version of a live memory.

    Raises:
        Refused: ``not_found``, ``stale_head`` (it is not the live version), ``bad_vector`` or
            ``idempotency_conflict``.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log.
    """
    if request.text is not None:
        request = request.model_copy(
            update={"text": await without_secrets_in(ctx, access.account, request.text)}
        )
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        record, state = opened.view.get(wanted), opened.log.state.records.get(wanted)
        if record is None or state is None:
            raise no_such_memory()
        draft = _next_version(ctx, access, record, state, request)
        sealed, outcomes, job, _ = await append_drafts(
            ctx, opened, access, [draft], idempotency_key=request.idempotency_key, deadline=deadline
        )
        return life.SupersedeResponse(
            id=ulid.render(_stored(opened, outcomes[0], wanted)),
            supersedes=memory_id,
            position=position(opened.log.position),
            degraded=bool(sealed.without_vector),
            job_id=job,
        )


def _next_version(
    ctx: Context, access: Access, old: Record, state: RecordState, request: life.SupersedeRequest
) -> Draft:
    given = request.model_fields_set
    times = {name: getattr(request if name in given else old, name) for name in _TIMES}
    ttl = request.ttl_seconds
    expires_at = old.expires_at
    if ttl is not None:
        expires_at = ctx.clock.now_ms() + ttl * 1000 if ttl else None
    rewritten = request.text is not None and request.text != old.text
    return Draft(
        text=old.text if request.text is None else request.text,
        kind=Kind(request.kind or old.kind),
        audience=Audience(request.audience or old.audience),
        trust=Trust(request.trust or old.trust),
        suspect=old.suspect if request.suspect is None else request.suspect,
        pinned=old.pinned if request.pinned is None else request.pinned,
        importance=old.importance if request.importance is None else request.importance,
        lang=old.lang if request.lang is None else request.lang,
        expires_at=expires_at,
        vector=parse_vector(request.vector, ctx.embedder.model) if request.vector is not None else None,
        context_of=old.context_of,
        # Other words are not derived from what the old ones were derived from, nor evidence of it.
        sources=() if rewritten else state.sources,
        source=_source_of(old, access, rewritten=rewritten),
        extractor=Model() if rewritten else old.extractor,
        contradicts=old.contradicts,
        supersedes=old.id,
        **times,
    )


def _source_of(old: Record, access: Access, *, rewritten: bool) -> Source:
    if not rewritten:
        return old.source
    return msgspec.structs.replace(old.source, agent=access.principal.certificate.agent, span=None)


def _stored(opened: OpenNamespace, outcome: Outcome, wanted: bytes) -> bytes:
    """Return the id of the version that this request made, the first time or now."""
    if outcome.refusal is Refusal.IDEMPOTENCY_CONFLICT:
        raise idempotency_conflict()
    if outcome.refusal is Refusal.UNKNOWN_RECORD:
        raise no_such_memory()
    if outcome.refusal is Refusal.STALE_HEAD:
        raise Refused(outcome.refusal, _why_stale(opened.log.state.records.get(wanted)))
    if outcome.refusal is not None:
        raise Refused(
            outcome.refusal, "the namespace does not take this version: read the memory and try again"
        )
    made = opened.log.state.records.get(outcome.subject)
    if outcome.result is not Result.SUPERSEDED or (made is not None and made.supersedes != wanted):
        raise nonce_reused()
    return outcome.subject


def _why_stale(state: RecordState | None) -> str:
    if state is not None and state.superseded_by:
        return "this memory has a newer version: change that one, see superseded_by"
    return "this memory is forgotten: restore it first"
