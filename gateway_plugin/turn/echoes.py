"""Telling an echo from news: what memory put into a session must not come back as something new (MW-34).

A text is an echo when it says what an injected memory says, give or take words that carry no fact ("I" and "you",
articles, politeness). A changed name, number, negation or verb makes it news: dropping a correction would be worse than
storing a thing twice.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

__all__ = ["EchoFilter"]

_MAX_MEMORIES: Final = 500
_MIN_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
# Articles, present copulas, the two who talk, politeness, and how an answer refers to what it remembers. Not "was" and not
# "she": another tense or another person is another fact.
_EMPTY_WORDS: Final = frozenset(
    {
        "a", "an", "the", "that", "is", "are", "am", "i", "you", "we", "me", "us", "my", "your", "our", "mine", "yours",
        "i'm", "you're", "i've", "you've", "user", "assistant", "said", "told", "mentioned", "remember", "know", "so",
        "well", "also", "and", "just", "please", "thanks", "noted", "ok", "okay", "yes", "sure",
    }
)  # fmt: skip


class EchoFilter:
    """The memories injected into one session; the oldest are let go beyond 500."""

    def __init__(self) -> None:
        self._injected: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def injected(self, texts: Iterable[str]) -> None:
        """Note memories that entered the prompt."""
        for text in texts:
            for part in (text, *text.splitlines()):
                gist = _gist(part)
                if len(gist) >= _MIN_WORDS:
                    self._injected[gist] = None
                    self._injected.move_to_end(gist)
        while len(self._injected) > _MAX_MEMORIES:
            self._injected.popitem(last=False)

    def without_echoes(self, text: str) -> str:
        """Return a text without the lines that are echoes; "" when all of it is."""
        if not self._injected:
            return text
        if self._is_echo(text):
            return ""
        lines = text.split("\n")
        kept = [line for line in lines if not self._is_echo(line)]
        return text if len(kept) == len(lines) else "\n".join(kept).strip()

    def _is_echo(self, text: str) -> bool:
        return _gist(text) in self._injected


def _gist(text: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return tuple(word for word in _WORD.findall(folded) if word not in _EMPTY_WORDS)
