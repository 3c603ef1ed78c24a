"""``memrelay-gateway export``, ``import`` and ``watch``: write memories to files, and import files as memories.

Files are created with permissions for their owner only. Importing the same files again stores nothing twice.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, built_or_exit, command, guarded, with_client
from gateway_plugin.files.bounded import named
from gateway_plugin.files.commands.from_memwal import find_access, import_all
from gateway_plugin.files.commands.index import index_of, watch_files
from gateway_plugin.files.exports import ImportProblem, NoBackup, files_of, read_file, seal
from gateway_plugin.files.indexed import IndexRoot, RootKind
from gateway_plugin.files.markdown import render_daily, render_memsearch
from gateway_plugin.files.sending import send_items, shown_name
from gateway_plugin.keys.identity import KeyHolder
from gateway_plugin.keys.private_files import replace_private
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
        ExportFormat, typer.Option("--format", help="Only jsonl can be imported again without losses.")
    ] = ExportFormat.JSONL,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable.")] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="live, superseded or forgotten; default: live.")
    ] = None,
    transcripts: Annotated[
        bool, typer.Option("--transcripts", help="Also export stored transcripts; only with jsonl.")
    ] = False,
) -> None:
    """Write an agent's memories to a file, or as daily logs in Markdown to a directory.

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
    wanted: dict[str, object] = {"kinds": kind or (), **({"states": state} if state else {})}
    if transcripts:
        wanted["transcripts"] = True
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
        files = render(memories, place)
        written = [_write(str(Path(target) / name), text) for name, text in files.items()]
    if target != "-":
        also = f" and {len(turns)} turns" if turns else ""
        run.tell(
            {"memories": len(memories), "turns": len(turns), "files": written},
            f"exported: {len(memories)} memories{also} to {target}",
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
    source, paths = _named_place(source, paths)
    _check_together(source, paths or (), namespace or (), as_backup=as_backup, unsigned=unsigned)
    if source is not None:
        _import_service(run, namespace or (), dry_run=dry_run)
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
            counts = run.ask(partial(send_items, items=items, reprocess=True, as_backup=as_backup))
        total += counts
        run.say(f"{path}: {_sentence(counts)}")
    told = {} if dry_run else {"stored": 0, "duplicate": 0}
    run.json({"files": len(found), **told, **total, "problems": problems})
    if claims:
        run.say(
            f"{claims} claim to be pinned or the user's own words and are imported as statements of a file. --as-backup restores an export of this account with speakers and pins."
        )
    _end(problems)


def _named_place(
    source: ImportSource | None, paths: list[Path] | None
) -> tuple[ImportSource | None, list[Path] | None]:
    """Return the source to import from. A service's name in place of a path means the service if no such file exists."""
    if source is None and paths == [Path(ImportSource.MEMWAL)] and not paths[0].exists():
        return ImportSource.MEMWAL, None
    return source, paths


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


def _import_service(run: Run, wanted: Sequence[str], *, dry_run: bool) -> None:
    access = find_access(os.environ, Path.home())
    total, problems = import_all(access, wanted, run.agent, run.url, dry_run=dry_run, say=run.say)
    run.json({**total, "problems": problems})
    _end(problems)


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
    rare = ("skipped", "refused", "replaced", "restored")
    told = [f"{counts['stored']} stored, {counts['duplicate']} known"]
    return ", ".join([*told, *(f"{counts[name]} {name}" for name in rare if counts[name])])


def _write(target: str, text: str) -> str:
    if target == "-":
        sys.stdout.write(text)
    else:
        guarded(lambda: replace_private(Path(target), text.encode()))
    return target
