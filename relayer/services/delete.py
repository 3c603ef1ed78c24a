"""Delete by filter: forget many memories at once, undoably, after counting them first if wanted."""

from __future__ import annotations

from relayer.domain.operations import Forget, Origin
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.standing import RecordState, Standing
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.erase import erase_records
from relayer.services.finding import fresh
from relayer.services.presentation import position
from relayer.services.selecting import select, select_turns
from relayer.wire import life, ulid

__all__ = ["delete"]

_SHOWN = 100


async def delete(
    ctx: Context, access: Access, request: life.DeleteRequest, deadline: Deadline
) -> life.DeleteResponse:
    """Forget the live memories that pass, or erase whatever passes, newest first, `life.MAX_DELETED` of them at most.

    The same request again takes what is left; a repeated one forgets nothing twice.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return life.DeleteResponse(matched=0, forgotten=0, remaining=0, dry_run=request.dry_run)
        await fresh(opened, deadline)
        erases = request.mode == "erase"
        found = [state for _, state in select(opened, request) if erases or state.standing is Standing.LIVE]
        passing = found[::-1]
        if erases:
            passing += [state for _, state in select_turns(opened, request)]
        taken = passing[: life.MAX_DELETED]
        forgotten, erasure = 0, None
        if taken and erases and not request.dry_run:
            ids = [state.record for state in taken]
            erasure = await erase_records(ctx, opened, access, ids, deadline)
        elif taken and not request.dry_run:
            async with deadline.step("append"):
                outcomes = await opened.log.append([_forget(access, state) for state in taken])
            forgotten = sum(map(_is_done, outcomes, taken))
        return life.DeleteResponse(
            matched=len(passing),
            forgotten=forgotten,
            remaining=len(passing) - (len(taken) if erasure is not None else forgotten),
            dry_run=request.dry_run,
            ids=tuple(ulid.render(state.record) for state in taken[:_SHOWN]),
            position=position(opened.log.position),
            erased=0 if erasure is None else len(erasure.memories) + len(erasure.derived),
            erasure=erasure,
        )


def _forget(access: Access, state: RecordState) -> Forget:
    principal = access.principal
    # A balancer may send one request twice, and the second one finds fewer memories: each has an index of its own, so
    # that no operation is taken for another memory's.
    index = int.from_bytes(state.record[-7:])
    return Forget(Origin(principal.author, principal.nonce, index, principal.expires), state.record)


def _is_done(outcome: Outcome, state: RecordState) -> bool:
    return outcome.result is Result.FORGOTTEN and outcome.subject == state.record
