"""Analyze: keep of a turn what is worth keeping. The local extractor runs before the append: one entry, no job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relayer.domain.record import Audience, Model, Role, Source
from relayer.extraction.turns import Candidate, Turn
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.drafting import Draft
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position, remembered
from relayer.services.remember import append_drafts
from relayer.wire import schemas

__all__ = ["analyze"]

# Above this, extraction leaves the event loop: it takes about 20 ms for a thousand characters on a busy core.
_INLINE_CHARACTERS = 1024


async def analyze(
    ctx: Context, access: Access, request: schemas.AnalyzeRequest, deadline: Deadline
) -> schemas.AnalyzeResponse:
    """Extract memories from turns and store them.

    Raises:
        Refused: ``idempotency_conflict``.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log.
    """
    candidates = await _extract(ctx, request, deadline)
    if not candidates:
        return schemas.AnalyzeResponse(state="done", memories=(), turns=len(request.turns), kept=0)
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        await opened.settle()
        drafts = _drafts(ctx, opened, access, request, candidates)
        sealed, outcomes, job = await append_drafts(
            ctx, opened, access, drafts, idempotency_key=request.idempotency_key, deadline=deadline
        )
        return schemas.AnalyzeResponse(
            state="pending" if job else "done",
            memories=remembered(outcomes, sealed.records),
            turns=len(request.turns),
            kept=len(drafts),
            position=position(opened.log.position),
            degraded=bool(sealed.without_vector),
            job_id=job,
        )


async def _extract(
    ctx: Context, request: schemas.AnalyzeRequest, deadline: Deadline
) -> list[tuple[int, Candidate]]:
    """Return candidates with the index of the turn that each came from."""
    turns = [
        Turn(Role(item.role), item.text, item.occurred_at, f"{index}", item.speaker)
        for index, item in enumerate(request.turns)
    ]
    async with deadline.step("extract"):
        if sum(len(turn.text) for turn in turns) <= _INLINE_CHARACTERS:
            found = ctx.extractor.extract(turns)
        else:
            found = await asyncio.to_thread(ctx.extractor.extract, turns)
    return [(int(candidate.turn_ids[0]), candidate) for candidate in found]


def _drafts(
    ctx: Context,
    opened: OpenNamespace,
    access: Access,
    request: schemas.AnalyzeRequest,
    candidates: Sequence[tuple[int, Candidate]],
) -> list[Draft]:
    """Build drafts; the context is the turn said just before, if that one is kept too."""
    draft_of_turn = {turn: number for number, (turn, _) in enumerate(candidates)}
    extractor = Model(ctx.extractor.name, "", ctx.extractor.version)
    drafts = []
    for turn, candidate in candidates:
        item = request.turns[turn]
        before = candidate.context_index
        earlier = opened.view.last_of_session(request.session) if before is None and request.session else None
        drafts.append(
            Draft(
                text=candidate.text,
                kind=candidate.kind,
                audience=Audience(request.audience),
                trust=candidate.trust,
                suspect=item.suspect,
                importance=candidate.importance,
                lang=candidate.lang,
                occurred_at=candidate.occurred_at_ms,
                context_of=earlier or b"",
                context_draft=draft_of_turn.get(before) if before is not None else None,
                extractor=extractor,
                captured=True,
                source=Source(
                    host=request.host,
                    agent=access.principal.certificate.agent,
                    session=request.session,
                    speaker=candidate.speaker or "",
                    role=candidate.role,
                    message_ids=(item.id,) if item.id else (),
                    span=candidate.evidence,
                ),
            )
        )
    return drafts
