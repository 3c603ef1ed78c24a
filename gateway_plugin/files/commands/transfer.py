"""``memrelay-gateway export``, ``import`` and ``watch``: write memories to files, and import files as memories.

Files are created with permissions for their owner only. Importing the same files again stores nothing twice.

Memories are also imported from a MemWal service. The key is the one that MemWal's own programs use. It comes from the variables
``MEMWAL_PRIVATE_KEY``, ``MEMWAL_ACCOUNT_ID`` and ``MEMWAL_SERVER_URL``, or from the file of its MCP package. It is used for
reading only, and is not stored.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, built_or_exit, command, guarded, with_client
from gateway_plugin.files.bounded import named, parse_json
from gateway_plugin.files.commands.index import index_of, watch_files
from gateway_plugin.files.exports import (
    ImportProblem,
    NoBackup,
    files_of,
    read_file,
    seal,
    send_items,
    shown_name,
)
from gateway_plugin.files.indexed import IndexRoot, RootKind
from gateway_plugin.files.markdown import render_daily, render_memsearch
from gateway_plugin.files.memwal import MemWalAccess, Walked, import_memwal, list_memwal
from gateway_plugin.keys.identity import DEFAULT_AGENT, DEFAULT_NAME, KeyHolder
from gateway_plugin.keys.private_files import replace_private
from gateway_plugin.settings.model import safe_load
from gateway_plugin.turn.gates import Hearing, passes
from relayer.wire import names
from relayer.wire.command_line import FAILED, USAGE, answer_in_lines, complain, fail, span
from relayer.wire.schemas import Memory
from relayer.wire.service import (
    ExportEnd,
    ExportHead,
    ExportLine,
    ExportRequest,
    ExportTurn,
    ImportItem,
    KeptTurn,
)


class ExportFormat(StrEnum):
    """File formats of an export."""

    JSONL = "jsonl"
    DAILY_MD = "daily-md"
    MEMSEARCH = "memsearch"


@command()
def export(
    run: Run,
    target: Annotated[
        str, typer.Argument(help="Output file, or - for standard output; a directory for Markdown.")
    ] = "-",
    *,
    style: Annotated[
        ExportFormat, typer.Option("--format", help="Only jsonl restores live memories as they are.")
    ] = ExportFormat.JSONL,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="live, superseded or forgotten; default: live. Only live ones can be imported."),
    ] = None,
    audience: Annotated[
        list[str] | None,
        typer.Option(
            help="agent, direct or group; repeatable; default: all, but in Markdown nothing that others said."
        ),
    ] = None,
    transcripts: Annotated[
        bool, typer.Option("--transcripts", help="Also export stored transcripts; only with jsonl.")
    ] = False,
) -> None:
    """Write an agent's memories to a file, or as daily logs in Markdown to a directory.

    Who reads Markdown, or imports it, cannot tell what was said in confidence. So it has nothing from groups and from other
    people's direct chats, unless --audience asks for it; such a line then says who said it.

    Example: memrelay-gateway export memories.jsonl --agent coder

    Example: memrelay-gateway export logs/ --format daily-md
    """
    if style is not ExportFormat.JSONL and target == "-":
        fail(
            USAGE,
            "TARGET: must be a directory, because Markdown is written to one file per day",
            "memrelay-gateway export DIR --format daily-md",
        )
    if transcripts and style is not ExportFormat.JSONL:
        fail(USAGE, "--transcripts: not supported with Markdown", "leave out --format")
    filters = {"states": state, "audiences": audience, "transcripts": transcripts}
    wanted = {"kinds": kind or (), **{name: one for name, one in filters.items() if one}}
    if target == "-":
        # The export consists of lines of JSON, so an error must be such a line, too.
        answer_in_lines()
    request = built_or_exit(lambda: ExportRequest.model_validate(wanted))
    context = run.context

    async def fetched(client: RelayerClient) -> list[Memory | KeptTurn]:
        async with aclosing(client.export(context.identity, request)) as told:
            return [one async for one in told]

    found = with_client(context.settings, fetched)
    memories = [one for one in found if isinstance(one, Memory)]
    owners, total = context.settings.owners, len(memories)
    if style is not ExportFormat.JSONL and not audience:
        audiences = Hearing.of_owner(owners, "").lasting
        memories = [one for one in memories if passes(one, audiences)]
    left_out = total - len(memories)
    turns = [one for one in found if isinstance(one, KeptTurn)]
    if style is ExportFormat.JSONL:
        lines = (
            ExportHead(namespace=context.identity.namespace, memories=len(memories)),
            *(ExportLine(memory=memory) for memory in memories),
            *(ExportTurn(turn=turn) for turn in turns),
            ExportEnd(memories=len(memories), turns=len(turns)),
        )
        body = "".join(line.model_dump_json() + "\n" for line in lines)
        written = [_write(target, body + seal(body.encode(), context.identity).decode())]
    else:
        place = datetime.now(UTC).astimezone().tzinfo or UTC
        render = render_daily if style is ExportFormat.DAILY_MD else render_memsearch
        files = render(memories, place, owners)
        written = [_write(str(Path(target) / name), text) for name, text in files.items()]
    if target != "-":
        also = f" and {len(turns)} turns" if turns else ""
        run.tell(
            {"memories": len(memories), "turns": len(turns), "files": written, "left_out": left_out},
            f"exported: {len(memories)} memories{also} to {target}",
        )
        if left_out:
            run.say(
                f"left out: {left_out}, said in groups or in other people's direct chats; add --audience agent --audience direct "
                "--audience group, or name your own ids in owners"
            )


class ImportSource(StrEnum):
    """Sources of memories other than files."""

    MEMWAL = "memwal"


@command()
def import_files(
    run: Run,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...", help="Files or directories; only --from memwal needs none.", show_default=False
        ),
    ] = None,
    *,
    source: Annotated[
        ImportSource | None,
        typer.Option(
            "--from",
            help="In place of files: memwal, the service that MEMWAL_PRIVATE_KEY, MEMWAL_ACCOUNT_ID and MEMWAL_SERVER_URL "
            "or ~/.memwal/credentials.json name.",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAME", help="With --from: only this namespace; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read and count; send nothing.")] = False,
    as_backup: Annotated[
        bool,
        typer.Option("--as-backup", help="Restore an export of this account with its speakers and pins."),
    ] = False,
    unsigned: Annotated[
        bool,
        typer.Option(
            "--unsigned", help="With --as-backup: also accept files without this account's signature."
        ),
    ] = False,
) -> None:
    """Store memories from files as imported ones: our export (.jsonl), Markdown (.md), exports of mem0 and Zep (.json), Letta's agents (.af).

    Example: memrelay-gateway import MEMORY.md memory/ mem0-export.json

    Example: memrelay-gateway import agent.af zep-edges.json --agent coder

    Example: memrelay-gateway import --as-backup memories.jsonl
    """
    # The service's name in place of a path means the service if no such file exists.
    if source is None and paths == [Path(ImportSource.MEMWAL)] and not paths[0].exists():
        source, paths = ImportSource.MEMWAL, None
    _check_together(source, paths or (), namespace or (), as_backup=as_backup, unsigned=unsigned)
    if source is not None:
        access = find_access(os.environ, Path.home())
        total, problems = import_all(
            access, namespace or (), run.agent, run.url, dry_run=dry_run, say=run.say
        )
        run.json({**total, "problems": problems})
        _end(problems)
        return
    holder = run.context.holder if as_backup and not unsigned else None
    if unsigned:
        complain(
            "--unsigned: speakers and pins are taken from these files without a proof of their origin", ""
        )
    roots = [named(path) for path in paths or ()]
    below = [files_of(root) for root in roots]
    found = [(root, path) for root, listed in zip(roots, below, strict=True) for path, _ in listed.files]
    problems = [str(error) for listed in below for error in listed.left_out]
    if not found and not problems:
        fail(FAILED, "PATH: contains no .md, .jsonl, .json or .af file", "")
    total = Counter[str]()
    claims = 0
    for root, path in found:
        items = _read_or_say(root, path, holder, problems)
        if items is None:
            continue
        claims += 0 if as_backup else sum(item.trust == "user" or item.pinned for item in items)
        counts = Counter({"found": len(items)})
        if not dry_run:
            # A file with this seal holds what the user chose to keep. From any other, secrets are removed.
            sealed = holder is not None
            counts = run.ask(partial(send_items, items=items, as_backup=as_backup, keep_secrets=sealed))
        total += counts
        run.say(f"{path}: {_sentence(counts)}")
    told = {} if dry_run else {"stored": 0, "duplicate": 0}
    run.json({"files": len(found), **told, **total, "problems": problems})
    if claims:
        run.say(
            f"{claims} claim to be pinned or the user's own words and are imported as statements of a file. --as-backup restores an export of this account with speakers and pins."
        )
    _end(problems)


def _check_together(
    source: ImportSource | None,
    paths: Sequence[Path],
    namespaces: Sequence[str],
    *,
    as_backup: bool,
    unsigned: bool,
) -> None:
    if source is not None and (paths or as_backup or unsigned):
        fail(USAGE, "--from: cannot be combined with PATH, --as-backup or --unsigned", "leave them out")
    if source is None and namespaces:
        fail(
            USAGE,
            "--namespace: only valid with --from",
            "choose the agent that gets the memories with --agent",
        )
    if source is None and not paths:
        fail(USAGE, "PATH: missing", "give files or directories, or --from memwal")
    if unsigned and not as_backup:
        fail(
            USAGE,
            "--unsigned: only valid with --as-backup",
            "remove it: without --as-backup the claims of files are ignored anyway",
        )


@command()
def watch(
    run: Run,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with MEMORY.md, memory/*.md and similar files.")
    ],
    *,
    every: Annotated[
        float,
        typer.Option(parser=span("--every", least=0.2), metavar="SECONDS|10m", help="Between two looks."),
    ] = 2.0,
) -> None:
    """Import the files of a folder, and again whenever one changes, until interrupted. What is deleted there is forgotten.

    Example: memrelay-gateway watch ~/notes --every 10s
    """
    answer_in_lines()
    if not folder.is_dir():
        fail(USAGE, "FOLDER: no such directory", "")
    context = run.context
    namespace = context.identity.namespace
    run.tell(
        {"watching": [str(folder)], "namespace": namespace},
        f"watching {folder} for {namespace}; stop with Ctrl-C",
    )
    watch_files(
        context,
        index_of(context),
        run,
        roots=(IndexRoot(RootKind.PATH, named(folder)),),
        every=every,
        told=lambda file, counts: run.tell(
            {"file": str(file.path), **counts}, f"{file.path}: {_sentence(counts)}"
        ),
    )


def _end(problems: list[str]) -> None:
    for problem in problems:
        complain(problem, "")
    if problems:
        fix = "the rest is stored; fix the file and import it again: nothing is stored twice"
        fail(FAILED, "some files were not read", fix)


def _read_or_say(
    root: Path, path: Path, backup_of: KeyHolder | None, problems: list[str]
) -> list[ImportItem] | None:
    try:
        return read_file(
            path, shown_name(root, path), root=None if path == root else root, backup_of=backup_of
        )
    except NoBackup as error:
        fix = "without --as-backup it is imported as statements of a file; with --unsigned its claims are accepted"
        problems.append(f"{error}; {fix}")
    except ImportProblem as error:
        problems.append(str(error))
    return None


def _sentence(counts: Counter[str]) -> str:
    if counts["found"]:
        return f"{counts['found']} found"
    if not counts.total():
        return "nothing in it"
    rare = ("refused", "replaced", "restored")
    told = [f"{counts['stored']} stored, {counts['duplicate']} known"]
    told += [f"{counts[name]} {name}" for name in rare if counts[name]]
    if counts["skipped"]:
        told.append(f"{counts['skipped']} skipped: no longer live")
    return ", ".join(told)


def _write(target: str, text: str) -> str:
    if target == "-":
        sys.stdout.write(text)
    else:
        guarded(lambda: replace_private(Path(target), text.encode()))
    return target


CREDENTIALS: Final = ".memwal/credentials.json"
_KEY: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")
_ACCOUNT: Final = re.compile(r"0x[0-9a-fA-F]{10,128}")
_VARIABLES: Final = ("MEMWAL_PRIVATE_KEY", "MEMWAL_ACCOUNT_ID", "MEMWAL_SERVER_URL")
_IN_THE_FILE: Final = ("delegatePrivateKey", "accountId", "relayerUrl")
_MOST_BYTES: Final = 64 * 1024


def checked_access(given: Sequence[str], called: Sequence[str], fix: str) -> MemWalAccess:
    """Return service and key; exit with an error if a value is invalid.

    The values are private key, account id and URL; ``called`` are their names in error messages.
    """
    key, account = _KEY.fullmatch(given[0]), _ACCOUNT.fullmatch(given[1])
    checked = safe_load({"url": given[2]}, {})
    if key is None:
        fail(USAGE, f"{called[0]}: must be a key of 64 hexadecimal digits", fix)
    if account is None:
        fail(USAGE, f"{called[1]}: must be an account id (0x and hexadecimal digits)", fix)
    if checked.settings is None:
        fail(USAGE, f"{called[2]}: {checked.error}", fix)
    return MemWalAccess(checked.settings.url, key[1], account[0])


def find_access(environ: Mapping[str, str], home: Path) -> MemWalAccess:
    """Return service and key from the variables or the file of MemWal's MCP package; exit with an error if there are none."""
    if any(environ.get(name) for name in _VARIABLES):
        given = [environ.get(name, "") for name in _VARIABLES]
        return checked_access(given, _VARIABLES, "set it for this command")
    file = home / CREDENTIALS
    if not file.exists():
        fail(
            USAGE,
            f"{', '.join(_VARIABLES)}: they are not set, and there is no {file}",
            "set them for this command",
        )
    try:
        with file.open("rb") as opened:
            saved = parse_json(opened.read(_MOST_BYTES))
    except (OSError, ValueError):
        fail(USAGE, f"{file}: cannot be read as JSON", "set the variables instead")
    fields = saved if isinstance(saved, dict) else {}
    given = [str(fields.get(name) or "") for name in _IN_THE_FILE]
    return checked_access(given, _IN_THE_FILE, f"mend {file}, or set {', '.join(_VARIABLES)}")


def import_all(
    access: MemWalAccess,
    wanted: Sequence[str],
    agent: str | None,
    url: str | None,
    *,
    dry_run: bool,
    say: Callable[[str], None],
) -> tuple[Counter[str], list[str]]:
    """Read namespaces, or all if none is named, and store their memories. Existing memories are not stored twice.

    Returns:
        The number of memories found, the counts of outcomes, and a message for each namespace that was not read completely.
    """
    total: Counter[str] = Counter()
    problems: list[str] = []
    for namespace in wanted or guarded(lambda: asyncio.run(_listed(access, say))):
        walked = guarded(partial(asyncio.run, read_namespace(access, namespace, say)))
        counts = Counter({"found": walked.found})
        if walked.items and not dry_run:
            # The default namespace goes into the agent's own, and any other one into one below it.
            below = f"{agent or DEFAULT_AGENT}/{names.normalise(namespace)}"
            target = Run(agent=agent if namespace == DEFAULT_NAME else below, url=url)
            counts += target.ask(partial(send_items, items=walked.items))
        total += counts
        say(
            f"{namespace}: {', '.join(f'{count} {word}' for word, count in sorted(counts.items())) or 'none'}"
        )
        if not walked.complete:
            problems.append(
                f"{namespace}: {walked.found} of {walked.known} were read, because recall does not return the others; MemWal's own restore may add them to its index: run it, then run this command again"
            )
    return total, problems


async def _listed(access: MemWalAccess, say: Callable[[str], None]) -> tuple[str, ...]:
    async with httpx.AsyncClient() as http:
        return await list_memwal(access, clock=SystemClock(), http=http, say=say)


async def read_namespace(access: MemWalAccess, namespace: str, say: Callable[[str], None]) -> Walked:
    """Return the memories of a namespace. Raises as `import_memwal`."""
    async with httpx.AsyncClient() as http:
        return await import_memwal(access, namespace, clock=SystemClock(), http=http, say=say)
