"""Prompts that the gateway passes to its host's language model because the relayer has none for the job.

The relayer writes each prompt and verifies each response; a gateway only carries them. A prompt has a ``ticket``, and a
response counts only for the prompt with the same ticket.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from relayer.wire.fields import Answer, MemoryId, NamespaceName, Request, Short

MAX_ANSWER_CHARS = 64_000
Ticket = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class QuestionMessage(Answer):
    """One message to the model."""

    role: Literal["system", "user"]
    text: str


class ModelQuestion(Answer):
    """A question to ask the model. ``shape`` is a JSON schema that the answer should follow, null for plain text; ``effort`` may be empty."""

    ticket: Ticket
    messages: tuple[QuestionMessage, ...]
    shape: dict[str, Any] | None = None
    max_tokens: int
    effort: str = ""


class GivenAnswer(Request):
    """The model's answer to the question of a ticket; ``tokens`` counts question and answer together."""

    ticket: Ticket
    text: Annotated[str, Field(max_length=MAX_ANSWER_CHARS)]
    model: Short = ""
    tokens: Annotated[int, Field(ge=0, le=100_000_000)] = 0


class ModelWorkRequest(Request):
    """``POST /v1/model-work``: the answer to the last question, or why there is none, and the wish for the next one.

    ``turn_summaries`` asks for a summary of each turn as well; it belongs to both the question and its answer.
    """

    namespace: NamespaceName | None = None
    turn_summaries: bool = False
    job_id: MemoryId | None = None
    answer: GivenAnswer | None = None


class ModelWorkResponse(Answer):
    """The next question, null when there is none now, and what came of the answer.

    ``outcome`` is ``done`` (``facts`` counts what was kept), ``failed`` (for good), ``unusable`` (it will be asked again) or
    ``stale`` (what it was about has changed or has ended; nothing is lost). ``waiting`` jobs are open;
    ``retry_in_ms`` says when the next of them may be asked for.
    """

    outcome: Literal["done", "failed", "unusable", "stale"] | None = None
    facts: int = 0
    dropped: int = 0
    job_id: MemoryId | None = None
    work: str = ""
    question: ModelQuestion | None = None
    waiting: int = 0
    retry_in_ms: int | None = None
