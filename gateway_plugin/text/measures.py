"""Small measures and cuts of text that several parts of the plugin share."""

from __future__ import annotations

import math
import unicodedata
from typing import Final

from relayer.wire.fields import clip, one_line, remove_invisible

__all__ = [
    "clip",
    "clip_middle",
    "effective_length",
    "estimate_tokens",
    "folded",
    "one_line",
    "remove_invisible",
]

_ELLIPSIS: Final = " … "


def folded(text: str) -> str:
    """Return a text for comparison: compatibility forms and case make no difference, nor does how an apostrophe is written."""
    return unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")


def effective_length(text: str) -> int:
    """Count visible characters, wide ones (Chinese, Japanese, Korean) as two: they say about twice as much."""
    line = one_line(text)
    return (
        len(line)
        if line.isascii()
        else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
    )


def estimate_tokens(text: str) -> int:
    """Estimate a model's tokens, rather high than low: 4 ASCII characters, 2 of other alphabets, or 1 wide one each."""
    if text.isascii():
        return math.ceil(len(text) / 4)
    quarters = 0
    for char in text:
        if char.isascii():
            quarters += 1
        else:
            quarters += 4 if unicodedata.east_asian_width(char) in "WF" else 2
    return math.ceil(quarters / 4)


def clip_middle(text: str, limit: int) -> str:
    """Cut to at most ``limit`` characters by dropping the middle: what is asked stands at either end of a long paste."""
    if len(text) <= limit:
        return text
    if limit < 40:
        return clip(text, limit)
    room = limit - len(_ELLIPSIS)
    tail_room = room // 3
    tail = text[-tail_room:]
    space = tail.find(" ")
    if 0 <= space < tail_room // 3:
        tail = tail[space:]
    return clip(text, room - tail_room) + _ELLIPSIS + tail.strip()
