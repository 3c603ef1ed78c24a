"""The front matter of a Markdown file, as wikis and Obsidian write it: YAML between two lines ``---`` at the top of the file.

Title and aliases say what the lines of the page are about; tags and all other fields become the tags and the metadata of its
memories, by which searches can filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from typing import Any, Final

import yaml

from relayer.wire.fields import one_line
from relayer.wire.labels import MAX_METADATA_BYTES, MAX_TAG, MAX_TAGS, RESERVED_KEYS, encode_metadata

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
    title = one_line(str(fields.get("title") or ""))
    aliases = [one for key in _ALIAS_KEYS for one in _texts(fields.get(key))]
    return FrontMatter(
        end + 1,
        _title(title or (name if aliases else ""), aliases),
        tuple(_tags(one for key in _TAG_KEYS for one in _texts(fields.get(key), words=True))),
        next((at for key in _DATE_KEYS if (at := _moment(fields.get(key), place))), None),
        _metadata(fields),
    )


def _title(title: str, aliases: list[str]) -> str:
    others: list[str] = []
    for alias in dict.fromkeys(aliases):
        if alias.casefold() != title.casefold() and len(", ".join((title, *others, alias))) <= _MAX_TITLE:
            others.append(alias)
    return f"{title} ({', '.join(others)})" if others else title[:_MAX_TITLE]


def _texts(value: object, *, words: bool = False) -> list[str]:
    """Return a field's texts: those of a list, or of a text that lists them with commas (for tags, with spaces, too)."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+" if words else ",", value)
    given = value[:_MAX_LIST] if isinstance(value, list) else [value]
    texts = (one_line(str(one)) for one in given if isinstance(one, str | int | float | date))
    return [text for text in texts if text]


def _tags(texts: Iterable[str]) -> Iterable[str]:
    found = dict.fromkeys(text.lstrip("#").strip() for text in texts)
    return [tag for tag in found if 0 < len(tag) <= MAX_TAG and tag.isprintable()][:MAX_TAGS]


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
