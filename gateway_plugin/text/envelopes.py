"""Removing what a host writes around a message: sender data, timestamps, system lines, its own runtime context.

Only a host's own shapes are removed; where a line could also be a person's, the shape must be exact. One pass over
the lines, each line looked at with bounded patterns: linear in the text.
"""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["strip_envelopes"]

_UNTRUSTED_HEADING: Final = re.compile(
    r"^[A-Z][^\n:()]{1,60} \(untrusted(?: metadata|, for context)?\):[ \t]*"
)
_RUNTIME_HEADING: Final = re.compile(r"^OpenClaw runtime context \(internal\):", re.IGNORECASE)
_RUNTIME_BODY: Final = re.compile(
    r"^(?:this context is runtime-generated, not user-authored|\[internal [a-z ]{1,60}\]|<<<(?:begin|end)_|stats: "
    r"|source: |session_key: |session_id: |type: |task: |status: )",
    re.IGNORECASE,
)
_DROPPED_LINE: Final = re.compile(
    r"^(?:"
    r"System: .*"
    r"|\[Inter-session message\] .*"
    r"|This content was routed by OpenClaw from another session or internal tool\..*"
    r"|Runtime: agent=\S{1,128} \| .*"
    r"|\[message_id: ?[^\]\n]{0,200}\]"
    r")[ \t]*$"
)
_INLINE: Final = re.compile(r"\[message_id: ?[^\]\n]{0,200}\]|\[\[ ?reply_to[^\[\]\n]{0,100}\]\]")
# A weekday or a platform and a sender may stand before the time, a zone after it.
_STAMP: Final = re.compile(
    r"\b\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?\b|\b(?:GMT|UTC)(?:[+-]\d{1,2}(?::\d{2})?)?$"
)
_MAX_STAMP: Final = 240
# Without a bound, headings whose data never ends would each search the whole rest.
_MAX_DATA_LINES: Final = 60
_BLANK_RUN: Final = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")


def strip_envelopes(text: str) -> str:
    """Remove a host's envelopes; three or more line breaks become two, outer white space goes."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        heading = _UNTRUSTED_HEADING.match(line)
        if heading:
            at, rest = _skip_data(lines, at, line[heading.end() :])
            if rest:
                kept.append(rest)
        elif _RUNTIME_HEADING.match(line):
            at = _skip_runtime(lines, at + 1)
        elif _DROPPED_LINE.match(line):
            at += 1
        else:
            kept.append(_INLINE.sub(" ", _without_stamp(line)) if "[" in line else line)
            at += 1
    return _BLANK_RUN.sub("\n\n", "\n".join(kept)).strip()


def _without_stamp(line: str) -> str:
    start = len(line) - len(line.lstrip(" \t"))
    if not line.startswith("[", start):
        return line
    end = line.find("]", start, start + _MAX_STAMP)
    if end < 0 or "[" in line[start + 1 : end] or not _STAMP.search(line[start + 1 : end]):
        return line
    return line[end + 1 :].lstrip(" \t")


def _skip_data(lines: list[str], at: int, same_line: str) -> tuple[int, str]:
    """Skip a heading and the JSON under it, fenced or bare.

    Returns:
        The next line to look at, and what followed bare JSON on its last line.
    """
    if same_line.startswith("{"):
        return at + 1, _after_json(same_line)
    at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at >= len(lines):
        return at, same_line
    first = lines[at].lstrip()
    if first.startswith("```"):
        return _skip_fence(lines, at + 1), same_line
    if first.startswith("{"):
        return _skip_braces(lines, at), same_line
    return at, same_line


def _skip_fence(lines: list[str], at: int) -> int:
    for end in range(at, min(len(lines), at + _MAX_DATA_LINES)):
        if lines[end].strip() == "```":
            return end + 1
    # The fence was never closed: what follows the next blank line is somebody's words again.
    return _next_blank(lines, at)


def _skip_braces(lines: list[str], at: int) -> int:
    depth = 0
    for end in range(at, min(len(lines), at + _MAX_DATA_LINES)):
        depth += lines[end].count("{") - lines[end].count("}")
        if depth <= 0:
            return end + 1
    return _next_blank(lines, at)


def _next_blank(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip():
        at += 1
    return at


def _after_json(line: str) -> str:
    try:
        _, end = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return ""
    return line[end:].strip()


def _skip_runtime(lines: list[str], at: int) -> int:
    """Skip the paragraphs of a runtime block that lost its marks: they say themselves that they are internal."""
    at = _next_blank(lines, at)
    while at + 1 < len(lines) and _RUNTIME_BODY.match(lines[at + 1].strip()):
        at = _next_blank(lines, at + 1)
    return at
