"""Append captured memories to daily notes, ``memory/YYYY-MM-DD.md``, as plain text (CP-40).

Each written line is recorded as the line of its memory. The next scan of the files therefore does not store it again, and an
edit of the line edits the memory. In the layout of memsearch the line is below the headings of its session and minute, and
summaries of turns and sessions are written, too (MS-19, MS-22). If a memory is corrected, forgotten or erased in another way, its line is removed again,
unless it was edited.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.files.bounded import WorkspaceProblem, text_below
from gateway_plugin.files.indexed import Index, SeenFile, SeenLine
from gateway_plugin.files.markdown import last_section, read_markdown, section_of
from gateway_plugin.keys.identity import Identity
from gateway_plugin.keys.private_files import replace_private
from gateway_plugin.recall.formatting import told_at
from gateway_plugin.settings.model import CaptureSettings, DailyLogFormat
from relayer.wire.fields import one_line
from relayer.wire.memories import ChangeView, Memory
from relayer.wire.redaction import redact
from relayer.wire.service import ImportItem

_PAGE: Final = 100
_PAGES: Final = 5
_KINDS: Final = frozenset({"statement", "fact", "preference", "decision", "event", "task"})
LOST: Final = "rollback_detected"
# The mark of a file that no scan has read.
_UNREAD: Final = (0, 0)


@dataclass(slots=True)
class DailyNotes:
    """The daily notes of one agent.

    client: client of the relayer.
    identity: the agent, and the namespace of its memories.
    index: the index of the agent's files. The caller must hold its lock.
    workspace: the real path of the agent's workspace.
    settings: settings of capture, which say how secrets are redacted.
    place: time zone of the notes' days.
    due: whether there may be something to write.
    """

    client: RelayerClient
    identity: Identity
    index: Index
    workspace: Path
    settings: CaptureSettings
    place: tzinfo
    due: bool = True

    async def write(self) -> int:
        """Write the memories captured since the last call, and remove the lines of deleted ones. Return the number of new lines.

        The very first call writes nothing: the notes start with memories that are captured after it.

        Raises:
            GatewayError: as the client does, or `WorkspaceProblem`. The next call continues where this one ended.
        """
        if not self.due:
            return 0
        if not self.index.feed:
            told = await self.client.changes(self.identity, limit=1)
            self.index.feed = str(told.position.seq) if told.position is not None else told.next
            await asyncio.to_thread(self.index.save_seen)
            return 0
        written = 0
        for _ in range(_PAGES):
            try:
                told = await self.client.changes(self.identity, after=self.index.feed, limit=_PAGE)
            except RelayerRefused as error:
                if error.code != LOST:
                    raise
                # The store was reset to an older state: continue from its current end.
                self.index.feed = ""
                await asyncio.to_thread(self.index.save_seen)
                return written
            if not told.changes:
                break
            written += await asyncio.to_thread(self._take, told.changes, told.next)
            if not told.more:
                break
        return written

    def _take(self, changes: Iterable[ChangeView], cursor: str) -> int:
        uses = self.index.uses()
        new: dict[str, Memory] = {}
        for change in changes:
            memory = change.memory
            if memory is not None and memory.state == "live":
                # Of a conversation, and not of a file; summaries only in memsearch's layout.
                is_captured = memory.trust in {"user", "assistant"} and not memory.source.reference
                is_written = memory.kind in _KINDS or (memory.kind == "summary" and self._in_sections)
                if is_captured and is_written and not memory.suspect and not uses[memory.id]:
                    new[memory.id] = memory
            else:
                new.pop(change.id, None)
                self._take_out(change.id)
        written = sum(self._append(memory) for memory in new.values())
        self.index.feed = cursor
        self.index.save_seen()
        return written

    def _append(self, memory: Memory) -> bool:
        """Write a memory's line, unless it exists already, or would not be read back as one line with the same text."""
        line = redact(one_line(memory.text), self.settings.redaction)
        items = _items(f"- {line.text}")
        if line.blocked or len(items) != 1 or items[0].text != line.text:
            return False
        moment = told_at(memory).astimezone(self.place)
        day = moment.date().isoformat()
        text = text_below(self.workspace, f"memory/{day}.md")
        digest = self.index.digest(items[0])
        if digest in {self.index.digest(item) for item in _items(text)}:
            return False
        # Recorded before writing, so that a scan that reads the line knows its memory.
        self.index.pending[digest] = memory.id
        self.index.save_seen()
        headings = section_of(memory, moment).below(last_section(text)) if self._in_sections else ()
        self._write(day, "".join(f"{row}\n" for row in (*headings, f"- {line.text}")))
        # From now on an edit of the line edits the memory, even if the edit happens before a scan has read the line.
        self._saw(f"memory/{day}.md", SeenLine(digest, "", memory.id, self.index.words(line.text)))
        return True

    @property
    def _in_sections(self) -> bool:
        return self.settings.daily_log_format is DailyLogFormat.MEMSEARCH

    def _saw(self, name: str, line: SeenLine) -> None:
        path = str(self.workspace / name)
        seen = self.index.seen.get(path, SeenFile(_UNREAD, name, ()))
        self.index.seen[path] = replace(seen, lines=(*seen.lines, line))
        self.index.mirrored[line.memory] = None
        self.index.pending.pop(line.digest, None)

    def _take_out(self, memory: str) -> None:
        """Remove the line that was written for a memory, if it is unchanged."""
        if memory not in self.index.mirrored:
            return
        is_promoted = False
        for name, file in self.index.seen.items():
            digests = {line.digest for line in file.lines if line.memory == memory}
            path = Path(name)
            if not digests or not path.is_relative_to(self.workspace):
                continue
            if path.parent.name != "memory":
                is_promoted = True  # `Promotions` removes this line
                continue
            text = text_below(self.workspace, f"memory/{path.stem}.md")
            lines = text.split("\n")
            for item in _items(text):
                if self.index.digest(item) in digests:
                    lines[int(item.source.reference.rpartition("#")[2]) - 1] = "\0"
            kept = "\n".join(line for line in lines if line != "\0")
            if kept != text:
                mode = path.stat().st_mode & 0o777
                replace_private(path, kept.encode(), mode=mode)
        if not is_promoted:
            self.index.mirrored.pop(memory)

    def _write(self, day: str, line: str) -> None:
        folder = self.workspace / "memory"
        try:
            folder.mkdir(exist_ok=True)
            descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._add(descriptor, f"{day}.md", day, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise WorkspaceProblem(f"memory/{day}.md cannot be written: {error.strerror}") from error

    def _add(self, folder: int, name: str, day: str, line: str) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "a+b") as file:
            file.seek(0, os.SEEK_END)
            if not file.tell():
                line = f"# {day}\n\n" + line.removeprefix("\n")
            else:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else f"\n{line}"
            # A single write, because an editor or an agent may append at the same time.
            file.write(line.encode())
            file.flush()
            os.fsync(descriptor)


def _items(text: str) -> list[ImportItem]:
    return read_markdown(text, "notes", UTC)
