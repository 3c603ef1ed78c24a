"""What one simulated client wants, and what it must be told: its own memories are nobody else's to change."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sim_store import body_of

from relayer.domain.operations import (
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Operation,
    OperationResult,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
)

__all__ = ["SHARED_JOB", "Memories", "Wish"]

SHARED_JOB = b"shared"
SHARED_CONTENT = b"same"


def _nothing() -> None:
    """Know nothing new."""


@dataclass(frozen=True)
class Wish:
    """An operation, the results of which one must be told, and what is known once it is."""

    operation: Operation
    told: frozenset[OperationResult]
    then: Callable[[], None] = _nothing


class Memories:
    """What a client knows of its own memories, and its next wish.

    Attributes:
        live: what recall must find, oldest first.
        hidden: what it forgot, and what it replaced by what.
    """

    def __init__(self, number: int, rng: random.Random) -> None:
        self.live: list[bytes] = []
        self.hidden: dict[bytes, bytes] = {}
        self._sources: dict[bytes, bytes] = {}
        self._author = bytes([number]) * 32
        self._number = number
        self._rng = rng

    def wish(self, step: int, *, job_first: bool) -> Wish:
        """Return what this client wants at a step."""
        nonce = self._number.to_bytes(8, "big") + step.to_bytes(8, "big")
        origin = Origin(author=self._author, nonce=nonce, idempotency=b"k" + nonce, body=b"b")
        kind = self._rng.random()
        if step == 0 and job_first:
            kind = 0.45
        if kind < 0.3:
            return self._change(origin, nonce) or self._put(origin, nonce)
        if kind < 0.4:
            return Wish(JobAccepted(origin, b"job" + nonce, "extract"), frozenset({OperationResult.ACCEPTED}))
        if kind < 0.5:
            # Every client finishes the same job, as workers on several relayers would.
            record = b"r" + nonce
            stored = (Stored(record, b"c" + nonce, body_of(record)),)
            return Wish(JobFinished(SHARED_JOB, stored=stored), frozenset({OperationResult.FINISHED}))
        if kind < 0.6:
            return self._put(origin, nonce, content=SHARED_CONTENT)
        return self._put(origin, nonce)

    def _change(self, origin: Origin, nonce: bytes) -> Wish | None:
        """Return a wish about what is there, if anything is."""
        changes = (
            self._forget, self._erase, self._erase, self._supersede, self._repeat, self._replace, self._derive
        )  # fmt: skip
        if self._rng.random() < 0.15:
            return self._restore(origin)
        return self._rng.choice(changes)(origin, nonce, self.live[-1]) if self.live else None

    def _forget(self, origin: Origin, _: bytes, mine: bytes) -> Wish:
        return Wish(Forget(origin, mine), frozenset({OperationResult.FORGOTTEN}), lambda: self._hide(mine))

    def _erase(self, origin: Origin, _: bytes, mine: bytes) -> Wish:
        return Wish(Erase(origin, (mine,)), frozenset({OperationResult.ERASED}), lambda: self._lose(mine))

    def _supersede(self, origin: Origin, nonce: bytes, mine: bytes) -> Wish:
        made = self._stored(nonce)
        then = partial(self._succeed, mine, made.record)
        return Wish(Supersede(origin, mine, made), frozenset({OperationResult.SUPERSEDED}), then)

    def _repeat(self, origin: Origin, nonce: bytes, mine: bytes) -> Wish:
        return Wish(Put(origin, self._stored(nonce), twin=mine), frozenset({OperationResult.DUPLICATE}))

    def _replace(self, origin: Origin, nonce: bytes, mine: bytes) -> Wish:
        made = self._stored(nonce)
        then = partial(self._succeed, mine, made.record)
        return Wish(Put(origin, made, replaces=mine), frozenset({OperationResult.STORED}), then)

    def _derive(self, origin: Origin, nonce: bytes, mine: bytes) -> Wish:
        made = self._stored(nonce, source=mine)
        return Wish(
            Put(origin, made), frozenset({OperationResult.STORED}), lambda: self._come_from(mine, made.record)
        )

    def _put(self, origin: Origin, nonce: bytes, content: bytes = b"") -> Wish:
        stored = self._stored(nonce, content=content)
        if content:
            # Whose it is depends on who was first: nobody relies on it.
            return Wish(Put(origin, stored), frozenset({OperationResult.STORED, OperationResult.DUPLICATE}))
        return Wish(
            Put(origin, stored), frozenset({OperationResult.STORED}), lambda: self.live.append(stored.record)
        )

    def _stored(self, nonce: bytes, *, content: bytes = b"", source: bytes = b"") -> Stored:
        record = b"p" + nonce
        return Stored(
            record=record,
            content=content or b"c" + nonce,
            sealed=body_of(record),
            sources=(source,) if source else (),
        )

    def _restore(self, origin: Origin) -> Wish | None:
        for record, successor in reversed(self.hidden.items()):
            if successor and successor not in self.live:
                continue

            def back(record: bytes = record, successor: bytes = successor) -> None:
                del self.hidden[record]
                if successor:
                    self.live.remove(successor)
                    self.hidden[successor] = record
                self.live.append(record)

            return Wish(Restore(origin, record, successor), frozenset({OperationResult.RESTORED}), back)
        return None

    def _hide(self, record: bytes, successor: bytes = b"") -> None:
        self.live.remove(record)
        self.hidden[record] = successor

    def _succeed(self, old: bytes, new: bytes) -> None:
        self._hide(old, new)
        self.live.append(new)

    def _come_from(self, source: bytes, record: bytes) -> None:
        self._sources[record] = source
        self.live.append(record)

    def _lose(self, record: bytes) -> None:
        gone = {record}
        while more := {one for one, source in self._sources.items() if source in gone} - gone:
            gone |= more
        self.live = [one for one in self.live if one not in gone]
        self.hidden = {one: by for one, by in self.hidden.items() if one not in gone}
