"""Summaries: ask the model once for notes of a session, and check each note against the messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.extraction.llm.conversation import ConversationLine, decode_answer, render
from relayer.extraction.llm.evidence import Ground, doubt_of, fold
from relayer.extraction.llm.extractor import summary_prompt
from relayer.ports import ChatMessage, ChatModel

_MAX_TOKENS = 1024
_MOST_POINTS = 10
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"points": {"type": "array", "items": {"type": "string"}}},
    "required": ["points"],
    "additionalProperties": False,
}


class _Answer(msgspec.Struct, frozen=True):
    points: list[str]


_DECODER = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class Summary:
    """The points that the session proves, in order; ``dropped`` counts the others by `Doubt`, without any text."""

    points: tuple[str, ...]
    tokens: int
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """Return the points as lines of a list; empty without any."""
        return "\n".join(f"- {point}" for point in self.points)


class Summariser:
    """Summarises with a chat model, which is asked once for each call of `summarise`."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._prompt = summary_prompt()

    @property
    def version(self) -> str:
        """Return the prompt's name and version."""
        return self._prompt.name

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self._model.name

    async def summarise(self, lines: Sequence[ConversationLine], *, seconds: float) -> Summary:
        """Ask for notes of a session.

        Raises:
            ModelUnavailable, QueueFull: trying again later may work.
            ModelAnswerUnusable: the answer is none.
        """
        messages = (ChatMessage("system", self._prompt.text), ChatMessage("user", render(lines, ())))
        answer = await self._model.complete(messages, schema=_SCHEMA, max_tokens=_MAX_TOKENS, seconds=seconds)
        read = decode_answer(answer.text, answer.tokens, _DECODER)
        points = [] if read is None else read.points
        return await asyncio.to_thread(_proved, points, lines, answer.tokens)


def _proved(points: Sequence[str], lines: Sequence[ConversationLine], tokens: int) -> Summary:
    """Return what of the points the session proves."""
    ground = Ground.from_texts(part for line in lines for part in (line.shown, line.speaker))
    dropped: Counter[str] = Counter()
    kept: dict[str, str] = {}
    for point in points:
        text = " ".join(point.split()).lstrip("-*• ")
        doubt = doubt_of(text, ground)
        if doubt is not None:
            dropped[f"summary_{doubt.value}"] += 1
        else:
            kept.setdefault(fold(text), text)
    return Summary(tuple(kept.values())[:_MOST_POINTS], tokens, dropped)
