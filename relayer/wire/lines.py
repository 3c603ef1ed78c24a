"""Texts as one visible line, cut at a word, and the words of a model that has nothing to say: for both sides."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["clip", "is_no_recall", "one_line", "remove_invisible", "stream_safe"]

_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE: Final = re.compile(r"\s+")
# UAX #15, Stream-Safe Text Format: no language needs more than 30 combining marks on one base. Without a bound the
# canonical reordering of a long run of marks takes quadratic time.
_MOST_MARKS: Final = 30
_TOO_MANY_MARKS: Final = re.compile(rb"[^\0]{%d,}" % (_MOST_MARKS + 1))
# active-memory's words for "nothing to say" (AM-11).
_NO_RECALL: Final = frozenset(
    {
        "", "none", "no_reply", "no reply", "nothing useful", "no relevant memory", "no relevant memories", "timeout",
        "[]", "{}", "null", "n/a",
    }
)  # fmt: skip


def remove_invisible(text: str) -> str:
    """Remove zero-width, bidirectional, variation and tag characters, which a reader cannot see."""
    return _INVISIBLE.sub("", text)


def one_line(text: str) -> str:
    """Turn a text into one visible line: white space runs become one space, invisible and control characters go."""
    return _SPACE.sub(" ", _CONTROL.sub(" ", remove_invisible(text))).strip()


def stream_safe(text: str) -> str:
    """Drop combining marks beyond the thirtieth of a run, so that normalising takes linear time."""
    if text.isascii():
        return text
    kept, at = [], 0
    for run in _TOO_MANY_MARKS.finditer(bytes(map(unicodedata.combining, text))):
        kept.append(text[at : run.start() + _MOST_MARKS])
        at = run.end()
    return "".join([*kept, text[at:]])


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


def is_no_recall(answer: str) -> bool:
    """Tell whether a model's answer says that there is nothing to recall."""
    return one_line(answer).strip("\"'`.*").casefold() in _NO_RECALL
