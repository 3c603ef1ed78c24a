"""Delete by filter: forget many memories at once, undoably, after counting them first if wanted."""

from __future__ import annotations

from collections.abc import Sequence

from relayer.domain.operations import Forget, Origin
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.standing import RecordState, Standing
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.erase import erase_records, report_erasure
from relayer.services.finding import evaluated, fresh, seen_before
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position
from relayer.services.refusals import nonce_reused
from relayer.services.selecting import select, select_turns
from relayer.wire import life, ulid
from relayer.wire.erasure import ErasureView

__all__ = ["delete"]

_SHOWN = 100


async def delete(
    ctx: Context, access: Access, request: life.DeleteRequest, deadline: Deadline
) -> life.DeleteResponse:
    """Forget the live memories that pass, or erase whatever passes, newest first, `life.MAX_DELETED` of them at most.

    What passes is decided once: the same signed request again is answered from what it did the first time, at any relayer. A
    namespace that does not exist is made, because its log has to keep that nothing passed.

    Raises:
        Refused: ``nonce_reused``.
    """
    if request.dry_run:
        async with ctx.namespaces.use_if_exists(access, deadline) as found:
            if found is None:
                return life.DeleteResponse(matched=0, forgotten=0, remaining=0, dry_run=True)
            await fresh(found, deadline)
            return _answer(found, request, _passing(found, request), taken=[])
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        await fresh(opened, deadline)
        before = seen_before(opened, access)
        if before:
            return await _again(ctx, opened, request, before, deadline)
        passing = _passing(opened, request)
        taken = [state.record for state in passing[: life.MAX_DELETED]]
        if taken and request.mode == "erase":
            erasure = await erase_records(ctx, opened, access, taken, deadline)
            return _answer(opened, request, passing[len(taken) :], taken, erasure)
        forgets = [_forget(access, record) for record in taken]
        async with deadline.step("append"):
            outcomes = (await opened.log.append([evaluated(access), *forgets]))[1:]
        done = sum(map(_is_done, outcomes, taken))
        answer = _answer(opened, request, passing[len(taken) :], taken)
        left = answer.remaining + len(taken) - done
        return answer.model_copy(update={"forgotten": done, "remaining": left})


def _passing(
    opened: OpenNamespace, request: life.DeleteRequest, before: int | None = None
) -> list[RecordState]:
    """Return what passes now, newest first, kept turns last; with ``before``, of what the log had before that entry."""
    erases = request.mode == "erase"
    found = [state for _, state in select(opened, request) if erases or state.standing is Standing.LIVE]
    passing = found[::-1]
    if erases:
        passing += [state for _, state in select_turns(opened, request)]
    return passing if before is None else [state for state in passing if state.seq < before]


async def _again(
    ctx: Context,
    opened: OpenNamespace,
    request: life.DeleteRequest,
    before: dict[int, Outcome],
    deadline: Deadline,
) -> life.DeleteResponse:
    """Answer a request that came before by what it did, and by what was there then and passes still."""
    first = before.get(0)
    if first is None or (first.refusal is None and first.result is not Result.ERASED):
        raise nonce_reused()
    left = _passing(opened, request, first.seq)
    known = opened.log.state.erasures.known.get(first.subject) if first.result is Result.ERASED else None
    if known is not None:
        erasure = await report_erasure(ctx, opened, known, deadline)
        return _answer(opened, request, left, known.records, erasure)
    forgotten = [outcome.subject for outcome in before.values() if outcome.result is Result.FORGOTTEN]
    return _answer(opened, request, left, forgotten)


def _answer(
    opened: OpenNamespace,
    request: life.DeleteRequest,
    left: Sequence[RecordState],
    taken: Sequence[bytes],
    erasure: ErasureView | None = None,
) -> life.DeleteResponse:
    shown = [state.record for state in left[: life.MAX_DELETED]] if request.dry_run else taken
    return life.DeleteResponse(
        matched=len(left) + len(taken),
        forgotten=0 if erasure is not None else len(taken),
        remaining=len(left),
        dry_run=request.dry_run,
        ids=tuple(map(ulid.render, shown[:_SHOWN])),
        position=position(opened.log.position),
        erased=0 if erasure is None else len(erasure.memories) + len(erasure.derived),
        erasure=erasure,
    )


def _forget(access: Access, record: bytes) -> Forget:
    principal = access.principal
    # A balancer may send one request to two relayers at once, which find different memories: each has an index of its
    # own, so that no operation is taken for another memory's.
    index = int.from_bytes(record[-7:])
    return Forget(Origin(principal.author, principal.nonce, index, principal.expires), record)


def _is_done(outcome: Outcome, record: bytes) -> bool:
    return outcome.result is Result.FORGOTTEN and outcome.subject == record
