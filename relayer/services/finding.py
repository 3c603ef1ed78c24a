"""Finding one memory of a namespace: what every use case about a single memory begins with."""

from __future__ import annotations

from relayer.errors import Refused
from relayer.services.deadline import Deadline
from relayer.services.open_namespace import OpenNamespace
from relayer.wire import schemas, ulid
from relayer.wire.errors import Malformed

__all__ = ["fresh", "no_such_memory", "parse_id"]


async def fresh(opened: OpenNamespace, deadline: Deadline) -> None:
    """Bring log and view up to every write that was acknowledged."""
    async with deadline.step("read"):
        await opened.read(schemas.Consistency.STRONG, None)


def parse_id(text: str) -> bytes:
    """Return an id's bytes; raises `Refused` ``not_found`` for what is none."""
    try:
        return ulid.parse(text)
    except Malformed as error:
        raise no_such_memory() from error


def no_such_memory() -> Refused:
    """Return the one answer for ids that are unknown, malformed, erased, or somebody else's."""
    return Refused("not_found", "no such memory in this namespace")
