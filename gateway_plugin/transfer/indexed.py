"""What of this machine's files an agent remembers: the roots that a person named, and which files were seen as they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from gateway_plugin.bounded_files import FilesBelow, NotRead, files_below
from gateway_plugin.filters import Origin, judge
from gateway_plugin.identity import Identity
from gateway_plugin.private_files import replace_private, state_directory
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.transcript import dialogue
from gateway_plugin.transfer.exports import ImportProblem, files_of, read_file
from gateway_plugin.transfer.sending import shown_name
from relayer.wire.redaction import redact
from relayer.wire.schemas import SourceInfo
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
_FORMAT: Final = 1


class RootKind(StrEnum):
    """What a root is."""

    WORKSPACE = "workspace"
    SESSIONS = "sessions"
    PATH = "path"


@dataclass(frozen=True, slots=True, order=True)
class IndexRoot:
    """A place that is indexed: an agent's workspace, a host's directory of session logs, or any file or folder.

    Attributes:
        kind: what it is.
        path: its real path when it was named: where a link stands now, nothing is read.
    """

    kind: RootKind
    path: Path

    def files(self) -> FilesBelow:
        """Return what is read there now, in order."""
        match self.kind:
            case RootKind.PATH:
                return files_of(self.path) if os.path.lexists(self.path) else FilesBelow()
            case RootKind.SESSIONS:
                return files_below(self.path, lambda below: below.suffix == ".jsonl")
            case RootKind.WORKSPACE:
                return files_below(self.path, _is_note, enter=lambda below: below.parts[0] in _FOLDERS)

    def read(self, path: Path, settings: CaptureSettings) -> list[ImportItem]:
        """Read one file of it; raises `ImportProblem`."""
        shown = shown_name(self.path, path)
        root = None if path == self.path else self.path
        if self.kind is RootKind.SESSIONS:
            return read_session_log(path, shown, settings, root=self.path)
        # Inside a workspace a source is named as hosts name it: memory/2026-05-01.md.
        name = shown.partition("/")[2] if self.kind is RootKind.WORKSPACE else shown
        return read_file(path, name, root=root)


def _is_note(below: PurePosixPath) -> bool:
    if len(below.parts) == 1:
        return below.name in _NOTES
    return below.parts[0] in _FOLDERS and below.suffix == ".md"


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of a root, and what tells whether it changed."""

    root: IndexRoot
    path: Path
    mark: tuple[int, int]


@dataclass(slots=True)
class Index:
    """The roots of one agent at one relayer.

    Attributes:
        place: the file in which it is kept.
        roots: where is looked.
        seen: the files that were stored, with their marks.
    """

    place: Path
    roots: set[IndexRoot] = field(default_factory=set)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, environ: Mapping[str, str], identity: Identity, origin: str) -> Index:
        """Read it; one that was never written, or is no index any more, is empty.

        Raises:
            IdentityError: the user has no home directory.
        """
        whose = hashlib.sha256(f"{identity.account}\n{identity.namespace}\n{origin}".encode()).hexdigest()
        index = cls(state_directory(environ) / f"index-{whose[:16]}.json")
        try:
            kept = json.loads(index.place.read_text("utf-8"))
            index.roots = {IndexRoot(RootKind(kind), Path(path)) for kind, path in kept["roots"]}
            index.seen = {path: (int(mark[0]), int(mark[1])) for path, mark in kept["seen"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            # What was stored is not stored twice: an index that is lost costs a look at every file.
            index.roots, index.seen = set(), {}
        return index

    def files(self) -> tuple[list[IndexedFile], list[NotRead]]:
        """Return every file of the roots, each once, and what is left out."""
        found: dict[Path, IndexedFile] = {}
        left_out: dict[Path, NotRead] = {}
        for root in sorted(self.roots):
            below = root.files()
            for path, mark in below.files:
                found.setdefault(path, IndexedFile(root, path, mark))
            for error in below.left_out:
                left_out.setdefault(error.path, error)
        return [*found.values()], [*left_out.values()]

    def is_new(self, found: IndexedFile) -> bool:
        """Whether a file changed since it was stored, or never was."""
        return self.seen.get(str(found.path)) != found.mark

    def stored(self, found: IndexedFile) -> None:
        """Note that a file was stored as it is."""
        self.seen[str(found.path)] = found.mark

    def save(self) -> None:
        """Write it; raises `IdentityError`."""
        document = {
            "format": _FORMAT,
            "roots": [[root.kind.value, str(root.path)] for root in sorted(self.roots)],
            "seen": self.seen,
        }
        replace_private(self.place, json.dumps(document, ensure_ascii=False).encode())
