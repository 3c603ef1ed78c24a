"""Reading the dialogue of a session from the host's own log, and from no other file on this machine (MS-11).

A log is a file with one JSON object per line in the host's directory of session logs, or a sequence of messages from the
host's adapter (`gateway_plugin.turn.gates.SessionLogs`). The message formats of OpenClaw, Claude Code and Codex are
understood. If the host has no log of a session, the relayer may have stored it: see `gateway_plugin.tools.toolbox`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from gateway_plugin.files.bounded import NotRead, parse_json, read_below
from gateway_plugin.text.wrappers import strip
from gateway_plugin.tools.arguments import ToolError
from gateway_plugin.turn.gates import SessionLogs
from gateway_plugin.turn.query import CALLS, moment_of
from relayer.wire.fields import clip, one_line

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE: Final = 1000
_MAX_CALL: Final = 200
_SPEAKERS: Final = {"user": "User", "human": "User", "assistant": "Assistant", "ai": "Assistant"}


class NoSuchLog(ToolError):
    """Raised when the host has no log of a session: it may be deleted, or belong to another gateway."""


@dataclass(frozen=True, slots=True)
class DialogueEntry:
    """An entry of a dialogue: a text, or the call of a tool.

    Attributes:
        id: the id of its message; "" if the log has none.
        speaker: ``User`` or ``Assistant``.
        text: the text without wrappers.
        call: whether the entry is the call of a tool.
        at: ms since the epoch; None if the log does not say.
    """

    id: str
    speaker: str
    text: str = field(repr=False)
    call: bool = False
    at: int | None = None

    @property
    def line(self) -> str:
        """The entry as one line for people and models, with at most 1000 characters of text (200 for a call)."""
        return f"[{self.speaker}]: {clip(one_line(self.text), _MAX_CALL if self.call else _MAX_LINE)}"


def read_transcript(logs: Path | SessionLogs | None, path: str, *, anchor: str | None, turns: int) -> str:
    """Return the last messages of a log, or those around an anchor, one per line; see `read_dialogue`."""
    return "\n".join(one.line for one in read_dialogue(logs, path, anchor=anchor, turns=turns))


def read_dialogue(
    logs: Path | SessionLogs | None, path: str, *, anchor: str | None, turns: int
) -> list[DialogueEntry]:
    """Return the last messages of a log, or those around an anchor.

    Args:
        logs: the host's directory of session logs, outside of which nothing is read; or an object that reads the host's
            sessions.
        path: the path of the log, relative to the directory or absolute; or the host's name of the session.
        anchor: the id of a message, or an ISO 8601 time, which selects the last message up to that time.
        turns: maximum number of entries.

    Raises:
        NoSuchLog: the host has no such log.
        ToolError: the log cannot be read, or the anchor is not in it.
    """
    entries = _of_folder(logs, path) if logs is None or isinstance(logs, Path) else logs.entries(path)
    said = [one for entry in entries for one in _told(entry)]
    if not said:
        raise NoSuchLog("path: the log contains no messages")
    end = len(said)
    if anchor is not None:
        end = min(len(said), _place(said, anchor) + turns // 2 + 1)
    return said[max(0, end - turns) : end]


def dialogue(folder: Path, name: str | PurePath) -> Iterator[DialogueEntry]:
    """Yield the dialogue in a file below a directory, oldest first; raises `NotRead`.

    Only the end of a file longer than 16 MiB is read.
    """
    for entry in _file_entries(folder, name):
        yield from _told(entry)


def _place(said: list[DialogueEntry], anchor: str) -> int:
    named = next((index for index, one in enumerate(said) if one.id == anchor), None)
    if named is not None:
        return named
    when = moment_of(anchor)
    before = [index for index, one in enumerate(said) if when and one.at and one.at <= when]
    if not before:
        raise ToolError("anchor: the log has no message with this id or from this time")
    return before[-1]


def _of_folder(root: Path | None, path: str) -> Iterator[Mapping[str, Any]]:
    if root is None:
        raise NoSuchLog("path: this host has no readable session logs")
    # An absolute path is accepted if it lies in the directory.
    below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else path
    try:
        yield from _file_entries(root.resolve(), below)
    except NotRead as error:
        cause = "no such log" if error.missing else error.cause
        raise NoSuchLog(f"path: in the host's directory of sessions: {cause}") from None


def _file_entries(folder: Path, name: str | PurePath) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a log file; only the end of a file longer than 16 MiB is read."""
    for raw in read_below(folder, name, most=_MAX_BYTES, tail=True).split(b"\n"):
        try:
            entry = parse_json(raw)
        except ValueError:
            continue
        if isinstance(entry, Mapping):
            yield entry


def _told(entry: Mapping[str, Any]) -> Iterator[DialogueEntry]:
    inner = next((entry[key] for key in ("message", "payload") if isinstance(entry.get(key), Mapping)), entry)
    called = str(inner.get("type", "")).lower() in CALLS
    # Codex writes the call of a tool as a message without a role; it is the assistant's.
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
            yield DialogueEntry(known, speaker, text, call, at)


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
