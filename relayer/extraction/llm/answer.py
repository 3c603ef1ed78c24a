"""What the model is asked to answer with, and reading what it did answer."""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from relayer.errors import ModelAnswerUnusable

KindName = Literal["fact", "preference", "decision", "event", "task"]
ImportanceName = Literal["vital", "standard", "trivial"]
RelationName = Literal["new", "duplicate", "supersedes", "contradicts"]

_MOST_FACTS = 50


class Proposal(msgspec.Struct, frozen=True):
    """A fact as the model proposes it. ``message`` and ``known`` count from 1; 0 stands for none."""

    text: str
    message: int
    evidence: str
    kind: KindName = "fact"
    importance: ImportanceName = "standard"
    time: str = ""
    relation: RelationName = "new"
    known: int = 0


class Answer(msgspec.Struct, frozen=True):
    """Everything the model answered; ``malformed`` counts facts that were not in form."""

    facts: tuple[Proposal, ...] = ()
    summary: str = ""
    malformed: int = 0


class _Loose(msgspec.Struct, frozen=True):
    """The answer's frame; each fact is read by itself, so that a bad one spoils no other."""

    facts: list[msgspec.Raw]
    summary: str | None = None


_FACT_PROPERTIES: dict[str, object] = {
    "text": {"type": "string"},
    "kind": {"type": "string", "enum": ["fact", "preference", "decision", "event", "task"]},
    "message": {"type": "integer"},
    "evidence": {"type": "string"},
    "importance": {"type": "string", "enum": ["vital", "standard", "trivial"]},
    "time": {"type": "string"},
    "relation": {"type": "string", "enum": ["new", "duplicate", "supersedes", "contradicts"]},
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
_PROPOSAL = msgspec.json.Decoder(Proposal)
_NONE = frozenset({"none", "[]", "{}", "null", "[silent]", "silent", "no_reply"})
# What msgspec raises on text that is not what it should be.
_UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_answer(text: str, tokens: int = 0) -> Answer:
    """Read an answer, also one in a code fence or with words around it; ``NONE`` is an answer too.

    Raises:
        ModelAnswerUnusable: ``not_json`` or ``wrong_shape``.
    """
    if is_nothing(text):
        return Answer()
    raw = json_in(text)
    if raw is None:
        raise ModelAnswerUnusable("not_json", tokens)
    try:
        frame = _FRAME.decode(raw)
    except _UNDECODABLE:
        raise ModelAnswerUnusable("wrong_shape", tokens) from None
    facts: list[Proposal] = []
    malformed = max(0, len(frame.facts) - _MOST_FACTS)
    for item in frame.facts[:_MOST_FACTS]:
        try:
            facts.append(_PROPOSAL.decode(item))
        except _UNDECODABLE:
            malformed += 1
    return Answer(tuple(facts), frame.summary or "", malformed)


def is_nothing(text: str) -> bool:
    """Whether an answer says, outside of its form, that there is nothing to write down."""
    return text.strip().strip(".\"'`").lower() in _NONE


def json_in(text: str) -> bytes | None:
    """Return the first JSON object of the text; None when there is none that is whole."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    try:
        _, end = decoder.raw_decode(text, start) if start >= 0 else (None, -1)
    except (ValueError, RecursionError):
        return None
    return text[start:end].encode("utf-8", "replace") if start >= 0 else None
