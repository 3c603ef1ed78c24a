"""A stand-in for a language model, with which the examples run without a key."""

from __future__ import annotations

import re
from typing import Final

SAID: Final = "Our staging database is called heron."
ASKED: Final = "Which database do we stage on?"
_MEMORY: Final = re.compile(r"heron\b")


def answer_to(prompt: object) -> str:
    """Return what a language model might answer to a prompt: it knows what the prompt contains and nothing else."""
    text = str(prompt)
    if ASKED not in text:
        return "Noted."
    return "It is called heron." if _MEMORY.search(text) else "I do not know."
