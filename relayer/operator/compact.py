"""The compact command: put log entries into segments, and merge small segments, at once instead of in the background.

`at_each` runs such a task at every live namespace of a store, and `compact_namespace` is the task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from relayer.errors import NamespaceClosed
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import Layout, LogPorts
from relayer.log.replica import Replica
from relayer.operator.catalogue import UNREADABLE, Defect, Listed, Progress


async def at_each(
    namespaces: Sequence[Listed], work: Callable[[Listed], Awaitable[None]], progress: Progress
) -> list[Defect]:
    """Run ``work`` at every live namespace, and return findings about those that could not be read.

    A namespace whose creation was never finished, or that is erased meanwhile, is skipped.
    """
    found = []
    for listed in progress([listed for listed in namespaces if listed.live]):
        try:
            await work(listed)
        except NamespaceClosed:
            continue
        except UNREADABLE as error:
            key, say = Layout.manifest(listed.incarnation), f" (namespace {listed.pointer.name})"
            found.append(Defect.from_error(error, key, say=say))
    return found


async def compact_namespace(ports: LogPorts, listed: Listed, *, entries: int) -> tuple[int, int]:
    """Put the tail of a log into segments if it has at least ``entries`` entries, and merge small segments until none remain.

    Returns:
        The number of segments that were written, and their bytes.

    Raises:
        CorruptNamespace, UpgradeRequired, NamespaceClosed: the namespace cannot be read; nothing was changed.
    """
    replica = Replica(ports, listed.account, listed.incarnation)
    await replica.reload()
    compactor = Compactor(ports, replica, CompactionLimits(entries=entries))
    made = written = 0
    while (compaction := await compactor.run()) is not None:
        made, written = made + compaction.won, written + compaction.written
    return made, written
