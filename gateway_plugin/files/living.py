"""Synchronise files with memory: a change of a line changes its memory.

An edited line supersedes the memory of the previous line, a deleted one is forgotten, a moved one keeps its memory, and one
that comes back has its memory restored. Nothing is erased, so the history is kept. A scan is one pass over all files of an
agent. All its steps are idempotent, so the next scan completes one that was interrupted.

Session logs only grow: lines that are missing were truncated or deleted by the host, so their memories are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.files.blocks import ProfileFileProblem
from gateway_plugin.files.bounded import WorkspaceProblem
from gateway_plugin.files.exports import ImportProblem, pages
from gateway_plugin.files.indexed import Index, IndexedFile, IndexRoot, SeenFile, SeenLine, is_daily, is_log
from gateway_plugin.files.notes import SKILLS, DailyNotes, Promotions, take_out_gone, write_report
from gateway_plugin.files.skills import write_skills
from gateway_plugin.keys.identity import Identity
from gateway_plugin.keys.private_files import open_lock, try_lock
from gateway_plugin.recall.consolidation import ConsolidationReport
from gateway_plugin.settings.model import CaptureSettings, ConsolidationSettings
from relayer.wire.fields import Audience, Position, one_line
from relayer.wire.schemas import Memory, SupersedeRequest
from relayer.wire.service import ImportItem, ImportRequest

_PAGE: Final = 20
"""Memories in one request. Few, because a relayer on this machine embeds them while a turn may be waiting for its recall."""
_DEADLINE: Final = 60.0
_ALIKE: Final = 0.3
_COMPARED: Final = 40_000
_SAVED_EVERY: Final = 50
_PAUSE: Final = 0.05
_UNFINISHED: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class NewLine:
    """A line of a file as it is now; its fields are as in `SeenLine`."""

    digest: str
    anchor: str
    words: tuple[str, ...]
    item: ImportItem = field(repr=False)

    def seen(self, memory: str) -> SeenLine:
        """Return the line in the form that the index stores."""
        return SeenLine(self.digest, self.anchor, memory, self.words)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changes of a file's lines; ``kept`` and ``edited`` are by line index in the new file."""

    kept: dict[int, SeenLine]
    edited: dict[int, SeenLine]
    added: tuple[int, ...]
    removed: tuple[SeenLine, ...]

    def without(self, live: AbstractSet[str]) -> FileChanges:
        """Return the same changes, except that kept lines whose memory is not live any more count as added."""
        lost = [place for place, line in self.kept.items() if line.memory not in live]
        kept = {place: line for place, line in self.kept.items() if place not in lost}
        return replace(self, kept=kept, added=tuple(sorted((*self.added, *lost))))


def changes_of(before: Sequence[SeenLine], after: Sequence[NewLine]) -> FileChanges:
    """Compare the lines of a file with those that were stored.

    A line with the same text is the same line, wherever it is now. Of the remaining lines, a new one is the edited form of
    the old line with which it shares the most words, if those are at least 30 %. If only one old and one new line remain, the
    new one is the edited form of the old one in any case.
    """
    known: dict[str, deque[SeenLine]] = {}
    for line in before:
        known.setdefault(line.digest, deque()).append(line)
    kept = {place: known[line.digest].popleft() for place, line in enumerate(after) if known.get(line.digest)}
    left = [line for lines in known.values() for line in lines]
    new = [place for place in range(len(after)) if place not in kept]
    edited = dict(_edits(left, [(place, after[place]) for place in new]))
    taken = {id(line) for line in edited.values()}
    return FileChanges(
        kept,
        edited,
        tuple(place for place in new if place not in edited),
        tuple(line for line in left if id(line) not in taken),
    )


def _edits(left: list[SeenLine], new: list[tuple[int, NewLine]]) -> Iterator[tuple[int, SeenLine]]:
    left = [line for line in left if line.memory]
    if len(left) == len(new) == 1:
        yield new[0][0], left[0]
        return
    if len(left) * len(new) > _COMPARED:
        return
    pairs = [
        (alike, place, number)
        for place, line in new
        for number, old in enumerate(left)
        if (alike := _alike(line.words, old.words)) >= _ALIKE
    ]
    places: set[int] = set()
    numbers: set[int] = set()
    for _, place, number in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if place not in places and number not in numbers:
            places.add(place)
            numbers.add(number)
            yield place, left[number]


def _alike(one: Sequence[str], other: Sequence[str]) -> float:
    a, b = {*one}, {*other}
    return len(a & b) / len(a | b) if a and b else 0.0


@dataclass(slots=True)
class Look:
    """The result of a scan.

    Attributes:
        counts: numbers of ``files`` that were read, and of ``unchanged`` and ``unreadable`` ones; numbers of memories that
            were ``stored``, ``duplicate`` (existing already), ``replaced``, ``forgotten``, ``restored`` or ``refused``.
        problems: messages about files that were not read.
        position: the latest position in the relayer's log, if it returned one.
        busy: whether another process was scanning, so that nothing was done.
        more: whether a long file was stored in part, and the next scan continues it.
    """

    counts: Counter[str] = field(default_factory=Counter)
    problems: dict[str, None] = field(default_factory=dict)
    position: Position | None = None
    busy: bool = False
    more: bool = False

    @property
    def changed(self) -> bool:
        """Return whether the scan stored, replaced, forgot or restored a memory."""
        return any(self.counts[name] for name in ("stored", "replaced", "forgotten", "restored"))


@dataclass(slots=True)
class LivingFiles:
    """Synchronises one agent's files with one relayer.

    Attributes:
        each: called for each file with the counts of its changes.
        notes: daily notes for captured memories; None to write none.
        promotions: ``MEMORY.md`` and the diary of the workspace; None if there is no workspace.
        report: the report of the last consolidation, after which the files are written once; None to write none.
        consolidation: settings of consolidation, which say what is written.
        most: maximum number of new lines of a file to store in one scan, so that other files need not wait for a long one;
            None for all.
    """

    client: RelayerClient
    identity: Identity
    index: Index
    settings: CaptureSettings
    each: Callable[[IndexedFile, Counter[str]], None] = lambda _file, _counts: None
    notes: DailyNotes | None = None
    promotions: Promotions | None = None
    report: ConsolidationReport | None = None
    consolidation: ConsolidationSettings = field(default_factory=ConsolidationSettings)
    most: int | None = None

    async def look(
        self,
        roots: Iterable[IndexRoot] = (),
        *,
        force: bool = False,
        wait: float = 0.0,
        settled: Callable[[IndexedFile], bool] = lambda _file: True,
    ) -> Look:
        """Scan the files, and apply their changes to memory.

        Args:
            roots: places to scan in addition to those of the index.
            force: whether to send unchanged lines, too; this brings back memories that were forgotten or erased in another way.
            wait: seconds to wait for another process that is scanning.
            settled: returns whether to read a changed file now; if not, a later scan reads it, because it may still be written.

        Raises:
            GatewayError: as the client does; what was done before is recorded.
        """
        look = Look()
        async with locked_index(self.index, wait) as mine:
            look.busy = not mine
            if mine:
                await self._look(look, [*roots], force=force, settled=settled)
        return look

    async def _look(
        self, look: Look, roots: list[IndexRoot], *, force: bool, settled: Callable[[IndexedFile], bool]
    ) -> None:
        await asyncio.to_thread(self.index.reload)
        files, left_out = await asyncio.to_thread(self.index.files, roots)
        for error in left_out:
            _problem(look, str(error))
        await self._write(look)
        work = 0
        # Only a forced scan checks whether stored memories still exist.
        live = None
        if force and self.index.seen:
            live = {memory.id async for memory in self.client.all_memories(self.identity)}
        try:
            for name in await asyncio.to_thread(self.index.gone, roots, left_out):
                self._leave(self.index.seen.pop(name).lines)
                work += 1
            for one in files:
                if not force and not self.index.is_new(one):
                    look.counts["unchanged"] += 1
                elif force or settled(one):
                    await self._file(look, one, live)
                    work += 1
                    if work % _SAVED_EVERY == 0:
                        await asyncio.to_thread(self.index.save_seen)
            work += len(self.index.leaving)
            await self._forget(look)
        finally:
            if work:
                self.index.save_seen()

    async def _write(self, look: Look) -> None:
        """Write daily notes, and the files of the last consolidation, and remove what is not remembered any more."""
        try:
            if self.promotions is not None:
                await take_out_gone(self.client, self.identity, self.promotions)
            if self.notes is not None:
                await self.notes.write()
            if self.promotions is not None and self.report is not None:
                await self._write_consolidated(self.promotions, self.report)
        except (ProfileFileProblem, WorkspaceProblem) as error:
            _problem(look, str(error))

    async def _write_consolidated(self, files: Promotions, report: ConsolidationReport) -> None:
        """Write the files of a scheduled consolidation once. If that fails, the next scan tries again; with skills, the next run."""
        if report.at <= self.index.consolidated:
            return
        if self.consolidation.write_files:
            await write_report(self.client, self.identity, files, report)
        try:
            if self.consolidation.skills:
                await write_skills(
                    self.client, self.identity, files.workspace / SKILLS, self.consolidation.skills
                )
        except ProfileFileProblem:
            # A person has to mend it first, and what was written before must not be written at each scan.
            await self._consolidated(report)
            raise
        await self._consolidated(report)

    async def _consolidated(self, report: ConsolidationReport) -> None:
        self.index.consolidated = report.at
        await asyncio.to_thread(self.index.save_seen)

    async def _file(self, look: Look, one: IndexedFile, live: AbstractSet[str] | None) -> None:
        try:
            after, changes = await asyncio.to_thread(self._read, one)
        except ImportProblem as error:
            _problem(look, str(error))
            return
        counts: Counter[str] = Counter()
        if live is not None:
            changes = changes.without(live)
        left = frozenset[int]() if self.most is None else frozenset(changes.added[self.most :])
        changes = replace(changes, added=tuple(place for place in changes.added if place not in left))
        stored = await self._stored(look, counts, changes, after, log=is_log(one.root, one.path))
        lines = tuple(line for place, line in enumerate(stored) if place not in left)
        # A file that was stored in part has a mark that no file has, so that the next scan reads it again.
        mark = _UNFINISHED if left else one.mark
        look.more = look.more or bool(left)
        self.index.seen[str(one.path)] = SeenFile(mark, one.root.name_of(one.path), lines)
        for line in lines:
            # Removed only now that the whole file is stored, because a scan that fails earlier is repeated.
            self.index.pending.pop(line.digest, None)
            self.index.forgotten.pop(line.digest, None)
        look.counts += counts + Counter(files=1)
        self.each(one, counts)

    def _read(self, one: IndexedFile) -> tuple[list[NewLine], FileChanges]:
        """Read a file and compare it with its stored lines. Raises `ImportProblem`."""
        after = [self._line(item) for item in one.root.read(one.path, self.settings)]
        seen = self.index.seen.get(str(one.path))
        return after, changes_of(seen.lines if seen is not None else (), after)

    async def _stored(
        self, look: Look, counts: Counter[str], changes: FileChanges, after: Sequence[NewLine], *, log: bool
    ) -> tuple[SeenLine, ...]:
        """Apply the changes of a file, and return its new lines."""
        ids = {place: line.memory for place, line in changes.kept.items()}
        counts["duplicate"] += len(ids)
        added = [*changes.added]
        uses = self.index.uses() if changes.edited else Counter[str]()
        for place, old in changes.edited.items():
            # If other lines have the same memory, it is kept for them, and this line gets a memory of its own.
            if log or uses[old.memory] > 1 or not (head := await self._replaced(look, old, after[place])):
                added.append(place)
                self._leave(() if log else (old,))
            else:
                ids[place] = head
                counts["replaced"] += 1
        for place in [place for place in added if after[place].digest in self.index.pending]:
            # The daily notes wrote this line for a memory that exists.
            ids[place] = self.index.pending[after[place].digest]
            self.index.mirrored[ids[place]] = None
        added = [place for place in added if place not in ids]
        for place in [place for place in added if after[place].digest in self.index.forgotten]:
            if await self._restored(after[place]):
                ids[place] = self.index.forgotten[after[place].digest]
                counts["restored"] += 1
        wanted = sorted(place for place in added if place not in ids)
        sent = [(place, self._heard_by(after[place].item)) for place in wanted]
        ids |= await self._imported(look, counts, sent)
        self._leave(() if log else changes.removed)
        return tuple(line.seen(ids.get(place, "")) for place, line in enumerate(after))

    def _line(self, item: ImportItem) -> NewLine:
        anchor = item.source.reference.rpartition("#")[2] if "#" in item.source.reference else ""
        return NewLine(self.index.digest(item), anchor, self.index.words(item.text), item)

    def _heard_by(self, item: ImportItem) -> ImportItem:
        """Return a line with its audience: daily notes are private if direct conversations are written into them."""
        private = self.notes is not None and is_daily(item.source.reference.partition("#")[0])
        return item.model_copy(update={"audience": Audience.DIRECT}) if private else item

    def _leave(self, lines: Iterable[SeenLine]) -> None:
        self.index.leaving |= {line.memory: line.digest for line in lines if line.memory}

    async def _forget(self, look: Look) -> None:
        """Forget the memories that have no line in any file any more."""
        uses = self.index.uses() if self.index.leaving else Counter[str]()
        for memory, digest in [*self.index.leaving.items()]:
            if not uses[memory]:
                try:
                    answer = await self.client.forget(self.identity, memory)
                except RelayerRefused as error:
                    # The memory was erased, corrected or forgotten in another way, which takes precedence.
                    if error.code not in {"not_found", "stale_head"}:
                        raise
                else:
                    look.position = answer.position
                    look.counts["forgotten"] += 1
                    self.index.forgotten[digest] = memory
            del self.index.leaving[memory]

    async def _replaced(self, look: Look, old: SeenLine, new: NewLine) -> str:
        """Supersede the memory of an edited line. Return the id of the new version; "" if no live memory can be superseded."""
        head = old.memory
        for _ in range(2):
            request = SupersedeRequest(
                text=new.item.text,
                # It is not known who edited the file, so the text does not count as the user's own words any more.
                trust="imported",
                suspect=new.item.suspect,
                tags=new.item.tags,
                metadata=new.item.metadata,
                # With this key a retry after a lost response creates no second version.
                idempotency_key=hashlib.sha256(f"{head}\n{new.digest}".encode()).hexdigest(),
            )
            try:
                answer = await self.client.supersede(self.identity, head, request, deadline=_DEADLINE)
            except RelayerRefused as error:
                if error.code not in {"not_found", "stale_head"}:
                    raise
                live = await self._head_of(head)
                if live is None:
                    return ""
                labels = (live.tags, live.metadata) == (new.item.tags, new.item.metadata)
                if labels and one_line(live.text) == one_line(new.item.text):
                    return live.id
                head = live.id
            else:
                look.position = answer.position
                return answer.id
        return ""

    async def _head_of(self, memory: str) -> Memory | None:
        """Return the live version of a memory, which may have been created in another way; None if there is none."""
        try:
            found = await self.client.get_memory(self.identity, memory)
        except RelayerRefused as error:
            if error.code != "not_found":
                raise
            return None
        return next((one for one in reversed(found.history) if one.state == "live"), None)

    async def _restored(self, line: NewLine) -> bool:
        try:
            await self.client.restore(self.identity, self.index.forgotten[line.digest])
        except RelayerRefused as error:
            if error.code not in {"not_found", "stale_head"}:
                raise
            del self.index.forgotten[line.digest]
            return False
        return True

    async def _imported(
        self, look: Look, counts: Counter[str], items: Sequence[tuple[int, ImportItem]]
    ) -> dict[int, str]:
        """Store lines and return the ids of their memories; for a duplicate the id of the existing memory."""
        ids: dict[int, str] = {}
        places = iter([place for place, _ in items])
        for page in pages([item for _, item in items], most=_PAGE):
            # The key is random, because the same lines may have been sent before and forgotten since.
            request = ImportRequest(memories=page, idempotency_key=secrets.token_hex(16))
            answer = await self.client.import_memories(self.identity, request, deadline=_DEADLINE)
            look.position = answer.position or look.position
            # The places come second, because `zip` takes one more of its first argument before it sees that the other ended.
            for one, place in zip(answer.memories, places, strict=False):
                counts[one.status] += 1
                ids[place] = one.id if one.id is not None and one.status in {"stored", "duplicate"} else ""
        return ids


def _problem(look: Look, sentence: str) -> None:
    look.problems[sentence] = None
    look.counts["unreadable"] += 1


@asynccontextmanager
async def locked_index(index: Index, wait: float) -> AsyncIterator[bool]:
    """Lock the index for scanning, and yield whether that succeeded: only one process scans at a time."""
    descriptor = open_lock(index.place)
    try:
        mine = try_lock(descriptor)
        for _ in range(round(wait / _PAUSE)):
            if mine:
                break
            await asyncio.sleep(_PAUSE)
            mine = try_lock(descriptor)
        yield mine
    finally:
        os.close(descriptor)
