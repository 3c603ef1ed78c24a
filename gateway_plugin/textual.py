"""Small measures and cuts of text that several parts of the plugin share."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

__all__ = [
    "clip",
    "clip_middle",
    "effective_length",
    "estimate_tokens",
    "one_line",
    "parse_span",
    "remove_invisible",
]

_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE: Final = re.compile(r"\s+")
_ELLIPSIS: Final = " … "
_SPAN: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_UNIT_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def remove_invisible(text: str) -> str:
    """Remove zero-width, bidirectional, variation and tag characters, which a reader cannot see."""
    return _INVISIBLE.sub("", text)


def parse_span(text: str) -> int | None:
    """Return the seconds of a span of time such as 30m, 12h, 7d or 8w; None when it is none, or nothing."""
    match = _SPAN.fullmatch(text.strip())
    return (int(match[1]) * _UNIT_SECONDS[match[2]] or None) if match else None


def one_line(text: str) -> str:
    """Turn a text into one visible line: white space runs become one space, invisible and control characters go."""
    return _SPACE.sub(" ", _CONTROL.sub(" ", remove_invisible(text))).strip()


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


def clip(text: str, limit: int) -> str:
    """Cut to at most ``limit`` characters, at a word's end when one lies in the last third."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    if not text[limit].isspace():
        space = max(head.rfind(" "), head.rfind("\n"))
        if space >= limit * 2 // 3:
            head = head[:space]
    return head.rstrip()


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
