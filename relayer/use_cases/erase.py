"""The erase use case: delete memories with everything derived from them, or a whole namespace, permanently.

Only a person requests this. `erase_memory` and `erase_records` append an erasure to the log, and
`erase_namespace` erases a namespace after a dry run that the caller confirms. They return once the erasure is decided, so that
no later response of any relayer contains what was erased, and once its report is stored. From the report, any relayer can
continue to delete the stored objects; `get_erasure` returns its progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from relayer.access.accounts import Access, Principal
from relayer.domain.erasures import Erasure
from relayer.domain.namespace import Custody, Pointer, PointerState
from relayer.domain.operations import Erase, OperationResult
from relayer.errors import (
    CorruptNamespace,
    KeysAreRotated,
    NamespaceClosed,
    Refused,
    WrongCustody,
    WrongGeneration,
)
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.log.erasure import (
    ErasureKind,
    ErasureReport,
    ErasureReports,
    SeenReport,
    namespace_report,
    report_of,
)
from relayer.log.rotation import rotate
from relayer.namespaces.context import Context, look_up, no_such_memory, nonce_reused, parse_id
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.transcripts import retelling
from relayer.wire import codec as ulid
from relayer.wire import schemas as wire
from relayer.wire.sealed_keys import SealedKey
from relayer.wire.signing import Right
from relayer.writing.present import position


async def erase_memory(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> wire.ForgetResponse:
    """Erase a memory, all of its versions, memories of the same text, what was derived from them, and turns that repeat it.

    Erasing it again returns the same report. Raises `Refused`: ``not_found``, also for an invalid id.
    """
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        if opened.state(wanted) is None and opened.erasure_of(wanted) is None:
            raise no_such_memory()
        erasure = await erase_records(ctx, opened, access, [wanted], deadline)
        at = position(opened.position)
        return wire.ForgetResponse(id=memory_id, state="erased", position=at, erasure=erasure)


async def erase_records(
    ctx: Context, opened: OpenNamespace, access: Access, wanted: Sequence[bytes], deadline: Deadline
) -> wire.ErasureView:
    """Erase records that exist or were erased before, see `erase_memory`. The caller refreshes the namespace first.

    Raises:
        Refused: ``not_found``: none of them ever existed; or ``nonce_reused``.
    """
    erasure = None
    whole = _whole(opened, wanted)
    if whole:
        whole += await retelling(opened, whole)
        (outcome,) = await opened.append([Erase(access.origin(), tuple(whole))], deadline)
        if outcome.refusal is None:
            erasure = opened.erasure(outcome.subject)
            if outcome.result is not OperationResult.ERASED or erasure is None:
                raise nonce_reused()
    if erasure is None:
        # Another client erased them first, or an earlier attempt of this gateway did and its response was lost.
        erasure = next(filter(None, map(opened.erasure_of, wanted)), None)
    if erasure is None:
        raise no_such_memory()
    return await report_erasure(ctx, opened, erasure, deadline)


async def report_erasure(
    ctx: Context, opened: OpenNamespace, erasure: Erasure, deadline: Deadline
) -> wire.ErasureView:
    """Store the report of an erasure that the log has decided, unless it is stored already, and have it carried out."""
    report = report_of(opened.account, opened.name, opened.replica, erasure.erasure)
    async with deadline.step("report"):
        seen = await ErasureReports(ctx.ports).begin(report)
    await opened.wait_indexed()
    ctx.erasures.note(seen.report)
    return show(seen.report)


def _whole(opened: OpenNamespace, wanted: Iterable[bytes]) -> list[bytes]:
    """Return records with their earlier and later versions, and all records that have the same text as any of these.

    A person who erases a memory sees one text. It may be stored once for each audience, and an older version may say nearly the
    same, but the text must not reappear from any of these.
    """
    found = dict.fromkeys(record for record in wanted if opened.state(record) is not None)
    waiting = list(found)
    while waiting:
        item = opened.state(waiting.pop(0))
        if item is not None:
            others = (item.supersedes, item.superseded_by, *opened.of_the_same_text(item.record))
            new = dict.fromkeys(one for one in others if one not in found and opened.state(one) is not None)
            found |= new
            waiting += new
    return list(found)


async def erase_namespace(
    ctx: Context, access: Access, request: wire.EraseNamespaceRequest, deadline: Deadline
) -> wire.EraseNamespaceResponse:
    """Erase a namespace; in a dry run, return the number of memories and bytes that would be erased.

    Raises:
        Refused: ``not_found``; or ``wrong_confirmation``: the confirmed dry run was of an earlier namespace of the same name.
        WrongCustody: the namespace is stored under the other custody.
        KeysAreRotated: a rotation of its keys is not finished.
        WrongNamespaceKey: a dry run with another secret than the namespace's.
    """
    async with deadline.step("open"):
        pointer = await creation.find(ctx.ports, access.account, access.namespace)
    if request.confirm is None:
        if pointer is None or pointer.state is not PointerState.LIVE:
            raise _no_such_namespace()
        return await _counted(ctx, access, pointer, deadline)
    confirmed = parse_id(request.confirm, _no_such_erasure())
    before = await ErasureReports(ctx.ports).find(access.account, confirmed)
    if before is not None and before.report.what is ErasureKind.NAMESPACE:
        await _let_go(ctx, access, confirmed)
        return _answer(access, before)
    if pointer is None:
        raise _no_such_namespace()
    if pointer.custody is not access.custody:
        raise WrongCustody(f"this namespace is kept under custody {pointer.custody.value}")
    if pointer.next:
        raise KeysAreRotated("the keys of this namespace are being rotated: let that end first")
    if pointer.incarnation != confirmed:
        raise Refused("wrong_confirmation", "confirm is not of this namespace's dry run: make one again")
    async with deadline.step("report"):
        report = namespace_report(access.account, pointer, ctx.clock.now_ms())
        seen = await ErasureReports(ctx.ports).begin(report)
    try:
        async with deadline.step("erase"):
            seen = await ctx.erasures.erase_at_once(seen)
    finally:
        await _let_go(ctx, access, confirmed)
    return _answer(access, seen)


async def _let_go(ctx: Context, access: Access, incarnation: bytes) -> None:
    """Close an erased namespace if it is still open here, so that the next request looks up its name in the store."""
    opened = ctx.namespaces.peek(access.account, access.namespace)
    if opened is not None and opened.incarnation == incarnation:
        await ctx.namespaces.drop_agent(access.account, [access.namespace])


async def _counted(
    ctx: Context, access: Access, pointer: Pointer, deadline: Deadline
) -> wire.EraseNamespaceResponse:
    memories: int | None = None
    size: int | None = None
    try:
        async with ctx.namespaces.use(access, deadline, create=False) as opened:
            await opened.refresh(deadline)
            states = list(opened.states())
            memories = sum(not opened.is_turn(state.record) for state in states)
            size = sum(state.size for state in states)
    except (CorruptNamespace, NamespaceClosed):
        pass  # A namespace can be erased even if it cannot be read.
    return wire.EraseNamespaceResponse(
        namespace=access.namespace,
        dry_run=True,
        memories=memories,
        bytes=size,
        confirm=ulid.render(pointer.incarnation),
    )


async def get_erasure(
    ctx: Context, principal: Principal, erasure_id: str, deadline: Deadline
) -> wire.ErasureView:
    """Return the progress of an erasure.

    Raises:
        Refused: ``not_found``, also for a namespace that the certificate does not cover.
    """
    async with deadline.step("read"):
        seen = await ErasureReports(ctx.ports).find(
            principal.account, parse_id(erasure_id, _no_such_erasure())
        )
    if seen is None or not principal.may(seen.report.namespace, Right.READ):
        raise _no_such_erasure()
    return show(seen.report)


def show(report: ErasureReport) -> wire.ErasureView:
    """Return a report as the response shows it."""
    return wire.ErasureView(
        id=ulid.render(report.erasure),
        what=report.what.value,
        namespace=report.namespace,
        state=report.stage.value,
        memories=tuple(map(ulid.render, report.records)),
        derived=tuple(map(ulid.render, report.derived)),
        entries=len(report.slots),
        objects=report.destroyed,
        asked_at=report.asked_at,
        destroyed_at=report.destroyed_at or None,
        confirmed_at=report.confirmed_at or None,
    )


def _answer(access: Access, seen: SeenReport) -> wire.EraseNamespaceResponse:
    return wire.EraseNamespaceResponse(
        namespace=access.namespace,
        dry_run=False,
        confirm=ulid.render(seen.report.erasure),
        erasure=show(seen.report),
    )


def _no_such_erasure() -> Refused:
    return Refused("not_found", "no such erasure in this account")


def _no_such_namespace() -> Refused:
    return Refused("not_found", "no such namespace in this account")


async def rotate_keys(
    ctx: Context, access: Access, new: SealedKey, deadline: Deadline
) -> wire.RotateKeysResponse:
    """Rotate the keys of a namespace. If the same request was carried out before, nothing is changed.

    ``access`` has the present secret, and ``new`` that of the new generation, of the same namespace and agent. The work goes
    on after the deadline.

    Raises:
        Refused: ``not_found``; ``old_generation``: the new one is not above the present one; or ``rotation_begun``: an
            interrupted rotation has another one.
        WrongCustody: the relayer keeps the secret.
        WrongGeneration, WrongNamespaceKey: the access has another secret than the namespace.
        RelayerError: as `relayer.log.rotation.rotate`.
    """
    if access.custody is not Custody.AGENT:
        raise WrongCustody("the relayer keeps the secret of this namespace, and rotates its own key")
    async with deadline.step("open"):
        pointer = await creation.find(ctx.ports, access.account, access.namespace)
    if pointer is None or pointer.state is not PointerState.LIVE:
        raise _no_such_namespace()
    if pointer.custody is not access.custody:
        raise WrongCustody(f"this namespace is kept under custody {pointer.custody.value}")
    if pointer.generation == new.generation:
        return wire.RotateKeysResponse(namespace=access.namespace, generation=new.generation)
    if pointer.generation != access.generation:
        raise WrongGeneration(pointer.generation)
    if new.generation < pointer.generation:
        raise Refused(
            "old_generation", "a new generation is above the present one: see the list of namespaces"
        )
    if pointer.next and pointer.next_generation != new.generation:
        raise Refused("rotation_begun", "continue with next_generation of the list of namespaces")
    async with deadline.step("rotate"):
        return await ctx.namespaces.rotate(access, partial(_rotated, ctx, access, pointer, new))


async def _rotated(ctx: Context, access: Access, pointer: Pointer, new: SealedKey) -> wire.RotateKeysResponse:
    opened = await creation.open_existing(ctx.ports, pointer, access.account, access.secret)
    if opened is None:
        raise _no_such_namespace()
    done = await rotate(ctx.ports, access.account, pointer, opened.keys, new)
    seen = await ctx.erasures.erase_at_once(done.report)
    return wire.RotateKeysResponse(
        namespace=access.namespace,
        generation=done.pointer.generation,
        entries=done.entries,
        records=done.records,
        erasure=show(seen.report),
    )
