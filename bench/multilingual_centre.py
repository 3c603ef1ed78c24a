"""Measure where the multilingual model's vectors lie, and write the file that its adapter takes off them.

    python -m bench.multilingual_centre

As the model gives them, all vectors point much the same way: cosines of unrelated texts are about 0.77, with a standard deviation
of 0.02. Without the mean vector of memories, and that of prompts, they are 0.04 and 0.07: what the default model has. The means
are taken language by language, so that none counts for more than another, over the ``seen`` half of ``bench/sets/day``. Left
out of the means, a language's own cosines differ by 0.02. Also prints the file's SHA-256, which the adapter checks.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from bench.day import Persona, personas
from relayer.adapters.local_embedder.e5 import E5, centre_file
from relayer.search.terms import indexed_text

_FIRST_DAY = 1_683_504_000_000
_DAY = 86_400_000


def memories(persona: Persona) -> list[str]:
    """What a persona tells, as memories are embedded: with a day, a third of them with a speaker, too."""
    raw = persona.raw
    told = [" ".join(fact["said"]) for fact in raw["facts"]] + [short["said"] for short in raw["short"]]
    told += [case[which] for case in raw["corrections"] for which in ("first", "then")]
    return [
        indexed_text(persona.name if at % 3 == 0 else None, _FIRST_DAY + at * _DAY, text)
        for at, text in enumerate(told)
    ]


def prompts(persona: Persona) -> list[str]:
    """What a persona asks, and what it asks that has nothing to do with memories."""
    raw = persona.raw
    asked = [case["ask"] for part in ("questions", "short", "corrections") for case in raw[part]]
    touching: list[str] = [case["prompt"] for case in raw["touching"]]
    return asked + touching + list(raw["unrelated"])


def mean(model: E5, texts: dict[str, list[str]], *, query: bool) -> NDArray[np.float32]:
    """Mean of the languages' mean vectors."""
    means = [
        np.mean([model.raw(model.encode(text, query=query)) for text in some], axis=0)
        for some in texts.values()
    ]
    whole: NDArray[np.float32] = np.mean(means, axis=0)
    return whole


def main() -> None:
    told: defaultdict[str, list[str]] = defaultdict(list)
    asked: defaultdict[str, list[str]] = defaultdict(list)
    for persona in personas("seen"):
        told[persona.language] += memories(persona)
        asked[persona.language] += prompts(persona)
    model = E5(centred=False)
    centre = np.stack([mean(model, told, query=False), mean(model, asked, query=True)])
    # Half precision, so that the last bits do not depend on the processor that measured.
    written = io.BytesIO()
    np.save(written, centre.astype(np.float16))
    centre_file().write_bytes(written.getvalue())
    print(hashlib.sha256(written.getvalue()).hexdigest())


if __name__ == "__main__":
    main()
