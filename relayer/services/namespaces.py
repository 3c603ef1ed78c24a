"""Which namespaces an account has, by their pointers."""

from __future__ import annotations

import asyncio

from relayer.domain.namespace import Pointer, PointerState
from relayer.errors import Refused
from relayer.log import creation
from relayer.services.access import Principal
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.open_namespace import OpenNamespace
from relayer.wire import base64url, schemas
from relayer.wire.certificates import Right
from relayer.wire.errors import Malformed

__all__ = ["list_namespaces"]

# What a cursor of this listing begins with.
_CURSOR = "tag:"
# Records counted between two turns of the others: well below a millisecond.
_AT_A_TIME = 256


async def list_namespaces(
    ctx: Context, principal: Principal, *, limit: int, cursor: str | None, deadline: Deadline
) -> schemas.NamespacesResponse:
    """List the namespaces that the certificate lets its holder read, in no order that means anything.

    Only the pointers of the page are opened: it has fewer namespaces where others lie among them that are not covered.

    Raises:
        Refused: ``bad_cursor``.
    """
    after = _parse_cursor(cursor)
    async with deadline.step("list"):
        pointers, last = await creation.page_pointers(ctx.ports, principal.account, after=after, limit=limit)
        visible = [
            pointer
            for pointer in sorted(pointers, key=lambda pointer: pointer.name)
            if pointer.state is not PointerState.ERASED and principal.may(pointer.name, Right.READ)
        ]
        views = [await _show(ctx, principal.account, pointer) for pointer in visible]
    next_cursor = base64url.encode((_CURSOR + last).encode()) if last else None
    return schemas.NamespacesResponse(namespaces=tuple(views), next_cursor=next_cursor)


async def _show(ctx: Context, account: str, pointer: Pointer) -> schemas.NamespaceView:
    opened = ctx.namespaces.peek(account, pointer.name)
    state = opened.log.state if opened is not None else None
    memories, size = (None, None) if opened is None else await _live(opened, ctx.clock.now_ms())
    return schemas.NamespaceView.model_validate(
        {
            "name": pointer.name,
            "custody": pointer.custody.value,
            "generation": pointer.generation,
            "state": pointer.state.value,
            "created_at": pointer.created_at,
            "memories": memories,
            "bytes": size,
            "last_used_at": (state.last_time or None) if state else None,
        }
    )


async def _live(opened: OpenNamespace, now: int) -> tuple[int, int]:
    """Count an open namespace's live memories and their bytes, in steps: it may have more than one turn of the loop takes."""
    records, memories, size = opened.log.state.records, 0, 0
    for number, record in enumerate(list(records)):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        one = records.get(record)
        if one is not None and one.live_at(now):
            memories += one.record not in opened.view.dialogues
            size += one.size
    return memories, size


def _parse_cursor(cursor: str | None) -> str:
    try:
        decoded = base64url.decode(cursor).decode("ascii") if cursor is not None else _CURSOR
    except (Malformed, UnicodeDecodeError):
        decoded = ""
    if not decoded.startswith(_CURSOR):
        raise Refused("bad_cursor", "cursor must be the next_cursor of an earlier page")
    return decoded.removeprefix(_CURSOR)
