"""Reading the dialogue of a session from the host's own log, and from nowhere else on this machine (MS-11).

Understood are lines of JSON, one message each, as OpenClaw, Claude Code and Codex write them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gateway_plugin.textual import clip, one_line
from gateway_plugin.tool_arguments import ToolError
from gateway_plugin.wrappers import strip

__all__ = ["read_transcript"]

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE: Final = 1000
_MAX_CALL: Final = 200
_SPEAKERS: Final = {"user": "User", "human": "User", "assistant": "Assistant", "ai": "Assistant"}


def read_transcript(root: Path | None, path: str, *, anchor: str | None, turns: int) -> str:
    """Return the last messages of a log, or those around an anchor, one line each.

    Args:
        root: the host's directory of session logs; nothing outside it is read.
        path: relative to the root, or inside it.
        anchor: the id of a message.
        turns: how many messages at most.

    Raises:
        ToolError: there is no such log here.
    """
    lines = [*_dialogue(_inside(root, path))]
    if not lines:
        raise ToolError("path: the log holds no dialogue")
    end = len(lines)
    if anchor is not None:
        place = next((index for index, (known, _) in enumerate(lines) if known == anchor), None)
        if place is None:
            raise ToolError("anchor: no message of this log has that id")
        end = min(len(lines), place + turns // 2 + 1)
    return "\n".join(line for _, line in lines[max(0, end - turns) : end])


def _inside(root: Path | None, path: str) -> Path:
    if root is None:
        raise ToolError("path: this host keeps no session logs that can be read")
    try:
        base = root.resolve(strict=True)
        place = (base / path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise ToolError("path: there is no such log in the host's directory of sessions") from None
    # Symbolic links are resolved by now: what is outside is outside.
    if not place.is_relative_to(base) or not place.is_file():
        raise ToolError("path: there is no such log in the host's directory of sessions")
    return place


def _dialogue(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, line) of each message; of a long log the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MAX_BYTES))
        for raw in file.read(_MAX_BYTES).split(b"\n"):
            try:
                entry = json.loads(raw)
            except ValueError:
                continue
            if isinstance(entry, Mapping):
                yield from _lines(entry)


def _lines(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    inner = next((entry[key] for key in ("message", "payload") if isinstance(entry.get(key), Mapping)), entry)
    speaker = _SPEAKERS.get(str(inner.get("role", "")).lower())
    known = str(entry.get("id") or entry.get("uuid") or inner.get("id") or "")
    content = inner.get("content")
    blocks = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    for block in blocks if speaker else []:
        if isinstance(block, str):
            said = clip(one_line(strip(block)), _MAX_LINE)
        elif isinstance(block, Mapping) and isinstance(block.get("text"), str):
            said = clip(one_line(strip(block["text"])), _MAX_LINE)
        elif isinstance(block, Mapping) and str(block.get("type", "")).lower() in {
            "tool_use",
            "toolcall",
            "function_call",
        }:
            said = clip(one_line(f"(called {block.get('name', 'a tool')})"), _MAX_CALL)
        else:
            continue
        if said:
            yield known, f"[{speaker}]: {said}"
