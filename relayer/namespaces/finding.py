"""The way to one memory for a request, and the answers when there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relayer.access.principal import Access
from relayer.domain.operations import Forget
from relayer.domain.outcomes import Refusal
from relayer.errors import Refused
from relayer.lib.deadline import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import codec as ulid
from relayer.wire.errors import Malformed


def no_such_memory() -> Refused:
    """Return the one answer for ids that are unknown, malformed, erased, or somebody else's."""
    return Refused("not_found", "no such memory in this namespace")


def nonce_reused() -> Refused:
    """Return the answer for a signature whose nonce was seen with another operation."""
    return Refused("nonce_reused", "this signature's nonce belongs to another operation: sign anew")


def idempotency_conflict() -> Refused:
    """Return the answer for an idempotency key that was seen with another body."""
    return Refused(
        Refusal.IDEMPOTENCY_CONFLICT, "this idempotency_key was used with another body: use a new key"
    )


def evaluated(access: Access) -> Forget:
    """Return an operation that changes nothing: it stands in the log for a request that found nothing to do."""
    return Forget(access.origin(), b"")


@asynccontextmanager
async def look_up(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> AsyncIterator[tuple[OpenNamespace, bytes]]:
    """Open the namespace that a memory must be in, up to date; gives it and the bytes of the id.

    Raises:
        Refused: ``not_found``: the id is none, or there is no such namespace.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    try:
        wanted = ulid.parse(memory_id)
    except Malformed as error:
        raise no_such_memory() from error
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_memory()
        await opened.refresh(deadline)
        yield opened, wanted
