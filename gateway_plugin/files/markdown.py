"""Write and read daily logs in Markdown, in two layouts, and read Markdown notes of any kind.

``daily-md`` is the layout of memory-core: ``memory/YYYY-MM-DD.md`` with a bullet for each memory. ``memsearch`` is the layout
of memsearch: files with the same names, with headings for sessions and times, and a comment that names the session. Days and
times are in a given time zone.

A page may begin with front matter, as wikis and Obsidian write it: YAML between two lines ``---``. Title and aliases say what
the lines of the page are about; tags and all other fields become the tags and the metadata of its memories, by which searches
can filter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
from pathlib import PurePath
from typing import Any, Final

import yaml

from gateway_plugin.recall.formatting import label_of_others, told_at
from gateway_plugin.turn.gates import PROJECTS_APART
from relayer.wire.fields import SourceInfo, cut, one_line
from relayer.wire.labels import (
    MAX_METADATA_BYTES,
    MAX_TAG,
    MAX_TAGS,
    PROJECTS,
    RESERVED_KEYS,
    encode_metadata,
)
from relayer.wire.schemas import Memory
from relayer.wire.service import ImportItem

_MAX_LINES: Final = 100
_MAX_TITLE: Final = 120
_MAX_LIST: Final = 64
_MAX_KEY: Final = 64
_MAX_INTEGER: Final = 2**63
_END: Final = re.compile(r"(?:---|\.\.\.)\s*")
_TAG_KEYS: Final = ("tags", "tag", "keywords")
_ALIAS_KEYS: Final = ("aliases", "alias")
_DATE_KEYS: Final = ("date", "created")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The front matter of a file.

    Attributes:
        lines: number of lines that it occupies, with both fences; 0 if there is none.
        title: what the page is about, with its other names: ``Heron (staging db)``; "" if neither is given.
        tags: its tags, without ``#``.
        metadata: all fields except the tags, with dates as ISO 8601.
    """

    lines: int = 0
    title: str = ""
    tags: tuple[str, ...] = ()
    written: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_front_matter(lines: list[str], name: str, place: tzinfo) -> FrontMatter:
    """Return the front matter at the top of a file. If it is not valid YAML, only its number of lines is returned.

    ``name`` is the title of a page that has other names and no title; ``place`` is the time zone of a date without one.

    Example:
        >>> from datetime import UTC
        >>> found = read_front_matter(["---", "aliases: [staging db]", "tags: ops", "---"], "Heron", UTC)
        >>> found.title, found.tags
        ('Heron (staging db)', ('ops',))
    """
    if not lines or lines[0].rstrip() != "---":
        return FrontMatter()
    end = next((number for number, line in enumerate(lines[1:_MAX_LINES], 1) if _END.fullmatch(line)), 0)
    if not end:
        return FrontMatter()
    try:
        fields = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError):
        return FrontMatter(end + 1)
    if not isinstance(fields, dict):
        return FrontMatter(end + 1)
    aliases = [one for key in _ALIAS_KEYS for one in _texts(fields.get(key))]
    title = one_line(str(fields.get("title") or "")) or (name if aliases else "")
    others: list[str] = []
    for alias in dict.fromkeys(aliases):
        if alias.casefold() != title.casefold() and len(", ".join((title, *others, alias))) <= _MAX_TITLE:
            others.append(alias)
    words = [one for key in _TAG_KEYS for one in _texts(fields.get(key), words=True)]
    tags = dict.fromkeys(word.lstrip("#").strip() for word in words)
    return FrontMatter(
        end + 1,
        f"{title} ({', '.join(others)})" if others else title[:_MAX_TITLE],
        tuple(tag for tag in tags if 0 < len(tag) <= MAX_TAG and tag.isprintable())[:MAX_TAGS],
        next((at for key in _DATE_KEYS if (at := _moment(fields.get(key), place))), None),
        _metadata(fields),
    )


def _texts(value: object, *, words: bool = False) -> list[str]:
    """Return a field's texts: those of a list, or of a text that lists them with commas (for tags, with spaces, too)."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+" if words else ",", value)
    given = value[:_MAX_LIST] if isinstance(value, list) else [value]
    texts = (one_line(str(one)) for one in given if isinstance(one, str | int | float | date))
    return [text for text in texts if text]


def _moment(value: object, place: tzinfo) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the zone is set below
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=place)


def _metadata(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the fields that metadata can have; of too many, the first ones."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        plain = [_plain(one) for one in value[:_MAX_LIST]] if isinstance(value, list) else _plain(value)
        kept = [one for one in plain if one is not None] if isinstance(plain, list) else plain
        named = isinstance(key, str) and 0 < len(key.strip()) <= _MAX_KEY and key not in RESERVED_KEYS
        if not named or kept is None or kept == [] or key in _TAG_KEYS:
            continue
        if len(encode_metadata({**found, key: kept}).encode()) <= MAX_METADATA_BYTES:
            found[key] = kept
    return found


def _plain(value: object) -> Any:
    """Return a value as JSON has it; None if it is nested, empty, or too large a number."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if abs(value) < _MAX_INTEGER else None
    if isinstance(value, int):
        return value if -_MAX_INTEGER <= value < _MAX_INTEGER else None
    return one_line(value) if isinstance(value, str) else None


_DATE_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.md", re.IGNORECASE)
_TIME: Final = re.compile(r"#{2,3}\s+(Session\s+)?(\d{1,2}):(\d{2})\s*")
_ANCHOR: Final = re.compile(r"<!--\s*session:(\S+)(?:\s+transcript:(.*?))?\s*-->")
_OBSERVED: Final = re.compile(r"<!--\s*observed:\s*(\S+)\s*\|\s*status:\s*(\w+)[^>]*-->")
_COMMENT: Final = re.compile(rf"{_ANCHOR.pattern}|{_OBSERVED.pattern}")
_BULLET: Final = re.compile(r"(\s*)[-*+]\s+(.*)")
_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
# Lines after an empty line are code if they are indented by this much more than the text around them.
_CODE_INDENT: Final = 4
_HEADING: Final = re.compile(r"#{1,6}(?:\s|$)")
# Lines that say nothing: a rule, and lines that are still to be filled in, which have a label, a remark in italics and brackets,
# or both.
_BLANK: Final = re.compile(r"(?:\*\*[^*\n]+\*\*:?[ \t]*)?(?:[_*]\([^\n]*\)[_*])?|(?:[-*_][ \t]*){2,}")
# What OpenClaw's own memory writes behind an entry: phrases that bring it up, a weight from 1 to 10, and its repositories.
_NOTE: Final = re.compile(r"[ \t]*<!--\s*(trigger|importance|project)\s*:\s*([^>]*?)\s*-->", re.IGNORECASE)
_USER_FILE: Final = "user.md"
_MOST_PROJECTS: Final = 1_000
# A note without a key is for no project that there is, as in the host.
_NO_PROJECT: Final = "!"
_NO_DATE: Final = "YYYY-MM-DD"
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_MAX_REFERENCE: Final = 512
_MAX_TRIGGERS: Final = 8
_MOST_IMPORTANT: Final = 10
# A longer paragraph is split into several memories of about the size that fits a prompt.
_MOST_BYTES: Final = 2_000


def render_daily(memories: Iterable[Memory], place: tzinfo, owners: Collection[str] = ()) -> dict[str, str]:
    """Return memory-core's daily logs, as texts by file name; ``owners`` are the ids of the owner, see `_line`."""
    files: dict[str, str] = {}
    for name, day in sorted(_by_day(memories, place).items()):
        bullets = "\n".join(_line(memory, owners) for _, memory in day)
        files[f"{name}.md"] = f"# {name}\n\n{bullets}\n"
    return files


def render_memsearch(
    memories: Iterable[Memory], place: tzinfo, owners: Collection[str] = ()
) -> dict[str, str]:
    """Return memsearch's daily logs, as texts by file name; ``owners`` are the ids of the owner, see `_line`."""
    files: dict[str, str] = {}
    for name, day in sorted(_by_day(memories, place).items()):
        rows = [f"# {name}"]
        last: Section | None = None
        for moment, memory in day:
            section = section_of(memory, moment)
            rows += [*section.below(last), _line(memory, owners)]
            last = section
        files[f"{name}.md"] = "\n".join(rows) + "\n"
    return files


def _by_day(memories: Iterable[Memory], place: tzinfo) -> dict[str, list[tuple[datetime, Memory]]]:
    days: dict[str, list[tuple[datetime, Memory]]] = defaultdict(list)
    for memory in memories:
        moment = told_at(memory).astimezone(place)
        days[moment.date().isoformat()].append((moment, memory))
    # Sorting is stable, so memories with the same time stay in the order of the log.
    return {name: sorted(day, key=lambda item: item[0]) for name, day in days.items()}


@dataclass(frozen=True, slots=True)
class Section:
    """A section of memsearch's daily log: the session, its transcript, and the minute, as they are written."""

    session: str
    transcript: str
    time: str

    def below(self, last: Section | None) -> Iterator[str]:
        """Yield the headings and the comment that begin this section below another one; nothing if both are the same."""
        if last is None or self.session != last.session:
            yield from ("", f"## Session {self.time}")
        if self != last:
            yield from ("", f"### {self.time}")
            if self.session:
                transcript = f" transcript:{self.transcript}" if self.transcript else ""
                yield f"<!-- session:{self.session}{transcript} -->"


def section_of(memory: Memory, moment: datetime) -> Section:
    """Return the section of memsearch's daily log in which a memory of a moment belongs."""
    session = re.sub(r"\s+", "_", one_line(memory.source.session)).replace("-->", "")
    return Section(session, one_line(memory.source.transcript), f"{moment:%H:%M}")


def last_section(text: str) -> Section | None:
    """Return the section with which a daily log of memsearch ends; None if it has none."""
    last: Section | None = None
    for line in text.splitlines():
        anchor, time = _ANCHOR.match(line.strip()), _TIME.fullmatch(line.strip())
        if time is not None:
            opened = Section("", "", f"{int(time[2]):02}:{time[3]}")
            last = opened if time[1] or last is None else replace(last, time=opened.time, transcript="")
        elif anchor is not None and last is not None:
            last = replace(last, session=anchor[1], transcript=(anchor[2] or "").strip())
    return last


def _line(memory: Memory, owners: Collection[str]) -> str:
    """Return a memory as a bullet. Unless it is the owner's own, it begins with who said it and where, as an import reads it."""
    label = label_of_others(memory, owners).removeprefix("said by ")
    return f"- {label}: {one_line(memory.text)}" if label else f"- {one_line(memory.text)}"


@dataclass(slots=True)
class _Place:
    """The state of a reader: what headings and comments say about the lines that follow."""

    date: datetime | None
    moment: datetime | None = None
    session: str = ""
    transcript: str = ""
    observed: datetime | None = None
    over: bool = False
    headings: dict[int, str] = field(default_factory=dict)
    front: FrontMatter = field(default_factory=FrontMatter)


def read_markdown(text: str, name: str, place: tzinfo) -> list[ImportItem]:
    """Read a daily log of either layout, or notes. Each bullet and each paragraph is a memory; very long ones are split.

    A memory begins with the headings above it except the title ("Grandma: Has a pacemaker"), which say whom or what it is
    about, and with title and other names from the front matter; `read_front_matter` says what else becomes of that. Fenced
    and indented code is not a memory. A ``name`` that ends in ``YYYY-MM-DD.md`` is the date; days and times are in the time
    zone ``place``.
    """
    match = _DATE_NAME.fullmatch(PurePath(name).name)
    lines = text.removeprefix("\ufeff").splitlines()
    front = read_front_matter(lines, PurePath(name).stem, place)
    here = _Place(_date(match[1], place) if match else None, front=front)
    items: list[ImportItem] = []
    # The front matter is blanked, so that line numbers do not change.
    for number, block in _blocks([""] * front.lines + lines[front.lines :]):
        if not _moves(here, block, place):
            items += [] if here.over else _item(block, f"{name}#{number}", here)
            here.observed, here.over = None, False
    return items


def _blocks(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield headings, comments, bullets with the indented lines below them, and paragraphs, each with its line number.

    Indented code is left out. A bullet is never taken for code, however far it is indented.
    """
    block: list[str] = []
    start, fenced, inset = 0, False, 0
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line) is not None
        bullet = _BULLET.match(line)
        item = None if fenced else _LIST_ITEM.match(line.expandtabs(_CODE_INDENT))
        if item is not None:
            # Text below an item of a list belongs to the list as long as it is indented.
            inset = item.end()
        elif line.strip() and not fenced and not block:
            spaces = line.expandtabs(_CODE_INDENT)
            indent = len(spaces) - len(spaces.lstrip())
            inset = inset if indent else 0
            if not fence and indent >= inset + _CODE_INDENT:
                continue
        alone = not fenced and (_HEADING.match(line) is not None or _COMMENT.match(line.strip()) is not None)
        begins = alone or (bullet is not None and not fenced and (not block or not bullet[1]))
        if block and not fenced and (begins or not line.strip()):
            yield start, "\n".join(block)
            block = []
        if fence:
            fenced = not fenced
        if line.strip() or fenced:
            start = start if block else number
            block.append(line)
        if alone:
            yield start, "\n".join(block)
            block = []
    if block:
        yield start, "\n".join(block)


def _moves(here: _Place, block: str, place: tzinfo) -> bool:
    """Update the state by a heading or a comment; return whether the block was one."""
    anchor = _ANCHOR.match(block.strip())
    if anchor is not None:
        here.session, here.transcript = anchor[1][:_MAX_REFERENCE], (anchor[2] or "").strip()[:_MAX_REFERENCE]
        return True
    observed = _OBSERVED.match(block.strip())
    if observed is not None:
        # OpenClaw writes this comment above an entry of USER.md and MEMORY.md: its date, and whether it was superseded. In
        # its templates there is an example without a date.
        here.observed = _date(observed[1], place)
        here.over = observed[2] == "superseded" or observed[1] == _NO_DATE
        return True
    time = _TIME.fullmatch(block.strip())
    if time is not None and here.date is not None and int(time[2]) < 24 and int(time[3]) < 60:
        here.moment = here.date.replace(hour=int(time[2]), minute=int(time[3]))
        if time[1]:
            here.session = here.transcript = ""
    heading = _HEADING.match(block)
    if heading is None:
        return False
    level = len(heading[0].strip())
    here.headings = {above: text for above, text in here.headings.items() if above < level}
    if level > 1 and time is None:
        here.headings[level] = one_line(block[heading.end() :]).strip("#: ")
    return True


def _item(block: str, reference: str, here: _Place) -> list[ImportItem]:
    bullet = _BULLET.match(block)
    said = (bullet[2] + block[bullet.end() :]) if bullet else block
    if (
        not one_line(said)
        or _BLANK.fullmatch(said.strip())
        or block.lstrip().startswith("<!--")
        or _FENCE.match(block)
    ):
        return []
    said, notes = without_notes(said)
    if PurePath(reference.rpartition("#")[0]).name.lower() == _USER_FILE:
        notes.pop(PROJECTS, None)
    path = ": ".join(filter(None, (here.front.title, *here.headings.values())))
    at = here.observed or here.moment or here.date or here.front.written
    said = f"{path}: {said.strip()}" if path else said.strip()
    return [
        ImportItem(
            text=part,
            kind="imported",
            trust="imported",
            occurred_at=None if at is None else round(at.timestamp() * 1000),
            tags=here.front.tags,
            metadata={**here.front.metadata, **notes},
            source=SourceInfo(
                session=here.session, transcript=here.transcript, reference=reference[-_MAX_REFERENCE:]
            ),
        )
        for start, end in cut(said, _MOST_BYTES)
        if one_line(part := said[start:end].strip())
    ]


def without_notes(said: str) -> tuple[str, dict[str, Any]]:
    """Remove the notes, which are certain HTML comments, from a line of a memory file, and read them.

    Returns:
        The text without the notes, followed by the trigger phrases that it lacks, in brackets; and the notes:
        ``triggers`` (a list of phrases), ``importance`` (an integer), ``project_scope`` (a text).
        An invalid note is removed and ignored; any other comment stays in the text.

    Example:
        >>> without_notes("Sign with cosign. <!-- project: GitHub.com/harbour/heron -->")
        ('Sign with cosign.', {'project_scope': 'github.com/harbour/heron'})
    """
    notes: dict[str, Any] = {}
    projects: list[str] = []
    for name, value in _NOTE.findall(said):
        if name.lower() == "trigger":
            phrases = [one_line(phrase) for phrase in re.split(r"[,;]", value)]
            notes["triggers"] = [phrase for phrase in phrases if phrase][:_MAX_TRIGGERS]
        elif name.lower() == "project":
            projects += [_project(one_line(key)) for key in value.split(";")]
        elif value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_IMPORTANT:
            notes["importance"] = int(value)
    if projects:
        scope = PROJECTS_APART.join(sorted(set(projects)))
        notes[PROJECTS] = scope if len(scope) <= _MOST_PROJECTS else _NO_PROJECT
    text = _NOTE.sub("", said).rstrip()
    missing = [phrase for phrase in notes.get("triggers", ()) if phrase.casefold() not in text.casefold()]
    return (f"{text} ({', '.join(missing)})" if missing else text), notes


def _project(key: str) -> str:
    """Return a repository's key as the host compares it: the name of its server is in small letters."""
    server, slash, path = key.partition("/")
    return (key if key.startswith("path:") else f"{server.lower()}{slash}{path}") or _NO_PROJECT


def _date(text: str, place: tzinfo) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=place)
    except ValueError:
        return None
