"""The sets that relevance is learnt from, in one form: what a person told, and what is asked beside it.

Read from ``bench/sets/precise`` and from the halves of ``bench/sets/day`` that may be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.day import personas

__all__ = ["PRECISE", "Asked", "Kind", "Space", "people", "to_learn_from"]

PRECISE = Path(__file__).parent / "sets" / "precise"
Kind = Literal["question", "keywords", "plan", "unanswerable", "untouched"]
"""A question with an answer, words as a model searches for, a plan that memories change, a question without an answer, and a
prompt of any kind that no memory changes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, and the numbers of the memories that are right; those in ``doubtful`` are neither right nor wrong."""

    kind: Kind
    text: str
    right: tuple[int, ...] = ()
    doubtful: tuple[int, ...] = ()


@dataclass(slots=True)
class Space:
    """One person's memories and prompts."""

    name: str
    language: str
    memories: list[str]
    asked: list[Asked] = field(default_factory=list)


def people(part: str) -> list[Space]:
    """The people of a part of ``bench/sets/precise``, such as ``dev/people``."""
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


def to_learn_from() -> list[Space]:
    """Everything that weights may be learnt from."""
    return [*people("train/people"), *people("train/short"), *_days("seen"), *_days("second")]


def _days(half: str) -> Iterator[Space]:
    for one in personas(half):
        raw = one.raw
        told = [text for fact in raw["facts"] for text in fact["said"]]
        told += [
            item[which] for item in (*raw["corrections"], *raw["compatible"]) for which in ("first", "then")
        ]
        told += [item["said"] for item in raw["short"]]
        asked = [
            Asked("question", item["ask"], _holding(told, item["accept"]))
            for item in (*raw["questions"], *raw["short"])
        ]
        for item in raw["corrections"]:
            new = _holding(told, item["new"])
            asked.append(Asked("question", item["ask"], new, tuple({*_holding(told, item["old"])} - {*new})))
        asked += [
            Asked("plan", item["prompt"], _holding(told, one.fact(item["fact"])["kept"]))
            for item in raw["touching"]
        ]
        asked += [Asked("untouched", text) for text in raw["unrelated"]]
        yield Space(f"{half}/{one.name}", one.language, told, [item for item in asked if _is_whole(item)])


def _is_whole(asked: Asked) -> bool:
    return bool(asked.right) or asked.kind in ("unanswerable", "untouched")


def _holding(texts: list[str], parts: Any) -> tuple[int, ...]:
    """Numbers of the texts with one of the parts."""
    return tuple(
        at for at, text in enumerate(texts) if any(part.casefold() in text.casefold() for part in parts)
    )
