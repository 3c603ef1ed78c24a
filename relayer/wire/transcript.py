"""Requests and answers about transcripts: the dialogue of a session, as far as its turns were kept word for word."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from relayer.wire.fields import NamespaceName, Short, Time, at_most
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, Position

__all__ = ["MAX_LINES", "TranscriptLine", "TranscriptRequest", "TranscriptResponse"]

MAX_LINES = 200


class TranscriptRequest(Request):
    """``POST /v1/transcript``: the last lines of a session, or those around one of them.

    ``anchor`` is the id of a message; where no line has it, ``at`` says around which time, and the latest line of that time
    counts. ``audiences`` empty is all.
    """

    session: Annotated[Short, Field(min_length=1)]
    namespace: NamespaceName | None = None
    anchor: Short | None = None
    at: Time | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = 20
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), at_most(3)] = ()


class TranscriptLine(Answer):
    """What somebody said, at most a thousand characters of it; or, if ``call``, which tool was called."""

    role: Literal["user", "assistant"]
    text: str = Field(repr=False)
    occurred_at: Time | None = None
    id: str = ""
    call: bool = False


class TranscriptResponse(Answer):
    """Lines, oldest first, none when the session has none or the anchor is in none; ``total`` is how many the session has."""

    lines: tuple[TranscriptLine, ...]
    total: int
    position: Position | None = None
