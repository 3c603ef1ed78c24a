"""Finding one memory of a namespace, and what a request did when it came before: what use cases begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relayer.domain.operations import Forget, Origin
from relayer.domain.outcomes import Outcome
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.open_namespace import OpenNamespace
from relayer.services.refusals import no_such_memory
from relayer.wire import schemas, ulid
from relayer.wire.errors import Malformed

__all__ = ["evaluated", "fresh", "look_up", "parse_id", "seen_before"]


async def fresh(opened: OpenNamespace, deadline: Deadline) -> None:
    """Bring log and view up to every write that was acknowledged."""
    async with deadline.step("read"):
        await opened.read(schemas.Consistency.STRONG, None)


def seen_before(opened: OpenNamespace, access: Access) -> dict[int, Outcome]:
    """Return what became of the operations of this very request when it came before, by index; `fresh` first.

    A request whose operations depend on what is there is evaluated once. What was stored after the first answer is not
    what its author meant, whoever sends it again.
    """
    return opened.log.state.outcomes_of(access.principal.author, access.principal.nonce)


def evaluated(access: Access) -> Forget:
    """Return an operation that changes nothing: it stands in the log for a request that found nothing to do."""
    principal = access.principal
    return Forget(Origin(principal.author, principal.nonce, 0, principal.expires), b"")


def parse_id(text: str) -> bytes:
    """Return an id's bytes; raises `Refused` ``not_found`` for what is none."""
    try:
        return ulid.parse(text)
    except Malformed as error:
        raise no_such_memory() from error


@asynccontextmanager
async def look_up(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> AsyncIterator[tuple[OpenNamespace, bytes]]:
    """Open the namespace that a memory must be in, up to date; gives it and the bytes of the id.

    Raises:
        Refused: ``not_found``: the id is none, or there is no such namespace.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use_if_exists` and the log.
    """
    wanted = parse_id(memory_id)
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_memory()
        await fresh(opened, deadline)
        yield opened, wanted
