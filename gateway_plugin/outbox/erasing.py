"""Deletion of captured turns that wait in the outbox and contain what a person has erased."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, OutboxItem
from gateway_plugin.outbox.sender import Positions
from relayer.wire.schemas import TurnItem


def erase_texts(outbox: Outbox, namespace: str, texts: Iterable[str]) -> int:
    """Delete the waiting turns of a namespace that contain one of these texts, and return their number.

    Other turns of the same capture stay in the outbox under a new idempotency key. If some of them were delivered before, the
    relayer recognises their texts. They are not kept as a transcript any more, because an answer may repeat an erased text.

    Raises:
        OutboxUnavailable: the outbox cannot be changed.
    """
    wanted = [said for said in map(_said, texts) if said]

    def is_wanted(turn: TurnItem) -> bool:
        said = _said(turn.text)
        return any(one in said for one in wanted)

    return _erase(outbox, namespace, is_wanted)


def _erase(outbox: Outbox, namespace: str, is_wanted: Callable[[TurnItem], bool]) -> int:
    def holds(item: OutboxItem) -> bool:
        return item.owner.namespace == namespace and any(map(is_wanted, item.request.turns))

    waiting = [letter.item for letter in outbox.queued() if letter.item and holds(letter.item)]
    dead = [letter.item for letter in outbox.dead_letters() if letter.item and holds(letter.item)]
    if waiting or dead:
        outbox.remove(holds)
    for item in waiting:
        kept = tuple(
            turn.model_copy(update={"calls": ()}) for turn in item.request.turns if not is_wanted(turn)
        )
        if kept:
            # Like the relayer, keep no transcript of a turn of which a part was erased.
            changes = {"turns": kept, "idempotency_key": secrets.token_hex(16), "store_transcript": False}
            request = item.request.model_copy(update=changes)
            outbox.put(OutboxItem(item.owner, request, item.queued_at))
    return sum(is_wanted(turn) for item in (*waiting, *dead) for turn in item.request.turns)


def forget_namespace(outbox: Outbox, owner: NamespaceRef) -> int:
    """Delete the waiting items of a namespace and the recorded state of its log, and return the number of turns.

    Raises:
        OutboxUnavailable: the outbox cannot be changed.
    """
    count = _erase(outbox, owner.namespace, lambda _: True)
    outbox.remove(lambda item: item.owner.namespace == owner.namespace)
    positions = Positions(outbox)
    positions.replace(owner, None)
    positions.persist()
    return count


def _said(text: str) -> str:
    return " ".join(text.split()).casefold()
