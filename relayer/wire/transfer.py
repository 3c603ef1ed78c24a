"""Moving memories out of a relayer and into one: an export is lines of JSON, an import takes a page of them at a time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from relayer.wire.fields import (
    NOT_EMPTY,
    IdempotencyKey,
    Lang,
    MemoryId,
    NamespaceName,
    Text,
    Time,
    Unit,
    at_most,
)
from relayer.wire.life import Selection
from relayer.wire.memories import MAX_ITEMS, Memory
from relayer.wire.shapes import Answer, Request
from relayer.wire.transcript import TranscriptLine
from relayer.wire.vocabulary import AudienceName, KindName, Position, SourceInfo, StandingName, TrustName

__all__ = [
    "EXPORT_FORMAT",
    "ExportEnd",
    "ExportHead",
    "ExportLine",
    "ExportRequest",
    "ExportTurn",
    "ImportItem",
    "ImportRequest",
    "ImportResponse",
    "Imported",
    "KeptTurn",
]

EXPORT_FORMAT = 1


class ExportRequest(Selection):
    """``POST /v1/export``: the memories that pass the filters, live ones unless ``states`` says more.

    ``transcripts`` adds the turns that were kept word for word and may be read, unless a filter asks for what they do not have.
    """

    transcripts: bool = False
    states: Annotated[tuple[StandingName, ...], Field(max_length=3), at_most(3)] = ("live",)
    namespace: NamespaceName | None = None


class ExportHead(Answer):
    """The first line of an export."""

    memrelay_export: Literal[1] = 1
    namespace: str
    memories: int
    position: Position | None = None


class ExportLine(Answer):
    """One memory of an export, oldest first."""

    memory: Memory


class KeptTurn(Answer):
    """A turn that was kept word for word, with the ids of its memories."""

    session: str
    host: str = ""
    audience: AudienceName
    created_at: Time
    memories: tuple[MemoryId, ...]
    lines: tuple[TranscriptLine, ...]


class ExportTurn(Answer):
    """One kept turn of an export, oldest first, after the memories; an import passes over it."""

    turn: KeptTurn


class ExportEnd(Answer):
    """The last line: an export without it was cut short."""

    end: Literal[True] = True
    memories: int
    turns: int = 0


class ImportItem(Request):
    """A memory as an export shows it; only the text is needed, and what an older relayer does not know is left out."""

    model_config = ConfigDict(extra="ignore")

    id: MemoryId | None = None
    text: Text
    kind: KindName = "imported"
    audience: AudienceName = "agent"
    trust: TrustName = "imported"
    suspect: bool = False
    pinned: bool = False
    importance: Unit = 0.5
    lang: Lang = ""
    created_at: Time | None = None
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    expires_at: Time | None = None
    state: StandingName = "live"
    context_of: MemoryId | None = None
    source: SourceInfo = SourceInfo()


class ImportRequest(Request):
    """``POST /v1/import``: a page of memories; the same page again stores nothing twice.

    ``as_backup`` stores them as they say they were: as the user's own words, pinned, important. Without it none of that holds.
    """

    memories: Annotated[tuple[ImportItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS), *NOT_EMPTY]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    as_backup: bool = False


class Imported(Answer):
    """What became of one memory; ``skipped`` ones were not live any more."""

    id: MemoryId | None = None
    status: Literal["stored", "duplicate", "refused", "skipped"]
    code: str | None = None


class ImportResponse(Answer):
    """In the order of the request."""

    memories: tuple[Imported, ...]
    position: Position | None = None
    degraded: bool = False
    job_id: MemoryId | None = None
