"""The index of an agent's files on this machine: which roots are scanned, and which line of a file became which memory.

Among the files are logs of sessions, of which the dialogue is read, and no other file on this machine (MS-11). A log is a file
with one JSON object per line in the host's directory of session logs, or a sequence of messages from the host's adapter
(`gateway_plugin.turn.gates.SessionLogs`). The message formats of OpenClaw, Claude Code and Codex are understood. If the host
has no log of a session, the relayer may have stored it: see `gateway_plugin.tools.toolbox`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from gateway_plugin.capture.filters import judge
from gateway_plugin.errors import IdentityError
from gateway_plugin.files.bounded import FilesBelow, NotRead, files_below, mark_of, parse_json, read_below
from gateway_plugin.files.exports import ImportProblem, files_of, read_file, shown_name, text_hash
from gateway_plugin.keys.identity import Identity
from gateway_plugin.keys.private_files import replace_private, state_directory
from gateway_plugin.sessions import folded
from gateway_plugin.settings.model import CaptureSettings
from gateway_plugin.text.wrappers import strip
from gateway_plugin.tools.arguments import ToolError
from gateway_plugin.turn.gates import SessionLogs
from gateway_plugin.turn.query import CALLS, moment_of
from relayer.wire.fields import Audience, Role, SourceInfo, clip, one_line
from relayer.wire.redaction import redact
from relayer.wire.sealing import derive
from relayer.wire.service import ImportItem

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
    said = [one for entry in entries for one in _entries_of(entry)]
    if not said:
        raise NoSuchLog("path: the log contains no messages")
    end = len(said)
    if anchor is not None:
        when = moment_of(anchor)
        named = [place for place, one in enumerate(said) if one.id == anchor]
        before = [place for place, one in enumerate(said) if when and one.at and one.at <= when]
        if not named and not before:
            raise ToolError("anchor: the log has no message with this id or from this time")
        place = named[0] if named else before[-1]
        end = min(len(said), place + turns // 2 + 1)
    return said[max(0, end - turns) : end]


def dialogue(folder: Path, name: str | PurePath) -> Iterator[DialogueEntry]:
    """Yield the dialogue in a file below a directory, oldest first; raises `NotRead`.

    Only the end of a file longer than 16 MiB is read.
    """
    for entry in _file_entries(folder, name):
        yield from _entries_of(entry)


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


def _entries_of(entry: Mapping[str, Any]) -> Iterator[DialogueEntry]:
    inner = next((entry[key] for key in ("message", "payload") if isinstance(entry.get(key), Mapping)), entry)
    called = str(inner.get("type", "")).lower() in CALLS
    # Codex writes the call of a tool as a message without a role; it is the assistant's.
    speaker = _SPEAKERS.get(str(inner.get("role", "assistant" if called else "")).lower())
    if not speaker:
        return
    known = str(entry.get("id") or entry.get("uuid") or inner.get("id") or "")
    at = moment_of(inner.get("timestamp", entry.get("timestamp")))
    content = inner if called else inner.get("content")
    for block in content if isinstance(content, list) else [content]:
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


_MAX_REFERENCE: Final = 500


def read_session_log(path: Path, shown: str, settings: CaptureSettings, *, root: Path) -> list[ImportItem]:
    """Read a session log of OpenClaw, Claude Code or Codex.

    The filters of capture apply, and secrets are removed. The resulting memories are visible in direct messages only, because a
    log does not say who could read the conversation.

    Raises:
        ImportProblem: the log cannot be read.
    """
    try:
        said = [*dialogue(root, path.relative_to(root))]
    except NotRead as error:
        raise ImportProblem(str(error)) from error
    items = []
    for one in said:
        origin = Role.USER if one.speaker == "User" else Role.ASSISTANT
        judgement = judge(one.text, origin=origin, settings=settings)
        clean = redact(judgement.text, settings.redaction)
        if one.call or not judgement.keep or clean.blocked:
            continue
        items.append(
            ImportItem(
                text=clean.text,
                kind="imported",
                trust="imported",
                audience="direct",
                suspect=bool(judgement.suspect),
                occurred_at=one.at,
                source=SourceInfo(
                    session=path.stem[:_MAX_REFERENCE],
                    transcript=shown[:_MAX_REFERENCE],
                    role=origin,
                    message_ids=(one.id[:_MAX_REFERENCE],) if one.id else (),
                    reference=f"{shown[: _MAX_REFERENCE // 2]}#{one.id[: _MAX_REFERENCE // 2]}"
                    if one.id
                    else shown[:_MAX_REFERENCE],
                ),
            )
        )
    return items


# The notes in a workspace that a host reads: these files, and the Markdown files in these folders.
_NOTES: Final = frozenset({"MEMORY.md", "memory.md", "USER.md"})
_FOLDERS: Final = frozenset({"memory", "wiki"})
_FORMAT: Final = 2
_DAILY: Final = re.compile(r"memory/\d{4}-\d{2}-\d{2}\.md")


class RootKind(StrEnum):
    """The kind of a root. ``notes`` are Markdown files and session logs that a host's configuration names."""

    WORKSPACE = "workspace"
    SESSIONS = "sessions"
    PATH = "path"
    NOTES = "notes"


@dataclass(frozen=True, slots=True, order=True)
class IndexRoot:
    """An indexed place: an agent's workspace, a host's directory of session logs, or any file or folder.

    Attributes:
        path: its real path at the time when it was named. If there is a link now, nothing is read.
        pattern: for ``notes``, a pattern that selects files, with ``*``, ``?`` and ``**``; empty for all.
        boilerplate: hashes of texts that a host wrote into such files itself, which are not stored.
    """

    kind: RootKind
    path: Path
    pattern: str = ""
    boilerplate: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def files(self) -> FilesBelow:
        """Return the files that are read there now, in order."""
        match self.kind:
            case RootKind.SESSIONS:
                return files_below(self.path, lambda below: below.suffix == ".jsonl")
            case RootKind.WORKSPACE:
                return files_below(self.path, _is_note, enter=_may_hold_notes)
            case RootKind.NOTES if self.path.is_dir():
                return files_below(self.path, self._is_named, enter=_is_shown)
        return files_of(self.path) if os.path.lexists(self.path) else FilesBelow()

    def holds(self, path: Path) -> bool:
        """Return whether a file, which need not exist any more, is or was one of this root."""
        if path == self.path:
            return self.kind in {RootKind.PATH, RootKind.NOTES}
        if not path.is_relative_to(self.path):
            return False
        below = PurePosixPath(path.relative_to(self.path))
        match self.kind:
            case RootKind.WORKSPACE:
                return _is_note(below)
            case RootKind.NOTES:
                return self._is_named(below)
        return True

    def read(self, path: Path, settings: CaptureSettings) -> list[ImportItem]:
        """Read one of its files, with secrets removed as capture does. Raises `ImportProblem`."""
        shown = shown_name(self.path, path)
        root = None if path == self.path else self.path
        if is_log(self, path):
            return read_session_log(path, shown, settings, root=path.parent if root is None else root)
        heard_by = {"audience": Audience.DIRECT} if is_private(self, path) else {}
        found = []
        for item in read_file(path, self.name_of(path), root=root):
            if text_hash(item.text) in self.boilerplate:
                continue
            clean = redact(item.text, settings.redaction)
            if not clean.blocked and one_line(clean.text):
                update = {"text": clean.text, **_clean_labels(item, settings), **heard_by}
                found.append(item.model_copy(update=update))
        return found

    def name_of(self, path: Path) -> str:
        """Return the name by which one of its files is cited; in a workspace as hosts do it, ``memory/2026-05-01.md``."""
        shown = shown_name(self.path, path)
        return shown.partition("/")[2] if self.kind is RootKind.WORKSPACE else shown

    def _is_named(self, below: PurePosixPath) -> bool:
        wanted = _is_shown(below) and below.suffix.lower() in {".md", ".markdown", ".jsonl"}
        return wanted and (not self.pattern or _glob(self.pattern).fullmatch(str(below)) is not None)


def _clean_labels(item: ImportItem, settings: CaptureSettings) -> dict[str, Any]:
    def is_clean(value: object) -> bool:
        texts = [str(one) for one in value] if isinstance(value, list) else [str(value)]
        return all(redact(text, settings.redaction).text == text for text in texts)

    if not item.tags and not item.metadata:
        return {}
    named = {
        key: value for key, value in item.metadata.items() if is_clean(f"{key}: {value}") and is_clean(value)
    }
    return {"tags": tuple(filter(is_clean, item.tags)), "metadata": named}


def is_private(root: IndexRoot, path: Path) -> bool:
    """Return whether hosts use a file in an agent's private conversations only, as MEMORY.md and USER.md."""
    return root.kind is RootKind.WORKSPACE and path.parent == root.path


def is_daily(name: str) -> bool:
    """Return whether a cited name is that of a daily note."""
    return _DAILY.fullmatch(name) is not None


def is_log(root: IndexRoot, path: Path) -> bool:
    """Return whether a file is a session log, whose lines are only appended and never edited."""
    return root.kind is RootKind.SESSIONS or (root.kind is RootKind.NOTES and path.suffix.lower() == ".jsonl")


def _is_shown(below: PurePosixPath) -> bool:
    return not any(part.startswith(".") for part in below.parts)


def _may_hold_notes(below: PurePosixPath) -> bool:
    return below.parts[0] in _FOLDERS and _is_shown(below)


def _is_note(below: PurePosixPath) -> bool:
    if len(below.parts) == 1:
        return below.name in _NOTES
    return _may_hold_notes(below) and below.suffix == ".md"


def _glob(pattern: str) -> re.Pattern[str]:
    """Return a path pattern as a regular expression: ``**/`` matches any folders or none, ``*`` and ``?`` match inside one."""
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(forms.get(part) or re.escape(part) for part in parts))


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of a root, with a mark that changes when the file does."""

    root: IndexRoot
    path: Path
    mark: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SeenLine:
    """A line or paragraph that became a memory.

    Attributes:
        anchor: number of its first line; in a session log the id of its message.
        memory: id of the memory; "" if the relayer refused it.
        words: keyed digests of some of its words, by which an edited line is recognised.
    """

    digest: str
    anchor: str
    memory: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was stored; ``name`` is the name by which it is cited."""

    mark: tuple[int, int]
    name: str
    lines: tuple[SeenLine, ...]


_MOST_WORDS: Final = 32
_MOST_KEPT: Final = 5_000
_WORD: Final = re.compile(r"\w+")


@dataclass(slots=True)
class Index:
    """The index of one agent's files at one relayer. It contains no text: digests are keyed with the namespace's secret.

    Attributes:
        roots: places that a person named. Those that a host's configuration names are determined again at each scan.
        leaving: memories whose lines are gone and that are still to be forgotten, with their digests.
        forgotten: by digest, the memory of a deleted line. If the line comes back, the memory is restored.
        pending: by digest, the memory of a line that was written into notes here and has not been read back yet.
        mirrored: the memories whose lines were written here.
        feed: cursor of the changes of memory that were written into notes; "" if none ever were.
        promotion_feed: likewise, of those that `MEMORY.md` and the diary were compared with.
        consolidated: the time of the last consolidation that was written into the workspace, in seconds since the epoch.
    """

    place: Path
    key: bytes = field(repr=False, default=b"")
    roots: set[IndexRoot] = field(default_factory=set)
    seen: dict[str, SeenFile] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    forgotten: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    mirrored: dict[str, None] = field(default_factory=dict)
    feed: str = ""
    promotion_feed: str = ""
    consolidated: float = 0.0
    _read: tuple[int, int] = (-1, -1)

    @classmethod
    def load(cls, environ: Mapping[str, str], identity: Identity, origin: str) -> Index:
        """Read the index. If it does not exist or is invalid, return an empty one. Raises `IdentityError` if there is no home."""
        index = cls(
            index_place(environ, identity, origin), derive(identity.namespace_secret, "memrelay/v1/files")
        )
        index.reload()
        return index

    def reload(self) -> None:
        """Read the index again if another process wrote it since."""
        if (mark := self._mark()) == self._read:
            return
        self._read = mark
        try:
            kept = parse_json(self.place.read_text("utf-8"))
            self.roots = _roots(kept)
            self.seen = {path: _seen_file(told) for path, told in kept.get("files", {}).items()}
            self.leaving, self.forgotten = dict(kept.get("leaving", {})), dict(kept.get("forgotten", {}))
            self.pending = dict(kept.get("pending", {}))
            self.mirrored = dict.fromkeys(kept.get("mirrored", ()))
            self.feed, self.promotion_feed = str(kept.get("feed", "")), str(kept.get("promotion_feed", ""))
            self.consolidated = float(kept.get("consolidated", 0.0))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            # The relayer recognises duplicates, so a lost index only costs a scan of every file.
            self.roots, self.seen, self.leaving, self.forgotten = set(), {}, {}, {}
            self.pending, self.mirrored, self.consolidated = {}, {}, 0.0
            self.feed = self.promotion_feed = ""

    def files(self, roots: Iterable[IndexRoot] = ()) -> tuple[list[IndexedFile], list[NotRead]]:
        """Return every file of its own and the given roots, each once, and the files that could not be read."""
        found: dict[Path, IndexedFile] = {}
        left_out: dict[Path, NotRead] = {}
        # Of equal ones those of the host come first, because they know the host's own texts.
        for root in sorted({*roots, *self.roots}):
            below = root.files()
            for path, mark in below.files:
                found.setdefault(path, IndexedFile(root, path, mark))
            for error in below.left_out:
                left_out.setdefault(error.path, error)
        return [*found.values()], [*left_out.values()]

    def gone(self, roots: Iterable[IndexRoot], left_out: Iterable[NotRead]) -> list[str]:
        """Return the names of stored files that do not exist any more.

        A file is not gone if it merely cannot be read or is not scanned any more. Neither are files of a root that does not
        exist itself, as when a disk is not mounted, and session logs, which hosts delete after a while.
        """
        unread = [error.path for error in left_out]
        places = {*self.roots, *roots}
        found = []
        for name in self.seen:
            path = Path(name)
            known = any(
                root.holds(path)
                and (path.parent.is_dir() if path == root.path else root.path.is_dir())
                and not is_log(root, path)
                for root in places
            )
            hidden = any(path == one or path.is_relative_to(one) for one in unread)
            if known and not hidden and not os.path.lexists(path):
                found.append(name)
        return found

    def is_new(self, found: IndexedFile) -> bool:
        """Return whether a file changed since it was stored, or was never stored."""
        seen = self.seen.get(str(found.path))
        return seen is None or seen.mark != found.mark

    def digest(self, item: ImportItem) -> str:
        """Return a keyed digest of a line's audience, text and labels, which is equal for lines that say the same."""
        labels = f"\n{json.dumps([item.tags, item.metadata])}" if item.tags or item.metadata else ""
        return self._mac(f"{item.audience}\n{one_line(item.text)}{labels}")[:24]

    def words(self, text: str) -> tuple[str, ...]:
        """Return keyed digests of a line's words, by which two lines can be compared."""
        known = dict.fromkeys(_WORD.findall(folded(text)))
        return tuple(self._mac(word)[:6] for word, _ in zip(known, range(_MOST_WORDS), strict=False))

    def uses(self) -> Counter[str]:
        """Return the number of lines that each memory has."""
        return Counter(line.memory for file in self.seen.values() for line in file.lines if line.memory)

    def cited(self) -> dict[str, str]:
        """Return the current place of each memory, such as ``MEMORY.md#3``."""
        return {
            line.memory: f"{file.name}#{line.anchor}" if line.anchor else file.name
            for file in self.seen.values()
            for line in file.lines
            if line.memory
        }

    def save_seen(self) -> None:
        """Write the index, but keep roots that another process added since it was read. Raises `IdentityError`."""
        if self._mark() != self._read:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                self.roots = _roots(parse_json(self.place.read_text("utf-8")))
        self.save()

    def save(self) -> None:
        """Write the index. Raises `IdentityError`."""
        for kept in (self.forgotten, self.pending, self.mirrored):
            for oldest in [*kept][: max(0, len(kept) - _MOST_KEPT)]:
                kept.pop(oldest)
        document = {
            "format": _FORMAT,
            "roots": [[root.kind.value, str(root.path), root.pattern] for root in sorted(self.roots)],
            "files": {path: _told(file) for path, file in self.seen.items()},
            "leaving": self.leaving,
            "forgotten": self.forgotten,
            "pending": self.pending,
            "mirrored": [*self.mirrored],
            "feed": self.feed,
            "promotion_feed": self.promotion_feed,
            "consolidated": self.consolidated,
        }
        replace_private(self.place, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
        self._read = self._mark()

    def _mark(self) -> tuple[int, int]:
        try:
            return mark_of(self.place.stat())
        except OSError:
            return (0, 0)

    def _mac(self, text: str) -> str:
        return hmac.new(self.key, text.encode(errors="replace"), hashlib.sha256).hexdigest()


class Indexes:
    """The indexes of one process. Each is cached, and read again when its file has changed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: dict[str, Index] = {}
        self._cited: dict[str, tuple[tuple[int, int], dict[str, str]]] = {}

    def index_of(self, identity: Identity, origin: str) -> Index:
        """Return an agent's index. Raises `IdentityError`."""
        if identity.namespace not in self._known:
            self._known[identity.namespace] = Index.load(self._environ, identity, origin)
        return self._known[identity.namespace]

    async def cited(self, identity: Identity, origin: str) -> Mapping[str, str]:
        """Return the current place of each memory of a file, as far as this machine knows; empty if nothing is indexed."""
        try:
            place = index_place(self._environ, identity, origin)
            mark = mark_of(place.stat())
        except (OSError, IdentityError):
            return {}
        known = self._cited.get(identity.namespace)
        if known is None or known[0] != mark:
            index = await asyncio.to_thread(Index.load, self._environ, identity, origin)
            known = self._cited[identity.namespace] = (mark, index.cited())
        return known[1]


def index_place(environ: Mapping[str, str], identity: Identity, origin: str) -> Path:
    """Return the path of an agent's index file. Raises `IdentityError`."""
    whose = hashlib.sha256(f"{identity.account}\n{identity.namespace}\n{origin}".encode()).hexdigest()
    return state_directory(environ) / f"index-{whose[:16]}.json"


def _roots(kept: Mapping[str, Any]) -> set[IndexRoot]:
    return {IndexRoot(RootKind(kind), Path(path), *more) for kind, path, *more in kept["roots"]}


def _seen_file(told: Any) -> SeenFile:
    mark, name, lines = told
    return SeenFile(
        (int(mark[0]), int(mark[1])),
        str(name),
        tuple(
            SeenLine(str(digest), str(anchor), str(memory), tuple(words))
            for digest, anchor, memory, words in lines
        ),
    )


def _told(file: SeenFile) -> list[object]:
    return [file.mark, file.name, [[one.digest, one.anchor, one.memory, one.words] for one in file.lines]]
