"""Takes what was erased at the relayer out of this gateway, too: captured turns that still wait, or were refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from gateway_plugin.outbox.contract import Outbox, OutboxItem, Waiting
from gateway_plugin.outbox.positions import Positions
from relayer.wire.capture import without_transcript
from relayer.wire.schemas import TurnItem

__all__ = ["erase_texts", "forget_namespace"]


def erase_texts(outbox: Outbox, namespace: str, texts: Iterable[str]) -> int:
    """Destroy the waiting turns of a namespace that hold one of these texts; return how many.

    The other turns that were captured with them go on waiting, under a new key: what of them had arrived already is
    recognised there by its text. They are not kept word for word any more: an answer may say what was erased.

    Raises:
        OutboxUnavailable: the file cannot be changed.
    """
    wanted = [said for said in map(_said, texts) if said]

    def is_wanted(turn: TurnItem) -> bool:
        said = _said(turn.text)
        return any(one in said for one in wanted)

    return _erase(outbox, namespace, is_wanted)


def _erase(outbox: Outbox, namespace: str, is_wanted: Callable[[TurnItem], bool]) -> int:
    def holds(item: OutboxItem) -> bool:
        return item.owner.namespace == namespace and any(map(is_wanted, item.request.turns))

    waiting = [letter.item for letter in outbox.letters(dead=False) if letter.item and holds(letter.item)]
    dead = [letter.item for letter in outbox.letters(dead=True) if letter.item and holds(letter.item)]
    if waiting or dead:
        outbox.remove(holds)
    for item in waiting:
        kept = tuple(turn for turn in item.request.turns if not is_wanted(turn))
        if kept:
            changes = {"turns": kept, "idempotency_key": secrets.token_hex(16)}
            request = without_transcript(item.request.model_copy(update=changes))
            outbox.put(OutboxItem(item.owner, request, item.queued_at))
    return sum(is_wanted(turn) for item in (*waiting, *dead) for turn in item.request.turns)


def forget_namespace(outbox: Outbox, owner: Waiting) -> int:
    """Destroy what waits for a namespace, and what is remembered of its log; return how many turns there were.

    Raises:
        OutboxUnavailable: the file cannot be changed.
    """
    count = _erase(outbox, owner.namespace, lambda _: True)
    outbox.remove(lambda item: item.owner.namespace == owner.namespace)
    positions = Positions(outbox)
    positions.replace(owner, None)
    positions.persist()
    return count


def _said(text: str) -> str:
    return " ".join(text.split()).casefold()
