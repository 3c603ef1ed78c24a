"""A session ended: promise a summary of it, where a model makes one."""

from __future__ import annotations

from relayer.domain.record import Audience
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.drafting import request_origin
from relayer.services.fact_work import check_room
from relayer.services.summary_jobs import promise_summary, said_in
from relayer.wire import schemas, ulid

__all__ = ["summarise"]

# No operation of a capture has this index: a request has a hundred turns at most.
_INDEX = 10_000


async def summarise(
    ctx: Context, access: Access, request: schemas.AnalyzeRequest, deadline: Deadline
) -> str | None:
    """Promise a summary of the session that ends with a request whose turns are stored.

    Returns:
        The id of the job; None where none is made: no model is set to, its budget is used up, or the session left too little.

    Raises:
        QueueFull: too many jobs of this account wait for the model.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log.
    """
    work = ctx.facts
    if work is None or work.summariser is None or work.budget.wait_ms(access.account, ctx.clock.now_ms()):
        return None
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return None
        async with deadline.step("read"):
            await opened.read(schemas.Consistency.STRONG)
        said = await said_in(opened, request.session, Audience(request.audience))
        job = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
        origin = request_origin(opened, access, _INDEX, request.idempotency_key)
        promise = promise_summary(ctx, opened, origin, job, said)
        if promise is None:
            return None
        check_room(ctx, work, opened)
        async with deadline.step("append"):
            (outcome,) = await opened.log.append([promise])
        if outcome.refusal is not None:
            return None
        work.queue.accepted(outcome.subject)
        return ulid.render(outcome.subject)
