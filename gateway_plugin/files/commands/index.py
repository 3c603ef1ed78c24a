"""``memrelay-gateway index`` and ``transcript``: index files of this machine, and read its session logs."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import (
    CliContext,
    Output,
    Run,
    command,
    date_of,
    find_context,
    guarded,
    with_client,
)
from gateway_plugin.errors import GatewayError
from gateway_plugin.files.bounded import named
from gateway_plugin.files.indexed import DialogueEntry, Index, IndexedFile, IndexRoot, RootKind, read_dialogue
from gateway_plugin.files.living import LivingFiles, Look
from gateway_plugin.files.notes import Promotions
from gateway_plugin.hosting import AgentFiles, host_adapters
from gateway_plugin.keys.identity import DEFAULT_AGENT
from gateway_plugin.tools.arguments import ToolError
from relayer.wire.command_line import FAILED, USAGE, answer_in_lines, fail
from relayer.wire.fields import render_time
from relayer.wire.schemas import RecallHit, RecallResponse

_PATIENCE: Final = 30.0
_EVERY: Final = 2.0
ForceOption = Annotated[bool, typer.Option("--force", help="Also index files that did not change.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Print a line for each file.")]


@command()
def index(
    run: Run,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="More files or folders.")
    ] = None,
    *,
    workspace: Annotated[
        Path | None, typer.Option(help="Workspace of an agent: MEMORY.md, memory/, wiki/.")
    ] = None,
    sessions: Annotated[
        Path | None, typer.Option(help="Directory of a host's session logs (.jsonl).")
    ] = None,
    forget_roots: Annotated[
        bool, typer.Option("--forget-roots", help="Watch these places instead of those given before.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep watching until interrupted.")] = False,
    force: ForceOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring memory up to what an agent's files say, and remember where they are: the next `index` looks there again.

    An edited line replaces what it said before, a deleted one is forgotten; `restore` brings it back.

    Example: memrelay-gateway index --workspace ~/.openclaw/workspace --agent main

    Example: memrelay-gateway index ~/notes --watch
    """
    places = [(RootKind.PATH, path) for path in paths or ()]
    places += [(RootKind.WORKSPACE, workspace)] if workspace else []
    places += [(RootKind.SESSIONS, sessions)] if sessions else []
    opened = open_index(run.url, run.agent)
    _add_places(opened, places, forget_roots=forget_roots)
    if watch:
        answer_in_lines()
        watched = [str(root.path) for root in sorted(opened.all_roots)]
        run.tell({"watching": watched}, f"watching {', '.join(watched)}; stop with Ctrl-C")
        watch_files(opened.context, opened.index, run, roots=opened.roots, force=force)
        return
    row = scan_and_report(opened, run, force=force, verbose=verbose)
    run.json(row)
    exit_if_unreadable([row])


def index_place(kind: RootKind, path: Path, agent: str, output: Output) -> bool:
    """Index one additional place as `index` does; return whether all of it could be read."""
    opened = open_index(None, agent)
    _add_places(opened, [(kind, path)])
    return not scan_and_report(opened, output).get("unreadable")


def _add_places(
    opened: OpenIndex, places: Sequence[tuple[RootKind, Path]], *, forget_roots: bool = False
) -> None:
    """Add places to an agent's index; exit with an error if one contains nothing to index."""
    found = opened.index
    if forget_roots:
        found.roots.clear()
    for kind, path in places:
        if not path.exists():
            fail(USAGE, f"{path}: no such file or folder", "give a file or folder that exists")
        found.roots.add(IndexRoot(kind, named(path)))
    if places or forget_roots:
        guarded(found.save)
    if not opened.all_roots:
        fail(
            USAGE,
            "nothing to index: no files or folders were given yet",
            "memrelay-gateway index --workspace ~/.openclaw/workspace --sessions ~/.codex/sessions",
        )


@command(agent=None, url=None)
def transcript(
    run: Run,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Session log of OpenClaw, Claude Code or Codex.")
    ],
    *,
    anchor: Annotated[str | None, typer.Option(help="Id of the message to show the surroundings of.")] = None,
    turns: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of messages.")] = 200,
) -> None:
    """Print the dialogue of a session log; needs no relayer.

    Example: memrelay-gateway transcript ~/.codex/sessions/2026/rollout.jsonl --turns 40
    """
    try:
        said = read_dialogue(file.parent, file.name, anchor=anchor, turns=turns)
    except ToolError as error:
        fail(FAILED, f"{file}: {str(error).partition(': ')[2]}", "")
    messages = {"messages": [_message(one) for one in said]}
    run.tell(messages, *(one.line for one in said))


def _message(one: DialogueEntry) -> dict[str, object]:
    at = None if one.at is None else render_time(one.at)
    return {"id": one.id or None, "speaker": one.speaker, "at": at, "is_call": one.call, "text": one.text}


def cited_files(context: CliContext) -> dict[str, str]:
    """Return the current places of memories of an agent's files, by memory id, as far as this machine knows."""
    return index_of(context).cited()


def index_of(context: CliContext) -> Index:
    """Return this machine's index of an agent's files."""
    return guarded(lambda: Index.load(os.environ, context.identity, context.origin))


def told_with_sources(answer: RecallResponse, cited: Mapping[str, str]) -> dict[str, Any]:
    """Return a response as JSON, and add to each hit its date and the path and line of its file."""
    # Hits from shared namespaces have a field more, which says whose they are.
    told: dict[str, Any] = answer.model_dump(mode="json", serialize_as_any=True)
    for hit, shown in zip(answer.memories, told["memories"], strict=True):
        result = search_result(hit, cited)
        shown |= {"path": result["file"], "line": result["startLine"], "date": result["date"]}
    return told


def search_result(hit: RecallHit, cited: Mapping[str, str]) -> dict[str, object]:
    """Return a hit in the format of OpenClaw's memory command, with the file and line that it comes from."""
    source = cited.get(hit.id) or hit.source.reference
    path, _, line = source.rpartition("#")
    number = int(line) if path and line.isascii() and line.isdigit() else 1
    return {
        "path": source or f"memory/{hit.id}.md",
        "file": path or source,
        "startLine": number,
        "endLine": number,
        "date": date_of(hit).isoformat(),
        "score": hit.relevance,
        "snippet": hit.text,
        "source": "memory",
        "id": hit.id,
    }


@dataclass(slots=True)
class OpenIndex:
    """An agent's files: the host's name for the agent, the roots that the host configures, and the index."""

    name: str
    context: CliContext
    index: Index
    roots: tuple[IndexRoot, ...]

    @property
    def all_roots(self) -> set[IndexRoot]:
        """Return the roots of the index and of the host."""
        return {*self.index.roots, *self.roots}

    @property
    def promotions(self) -> Promotions | None:
        """Return ``MEMORY.md`` and the diary of the agent's workspace; None if there is no workspace."""
        workspaces = [root.path for root in sorted(self.all_roots) if root.kind is RootKind.WORKSPACE]
        return Promotions(self.index, named(workspaces[0])) if workspaces else None


def open_index(url: str | None, agent: str | None) -> OpenIndex:
    """Open the index of an agent; in a host, its files are those of the host's agent of that name."""
    context, files = find_context(url, agent), host_files()
    if files is None:
        return OpenIndex(context.identity.agent, context, index_of(context), ())
    name = agent or DEFAULT_AGENT
    roots = next((one.roots for one in files if one.agent == name), ())
    return OpenIndex(name, context, index_of(context), roots)


def host_files() -> list[AgentFiles] | None:
    """Return the files of the host's agents if the command was run through a host, else None."""
    for adapter in host_adapters():
        found = guarded(partial(adapter.agent_files, os.environ)) if adapter.agent_files else None
        if found is not None:
            return list(found)
    return None


def scan(opened: OpenIndex, output: Output, *, force: bool, verbose: bool) -> Look:
    """Scan once. Files that cannot be read are reported, counted and skipped."""

    def told(file: IndexedFile, counts: Counter[str]) -> None:
        if verbose:
            output.say(f"{file.path}: {counts['stored']} stored, {counts['duplicate']} known already")

    async def looked(client: RelayerClient) -> Look:
        identity, capture = opened.context.identity, opened.context.settings.capture
        files = LivingFiles(client, identity, opened.index, capture, told, promotions=opened.promotions)
        return await files.look(opened.roots, force=force, wait=_PATIENCE)

    look = with_client(opened.context.settings, looked)
    if look.busy:
        fail(
            FAILED,
            "another process is indexing these files",
            "wait until it has finished; a running gateway indexes by itself",
        )
    for problem in look.problems:
        output.say(problem)
    return look


def scan_and_report(
    opened: OpenIndex, output: Output, *, force: bool = False, verbose: bool = False
) -> dict[str, Any]:
    """Scan once, print a summary and return it for a JSON document."""
    look = scan(opened, output, force=force, verbose=verbose)
    output.say(_sentence(look.counts))
    roots = [str(root.path) for root in sorted(opened.all_roots)]
    return {"roots": roots, **look.counts, "problems": [*look.problems]}


def exit_if_unreadable(rows: Sequence[Mapping[str, Any]]) -> None:
    """Exit with an error if one of the results of `scan_and_report` counts files that could not be read."""
    if any(row.get("unreadable") for row in rows):
        raise typer.Exit(FAILED)


def watch_files(
    context: CliContext,
    index: Index,
    output: Output,
    *,
    roots: Iterable[IndexRoot] = (),
    every: float = _EVERY,
    force: bool = False,
    told: Callable[[IndexedFile, Counter[str]], None] | None = None,
) -> None:
    """Scan the files repeatedly until Ctrl-C, which ends it without an error.

    An error of the relayer is printed, and the next scan tries again. ``told`` gets each changed file with its counts,
    instead of a printed summary of each scan.
    """

    async def forever(client: RelayerClient) -> None:
        again = force
        problems: dict[str, None] = {}
        files = LivingFiles(client, context.identity, index, context.settings.capture)
        if told is not None:
            files.each = told
        while True:
            try:
                look = await files.look(roots, force=again)
            except GatewayError as error:
                output.tell({"problem": str(error)}, f"{error}; trying again")
            else:
                again = False
                for problem in look.problems:
                    if problem not in problems:
                        output.tell({"problem": problem}, problem)
                problems = look.problems
                if told is None and (look.counts["files"] or look.changed):
                    output.tell(look.counts, _sentence(look.counts))
            await asyncio.sleep(every)

    try:
        with_client(context.settings, forever)
    except KeyboardInterrupt:
        output.tell({"stopped": True}, "stopped")


def _sentence(counts: Counter[str]) -> str:
    words = {
        "stored": ("memory stored", "memories stored"),
        "replaced": ("memory replaced", "memories replaced"),
        "forgotten": ("memory forgotten", "memories forgotten"),
        "restored": ("memory restored", "memories restored"),
        "duplicate": ("known already", "known already"),
        "refused": ("refused", "refused"),
        "unchanged": ("file unchanged", "files unchanged"),
        "unreadable": ("file not read", "files not read"),
    }
    said = [f"indexed: {counts['files']} {'file' if counts['files'] == 1 else 'files'}"]
    said += [f"{counts[name]} {forms[counts[name] != 1]}" for name, forms in words.items() if counts[name]]
    return ", ".join(said)
