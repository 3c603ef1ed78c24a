"""Requests and answers about a namespace as a whole: what is newest in it, and what changed in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from relayer.wire.schemas import Memory, Position
from relayer.wire.shapes import Answer

__all__ = ["ContextDay", "ContextResponse"]


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
