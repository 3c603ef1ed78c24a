"""The inactivity policy, off unless an operator sets it: forget what nobody pinned and nobody said again for long.

It looks at namespaces while they are open, which is while their agents use them. Forgetting is undoable, and what is
restored counts as active from then on.
"""

from __future__ import annotations

import hashlib

from relayer.domain.operations import Forget, Origin, Result
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import Memory
from relayer.wire.memories import MAX_DELETED, Selection

INTERVAL_SECONDS = 600.0
DAY_MS = 86_400_000


def forgetting_inactive(ctx: Context, days: int) -> Periodic:
    """Return the task that applies the policy to what is open, now and then; a failure is reported and tried again."""

    async def round_(on_error: OnError) -> None:
        await ctx.namespaces.in_each(lambda opened: forget_inactive(ctx, opened, days), on_error)

    return Periodic("forgetting", round_, INTERVAL_SECONDS)


async def forget_inactive(ctx: Context, opened: OpenNamespace, days: int) -> int:
    """Forget what was neither stored, said again nor restored for so many days, and is not pinned; return how many."""
    await opened.wait_indexed()
    idle = Selection(inactive_since=ctx.clock.now_ms() - days * DAY_MS, pinned=False)
    found = [_forget(memory) for memory in opened.memories(idle) if memory.is_live]
    if not found:
        return 0
    outcomes = await opened.append(found[:MAX_DELETED])
    return sum(outcome.result is Result.FORGOTTEN for outcome in outcomes)


def _forget(memory: Memory) -> Forget:
    # Nobody's request, and the same operation on every relayer: it is done once for each time the memory fell idle.
    asked = b"inactive" + memory.id + memory.active_at.to_bytes(8, signed=True)
    return Forget(Origin(author=b"", nonce=hashlib.sha256(asked).digest()[:16]), memory.id)
