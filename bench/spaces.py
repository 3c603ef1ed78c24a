"""The people of ``bench/sets/precise`` in one form: their memories, and the prompts that are asked of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["LEFT_OUT", "PRECISE", "Asked", "Kind", "Space", "people"]

PRECISE = Path(__file__).parent / "sets" / "precise"
LEFT_OUT = ("hb", "he")
"""Authors of the fourth set whose people layers never learn from."""
Kind = Literal["question", "keywords", "plan", "unanswerable", "untouched"]
"""A question with an answer, words as a model searches for, a plan that memories change, a question without an answer, and a
prompt of any kind that no memory changes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, and the indices of the memories that are right."""

    kind: Kind
    text: str
    right: tuple[int, ...] = ()


@dataclass(slots=True)
class Space:
    """One person's memories and prompts."""

    name: str
    language: str
    memories: list[str]
    asked: list[Asked] = field(default_factory=list)


def people(part: str) -> list[Space]:
    """Return the people of a part of ``bench/sets/precise``, such as ``dev/people``."""
    spaces = []
    for path in sorted((PRECISE / part).glob("*.json")):
        raw = json.loads(path.read_text("utf-8"))
        asked = [Asked("question", one["ask"], (one["right"],)) for one in raw["questions"]]
        asked += [Asked("keywords", one["ask"], tuple(one["right"])) for one in raw["keywords"]]
        asked += [Asked("plan", one["ask"], tuple(one["needs"])) for one in raw["plans"]]
        asked += [Asked("unanswerable", text) for text in raw["unanswerable"]]
        asked += [Asked("untouched", text) for text in raw["untouched"]]
        spaces.append(Space(f"{part}/{path.stem}", raw["language"], raw["memories"], asked))
    return spaces
