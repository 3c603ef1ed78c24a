"""What a text tells by its form alone: the language that it is in, and whether it asks for something only a memory knows.

Two linear classifiers over the same hashed n-grams of characters and words, and a small network over what they say and the
prompt's vector, learnt from labelled prompts in fifteen languages: ``python -m bench.prompt_reader`` makes the weights anew
from ``bench/sets/prompts`` and says how right they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.lib.n_grams import LANGUAGES, Head, stored_heads, vector

PURPOSES = ("none", "plan", "ask")
"""What a prompt wants of memory: nothing; nothing, but what is known of the person may matter; to be told."""
PROMPT_BUCKETS = 1 << 17
LANGUAGE_BUCKETS = 1 << 14


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


def _data() -> bytes:
    return (files("relayer.search") / "data" / "prompt_reader.npz").read_bytes()


@cache
def _heads() -> dict[str, Head]:
    """Weights of a purpose and a language."""
    return stored_heads(_data())


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """One layer of rectified sums of the n-grams' logits, a model's vector and 1, and a weighted sum of these for each class."""

    inner: NDArray[np.float32]
    outer: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, read: NDArray[np.float32]) -> NDArray[np.float32]:
        """How likely each class is, in logits; one row a row."""
        return np.asarray(np.maximum(read @ self.inner, 0) @ self.outer + self.bias, np.float32)


@cache
def _by_model() -> dict[str, Network]:
    """The networks by the SHA-256 of a model."""
    with np.load(BytesIO(_data()), allow_pickle=False) as stored:
        models = {name.split("_")[1] for name in stored.files if name.endswith("_inner")}
        return {model: _network(stored, f"model_{model}") for model in models}


def _network(stored: Mapping[str, NDArray[Any]], name: str) -> Network:
    inner, outer = (stored[f"{name}_{part}"].astype(np.float32) for part in ("inner", "outer"))
    return Network(inner * stored[f"{name}_scale"], outer, stored[f"{name}_bias"])


@dataclass(frozen=True, slots=True, eq=False)
class PromptForm:
    """What n-grams alone say of a prompt, which can be read before there is a vector of it.

    Attributes:
        language: the likeliest of `LANGUAGES`.
        purpose: how likely each of `PURPOSES` is, in logits.
    """

    language: str
    purpose: NDArray[np.float32]

    def reading(self, query: NDArray[np.float32] | None = None, model: str = "") -> Reading:
        """Return what was read of the prompt.

        Args:
            query: its vector, if there is one: a model that knows languages knows better what is asked than n-grams do.
            model: the SHA-256 of that model; of most nothing has been learnt, and then the n-grams decide.
        """
        purpose, learnt = self.purpose, _by_model().get(model)
        if learnt is not None and query is not None:
            purpose = learnt.logits(np.concatenate([purpose, query, [1.0]], dtype=np.float32))
        none, plan, ask = purpose.tolist()
        return Reading(
            language=self.language,
            asks=ask - float(np.logaddexp(none, plan)),
            concerns=float(np.logaddexp(ask, plan)) - none,
        )


def read_prompt(text: str) -> PromptForm:
    """Read a prompt; never fails, whatever the text is."""
    heads, grams = _heads(), vector(text, PROMPT_BUCKETS)
    language = LANGUAGES[int(heads["language"].logits(grams).argmax())]
    return PromptForm(language, heads["purpose"].logits(grams))
