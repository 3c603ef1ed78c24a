"""The newest position of each namespace's log that this gateway has seen, so that a log set back is noticed.

A relayer that is asked to be at least as far as the remembered position either is, or says ``rollback_detected``. The
positions are kept, sealed, beside the outbox: a store that was set back while no gateway ran is noticed too.
"""

from __future__ import annotations

import threading

from gateway_plugin.outbox.contract import Mark, Outbox, OutboxUnavailable, Waiting
from relayer.wire.codec import Reader, lp
from relayer.wire.errors import Malformed
from relayer.wire.schemas import Position

_NAME = "position"


class Positions:
    """What was seen, by namespace; `persist` writes what changed, from whatever thread.

    Args:
        outbox: where they are kept.
        kept: whether they outlive the process; False where nothing may be written to this machine.
    """

    def __init__(self, outbox: Outbox, *, kept: bool = True) -> None:
        self._outbox = outbox
        self._kept = kept
        self._known: dict[str, Position | None] = {}
        self._changed: dict[str, Waiting] = {}
        self._lock = threading.Lock()

    @property
    def changed(self) -> bool:
        """Whether something is to be written."""
        return bool(self._changed)

    def of(self, owner: Waiting) -> Position | None:
        """Return the newest position seen, or None."""
        if owner.namespace not in self._known:
            self._known[owner.namespace] = self._read(owner)
        return self._known[owner.namespace]

    def saw(self, owner: Waiting, position: Position) -> None:
        """Note a position, unless a newer one is known."""
        known = self.of(owner)
        if known is None or position.seq > known.seq:
            self.replace(owner, position)

    def replace(self, owner: Waiting, position: Position | None) -> None:
        """Note a position whatever is known: the relayer could not compare, or a person accepts what is there."""
        with self._lock:
            self._known[owner.namespace] = position
            if self._kept:
                self._changed[owner.namespace] = owner

    def persist(self) -> None:
        """Write what changed.

        Raises:
            OutboxUnavailable: the file cannot be written; the next call tries again.
        """
        while self._changed:
            with self._lock:
                namespace, owner = next(iter(self._changed.items()))
                position = self._known[namespace]
                del self._changed[namespace]
            try:
                self._outbox.keep(Mark(owner, _NAME, _encoded(position)))
            except OutboxUnavailable:
                with self._lock:
                    self._changed.setdefault(namespace, owner)
                raise

    def _read(self, owner: Waiting) -> Position | None:
        try:
            value = self._outbox.kept(owner, _NAME).value
            if not value:
                return None
            reader = Reader(value)
            return Position(seq=reader.integer(), digest=reader.bytes(32).hex())
        except (OutboxUnavailable, Malformed):
            return None


def _encoded(position: Position | None) -> bytes:
    return b"" if position is None else lp(position.seq, bytes.fromhex(position.digest))
