"""Prompts are files, one for each version, so that a memory can say which one made it. A version is never changed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

__all__ = ["EXTRACT", "SUMMARISE", "Prompt", "extract_prompt", "summary_prompt"]

EXTRACT = "extract/1"
SUMMARISE = "summarise/1"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is told. ``name`` is ``purpose/version``, and with it is recorded what the model made."""

    name: str
    text: str


def extract_prompt(*, summary: bool) -> Prompt:
    """Return the newest prompt that extracts facts, with or without a summary of the turn."""
    folder = files("relayer.extraction") / "prompts"
    ending = "summary" if summary else "no-summary"
    parts = (f"{EXTRACT}.txt", f"{EXTRACT}.{ending}.txt")
    text = "\n".join((folder / part).read_text("utf-8") for part in parts)
    return Prompt(EXTRACT + ("+summary" if summary else ""), text)


def summary_prompt() -> Prompt:
    """Return the newest prompt that summarises a session."""
    return Prompt(
        SUMMARISE, (files("relayer.extraction") / "prompts" / f"{SUMMARISE}.txt").read_text("utf-8")
    )
