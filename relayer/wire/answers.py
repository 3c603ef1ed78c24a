"""Requests and answers where a language model reads the memories: a reminder before a turn, and a question answered."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from relayer.wire.fields import NamespaceName, Text, Time, Unit, at_most
from relayer.wire.recall import RecallHit
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, Consistency, KindName, Position, TrustName

__all__ = [
    "ActiveRecallRequest",
    "ActiveRecallResponse",
    "AskRequest",
    "AskResponse",
    "FallbackReason",
    "StyleName",
]

MOST_SHOWN = 20
MAX_CONTEXT_CHARS = 25_000

StyleName = Literal["balanced", "strict", "contextual", "recall-heavy", "precision-heavy", "preference-only"]
FallbackReason = Literal[
    "no_model", "over_budget", "model_unavailable", "model_timeout", "model_answer_unusable", "not_proved"
]


Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"]


class _Search(Request):
    """The filters that both have in common with a recall."""

    namespace: NamespaceName | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = 8
    floor: Unit = 0.2
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), at_most(3)] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), at_most(4)] = ()
    include_suspect: bool = False
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    consistency: Consistency = Consistency.STRONG
    min_position: Position | None = None


class ActiveRecallRequest(_Search):
    """``POST /v1/active-recall``: what to remind an assistant of before it answers ``query``.

    ``context`` is the conversation as the model reads it, ``query`` what is searched for. ``prompt_override`` takes the
    place of the style's prompt, ``prompt_append`` follows whichever is used. ``thinking`` is how much a model that reasons may do
    so; ``off`` and ``adaptive`` leave that to the model. ``model`` is a wish, for when the relayer has that one; after it comes
    the relayer's own, then its fallback. With ``resolved-only`` no other model is asked than the one that is meant.
    """

    query: Text
    context: Annotated[str, Field(max_length=MAX_CONTEXT_CHARS)] = ""
    style: StyleName = "balanced"
    max_chars: Annotated[int, Field(ge=40, le=1000)] = 220
    prompt_append: Annotated[str, Field(max_length=8000)] = ""
    prompt_override: Annotated[str, Field(max_length=8000)] = ""
    thinking: Thinking = "off"
    model: Annotated[str, Field(max_length=256)] = ""
    model_fallback: Literal["default-remote", "resolved-only"] = "default-remote"


class ActiveRecallResponse(Answer):
    """A reminder, or silence, or what a direct recall would have answered.

    ``ok``: ``summary`` is the reminder. ``empty``: nothing was found, or the model said that nothing helps. ``fallback``:
    no model decided, ``reason`` says why, and ``memories`` are the direct hits. The memories are those that were searched
    out, best first, with every status.
    """

    status: Literal["ok", "empty", "fallback"]
    summary: str = ""
    memories: tuple[RecallHit, ...] = ()
    reason: FallbackReason | None = None
    position: Position | None = None
    degraded: bool = False
    considered: int = 0


class AskRequest(_Search):
    """``POST /v1/ask``: a question to be answered from memories alone."""

    question: Text
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = 12
    max_chars: Annotated[int, Field(ge=40, le=4000)] = 1000


class AskResponse(Answer):
    """``answered`` with the memories that the answer rests on, or ``unknown``: then there is no answer.

    ``reason`` says what was wrong with an answer of the model's that is not given: ``not_proved``.
    """

    status: Literal["answered", "unknown"]
    answer: str = ""
    citations: tuple[RecallHit, ...] = ()
    reason: Literal["not_proved"] | None = None
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
