"""What clients of a namespace asked and were told: the only thing that a verdict is based on.

A write is one operation however often it was tried; each try is an event of its own. Times are seconds of one clock
that never goes back, read in the process of the clients, so that "ended before another began" is a fact.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

__all__ = ["End", "Event", "Kind", "Place", "Seen", "load", "save"]


class Kind(StrEnum):
    REMEMBER = "remember"
    FORGET = "forget"
    # A whole namespace at a position: a recall without a floor that returns everything there is.
    RECALL = "recall"
    # A whole namespace in the log's order, strongly read, without a position.
    LIST = "list"


class End(StrEnum):
    OK = "ok"
    # Refused for good: it has not happened and never will.
    FAIL = "fail"
    # No answer, or one that leaves it open.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """A position: sequence number and chain digest."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One memory of an answer; ``text`` is what its writer made unique."""

    text: str
    id: str
    state: str = "live"


@dataclass(frozen=True, slots=True)
class Event:
    """One try.

    Attributes:
        number: of the operation; tries of one write share it.
        texts: what a write stores, or the one memory that a forget hides.
        ids: what a write was told, in the order of ``texts``.
        seen: what a read was told, a list newest first.
        key: the idempotency key of a write.
        at_least: the position that a read named.
        code: of the problem, if one was answered.
        partial: the read did not get all there is, so it says nothing of what it lacks.
        final: read after everything was mended and nobody wrote any more.
    """

    namespace: str
    kind: Kind
    number: int
    client: int
    relayer: int
    begun: float
    ended: float
    end: End
    key: str = ""
    texts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    seen: tuple[Seen, ...] = ()
    position: Place | None = None
    at_least: Place | None = None
    consistency: str = ""
    code: str = ""
    partial: bool = False
    final: bool = False


def save(path: Path, events: Iterable[Event]) -> None:
    """Write a history, one event a line."""
    with path.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(dataclasses.asdict(event)) + "\n")


def load(path: Path) -> Sequence[Event]:
    """Read a history that `save` wrote."""
    return [_event(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _event(raw: dict[str, Any]) -> Event:
    return Event(
        **raw
        | {
            "kind": Kind(raw["kind"]),
            "end": End(raw["end"]),
            "texts": tuple(raw["texts"]),
            "ids": tuple(raw["ids"]),
            "seen": tuple(Seen(**item) for item in raw["seen"]),
            "position": Place(**raw["position"]) if raw["position"] else None,
            "at_least": Place(**raw["at_least"]) if raw["at_least"] else None,
        }
    )
