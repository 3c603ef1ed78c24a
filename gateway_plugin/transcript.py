"""Reading the dialogue of a session from the host's own log, and from nowhere else on this machine (MS-11).

Understood are messages as OpenClaw, Claude Code and Codex keep them: lines of JSON in a folder, or what a host's adapter reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from gateway_plugin.textual import clip, one_line
from gateway_plugin.tool_arguments import ToolError
from gateway_plugin.wrappers import strip

__all__ = ["SessionLogs", "read_transcript"]

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE: Final = 1000
_MAX_CALL: Final = 200
_SPEAKERS: Final = {"user": "User", "human": "User", "assistant": "Assistant", "ai": "Assistant"}


class SessionLogs(Protocol):
    """A host's sessions where they are no folder of files."""

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield a session's messages, oldest first; raises `ToolError` where there is none that may be read."""
        ...


class _Line(NamedTuple):
    id: str
    at: datetime | None
    text: str


def read_transcript(logs: Path | SessionLogs | None, path: str, *, anchor: str | None, turns: int) -> str:
    """Return the last messages of a log, or those around an anchor, one line each.

    Args:
        logs: the host's directory of session logs, nothing outside of which is read; or its sessions.
        path: relative to the directory, or inside it; or as the host names its sessions.
        anchor: the id of a message, or a time in ISO 8601: the latest message of that time.
        turns: how many messages at most.

    Raises:
        ToolError: there is no such log here.
    """
    entries = (
        _file_entries(_inside(logs, path)) if logs is None or isinstance(logs, Path) else logs.entries(path)
    )
    lines = [line for entry in entries for line in _lines(entry)]
    if not lines:
        raise ToolError("path: the log holds no dialogue")
    end = len(lines)
    if anchor is not None:
        end = min(len(lines), _place(lines, anchor) + turns // 2 + 1)
    return "\n".join(line.text for line in lines[max(0, end - turns) : end])


def _place(lines: list[_Line], anchor: str) -> int:
    named = next((index for index, line in enumerate(lines) if line.id == anchor), None)
    if named is not None:
        return named
    when = _time(anchor)
    before = [index for index, line in enumerate(lines) if when and line.at and line.at <= when]
    if not before:
        raise ToolError("anchor: no message of this log has that id, and none is as old as that time")
    return before[-1]


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


def _file_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a file; of a long one the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MAX_BYTES))
        for raw in file.read(_MAX_BYTES).split(b"\n"):
            try:
                entry = json.loads(raw)
            except ValueError:
                continue
            if isinstance(entry, Mapping):
                yield entry


def _lines(entry: Mapping[str, Any]) -> Iterator[_Line]:
    inner = next((entry[key] for key in ("message", "payload") if isinstance(entry.get(key), Mapping)), entry)
    speaker = _SPEAKERS.get(str(inner.get("role", "")).lower())
    known = str(entry.get("id") or entry.get("uuid") or inner.get("id") or "")
    at = _time(entry.get("timestamp") or inner.get("timestamp"))
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
            yield _Line(known, at, f"[{speaker}]: {said}")


def _time(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
