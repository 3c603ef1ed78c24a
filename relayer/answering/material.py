"""What a model is shown: memories and a conversation as JSON, so that no text of theirs can pose as part of the frame."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from relayer.extraction.llm.conversation import day_of
from relayer.extraction.llm.evidence import Doubt, Ground, doubt_of

__all__ = ["Known", "doubt_about", "fitting", "render"]

# Words that begin a sentence with a capital and name nobody.
_ADDRESS = re.compile(r"\b(?:You|Your|Yours|Yes|No|He|His|She|Her|They|Their|We|Our|According)\b")
_MOST_CHARACTERS = 2000
_MOST_IN_ALL = 24_000


@dataclass(frozen=True, slots=True)
class Known:
    """A memory as a model reads it; ``at_ms`` is when it happened or was stored."""

    text: str
    at_ms: int
    speaker: str = ""

    @property
    def shown(self) -> str:
        """As much of the text as is shown, and as may be evidence."""
        return self.text[:_MOST_CHARACTERS]

    @property
    def day(self) -> str:
        """The day in words and figures."""
        day = day_of(self.at_ms)
        return "" if day is None else f"{day:%A}, {day.day} {day:%B %Y} ({day.date().isoformat()})"


def render(memories: Sequence[Known], **said: str) -> str:
    """Return the user message: what was said, under its names, and the memories, numbered from 1."""
    document: dict[str, object] = {
        "memories": [
            {"number": number, "when": memory.day, "speaker": memory.speaker, "text": memory.shown}
            for number, memory in enumerate(memories, 1)
        ],
    }
    return json.dumps(document | said, ensure_ascii=False, indent=1)


def fitting(memories: Sequence[Known]) -> int:
    """Return how many of the memories, best first, a model is shown: whole ones, within a bound for all."""
    room = _MOST_IN_ALL
    for number, memory in enumerate(memories):
        room -= len(memory.shown)
        if room < 0:
            return max(number, 1)
    return len(memories)


def doubt_about(text: str, memories: Sequence[Known], *said: str) -> Doubt | None:
    """Return why neither the memories nor what was said bear a text out; None when they do.

    Names and numbers must stand in them; see `relayer.extraction.llm.evidence`. How a list is numbered and whom it
    addresses says nothing.
    """
    parts = (part for memory in memories for part in (memory.shown, memory.speaker, memory.day))
    plain = _ADDRESS.sub(lambda match: match[0].lower(), _without_numbering(text))
    return doubt_of(plain, Ground.of([*parts, *said]))


def _without_numbering(text: str) -> str:
    """Take the numbers of a list out, from 1 on in their order: no other number looks like the next item's."""
    kept, rest = "", text.lstrip()
    number = 1
    while (match := re.search(rf"(?:^|\s){number}[.)](?=\s)", rest)) is not None and (
        number > 1 or not match.start()
    ):
        kept += rest[: match.start()]
        rest = rest[match.end() :]
        number += 1
    return kept + rest
