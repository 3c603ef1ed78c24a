"""The conversations that recall quality is measured on, read from where they lie and never copied.

LoCoMo (Maharana et al., 2024) is licensed for measuring only (CC BY-NC 4.0). Other sets are read in the same format, such as the
lives of LifeBench (Apache-2.0): a year of messages, notes, calendar entries and chats with an assistant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CATEGORIES", "Conversation", "Question", "Turn", "conversations"]

# Categories 1 to 4 of LoCoMo, of which the fifth asks people of the conversation for what was never said; those of LifeBench; and
# those of `bench.long_chats`, which has some names of LoCoMo's.
CATEGORIES = (
    *("single_hop", "multi_hop", "temporal", "open_domain"),
    *("information_extraction", "multi_hop_reasoning", "temporal_and_knowledge_updating", "nondeclarative"),
    *("user_fact", "assistant_fact"),
)
NEVER_SAID = "adversarial"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn; ``occurred_at`` in RFC 3339."""

    id: str
    session: int
    speaker: str
    occurred_at: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that answer it."""

    text: str
    category: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order, questions about them, and questions that they do not answer."""

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    never_said: tuple[str, ...] = ()


def conversations(path: Path) -> list[Conversation]:
    """Read the file; questions without evidence among the turns are left out."""
    found = []
    for raw in json.loads(path.read_text("utf-8"))["conversations"]:
        turns = tuple(
            Turn(turn["id"], turn["session"], turn["speaker"], f"{turn['date']}:00Z", turn["text"])
            for turn in raw["turns"]
        )
        known = {turn.id for turn in turns}
        questions = tuple(
            Question(question["q"], question["cat"], evidence)
            for question in raw["questions"]
            if question["cat"] in CATEGORIES
            and (evidence := tuple(turn for turn in dict.fromkeys(question["evidence"]) if turn in known))
        )
        never_said = tuple(question["q"] for question in raw["questions"] if question["cat"] == NEVER_SAID)
        found.append(Conversation(raw["id"], turns, questions, never_said))
    return found
