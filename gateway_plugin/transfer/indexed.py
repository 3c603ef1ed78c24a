"""What of this machine's files an agent remembers: the roots, and which line of which file became which memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from gateway_plugin.bounded_files import FilesBelow, NotRead, files_below, mark_of
from gateway_plugin.errors import IdentityError
from gateway_plugin.filters import Origin, judge
from gateway_plugin.identity import Identity
from gateway_plugin.private_files import replace_private, state_directory
from gateway_plugin.sessions import folded
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.text.json_text import parse_json
from gateway_plugin.transcript import dialogue
from gateway_plugin.transfer.exports import ImportProblem, files_of, read_file
from gateway_plugin.transfer.sending import shown_name
from relayer.wire.fields import AudienceName, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import SourceInfo
from relayer.wire.sealing import derive
from relayer.wire.service import ImportItem

_MAX_REFERENCE: Final = 500


def read_session_log(path: Path, shown: str, settings: CaptureSettings, *, root: Path) -> list[ImportItem]:
    """Read a log of OpenClaw, Claude Code or Codex.

    What a capture would leave out is left out, secrets are taken out, and what is left is heard in direct messages alone:
    a log does not tell who could read the conversation.

    Args:
        path: of the log.
        shown: how its memories name it as their source.
        settings: the bounds of a capture.
        root: the real path of the folder that nothing may lead out of.

    Raises:
        ImportProblem: it cannot be read.
    """
    try:
        said = [*dialogue(root, path.relative_to(root))]
    except NotRead as error:
        raise ImportProblem(str(error)) from error
    items = []
    for one in said:
        origin = Origin.USER if one.speaker == "User" else Origin.ASSISTANT
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
                    role="user" if origin is Origin.USER else "assistant",
                    message_ids=(one.id[:_MAX_REFERENCE],) if one.id else (),
                    reference=f"{shown[: _MAX_REFERENCE // 2]}#{one.id[: _MAX_REFERENCE // 2]}"
                    if one.id
                    else shown[:_MAX_REFERENCE],
                ),
            )
        )
    return items


# What a host reads of a workspace: these files, and the Markdown of these folders.
_NOTES: Final = frozenset({"MEMORY.md", "memory.md", "USER.md"})
_FOLDERS: Final = frozenset({"memory", "wiki"})
_FORMAT: Final = 2
_DAILY: Final = re.compile(r"memory/\d{4}-\d{2}-\d{2}\.md")


class RootKind(StrEnum):
    """What a root is: ``notes`` are Markdown and session logs that a host's configuration names."""

    WORKSPACE = "workspace"
    SESSIONS = "sessions"
    PATH = "path"
    NOTES = "notes"


@dataclass(frozen=True, slots=True, order=True)
class IndexRoot:
    """A place that is indexed: an agent's workspace, a host's directory of session logs, or any file or folder.

    Attributes:
        kind: what it is.
        path: its real path when it was named: where a link stands now, nothing is read.
        pattern: of ``notes``, which files below it, with ``*``, ``?`` and ``**``; empty is all.
    """

    kind: RootKind
    path: Path
    pattern: str = ""

    def files(self) -> FilesBelow:
        """Return what is read there now, in order."""
        match self.kind:
            case RootKind.PATH:
                return files_of(self.path) if os.path.lexists(self.path) else FilesBelow()
            case RootKind.SESSIONS:
                return files_below(self.path, lambda below: below.suffix == ".jsonl")
            case RootKind.WORKSPACE:
                return files_below(self.path, _is_note, enter=_may_hold_notes)
            case RootKind.NOTES if self.path.is_dir():
                return files_below(self.path, self._is_named, enter=_is_shown)
        return files_of(self.path) if os.path.lexists(self.path) else FilesBelow()

    def holds(self, path: Path) -> bool:
        """Whether a file, of which may be nothing left, is or was one of this root's."""
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
        """Read one file of it, without the secrets that a capture would leave out; raises `ImportProblem`."""
        shown = shown_name(self.path, path)
        root = None if path == self.path else self.path
        if is_log(self, path):
            return read_session_log(path, shown, settings, root=path.parent if root is None else root)
        items = read_file(path, self.name_of(path), root=root)
        audience: AudienceName = "direct" if is_private(self, path) else "agent"
        found = []
        for item in items:
            clean = redact(item.text, settings.redaction)
            if not clean.blocked and one_line(clean.text):
                update = (
                    {"text": clean.text}
                    if audience == "agent"
                    else {"text": clean.text, "audience": audience}
                )
                found.append(item.model_copy(update=update))
        return found

    def name_of(self, path: Path) -> str:
        """Return how one of its files is cited: of a workspace as hosts do it, ``memory/2026-05-01.md``."""
        shown = shown_name(self.path, path)
        return shown.partition("/")[2] if self.kind is RootKind.WORKSPACE else shown

    def _is_named(self, below: PurePosixPath) -> bool:
        wanted = _is_shown(below) and below.suffix.lower() in {".md", ".markdown", ".jsonl"}
        return wanted and (not self.pattern or _glob(self.pattern).fullmatch(str(below)) is not None)


def is_private(root: IndexRoot, path: Path) -> bool:
    """Whether a file is one that hosts give to an agent's private conversations alone: MEMORY.md and USER.md."""
    return root.kind is RootKind.WORKSPACE and path.parent == root.path


def is_daily(name: str) -> bool:
    """Whether a name, as it is cited, is one of daily notes."""
    return _DAILY.fullmatch(name) is not None


def is_log(root: IndexRoot, path: Path) -> bool:
    """Whether a file is a session log, to which lines are added and in which nobody edits any."""
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
    """Return a pattern of paths as an expression: ``**/`` is any folders or none, ``*`` and ``?`` stay in one."""
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(forms.get(part) or re.escape(part) for part in parts))


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of a root, and what tells whether it changed."""

    root: IndexRoot
    path: Path
    mark: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SeenLine:
    """A line, or a paragraph, that became a memory.

    Attributes:
        digest: keyed, of what it says.
        anchor: the number of its first line; of a session log the id of its message.
        memory: the id; "" when the relayer did not take it.
        words: keyed, of some of its words: by them an edited line is known again.
    """

    digest: str
    anchor: str
    memory: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was stored; ``name`` is how it is cited."""

    mark: tuple[int, int]
    name: str
    lines: tuple[SeenLine, ...]


_MOST_WORDS: Final = 32
_MOST_KEPT: Final = 5_000
_WORD: Final = re.compile(r"\w+")


@dataclass(slots=True)
class Index:
    """The files of one agent at one relayer. No text is in it: digests are keyed with the namespace's secret.

    Attributes:
        place: the file in which it is kept.
        key: of digests.
        roots: where is looked because a person said so; what a host's configuration names comes anew at each look.
        seen: the files as they were stored.
        leaving: memories whose lines are gone and that are still to be forgotten, with their digests.
        forgotten: by its digest, the memory of a line that is gone: if the line comes back, so does the memory.
        pending: by its digest, the memory of a line that was written into notes here and not read back yet.
        mirrored: the memories whose lines were written here.
        feed: how far the changes of memory were written into notes; "" where they never were.
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
    _read: tuple[int, int] = (-1, -1)

    @classmethod
    def load(cls, environ: Mapping[str, str], identity: Identity, origin: str) -> Index:
        """Read it; one that was never written, or is no index any more, is empty.

        Raises:
            IdentityError: the user has no home directory.
        """
        index = cls(
            index_place(environ, identity, origin), derive(identity.namespace_secret, "memrelay/v1/files")
        )
        index.reload()
        return index

    def reload(self) -> None:
        """Read it again, if another process wrote it meanwhile."""
        if (mark := self._mark()) == self._read:
            return
        self._read = mark
        try:
            kept = parse_json(self.place.read_text("utf-8"))
            self.roots = _roots(kept)
            self.seen = {path: _seen_file(told) for path, told in kept.get("files", {}).items()}
            self.leaving, self.forgotten = dict(kept.get("leaving", {})), dict(kept.get("forgotten", {}))
            self.pending, self.mirrored = (
                dict(kept.get("pending", {})),
                dict.fromkeys(kept.get("mirrored", ())),
            )
            self.feed = str(kept.get("feed", ""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            # What was stored is not stored twice: an index that is lost costs a look at every file.
            self.roots, self.seen, self.leaving, self.forgotten = set(), {}, {}, {}
            self.pending, self.mirrored, self.feed = {}, {}, ""

    def files(self, roots: Iterable[IndexRoot] = ()) -> tuple[list[IndexedFile], list[NotRead]]:
        """Return every file of its roots and of these, each once, and what is left out."""
        found: dict[Path, IndexedFile] = {}
        left_out: dict[Path, NotRead] = {}
        for root in sorted({*self.roots, *roots}):
            below = root.files()
            for path, mark in below.files:
                found.setdefault(path, IndexedFile(root, path, mark))
            for error in below.left_out:
                left_out.setdefault(error.path, error)
        return [*found.values()], [*left_out.values()]

    def gone(self, roots: Iterable[IndexRoot], left_out: Iterable[NotRead]) -> list[str]:
        """Return the files that were stored and are not there any more.

        What merely cannot be read, or is not looked at any more, is not gone; nor is what lay in a root that is itself
        not there, as when a disk is not mounted; nor are session logs, which hosts clear away.
        """
        unread = [error.path for error in left_out]
        places = {*self.roots, *roots}
        found = []
        for name in self.seen:
            path = Path(name)
            known = any(
                root.holds(path) and _stands(root, path) and not is_log(root, path) for root in places
            )
            hidden = any(path == one or path.is_relative_to(one) for one in unread)
            if known and not hidden and not os.path.lexists(path):
                found.append(name)
        return found

    def is_new(self, found: IndexedFile) -> bool:
        """Whether a file changed since it was stored, or never was."""
        seen = self.seen.get(str(found.path))
        return seen is None or seen.mark != found.mark

    def digest(self, item: ImportItem) -> str:
        """Return what tells whether a line says what another one says."""
        return self._mac(f"{item.audience}\n{one_line(item.text)}")[:24]

    def words(self, text: str) -> tuple[str, ...]:
        """Return what tells whether a line has words of another one."""
        known = dict.fromkeys(_WORD.findall(folded(text)))
        return tuple(self._mac(word)[:6] for word, _ in zip(known, range(_MOST_WORDS), strict=False))

    def uses(self) -> Counter[str]:
        """Return how many lines stand for each memory."""
        return Counter(line.memory for file in self.seen.values() for line in file.lines if line.memory)

    def cited(self) -> dict[str, str]:
        """Return where each memory stands now: ``MEMORY.md#3``."""
        return {
            line.memory: f"{file.name}#{line.anchor}" if line.anchor else file.name
            for file in self.seen.values()
            for line in file.lines
            if line.memory
        }

    def save_seen(self) -> None:
        """Write what was seen, and leave the roots to who named some meanwhile; raises `IdentityError`."""
        if self._mark() == self._read:
            self.save()
            return
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            self.roots = _roots(parse_json(self.place.read_text("utf-8")))
        self.save()

    def save(self) -> None:
        """Write it; raises `IdentityError`."""
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
        }
        replace_private(self.place, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
        self._read = self._mark()

    def _mark(self) -> tuple[int, int]:
        """Return what tells whether its file was written."""
        try:
            return mark_of(self.place.stat())
        except OSError:
            return (0, 0)

    def _mac(self, text: str) -> str:
        return hmac.new(self.key, text.encode(errors="replace"), hashlib.sha256).hexdigest()


class Indexes:
    """The indexes of one process, each read once and again when its file changed.

    Args:
        environ: where files are kept.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: dict[str, Index] = {}
        self._cited: dict[str, tuple[tuple[int, int], dict[str, str]]] = {}

    def of(self, identity: Identity, origin: str) -> Index:
        """Return an agent's index; raises `IdentityError`."""
        if identity.namespace not in self._known:
            self._known[identity.namespace] = Index.load(self._environ, identity, origin)
        return self._known[identity.namespace]

    async def cited(self, identity: Identity, origin: str) -> Mapping[str, str]:
        """Return where each memory of a file stands now, as far as this machine knows; nothing where nothing is indexed."""
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
    """Return the file in which an agent's index is kept; raises `IdentityError`."""
    whose = hashlib.sha256(f"{identity.account}\n{identity.namespace}\n{origin}".encode()).hexdigest()
    return state_directory(environ) / f"index-{whose[:16]}.json"


def _roots(kept: Mapping[str, Any]) -> set[IndexRoot]:
    return {IndexRoot(RootKind(kind), Path(path), *more) for kind, path, *more in kept["roots"]}


def _stands(root: IndexRoot, path: Path) -> bool:
    """Whether the place is there in which a file would be."""
    return path.parent.is_dir() if path == root.path else root.path.is_dir()


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
