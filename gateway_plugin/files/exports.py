"""Read exports of other systems, and our own: convert a file to memories or explain what is wrong with it, and send them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import IdentityError
from gateway_plugin.files.blocks import without_profiles
from gateway_plugin.files.bounded import (
    FilesBelow,
    NotRead,
    files_below,
    mark_of,
    named,
    parse_json,
    read_below,
)
from gateway_plugin.files.markdown import read_front_matter, read_markdown
from gateway_plugin.keys.identity import Identity, KeyHolder
from gateway_plugin.text.wrappers import scan
from relayer.wire.fields import SourceInfo, one_line
from relayer.wire.service import ImportItem, ImportRequest

_SUFFIXES: Final = frozenset({".md", ".markdown", ".jsonl", ".json", ".af"})
# The names under which versions of mem0 store the text of a memory.
_TEXT_NAMES: Final = ("memory", "text", "data", "content")
# The block in which an agent of Letta describes itself, which is no memory of a user.
_LETTA_SELF: Final = "persona"


class ImportProblem(Exception):
    """Raised when a file contains nothing that can be imported. The message names the file and the fix."""


class NoBackup(ImportProblem):
    """Raised when a file is not an export of this account, or was changed since it was exported."""


def files_of(path: Path) -> FilesBelow:
    """Return the files that an import of a path reads: the file itself, or the Markdown and JSON files below a directory."""
    if path.is_dir():
        return files_below(
            path, lambda below: below.suffix.lower() in _SUFFIXES and not below.name.startswith(".")
        )
    try:
        return FilesBelow([(path, mark_of(path.lstat()))])
    except OSError:
        return FilesBelow([(path, (0, 0))])  # reading it will raise the error


def read_file(
    path: Path, shown: str, *, root: Path | None = None, backup_of: KeyHolder | None = None
) -> list[ImportItem]:
    """Read a file in the format of its suffix.

    The file must be below ``root``, a real path, which is its own folder by default. With ``backup_of``, it must be an export
    of that account.

    Raises:
        ImportProblem: the file cannot be read, its format is not supported, or it does not match its suffix.
        NoBackup: the file is no export, belongs to another account, or was changed since it was exported.
    """
    try:
        folder = path.parent.resolve() if root is None else root
        data = read_below(folder, path.name if root is None else path.relative_to(root))
        text = data.decode()
    except NotRead as error:
        raise ImportProblem(f"{path}: {error.cause}") from error
    except UnicodeDecodeError as error:
        raise ImportProblem(
            f"{path}: not UTF-8, and left out; convert it: iconv -f latin1 -t utf-8"
        ) from error
    if "\0" in text:
        raise ImportProblem(f"{path}: not a text file: export it as Markdown first")
    objection = "" if backup_of is None else _objection(data, backup_of)
    if objection:
        raise NoBackup(f"{path}: {objection}")
    try:
        if path.suffix.lower() == ".jsonl":
            items = list(_own_lines(text))
        elif path.suffix.lower() in {".json", ".af"}:
            items = list(_document(parse_json(text)))
        else:
            place = datetime.now(UTC).astimezone().tzinfo or UTC
            items = read_markdown(without_profiles(text), shown, place)
        return items if backup_of is not None else [doubted(item) for item in items]
    except json.JSONDecodeError as error:
        raise ImportProblem(f"{path}: line {error.lineno} is not JSON") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "a memory"
        raise ImportProblem(f"{path}: {field}: {first['msg']}") from None
    except (_NotThat, ValueError) as error:
        raise ImportProblem(f"{path}: {error}") from None


def text_hash(text: str) -> str:
    """Return the hash by which equal texts are detected, however their lines are broken: 16 hexadecimal digits."""
    return hashlib.sha256(one_line(text).encode()).hexdigest()[:16]


@cache
def hashes_below(folder: Path) -> frozenset[str]:
    """Return the hashes (`text_hash`) of the texts in the Markdown files below a folder.

    Each file counts with and without its front matter. Files that cannot be read, or are not UTF-8, are left
    out. The result is cached.
    """
    root, found = named(folder), set[str]()
    for path, _ in files_below(root, lambda below: below.suffix == ".md").files:
        with suppress(NotRead, UnicodeDecodeError):
            lines = read_below(root, path.relative_to(root)).decode().splitlines()
            front = read_front_matter(lines, path.stem, UTC)
            for text in ("\n".join(lines), "\n".join(lines[front.lines :])):
                found |= {text_hash(item.text) for item in read_markdown(text, path.name, UTC)}
    return frozenset(found)


def seal(body: bytes, identity: Identity) -> bytes:
    """Return the last line of an export: a MAC by which the account that wrote it recognises it and detects any change."""
    mac = hmac.new(identity.keys.backup_key, body, hashlib.sha256).hexdigest()
    line = {"seal": {"account": identity.account, "agent": identity.agent, "mac": mac}}
    return json.dumps(line).encode() + b"\n"


def _objection(data: bytes, holder: KeyHolder) -> str:
    """Return the reason why a file is no backup of this account, or "" if it is one."""
    body, line_end, last = data.removesuffix(b"\n").rpartition(b"\n")
    try:
        found = parse_json(last)["seal"]
        account, agent, mac = (str(found[name]) for name in ("account", "agent", "mac"))
        if account != holder.account:
            return "it was exported by another account"
        known = hmac.new(holder.agent(agent).backup_key, body + line_end, hashlib.sha256).hexdigest()
    except IdentityError:
        return "it was exported by another agent, whose keys this host does not have"
    except (ValueError, KeyError, TypeError):
        return "it has no signature at its end"
    return "" if hmac.compare_digest(known.encode(), mac.encode()) else "it was changed since it was exported"


def doubted(item: ImportItem) -> ImportItem:
    """Return a memory, marked as suspect if its text looks suspicious."""
    verdict = scan(f"{item.source.reference}\n{item.text}")
    return item.model_copy(update={"suspect": True}) if verdict.suspect or verdict.blocked else item


class _NotThat(Exception):
    """Raised when a file does not have the expected format; the message says what is wrong."""


def _own_lines(text: str) -> Iterator[ImportItem]:
    """Read our own export. A line may also be a memory without the surrounding object."""
    ended: int | None = None
    count = 0
    headed = False
    for line in filter(str.strip, text.split("\n")):
        document = parse_json(line)
        if not isinstance(document, dict):
            raise _NotThat("each line must be an object, as memrelay-gateway export writes it")
        if "memrelay_export" in document:
            headed = True
        elif document.get("end") is True:
            ended = document.get("memories")
        elif "turn" in document or "seal" in document:
            continue  # a turn would not belong to any memory here, so no erasure would find it
        elif set(document) == {"proof"}:
            continue  # proofs in a response matter only to the client that requested it
        else:
            count += 1
            yield ImportItem.model_validate(document.get("memory", document))
    if headed and ended != count:
        raise _NotThat("the export was cut short: its last line is missing; export again")


def _document(document: Any) -> Iterator[ImportItem]:
    """Read an agent file of Letta, edges of Zep or Graphiti, or memories of mem0, told apart by the names of their fields."""
    rows = document
    if isinstance(document, dict):
        if isinstance(document.get("agents"), list) and isinstance(document.get("blocks"), list):
            return _letta(document["blocks"])
        names = ("results", "memories", "edges", "facts")
        rows = next((document[name] for name in names if isinstance(document.get(name), list)), None)
    if not isinstance(rows, list):
        raise _NotThat(
            "it contains no list of memories; an export of mem0 has one under results, edges of Zep under edges, and an agent "
            "file of Letta has agents and blocks"
        )
    if not all(isinstance(row, dict) for row in rows):
        raise _NotThat("a memory is not a JSON object")
    return _edges(rows) if any("fact" in row for row in rows) else _mem0(rows)


def _letta(blocks: list[Any]) -> Iterator[ImportItem]:
    """Read the memory blocks of an agent file of Letta (``.af``), each as Markdown: a line or paragraph is a memory."""
    for block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("value"), str):
            raise _NotThat("a block has no value that is a text")
        label = _short(block.get("label"))
        if label != _LETTA_SELF:
            yield from read_markdown(block["value"], f"letta/{label}", UTC)


def _edges(rows: list[dict[str, Any]]) -> Iterator[ImportItem]:
    """Read edges of a graph of Zep or Graphiti. Facts that stopped being true are left out."""
    now = datetime.now(UTC).timestamp() * 1000
    for row in rows:
        text = row.get("fact")
        ends = [row[name] for name in ("invalid_at", "expired_at") if row.get(name)]
        # A time that cannot be read has come.
        is_over = any((time_of(end) or 0) <= now for end in ends)
        if is_over or not isinstance(text, str) or not text.strip():
            continue
        yield ImportItem(
            text=text,
            kind="imported",
            trust="imported",
            occurred_at=time_of(row.get("valid_at") or row.get("created_at")),
            source=SourceInfo(reference=_short(row.get("uuid")) and f"zep:{_short(row.get('uuid'))}"),
        )


def _mem0(rows: list[dict[str, Any]]) -> Iterator[ImportItem]:
    for row in rows:
        text = next((row[name] for name in _TEXT_NAMES if isinstance(row.get(name), str)), "")
        if text.strip():
            yield ImportItem(
                text=text,
                kind="imported",
                trust="imported",
                occurred_at=time_of(row.get("updated_at") or row.get("created_at")),
                source=SourceInfo(
                    session=_short(row.get("run_id")),
                    speaker=_short(row.get("user_id")),
                    reference=_short(row.get("id")) and f"mem0:{_short(row.get('id'))}",
                ),
            )


def _short(value: object) -> str:
    return value[:500] if isinstance(value, str) else ""


def time_of(value: object) -> int | None:
    """Return an ISO 8601 time in ms since the epoch, in UTC if it has no offset; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# Below the relayer's limit for a body, with a reserve for the overhead of JSON.
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_ITEMS: Final = 100


def pages(items: Sequence[ImportItem], *, most: int = _PAGE_ITEMS) -> list[tuple[ImportItem, ...]]:
    """Split memories, in order, into pages of at most ``most`` memories and about 1 MiB."""
    found: list[tuple[ImportItem, ...]] = []
    page: list[ImportItem] = []
    size = 0
    for item in items:
        weight = len(item.model_dump_json())
        if page and (len(page) == most or size + weight > _PAGE_BYTES):
            found.append(tuple(page))
            page, size = [], 0
        page.append(item)
        size += weight
    return [*found, tuple(page)] if page else found


async def send_items(
    client: RelayerClient,
    identity: Identity,
    items: Sequence[ImportItem],
    *,
    as_backup: bool = False,
    keep_secrets: bool = False,
) -> Counter[str]:
    """Store memories. Sending the same ones again stores nothing twice. Raises as the client does.

    With ``as_backup``, memories keep the attributes that they claim, and with ``keep_secrets`` the secrets in them.
    """
    counts: Counter[str] = Counter()
    for page in pages(items):
        said: dict[str, object] = {}
        if as_backup:
            said["as_backup"] = True
        if keep_secrets:
            said["keep_secrets"] = True
        request = ImportRequest.model_validate({"memories": page, **said})
        answer = await client.import_memories(identity, request, deadline=60)
        counts.update(one.status for one in answer.memories)
    return counts


def shown_name(root: Path, path: Path) -> str:
    """Return the name of a file in sources: its path from the name of its root on, never the full path on this machine."""
    return path.name if path == root else f"{root.name}/{path.relative_to(root).as_posix()}"
