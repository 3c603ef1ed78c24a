"""Words that mark what always matters, in fifteen languages: dangers to the person, how they want to be answered, who they are.

A word alone proves nothing. It counts together with what a classifier or a model says of the whole statement.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from relayer.lib.n_grams import UNSPACED
from relayer.wire.fields import stream_safe

Essential = Literal["harm", "style", "identity"]
KINDS: Final[tuple[Essential, ...]] = ("harm", "style", "identity")
"""The classes."""

# A marking word may begin at a word boundary, and anywhere in scripts without spaces or with prefixed words.
_BEGINNING: Final = re.compile(rf"\b\w|{UNSPACED.pattern}|[\u0600-\u06ff\uac00-\ud7af]")


@cache
def words_of_classes() -> dict[str, dict[Essential, tuple[str, ...]]]:
    """Return the words that mark each class, by their first character."""
    lines = (files("relayer.lib") / "data" / "marking_words.txt").read_text("utf-8").splitlines()
    found: dict[str, dict[Essential, tuple[str, ...]]] = defaultdict(lambda: dict.fromkeys(KINDS, ()))
    for kind in KINDS:
        for line in lines:
            for mark in folded_text(line.removeprefix(kind)).split() if line.startswith(f"{kind} ") else ():
                found[mark[0]][kind] += (mark.replace("_", " "),)
    return dict(found)


def folded_text(text: str) -> str:
    """Return a text as it is compared: in compatibility forms, and without case."""
    return unicodedata.normalize("NFKC", stream_safe(text)).casefold()


def marked(text: str) -> frozenset[Essential]:
    """Return the classes of which a marking word occurs in a text."""
    folded, found = folded_text(text), set[Essential]()
    for match in _BEGINNING.finditer(folded):
        for kind, words in words_of_classes().get(match[0][0], {}).items():
            if folded.startswith(words, match.start()):
                found.add(kind)
    return frozenset(found)
