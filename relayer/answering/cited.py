"""An answer with citations: what a model said, as far as the memories that it cites bear it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from relayer.answering.material import Known, doubt_about, render
from relayer.answering.prompting import ask_prompt
from relayer.errors import ModelAnswerUnusable
from relayer.extraction.llm.answer import json_in
from relayer.extraction.llm.evidence import Doubt
from relayer.ports import ChatMessage
from relayer.wire.answers import AskRequest
from relayer.wire.lines import clip, is_no_recall, remove_invisible

__all__ = ["SCHEMA", "Cited", "ask_for_answer", "read_cited"]

MAX_TOKENS = 2048
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "citations": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["answer", "citations"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer and the indexes of the memories that it rests on; empty when there is none.

    ``doubt`` says why an answer was dropped.
    """

    text: str
    citations: tuple[int, ...] = ()
    doubt: str = ""


class _Answer(msgspec.Struct, frozen=True):
    answer: str | None = None
    citations: list[int] = []


_DECODER = msgspec.json.Decoder(_Answer)


def ask_for_answer(request: AskRequest, memories: Sequence[Known]) -> tuple[ChatMessage, ...]:
    """Return the messages that ask a question about memories."""
    told = ask_prompt(request.max_chars)
    return ChatMessage("system", told), ChatMessage("user", render(memories, question=request.question))


def read_cited(answer: str, request: AskRequest, memories: Sequence[Known], tokens: int = 0) -> Cited:
    """Read a model's answer; one that cites nothing, or says what its memories do not, is none.

    Raises:
        ModelAnswerUnusable: ``not_json`` or ``wrong_shape``.
    """
    if is_no_recall(answer):
        return Cited("")
    raw = json_in(answer)
    if raw is None:
        raise ModelAnswerUnusable("not_json", tokens)
    try:
        read = _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ModelAnswerUnusable("wrong_shape", tokens) from None
    text = remove_invisible(read.answer or "").strip()
    if is_no_recall(text):
        return Cited("")
    cited = tuple(dict.fromkeys(number - 1 for number in read.citations if 1 <= number <= len(memories)))
    if not cited:
        return Cited("", doubt="nothing_cited")
    doubt = doubt_about(text, [memories[index] for index in cited], request.question)
    # An answer is put in words of its own; names and numbers are what must not be made up.
    if doubt is not None and doubt is not Doubt.WORDS:
        return Cited("", doubt=doubt.value)
    return Cited(clip(text, request.max_chars), cited)
