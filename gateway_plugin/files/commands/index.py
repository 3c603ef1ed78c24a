"""``memrelay-gateway index``, ``transcript`` and ``memory``: index files of this machine, with output like OpenClaw's command."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.doctor import DoctorHost, examined, tell_checks
from gateway_plugin.commands.run import (
    AgentOption,
    CliContext,
    FloorOption,
    LimitOption,
    Output,
    UrlOption,
    date_of,
    find_context,
    guarded,
    open_outbox,
    with_client,
)
from gateway_plugin.errors import GatewayError
from gateway_plugin.files.bounded import named
from gateway_plugin.files.indexed import Index, IndexedFile, IndexRoot, RootKind
from gateway_plugin.files.living import LivingFiles, Look
from gateway_plugin.files.transcript import Said, read_dialogue
from gateway_plugin.hosts.openclaw.config import HOST_VARIABLE, host_files, read_config
from gateway_plugin.hosts.openclaw.files import AgentPlaces, places_of
from gateway_plugin.keys.identity import DEFAULT_AGENT
from gateway_plugin.recall.recaller import ranking
from gateway_plugin.tools.arguments import ToolError
from relayer.wire.command_line import FAILED, USAGE, JsonOption, answer_in_lines, fail
from relayer.wire.fields import render_time
from relayer.wire.schemas import RecallHit, RecallRequest, RecallResponse

_PATIENCE: Final = 30.0
_EVERY: Final = 2.0
memory = typer.Typer(
    help="OpenClaw's memory command over memrelay: status, index, search.", no_args_is_help=True
)
ForceOption = Annotated[bool, typer.Option("--force", help="Also files that did not change.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="A line for each file.")]


def index(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="More files or folders.")
    ] = None,
    *,
    workspace: Annotated[
        Path | None, typer.Option(help="An agent's workspace: MEMORY.md, memory/, wiki/.")
    ] = None,
    sessions: Annotated[
        Path | None, typer.Option(help="A host's directory of session logs (.jsonl).")
    ] = None,
    forget_roots: Annotated[
        bool, typer.Option("--forget-roots", help="Look at what is named now, and later at nothing else.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking, until interrupted.")] = False,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring memory up to what an agent's files say, and remember where they are: the next `index` looks there again.

    An edited line replaces what it said before, a deleted one is forgotten; `restore` brings it back.

    Example: memrelay-gateway index --workspace ~/.openclaw/workspace --agent main

    Example: memrelay-gateway index ~/notes --watch
    """
    places = [(RootKind.PATH, path) for path in paths or ()]
    places += [(RootKind.WORKSPACE, workspace)] if workspace else []
    places += [(RootKind.SESSIONS, sessions)] if sessions else []
    opened, output = _opened(url, agent), Output(as_json=as_json)
    _add_places(opened, places, forget_roots=forget_roots)
    if watch:
        _watch(opened, output, force=force)
        return
    row = _indexed(opened, output, force=force, verbose=verbose)
    output.json(row)
    _end([row])


def index_place(kind: RootKind, path: Path, agent: str, output: Output) -> bool:
    """Index one additional place as `index` does; return whether all of it could be read."""
    opened = _opened(None, agent)
    _add_places(opened, [(kind, path)])
    return not _indexed(opened, output).get("unreadable")


def _add_places(
    opened: _Opened, places: Sequence[tuple[RootKind, Path]], *, forget_roots: bool = False
) -> None:
    """Add places to an agent's index; exit with an error if one contains nothing to index."""
    found = opened.index
    if forget_roots:
        found.roots.clear()
    for kind, path in places:
        if not path.exists():
            fail(USAGE, f"{path}: there is nothing there", "name a file or folder that exists")
        found.roots.add(IndexRoot(kind, named(path)))
    if places or forget_roots:
        guarded(found.save)
    if not opened.all_roots:
        fail(
            USAGE,
            "nothing to index: no place was named yet",
            "memrelay-gateway index --workspace ~/.openclaw/workspace --sessions ~/.openclaw/agents/main/sessions",
        )


def transcript(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A session log of OpenClaw, Claude Code or Codex.")
    ],
    *,
    anchor: Annotated[str | None, typer.Option(help="The id of a message to read around.")] = None,
    turns: Annotated[int, typer.Option(min=1, max=10_000, help="How many messages at most.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Print the dialogue of a session log; needs no relayer.

    Example: memrelay-gateway transcript ~/.codex/sessions/2026/rollout.jsonl --turns 40
    """
    try:
        said = read_dialogue(file.parent, file.name, anchor=anchor, turns=turns)
    except ToolError as error:
        fail(FAILED, f"{file}: {str(error).partition(': ')[2]}", "")
    messages = {"messages": [_message(one) for one in said]}
    Output(as_json=as_json).tell(messages, *(one.line for one in said))


def _message(one: Said) -> dict[str, object]:
    at = None if one.at is None else render_time(one.at)
    return {"id": one.id or None, "speaker": one.speaker, "at": at, "is_call": one.call, "text": one.text}


@memory.command("status")
def memory_status(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also write and recall a canary.")] = False,
    look: Annotated[bool, typer.Option("--index", help="Index first, where something changed.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Let refused turns wait again.")] = False,
    verbose: VerboseOption = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many memories there are, which files are indexed, and what waits; in a host, of each of its agents.

    Example: memrelay-gateway memory status --deep --agent main
    """
    output = Output(as_json=as_json)
    every = [_opened(url, one) for one in _agents(agent)]
    rows = []
    for opened in every:
        if look and opened.all_roots:
            _look(opened, output, force=False, verbose=verbose and not as_json)
        rows.append(_status(opened, fix=fix))
    checks = examined(DoctorHost.OPENCLAW if in_host() else None, agent, url) if deep else []
    also = {"checks": [asdict(check) for check in checks]} if deep else {}
    # The host's own command prints a list of its agents; outside a host there is only the requested one.
    output.json([_as_host(row) | also for row in rows] if in_host() else rows[0] | also)
    for row in rows:
        sources = "; ".join(row["sources"]) or "none yet: memrelay-gateway index"
        shown = {**row, "sources": sources, "left_out": "; ".join(row["left_out"]) or "nothing"}
        output.pairs((name.replace("_", " "), value) for name, value in shown.items())
    if deep:
        tell_checks(checks, output)


def _status(opened: _Opened, *, fix: bool) -> dict[str, Any]:
    with open_outbox(opened.context) as outbox:
        mended = outbox.retry(None) if fix else 0
        dead, waiting = len(outbox.dead_letters()), outbox.waiting()
    identity = opened.context.identity
    listed = with_client(opened.context.settings, lambda client: client.list_memories(identity, limit=1))
    files, left_out = opened.index.files(opened.roots)
    return {
        "agent": opened.name,
        "relayer": opened.context.settings.url,
        "memories": listed.total,
        "files": len(files),
        "lines": sum(len(file.lines) for file in opened.index.seen.values()),
        "changed_files": sum(opened.index.is_new(one) for one in files),
        "left_out": [str(error) for error in left_out],
        "sources": [f"{root.kind.value}: {root.path}" for root in sorted(opened.all_roots)],
        "waiting_turns": waiting,
        "refused_turns": dead,
        **({"mended_turns": mended} if fix else {}),
    }


def _as_host(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the format of the host's own command, with our fields added."""
    status = {
        "backend": "builtin",
        "provider": "memrelay",
        "files": row["files"],
        "chunks": row["lines"],
        "dirty": bool(row["changed_files"]),
        "sources": ["memory"],
    }
    return {"agentId": row["agent"], "status": status, **row}


@memory.command("index")
def memory_index(
    *,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at the files now: in a host those of its agents, else the places that `memrelay-gateway index` was told of.

    Example: memrelay-gateway memory index --force
    """
    if not in_host():
        index(force=force, verbose=verbose, agent=agent, url=url, as_json=as_json)
        return
    output, rows = Output(as_json=as_json), []
    for one in _agents(agent):
        opened = _opened(url, one)
        output.say(f"agent {opened.name}:")
        rows.append({"agent": opened.name, **_indexed(opened, output, force=force, verbose=verbose)})
    output.json(rows)
    _end(rows)


@memory.command("search")
def memory_search(
    words: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="What to look for.")] = None,
    *,
    query: Annotated[str | None, typer.Option("--query", help="The same.")] = None,
    limit: LimitOption = 5,
    floor: FloorOption = 0.3,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search an agent's memories; each with the file and line that it comes from.

    Example: memrelay-gateway memory search "deploy window" --max-results 5 --min-score 0.3
    """
    asked = query or words
    if not asked:
        fail(USAGE, "QUERY: what to look for is missing", 'memrelay-gateway memory search "deploy window"')
    opened = _opened(url, agent)
    context = opened.context
    request = RecallRequest(
        query=asked, limit=limit, floor=floor, include_suspect=True, **ranking(context.settings.recall)
    )
    answer = with_client(
        context.settings, lambda client: client.recall(context.identity, request, deadline=15)
    )
    output = Output(as_json=as_json)
    cited = opened.index.cited()
    output.json({"results": [_result(hit, cited) for hit in answer.memories]})
    if answer.memories:
        output.memories(answer.memories, SystemClock().now(), cited=cited)
    else:
        output.nothing_found(context.identity.namespace, answer.considered, show_all="--min-score 0")


def cited_files(context: CliContext) -> dict[str, str]:
    """Return the current places of memories of an agent's files, by memory id, as far as this machine knows."""
    return index_of(context).cited()


def index_of(context: CliContext) -> Index:
    """Return this machine's index of an agent's files."""
    return guarded(lambda: Index.load(os.environ, context.identity, context.origin))


def told_with_sources(answer: RecallResponse, cited: Mapping[str, str]) -> dict[str, Any]:
    """Return a response as JSON, and add to each hit its date and the path and line of its file."""
    told: dict[str, Any] = answer.model_dump(mode="json")
    for hit, shown in zip(answer.memories, told["memories"], strict=True):
        result = _result(hit, cited)
        shown |= {"path": result["file"], "line": result["startLine"], "date": result["date"]}
    return told


def _result(hit: RecallHit, cited: Mapping[str, str]) -> dict[str, object]:
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


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(index)
    app.command()(transcript)
    app.add_typer(memory, name="memory")


@dataclass(slots=True)
class _Opened:
    """An agent's files: the host's name for the agent, the roots that the host configures, and the index."""

    name: str
    context: CliContext
    index: Index
    roots: tuple[IndexRoot, ...]

    @property
    def all_roots(self) -> set[IndexRoot]:
        """Return the roots of the index and of the host."""
        return {*self.index.roots, *self.roots}


def _opened(url: str | None, agent: str | None) -> _Opened:
    context = find_context(url, agent)
    name = agent or DEFAULT_AGENT if in_host() else context.identity.agent
    return _Opened(name, context, index_of(context), _host_roots(agent))


def in_host() -> bool:
    """Return whether the command was run through the host, so that it applies to the host's agents and their files."""
    return bool(os.environ.get(HOST_VARIABLE))


def _agents(agent: str | None) -> list[str | None]:
    if agent is not None or not in_host():
        return [agent]
    return [places.agent for places in _host_places()] or [None]


def _host_roots(agent: str | None) -> tuple[IndexRoot, ...]:
    """Return the roots of an agent's files in the host's configuration; empty outside a host."""
    if not in_host():
        return ()
    wanted = agent or DEFAULT_AGENT
    return next((places.roots for places in _host_places() if places.agent == wanted), ())


def _host_places() -> list[AgentPlaces]:
    files = guarded(lambda: host_files(os.environ))
    return (
        guarded(lambda: places_of(read_config(os.environ), os.environ, more=files.paths))
        if files.enabled
        else []
    )


def _look(opened: _Opened, output: Output, *, force: bool, verbose: bool) -> Look:
    """Scan once. Files that cannot be read are reported, counted and skipped."""

    def told(file: IndexedFile, counts: Counter[str]) -> None:
        if verbose:
            output.say(f"{file.path}: {counts['stored']} stored, {counts['duplicate']} known already")

    async def looked(client: RelayerClient) -> Look:
        files = LivingFiles(
            client, opened.context.identity, opened.index, opened.context.settings.capture, told
        )
        return await files.look(opened.roots, force=force, wait=_PATIENCE)

    look = with_client(opened.context.settings, looked)
    if look.busy:
        fail(FAILED, "another process is looking at these files", "wait for it; a gateway looks by itself")
    for problem in look.problems:
        output.say(problem)
    return look


def _indexed(
    opened: _Opened, output: Output, *, force: bool = False, verbose: bool = False
) -> dict[str, Any]:
    """Scan once, print a summary and return it for a JSON document."""
    look = _look(opened, output, force=force, verbose=verbose)
    output.say(_sentence(look.counts))
    roots = [str(root.path) for root in sorted(opened.all_roots)]
    return {"roots": roots, **look.counts, "problems": [*look.problems]}


def _end(rows: Sequence[Mapping[str, Any]]) -> None:
    if any(row.get("unreadable") for row in rows):
        raise typer.Exit(FAILED)


def _watch(opened: _Opened, output: Output, *, force: bool) -> None:
    answer_in_lines()
    places = [str(root.path) for root in sorted(opened.all_roots)]
    output.tell({"watching": places}, f"watching {', '.join(places)}; end with Ctrl-C")
    watch_files(opened.context, opened.index, output, roots=opened.roots, force=force)


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
    """Scan repeatedly until interrupted; if the relayer is not reachable, wait for it.

    Args:
        context: the agent and the relayer.
        index: the index of the files.
        output: prints the changes.
        roots: places to scan in addition to those of the index.
        every: seconds between two scans.
        force: whether the first scan sends unchanged lines as well.
        told: called for each changed file, instead of printing a summary of each scan.
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
                output.tell({"problem": str(error)}, f"{error}; it is tried again")
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
