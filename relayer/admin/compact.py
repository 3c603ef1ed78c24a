"""Compact namespaces on an operator's command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from relayer.admin.catalogue import UNREADABLE, Finding, Listed, Progress
from relayer.errors import NamespaceClosed
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import Layout, LogPorts
from relayer.log.replica import Replica


async def at_each(
    namespaces: Sequence[Listed], work: Callable[[Listed], Awaitable[None]], progress: Progress
) -> list[Finding]:
    """Do the work at every namespace that is live; returns which could not be read.

    One that was never finished, or is erased meanwhile, has nothing to be done.
    """
    found = []
    for listed in progress([listed for listed in namespaces if listed.live]):
        try:
            await work(listed)
        except NamespaceClosed:
            continue
        except UNREADABLE as error:
            key, say = Layout.manifest(listed.incarnation), f" (namespace {listed.pointer.name})"
            found.append(Finding.of(error, key, say=say))
    return found


async def compact_namespace(ports: LogPorts, listed: Listed, *, entries: int) -> tuple[int, int]:
    """Make segments of the tail, if it has at least ``entries`` entries, and merge small ones until nothing is left to do.

    Returns:
        How many segments were made, and the bytes that were written.

    Raises:
        CorruptNamespace, UpgradeRequired, NamespaceClosed: it cannot be read; nothing was changed.
    """
    replica = Replica(ports, listed.account, listed.incarnation)
    await replica.reload()
    compactor = Compactor(ports, replica, CompactionLimits(entries=entries))
    made = written = 0
    while (compaction := await compactor.run()) is not None:
        made, written = made + compaction.won, written + compaction.written
    return made, written
