"""The model's input, messages and known memories as JSON, so that no text can pass for anything else; and the parsed response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar, get_args

import msgspec

from relayer.errors import ModelAnswerUnusable
from relayer.wire.fields import Role

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
T = TypeVar("T")
MOST_CHARACTERS = 4000
_MOST_KNOWN_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class ConversationLine:
    """One message for the model; ``occurred_at_ms`` is the time of the message, if known."""

    role: Role
    text: str
    occurred_at_ms: int | None = None
    speaker: str = ""

    @property
    def shown(self) -> str:
        """Return the part of the text that the model reads, which is all that can be evidence."""
        return self.text[:MOST_CHARACTERS]


def render(lines: Sequence[ConversationLine], known: Sequence[str]) -> str:
    """Return the user message: lines and known memories, numbered from 1."""
    document = {
        "known": [
            {"number": number, "memory": text[:_MOST_KNOWN_CHARACTERS]}
            for number, text in enumerate(known, 1)
        ],
        "conversation": [
            {
                "message": number,
                "speaker": line.speaker or ("The user" if line.role is Role.USER else "The assistant"),
                "when": _when(line.occurred_at_ms),
                "text": line.shown,
            }
            for number, line in enumerate(lines, 1)
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def day_of(occurred_at_ms: int | None) -> datetime | None:
    """Return the day of a time in UTC, at midnight; None when it is unknown or in no calendar."""
    if occurred_at_ms is None:
        return None
    try:
        then = _EPOCH + timedelta(milliseconds=occurred_at_ms)
    except OverflowError:
        return None
    return then.replace(hour=0, minute=0, second=0, microsecond=0)


def _when(occurred_at_ms: int | None) -> str:
    day = day_of(occurred_at_ms)
    return "" if day is None else f"{day:%A} {day.date().isoformat()}"


# What it is asked to answer with.
KindName = Literal["fact", "preference", "decision", "event", "task"]
ImportanceName = Literal["vital", "standard", "trivial"]
RelationName = Literal["new", "duplicate", "supersedes", "contradicts"]

_MOST_FACTS = 50


class ProposedFact(msgspec.Struct, frozen=True):
    """A fact as the model proposes it. ``message`` and ``known`` count from 1; 0 means none."""

    text: str
    message: int
    evidence: str
    kind: KindName = "fact"
    importance: ImportanceName = "standard"
    time: str = ""
    relation: RelationName = "new"
    known: int = 0


class FactsRead(msgspec.Struct, frozen=True):
    """The parsed response; ``malformed`` counts facts that were not in the required form."""

    facts: tuple[ProposedFact, ...] = ()
    summary: str = ""
    malformed: int = 0


class _Loose(msgspec.Struct, frozen=True):
    """The answer's frame; each fact is read by itself, so that a bad one spoils no other."""

    facts: list[msgspec.Raw]
    summary: str | None = None


_FACT_PROPERTIES: dict[str, object] = {
    "text": {"type": "string"},
    "kind": {"type": "string", "enum": list(get_args(KindName))},
    "message": {"type": "integer"},
    "evidence": {"type": "string"},
    "importance": {"type": "string", "enum": list(get_args(ImportanceName))},
    "time": {"type": "string"},
    "relation": {"type": "string", "enum": list(get_args(RelationName))},
    "known": {"type": "integer"},
}
# Every property is required, and no other allowed: what servers demand that hold a model to a schema.
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _FACT_PROPERTIES,
                "required": list(_FACT_PROPERTIES),
                "additionalProperties": False,
            },
        },
        "summary": {"type": "string"},
    },
    "required": ["facts", "summary"],
    "additionalProperties": False,
}

_FRAME = msgspec.json.Decoder(_Loose)
_PROPOSAL = msgspec.json.Decoder(ProposedFact)
_NONE = frozenset({"none", "[]", "{}", "null", "[silent]", "silent", "no_reply"})
# What msgspec raises on text that is not what it should be.
_UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_answer(text: str, tokens: int = 0) -> FactsRead:
    """Read an answer, also one in a code fence or with words around it; ``NONE`` is an answer too.

    Raises:
        ModelAnswerUnusable: ``not_json`` or ``wrong_shape``.
    """
    frame = decode_answer(text, tokens, _FRAME)
    if frame is None:
        return FactsRead()
    facts: list[ProposedFact] = []
    malformed = max(0, len(frame.facts) - _MOST_FACTS)
    for item in frame.facts[:_MOST_FACTS]:
        try:
            facts.append(_PROPOSAL.decode(item))
        except _UNDECODABLE:
            malformed += 1
    return FactsRead(tuple(facts), frame.summary or "", malformed)


def decode_answer(text: str, tokens: int, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decode the first JSON object of a text; return None if the whole text says that there is nothing to write down.

    Raises:
        ModelAnswerUnusable: ``not_json``, there is no object that is whole, or ``wrong_shape``.
    """
    if text.strip().strip(".\"'`").lower() in _NONE:
        return None
    try:
        start = text.index("{")
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        raise ModelAnswerUnusable("not_json", tokens) from None
    try:
        return decoder.decode(text[start:end].encode("utf-8", "replace"))
    except _UNDECODABLE:
        raise ModelAnswerUnusable("wrong_shape", tokens) from None
