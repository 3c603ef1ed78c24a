"""What a text tells by its form alone: the language that it is in, and whether it asks for something only a memory knows.

Two linear classifiers over the same hashed n-grams of characters and words, learnt from labelled prompts in fifteen
languages: ``python -m bench.prompt_reader`` makes the weights anew from ``bench/sets/prompts`` and says how right they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from relayer.lib.n_grams import LANGUAGES, Head, stored_heads, vector

PURPOSES = ("none", "plan", "ask")
"""What a prompt wants of memory: nothing; nothing, but what is known of the person may matter; to be told."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a prompt.

    Attributes:
        language: the likeliest of `LANGUAGES`.
        asks: how much likelier than not it is, in logits, that the prompt asks for a memory.
        concerns: the same of asking for one, or touching what a memory may say.
    """

    language: str
    asks: float
    concerns: float


@cache
def _heads() -> dict[str, Head]:
    """Weights of a purpose and a language."""
    return stored_heads((files("relayer.search") / "data" / "prompt_reader.npz").read_bytes())


def read_prompt(text: str) -> Reading:
    """Read a text; never fails, whatever the text is."""
    heads, grams = _heads(), vector(text)
    purpose, language = heads["purpose"].logits(grams), heads["language"].logits(grams)
    none, plan, ask = purpose.tolist()
    return Reading(
        language=LANGUAGES[int(language.argmax())],
        asks=ask - float(np.logaddexp(none, plan)),
        concerns=float(np.logaddexp(ask, plan)) - none,
    )


def language_of(text: str) -> str:
    """The likeliest of `LANGUAGES`."""
    return LANGUAGES[int(_heads()["language"].logits(vector(text)).argmax())]
