"""Active recall's answer: NONE, or one short line that the memories bear out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relayer.answering.material import Known, doubt_about, render
from relayer.answering.prompting import active_prompt
from relayer.ports import ChatMessage
from relayer.wire.answers import ActiveRecallRequest
from relayer.wire.lines import clip, is_no_recall, one_line

__all__ = ["Reminder", "ask_for_reminder", "read_reminder"]

# Enough for the longest summary allowed, in any script; what is longer is cut at a word anyway.
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Reminder:
    """What came of an answer: ``text`` is empty for NONE, and ``doubt`` says why a text was dropped."""

    text: str
    doubt: str = ""


def ask_for_reminder(request: ActiveRecallRequest, memories: Sequence[Known]) -> tuple[ChatMessage, ...]:
    """Return the messages that ask for a reminder."""
    told = request.prompt_override or active_prompt(request.style, request.max_chars)
    if request.prompt_append:
        told = f"{told}\n{request.prompt_append}"
    said = render(memories, conversation=request.context or request.query, latest_message=request.query)
    return ChatMessage("system", told), ChatMessage("user", said)


def read_reminder(answer: str, request: ActiveRecallRequest, memories: Sequence[Known]) -> Reminder:
    """Read a model's answer: one line, cut at a word, and nothing that no memory says."""
    line = one_line(answer)
    if is_no_recall(line):
        return Reminder("")
    doubt = doubt_about(line, memories, request.query, request.context)
    if doubt is not None:
        return Reminder("", doubt.value)
    return Reminder(clip(line, request.max_chars))
