"""Texts that are written into an agent's workspace: daily notes, promoted memories in ``MEMORY.md``, and a diary in ``DREAMS.md``.

`DailyNotes` appends captured memories to ``memory/YYYY-MM-DD.md``, as plain text (CP-40). Each written line is recorded as the line
of its memory. The next scan of the files therefore does not store it again, and an edit of the line edits the memory. In the
layout of memsearch the line is below the headings of its session and minute, and summaries of turns and sessions are written,
too (MS-19, MS-22). If a memory is corrected, forgotten or erased in another way, its line is removed again, unless it was edited.

A promoted line is recorded as the line of its memory: a scan of the files does not store it again, and an edit of the line
edits the memory. `Promotions.take_out` removes lines and keeps their memories. Each day has one marked entry in the diary,
which is replaced when the day is written again. Hosts index no diary, so it is never stored as memories.

Only memories of the owner are written: what is told to the whole agent, or was said in a direct chat that is no one
else's. What a group, another person, a tool or a file said is not, and neither is a line with a secret.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.files.blocks import ProfileFileProblem, SkillFiles
from gateway_plugin.files.bounded import WorkspaceProblem, text_below
from gateway_plugin.files.indexed import Index, SeenFile, SeenLine
from gateway_plugin.files.markdown import last_section, read_markdown, section_of
from gateway_plugin.keys.identity import Identity
from gateway_plugin.keys.private_files import replace_private
from gateway_plugin.recall.consolidation import ConsolidationReport
from gateway_plugin.recall.formatting import told_at
from gateway_plugin.settings.model import CaptureSettings, DailyLogFormat
from relayer.wire.fields import MAX_TEXT_BYTES, Audience, clip, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import ChangeView, Memory
from relayer.wire.service import ImportItem

_PAGES: Final = 5
_NOTED: Final = frozenset({"statement", "fact", "preference", "decision", "event", "task"})
LOST: Final = "rollback_detected"


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
                is_written = memory.kind in _NOTED or (memory.kind == "summary" and self._in_sections)
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
        items = read_markdown(f"- {line.text}", "notes", UTC)
        if line.blocked or len(items) != 1 or items[0].text != line.text:
            return False
        moment = told_at(memory).astimezone(self.place)
        day = moment.date().isoformat()
        name = f"memory/{day}.md"
        text = text_below(self.workspace, name)
        digest = self.index.digest(items[0])
        if digest in {self.index.digest(item) for item in read_markdown(text, "notes", UTC)}:
            return False
        # Recorded before writing, so that a scan that reads the line knows its memory.
        self.index.pending[digest] = memory.id
        self.index.save_seen()
        headings = section_of(memory, moment).below(last_section(text)) if self._in_sections else ()
        self._write(day, "".join(f"{row}\n" for row in (*headings, f"- {line.text}")))
        # From now on an edit of the line edits the memory, even if the edit happens before a scan has read the line.
        path = str(self.workspace / name)
        seen = self.index.seen.get(path, SeenFile(_UNREAD, name, ()))
        new = SeenLine(digest, "", memory.id, self.index.words(line.text))
        self.index.seen[path] = replace(seen, lines=(*seen.lines, new))
        self.index.mirrored[memory.id] = None
        self.index.pending.pop(digest, None)
        return True

    @property
    def _in_sections(self) -> bool:
        return self.settings.daily_log_format is DailyLogFormat.MEMSEARCH

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
            for item in read_markdown(text, "notes", UTC):
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
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder.mkdir(exist_ok=True)
            above = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                descriptor = os.open(f"{day}.md", flags, 0o600, dir_fd=above)
            finally:
                os.close(above)
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
        except OSError as error:
            raise WorkspaceProblem(f"memory/{day}.md cannot be written: {error.strerror}") from error


MEMORY: Final = "MEMORY.md"
DIARY: Final = "DREAMS.md"
SKILLS: Final = "skills"
_PAGE: Final = 100
_HEADING: Final = "# Promoted memories"
_TITLE: Final = "# Dream Diary"
_LASTING: Final = f"Now in {MEMORY}"
_KINDS: Final = {
    "decision": "Decided",
    "task": "To do",
    "event": "What happened",
    "preference": "Preferences",
    "fact": "Facts",
    "statement": "Said",
}
NOTES: Final = "notes"
"""The mark of a day's entry in the diary that tells daily notes from elsewhere."""
CHATS: Final = "chats"
"""The mark of a day's entry in the diary that tells stored chats which memory does not have."""
ARCHIVES: Final = "archives"
"""The mark of a day's entry in the diary that tells archived session logs, which are never captured."""
_DAY: Final = "day"
_ENTRY: Final = "<!-- memrelay:{mark}:{day} -->\n{text}<!-- memrelay:end -->\n"


def _entries(mark: str) -> re.Pattern[str]:
    return re.compile(
        rf"\n*<!-- memrelay:{mark}:(\d{{4}}-\d{{2}}-\d{{2}}) -->\n.*?<!-- memrelay:end -->\n", re.DOTALL
    )


_ENTRIES: Final = _entries(_DAY)
_ALL_ENTRIES: Final = _entries(f"(?:{_DAY}|{NOTES}|{CHATS}|{ARCHIVES})")
# The mark of a file that no scan has read.
_UNREAD: Final = (0, 0)


def is_for_owner(memory: Memory) -> bool:
    """Return whether a memory may be written: live, said by the owner, and not said in a group or to another person."""
    return memory.state == "live" and is_of_owner(memory)


def is_of_owner(memory: Memory) -> bool:
    """Return whether the owner said a memory, and neither in a group nor to another person; it need not be live."""
    owned = memory.audience == "agent" or (memory.audience == "direct" and not memory.source.place)
    return (
        owned
        and memory.kind in _KINDS
        and memory.trust == "user"
        and not memory.suspect
        and not memory.source.reference
    )


@dataclass(slots=True)
class Promotions:
    """The promoted memories and the diary of one agent.

    index: the index of the agent's files. The caller must hold its lock.
    workspace: the real path of the agent's workspace.
    """

    index: Index
    workspace: Path

    def add(self, memories: Iterable[Memory]) -> list[Memory]:
        """Append the lines of memories to ``MEMORY.md``, and return the memories that were written.

        A memory that the file already contains is left out, as is one with a secret. Raises `WorkspaceProblem`.
        """
        text = text_below(self.workspace, MEMORY)
        known = {item.text for item in _items(text)}
        added: dict[str, Memory] = {}
        for memory in memories:
            line = plain_line(memory.text)
            if line and line not in known and line not in added:
                added[line] = memory
        if not added:
            return []
        head = text.rstrip("\n")
        if next((line for line in reversed(text.splitlines()) if line.startswith("#")), "") != _HEADING:
            head = f"{head}\n\n{_HEADING}\n" if head else f"{_HEADING}\n"
        changed = "\n".join([head, *(f"- {line}" for line in added)]) + "\n"
        found = {item.text: self.index.digest(item) for item in _items(changed)}
        lines = [
            SeenLine(found[line], "", memory.id, self.index.words(line)) for line, memory in added.items()
        ]
        # Recorded before writing, so that a scan that reads a line knows its memory.
        seen = self.index.seen.get(self._place, SeenFile(_UNREAD, MEMORY, ()))
        self.index.seen[self._place] = replace(seen, lines=(*seen.lines, *lines))
        self.index.mirrored |= dict.fromkeys(memory.id for memory in added.values())
        self.index.save_seen()
        self._write(MEMORY, changed)
        return [*added.values()]

    def promoted(self) -> dict[str, str]:
        """Return the digests of the promoted lines by memory id."""
        seen = self.index.seen.get(self._place)
        lines = () if seen is None else seen.lines
        return {line.memory: line.digest for line in lines if line.memory in self.index.mirrored}

    def take_out(self, memories: Iterable[str] = ()) -> list[str]:
        """Remove promoted lines, all unless some memories are named, and return the ids of their memories, which are kept.

        An edited line is the user's own and remains. Raises `WorkspaceProblem`.
        """
        wanted, promoted = set(memories), self.promoted()
        digests = {digest: memory for memory, digest in promoted.items() if not wanted or memory in wanted}
        text = text_below(self.workspace, MEMORY)
        gone = {
            int(item.source.reference.rpartition("#")[2]): digests[self.index.digest(item)]
            for item in _items(text)
            if self.index.digest(item) in digests
        }
        if not gone:
            return []
        kept = "\n".join(line for number, line in enumerate(text.split("\n"), 1) if number not in gone)
        kept = re.sub(rf"\n*^{_HEADING}\n*\Z", "\n", kept, flags=re.MULTILINE) if text else kept
        seen = self.index.seen[self._place]
        # Recorded before writing, so that a scan does not forget the memories.
        left = tuple(line for line in seen.lines if line.memory not in gone.values())
        self.index.seen[self._place] = replace(seen, mark=_UNREAD, lines=left)
        uses = self.index.uses()
        for memory in gone.values():
            if not uses[memory]:  # a line of daily notes is removed by `DailyNotes`
                self.index.mirrored.pop(memory, None)
        self.index.save_seen()
        self._write(MEMORY, kept.lstrip("\n"))
        return [*gone.values()]

    def entry(self, day: date, memories: Sequence[Memory], promoted: Sequence[Memory] = ()) -> str:
        """Return the diary's text for a day: its memories by kind, oldest first; "" if there is nothing to tell.

        What the diary tells of the day as promoted remains, as long as it is in ``MEMORY.md``.
        """
        by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for memory in sorted(memories, key=lambda one: one.created_at):
            line = plain_line(memory.text) if is_for_owner(memory) else ""
            if line and line not in by_kind[memory.kind]:
                by_kind[memory.kind].append(line)
        groups = [(_KINDS[kind], lines) for kind, lines in by_kind.items() if lines]
        known = {*self.promoted().values()}
        diary = text_below(self.workspace, DIARY)
        before = next((one[0] for one in _ENTRIES.finditer(diary) if one[1] == day.isoformat()), "")
        told = before.partition(f"### {_LASTING}\n")[2].partition("<!--")[0]
        lasting = [item.text for item in _items(told) if self.index.digest(item) in known]
        lasting += filter(None, (plain_line(one.text) for one in promoted))
        if lasting:
            groups.append((_LASTING, [*dict.fromkeys(lasting)]))
        if not groups:
            return ""
        parts = [f"## {day:%A}, {day.isoformat()}\n"]
        parts += [f"### {title}\n\n" + _bullets(lines) for title, lines in groups]
        return "\n".join(parts)

    def quote(
        self, days: Mapping[date, Iterable[str]], mark: str, source: str, most: int = MAX_TEXT_BYTES
    ) -> int:
        """Write lines that are not memories, such as those of daily notes, into ``DREAMS.md``.

        Args:
            days: the lines by day. A line that contains a secret or more than one paragraph is left out.
            mark: `NOTES`, `CHATS` or `ARCHIVES`; earlier entries of these days with this mark are replaced.
            source: the origin of the lines, for the heading.
            most: the maximum length of a line in characters; longer lines are cut.

        Returns:
            The number of days for which an entry was written.

        Raises:
            WorkspaceProblem: the file cannot be read or written.
        """
        entries = {}
        for day, lines in days.items():
            # A secret across the cut is not recognised afterwards; what is cut may no longer be read back as one line.
            cut = (plain_line(clip(plain_line(line), most)) for line in lines)
            plain = _bullets(dict.fromkeys(filter(None, cut)))
            entries[day] = f"## {day:%A}, {day.isoformat()}, {source}\n\n{plain}" if plain else ""
        return self.write_diary(entries, mark)

    def write_diary(self, entries: Mapping[date, str], mark: str = _DAY) -> int:
        """Write the entries of days into ``DREAMS.md``, replace those of the same days, and return how many were written.

        An entry with an empty text removes its day. Entries with another mark remain. Raises `WorkspaceProblem`.
        """
        text = text_below(self.workspace, DIARY)
        days = {day.isoformat() for day in entries}
        text = _entries(mark).sub(lambda found: "" if found[1] in days else found[0], text)
        told = {day: entry for day, entry in sorted(entries.items()) if entry}
        blocks = [_ENTRY.format(mark=mark, day=day.isoformat(), text=entry) for day, entry in told.items()]
        if blocks or text != text_below(self.workspace, DIARY):
            self._write(
                DIARY, "\n".join([text.rstrip("\n") + "\n" if text.strip() else f"{_TITLE}\n", *blocks])
            )
        return len(blocks)

    def days(self) -> list[date]:
        """Return the days that have an entry in ``DREAMS.md``. Raises `WorkspaceProblem`."""
        return [date.fromisoformat(day) for day in _ENTRIES.findall(text_below(self.workspace, DIARY))]

    def clear_diary(self) -> int:
        """Remove all entries that were written here from ``DREAMS.md``, and return how many. Raises `WorkspaceProblem`."""
        text = text_below(self.workspace, DIARY)
        kept, count = _ALL_ENTRIES.subn("", text)
        if count:
            kept = kept.rstrip("\n") + "\n"
            self._write(DIARY, "" if kept.strip() == _TITLE else kept)
        return count

    @property
    def _place(self) -> str:
        return str(self.workspace / MEMORY)

    def _write(self, name: str, text: str) -> None:
        path = self.workspace / name
        try:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            replace_private(path, text.encode(), mode=mode)
        except OSError as error:
            raise WorkspaceProblem(f"{name} cannot be written: {error.strerror}") from error


async def owners_days(
    client: RelayerClient, identity: Identity, first: date, last: date
) -> dict[date, list[Memory]]:
    """Return the owner's memories of a range of days, by the local day on which they were told. Raises `GatewayError`."""
    days: dict[date, list[Memory]] = {}
    async for memory in client.all_memories(identity):
        day = told_at(memory).astimezone().date()
        if is_for_owner(memory) and first <= day <= last:
            days.setdefault(day, []).append(memory)
    return days


async def memories_with(client: RelayerClient, identity: Identity, ids: Iterable[str]) -> dict[str, Memory]:
    """Return the live memories with these ids. Raises as `RelayerClient.get_memory`."""
    found = {}
    for one in ids:
        try:
            memory = (await client.get_memory(identity, one)).memory
        except RelayerRefused as error:
            # It was erased.
            if error.code != "not_found":
                raise
            continue
        if memory.state == "live":
            found[one] = memory
    return found


async def take_out_gone(client: RelayerClient, identity: Identity, files: Promotions) -> None:
    """Remove what was written of memories that were forgotten, replaced or erased since the last call.

    Entries of the diary are then written again.

    Raises:
        GatewayError: as the client does, `WorkspaceProblem`, or `ProfileFileProblem`; the next call tries again.
    """
    index, promoted = files.index, files.promoted()
    days = await asyncio.to_thread(files.days)
    skills = SkillFiles(files.workspace / SKILLS, identity.namespace)
    drawn = frozenset[str]()
    problem: ProfileFileProblem | None = None
    try:
        drawn = await asyncio.to_thread(lambda: frozenset[str]().union(*skills.memories().values()))
    except ProfileFileProblem as error:
        problem = error  # raised at the end, because it must not keep the other files from being written
    if not promoted and not days and not drawn and problem is None:
        return
    written = promoted.keys() | drawn
    gone, cursor, is_changed = await _gone_since(client, identity, index.promotion_feed, written)
    if lines := gone & promoted.keys():
        await asyncio.to_thread(files.take_out, lines)
    if gone & drawn:
        await asyncio.to_thread(skills.drop, gone)
    if is_changed and days:
        kept = await owners_days(client, identity, min(days), max(days))
        entries = {day: files.entry(day, kept.get(day, ())) for day in days}
        await asyncio.to_thread(files.write_diary, entries)
    # Once a skill that cannot be read is mended, everything is compared.
    cursor = "" if problem is not None else cursor
    if cursor != index.promotion_feed:
        index.promotion_feed = cursor
        await asyncio.to_thread(index.save_seen)
    if problem is not None:
        raise problem


async def _gone_since(
    client: RelayerClient, identity: Identity, cursor: str, written: AbstractSet[str]
) -> tuple[AbstractSet[str], str, bool]:
    """Return which memories are gone, where the next call goes on, and whether anything changed.

    Without a ``cursor``, all memories that were written are compared.
    """
    if cursor:
        try:
            told = await client.changes(identity, after=cursor, limit=_PAGE)
        except RelayerRefused as error:
            if error.code != LOST:
                raise
            # The store was reset to an older state: the next call compares everything.
            return set(), "", False
        gone = {one.id for one in told.changes if one.memory is None or one.memory.state != "live"}
        return gone, told.next, bool(gone)
    told = await client.changes(identity, limit=1)
    end = str(told.position.seq) if told.position is not None else told.next
    return written - (await memories_with(client, identity, written)).keys(), end, True


async def write_report(
    client: RelayerClient, identity: Identity, files: Promotions, report: ConsolidationReport
) -> None:
    """Write what a scheduled consolidation promoted into ``MEMORY.md``, and the day that ended into the diary.

    Raises:
        GatewayError: as the client does, or `WorkspaceProblem`; the next call tries again.
    """
    promoted = await memories_with(client, identity, [one.id for one in report.promoted])
    done = await asyncio.to_thread(files.add, [one for one in promoted.values() if is_for_owner(one)])
    today = datetime.fromtimestamp(report.at, UTC).astimezone().date()
    told = await owners_days(client, identity, today - timedelta(days=1), today)
    entries = {
        day: files.entry(day, memories, done if day == today else ()) for day, memories in told.items()
    }
    if done and today not in entries:
        entries[today] = files.entry(today, (), done)
    await asyncio.to_thread(files.write_diary, entries)


def _items(text: str) -> list[ImportItem]:
    """Return the lines of a text as a scan of ``MEMORY.md`` reads them, which hosts use in private conversations only."""
    return [
        item.model_copy(update={"audience": Audience.DIRECT}) for item in read_markdown(text, MEMORY, UTC)
    ]


def plain_line(text: str) -> str:
    """Return a text as a line, or "" if it has a secret, or would not be read back as one line with the same text."""
    # Every class of secrets, also one that the settings allow in memory: hosts and other programs read these files.
    line = redact(one_line(text))
    items = _items(f"- {line.text}")
    is_plain = line.text == one_line(text) and len(items) == 1 and items[0].text == line.text
    # A comment could end the entry of a day.
    return line.text if is_plain and "<!--" not in line.text else ""


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)
