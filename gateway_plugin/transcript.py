"""The dialogue of a session from the host's own log, from nowhere else on this machine (MS-11).

Where the host has no log of it, the relayer may: see `gateway_plugin.tools`. Understood are messages as OpenClaw,
Claude Code and Codex keep them: lines of JSON in a folder, or what a host's adapter reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from gateway_plugin.bounded_files import NotRead, read_below
from gateway_plugin.query import CALLS, moment_of
from gateway_plugin.text.json_text import parse_json
from gateway_plugin.text.wrappers import strip
from gateway_plugin.tool_arguments import ToolError
from gateway_plugin.turn import SessionLogs
from relayer.wire.fields import clip, one_line

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE: Final = 1000
_MAX_CALL: Final = 200
_SPEAKERS: Final = {"user": "User", "human": "User", "assistant": "Assistant", "ai": "Assistant"}


class NoSuchLog(ToolError):
    """Raised when the host has no log of a session: it may be gone, or another gateway's."""


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a log tells: what somebody said, or that a tool was called.

    Attributes:
        id: of its message; "" when the log gives none.
        speaker: ``User`` or ``Assistant``.
        text: without wrappers.
        call: whether it is a tool that was called.
        at: ms since the epoch; None when the log does not tell.
    """

    id: str
    speaker: str
    text: str = field(repr=False)
    call: bool = False
    at: int | None = None

    @property
    def line(self) -> str:
        """One bounded line for people and models."""
        return f"[{self.speaker}]: {clip(one_line(self.text), _MAX_CALL if self.call else _MAX_LINE)}"


def read_transcript(logs: Path | SessionLogs | None, path: str, *, anchor: str | None, turns: int) -> str:
    """Return the last messages of a log, or those around an anchor, one line each; as `read_dialogue`."""
    return "\n".join(one.line for one in read_dialogue(logs, path, anchor=anchor, turns=turns))


def read_dialogue(
    logs: Path | SessionLogs | None, path: str, *, anchor: str | None, turns: int
) -> list[Said]:
    """Return the last messages of a log, or those around an anchor.

    Args:
        logs: the host's directory of session logs, nothing outside of which is read; or its sessions.
        path: relative to the directory, or inside it; or as the host names its sessions.
        anchor: the id of a message, or a time in ISO 8601: the latest message of that time.
        turns: how many messages at most.

    Raises:
        NoSuchLog: there is no such log here.
        ToolError: it may not be read, or not now; or the anchor is not in it.
    """
    entries = _of_folder(logs, path) if logs is None or isinstance(logs, Path) else logs.entries(path)
    said = [one for entry in entries for one in _told(entry)]
    if not said:
        raise NoSuchLog("path: the log holds no dialogue")
    end = len(said)
    if anchor is not None:
        end = min(len(said), _place(said, anchor) + turns // 2 + 1)
    return said[max(0, end - turns) : end]


def dialogue(folder: Path, name: str | PurePath) -> Iterator[Said]:
    """Yield what a file below a folder tells, oldest first; of one of more than 16 MiB the end. Raises `NotRead`."""
    for entry in _file_entries(folder, name):
        yield from _told(entry)


def _place(said: list[Said], anchor: str) -> int:
    named = next((index for index, one in enumerate(said) if one.id == anchor), None)
    if named is not None:
        return named
    when = moment_of(anchor)
    before = [index for index, one in enumerate(said) if when and one.at and one.at <= when]
    if not before:
        raise ToolError("anchor: no message of this log has that id, and none is as old as that time")
    return before[-1]


def _of_folder(root: Path | None, path: str) -> Iterator[Mapping[str, Any]]:
    if root is None:
        raise NoSuchLog("path: this host keeps no session logs that can be read")
    # One that is given in full has to begin as the folder does.
    below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else path
    try:
        yield from _file_entries(root.resolve(), below)
    except NotRead as error:
        cause = "there is no such log" if error.missing else error.cause
        raise NoSuchLog(f"path: in the host's directory of sessions: {cause}") from None


def _file_entries(folder: Path, name: str | PurePath) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a file; of a long one the end."""
    for raw in read_below(folder, name, most=_MAX_BYTES, tail=True).split(b"\n"):
        try:
            entry = parse_json(raw)
        except ValueError:
            continue
        if isinstance(entry, Mapping):
            yield entry


def _told(entry: Mapping[str, Any]) -> Iterator[Said]:
    inner = next((entry[key] for key in ("message", "payload") if isinstance(entry.get(key), Mapping)), entry)
    called = str(inner.get("type", "")).lower() in CALLS
    # A call that is an entry of its own, as Codex writes it, has no role; it is the assistant's.
    speaker = _SPEAKERS.get(str(inner.get("role", "assistant" if called else "")).lower())
    if not speaker:
        return
    known = str(entry.get("id") or entry.get("uuid") or inner.get("id") or "")
    at = moment_of(inner.get("timestamp", entry.get("timestamp")))
    content = inner if called else inner.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        text, call = _text_of(block)
        if one_line(text):
            yield Said(known, speaker, text, call, at)


def _text_of(block: object) -> tuple[str, bool]:
    if isinstance(block, str):
        return strip(block), False
    if not isinstance(block, Mapping):
        return "", False
    if isinstance(block.get("text"), str):
        return strip(block["text"]), False
    if str(block.get("type", "")).lower() in CALLS:
        return f"(called {block.get('name', 'a tool')})", True
    return "", False
