"""The lists that stand beside the code as data are those that results were measured with, whole and in their order."""

from __future__ import annotations

import hashlib

import pytest

from gateway_plugin.capture.filters import FILLER
from relayer.extraction import english, words
from relayer.extraction import statements as courtesies
from relayer.extraction.words import Phrases
from relayer.search.baseline import STATEMENTS, UNRELATED_PROMPTS


def plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Phrases):
        longer = [
            " ".join((first, *rest))
            for first, seconds in value._longer.items()
            for known in seconds.values()
            for rest in known
        ]
        return sorted([*value._words, *longer])
    return value


ENGLISH = sorted(name for name in vars(english) if name.isupper() and not name.startswith("_"))


# Whoever changes a list on purpose measures again (make bench-quality) and writes the new digest here.
@pytest.mark.parametrize(
    ("lists", "digest"),
    [
        (STATEMENTS, "f5db6bfb0fbb183af0eac4b7135aa180"),
        (UNRELATED_PROMPTS, "85a3691434314a6afb68b9b8ead9aa99"),
        ([(name, plain(getattr(english, name))) for name in ENGLISH], "9442d582b4073b66235a0b8ee0f42396"),
        (plain(courtesies._COURTESIES), "ebdeaef9e13017b89c45245707e0cff2"),
        (
            [(name, plain(listed)) for name, listed in words._FUNCTION_WORDS.items()],
            "15fef280d7a4cfd5f6c150732cbec515",
        ),
        (plain(FILLER), "77951eefac59221c37d9ba5405c0ea13"),
    ],
    ids=["statements", "unrelated prompts", "english", "courtesies", "function words", "filler"],
)
def test_a_list_is_what_was_measured(lists: object, digest: str) -> None:
    assert hashlib.sha256(repr(lists).encode()).hexdigest()[:32] == digest
