"""What requests and answers about memories are said in: kinds, audiences, voices, states, and a place in the log."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from relayer.wire.fields import Short, at_most
from relayer.wire.shapes import Request

__all__ = [
    "AudienceName",
    "Consistency",
    "KindName",
    "Position",
    "RoleName",
    "SourceInfo",
    "StandingName",
    "TrustName",
]

KindName = Literal[
    "statement", "fact", "preference", "decision", "event", "task", "summary", "profile", "imported"
]
AudienceName = Literal["agent", "direct", "group"]
TrustName = Literal["user", "imported", "assistant", "tool"]
RoleName = Literal["user", "assistant", "tool", "system"]
StandingName = Literal["live", "superseded", "forgotten"]


class Consistency(StrEnum):
    """What a read must have seen: every acknowledged write, the caller's own, or whatever is at hand."""

    STRONG = "strong"
    MINE = "mine"
    ANY = "any"


class Position(Request):
    """A point in a namespace's log."""

    seq: int = Field(ge=0, le=2**63 - 1)
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SourceInfo(Request):
    """Where a memory comes from, as far as the caller knows."""

    host: Short = ""
    session: Short = ""
    speaker: Short = ""
    role: RoleName = "user"
    message_ids: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    transcript: Short = ""
    reference: Short = ""
