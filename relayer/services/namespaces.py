"""Which namespaces an account has, by their pointers."""

from __future__ import annotations

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


async def list_namespaces(
    ctx: Context, principal: Principal, *, limit: int, cursor: str | None, deadline: Deadline
) -> schemas.NamespacesResponse:
    """List the namespaces that the certificate lets its holder read, by name.

    Raises:
        Refused: ``bad_cursor``.
    """
    after = _parse_cursor(cursor)
    async with deadline.step("list"):
        pointers = await creation.list_pointers(ctx.ports, principal.account)
    visible = [
        pointer
        for pointer in pointers
        if pointer.state is not PointerState.ERASED
        and principal.may(pointer.name, Right.READ)
        and (after is None or pointer.name > after)
    ]
    page = visible[:limit]
    return schemas.NamespacesResponse(
        namespaces=tuple(_show(ctx, principal.account, pointer) for pointer in page),
        next_cursor=base64url.encode(page[-1].name.encode()) if len(visible) > limit else None,
    )


def _show(ctx: Context, account: str, pointer: Pointer) -> schemas.NamespaceView:
    opened = ctx.namespaces.peek(account, pointer.name)
    state = opened.log.state if opened is not None else None
    now = ctx.clock.now_ms()
    live = [record for record in state.records.values() if record.live_at(now)] if state else None
    return schemas.NamespaceView.model_validate(
        {
            "name": pointer.name,
            "custody": pointer.custody.value,
            "generation": pointer.generation,
            "state": pointer.state.value,
            "created_at": pointer.created_at,
            "memories": None if live is None else sum(not _is_dialogue(opened, one.record) for one in live),
            "bytes": None if live is None else sum(record.size for record in live),
            "last_used_at": (state.last_time or None) if state else None,
        }
    )


def _is_dialogue(opened: OpenNamespace | None, record: bytes) -> bool:
    return opened is not None and record in opened.view.dialogues


def _parse_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64url.decode(cursor).decode()
    except (Malformed, UnicodeDecodeError) as error:
        raise Refused("bad_cursor", "cursor must be the next_cursor of an earlier page") from error
