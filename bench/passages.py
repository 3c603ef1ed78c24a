"""How large a passage of a long text may be: what a fact in it scores, what unrelated prompts find, what embedding costs.

    python -m bench.passages

The text is made up: one fact amid 560 sentences about other things; no data needed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder.e5 import E5
from relayer.wire.fields import cut

FACT = "Grandmother's violin lies in the attic, in the trunk behind the green suitcase."
RELATED = (
    "Where is the violin of my grandmother?",
    "Which musical instrument did granny leave us?",
    "Where did we put the old fiddle?",
)
UNRELATED = (
    "How do I sort a list in Python?",
    "What is the capital of Mongolia?",
    "Translate good morning to French",
    "Who won the world cup in 1998?",
)
WHEN = (
    "In spring",
    "Early in June",
    "On a rainy weekend",
    "Before the fair",
    "Late in autumn",
    "One evening",
)
WHAT = ("the kitchen", "the shed", "the shelf", "the boat", "the bicycle", "the orchard", "the stairs")
DONE = ("was painted", "needed new hinges", "was swept on Monday", "was measured", "was lent to the scouts")
SENTENCES = 560
PLACES = 20


def note(at: int) -> str:
    """The text, with the fact behind so many sentences."""
    known = [f"{when} {what} {done}." for when, what, done in product(WHEN, WHAT, DONE)]
    said = [known[number * 101 % len(known)] for number in range(SENTENCES)]
    said.insert(at, FACT)
    return "\n\n".join(" ".join(said[start : start + 7]) for start in range(0, len(said), 7))


def main() -> None:
    """Print a line for each size; scores are means over the places where the fact may stand."""
    model = E5()

    def vectors_of(texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        return np.stack([model.vector(model.encode(text, query=query), query=query) for text in texts])

    queries = vectors_of(RELATED + UNRELATED, query=True)
    print("bytes passages cpu_s related         best unrelated")
    for size in (300, 400, 500, 700, 1000):
        parts = [text[start:end] for text in [note(0)] for start, end in cut(text, size)]
        began = time.process_time()
        vectors = vectors_of(parts)
        spent = time.process_time() - began
        unrelated = (vectors @ queries[len(RELATED) :].T).max(axis=0)
        texts = map(note, range(100, 100 + PLACES))
        facts = [
            text[start:end] for text in texts for start, end in cut(text, size) if "violin" in text[start:end]
        ]
        related = (vectors_of(facts) @ queries[: len(RELATED)].T).mean(axis=0)
        shown = "  ".join(" ".join(f"{score:.2f}" for score in scores) for scores in (related, unrelated))
        print(f"{size:5} {len(parts):8} {spent:5.1f} {shown}")


if __name__ == "__main__":
    main()
