"""Requests and answers about a namespace as a whole: what is newest in it, and what changed in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from relayer.wire.fields import MemoryId
from relayer.wire.memories import Memory
from relayer.wire.shapes import Answer
from relayer.wire.vocabulary import Position

__all__ = ["ChangeView", "ChangesResponse", "ContextDay", "ContextResponse"]


class ContextDay(Answer):
    """One day of the reader's calendar: its newest memories, oldest of them first, and how many there are in all."""

    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    memories: tuple[Memory, ...]
    total: int


class ContextResponse(Answer):
    """``GET /v1/context``: the newest days on which something was said, newest first; ``total`` counts live memories."""

    days: tuple[ContextDay, ...]
    total: int
    position: Position | None = None


class ChangeView(Answer):
    """What became of a memory last; ``memory`` is how it is now, and absent for an erased one."""

    change: Literal["remembered", "superseded", "forgotten", "restored", "erased"]
    id: MemoryId
    seq: int
    memory: Memory | None = None


class ChangesResponse(Answer):
    """``GET /v1/changes``: oldest first; ``next`` is the cursor to go on with, and ``more`` says that there is more now."""

    changes: tuple[ChangeView, ...]
    next: str
    more: bool
    position: Position | None = None
