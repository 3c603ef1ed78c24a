"""``memrelay-gateway index``, ``transcript`` and ``memory``: files of this machine as memories, in the words of OpenClaw's own command."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.bounded_files import named
from gateway_plugin.calls.trust import Endpoint
from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import SystemClock
from gateway_plugin.commands.doctor import doctor
from gateway_plugin.commands.outbox import open_file_outbox
from gateway_plugin.commands.run import (
    FAILED,
    USAGE,
    AgentOption,
    CliContext,
    FloorOption,
    JsonOption,
    LimitOption,
    Output,
    UrlOption,
    fail,
    find_context,
    guarded,
    with_client,
)
from gateway_plugin.errors import GatewayError
from gateway_plugin.tool_arguments import ToolError
from gateway_plugin.transcript import read_transcript
from gateway_plugin.transfer.exports import ImportProblem
from gateway_plugin.transfer.indexed import Index, IndexedFile, IndexRoot, RootKind
from gateway_plugin.transfer.sending import send_items
from relayer.wire.schemas import RecallRequest

_EVERY: float = 2.0
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
    """Store what an agent's files say, and remember where they are: the next `index` looks there again."""
    context, found = _opened(url, agent)
    if forget_roots:
        found.roots.clear()
    places = [(RootKind.PATH, path) for path in paths or ()]
    places += [(RootKind.WORKSPACE, workspace)] if workspace else []
    places += [(RootKind.SESSIONS, sessions)] if sessions else []
    for kind, path in places:
        if not path.exists():
            fail(USAGE, f"{path}: there is nothing there", "name a file or folder that exists")
        found.roots.add(IndexRoot(kind, named(path)))
    if not found.roots:
        guarded(found.save)
        fail(
            USAGE,
            "nothing to index: no place was named yet",
            "memrelay-gateway index --workspace ~/.openclaw/workspace --sessions ~/.openclaw/agents/main/sessions",
        )
    run = _Run(context, found, Output(as_json=as_json), verbose=verbose)
    if watch:
        run.watch(force=force)
        return
    counts = with_client(context.settings, lambda client: run.look(client, force=force))
    if as_json:
        roots = [str(root.path) for root in sorted(found.roots)]
        Output(as_json=True).json({"roots": roots, **counts, "problems": [*run.problems]})
    else:
        Output(as_json=False).say(_sentence(counts))
    if counts["unreadable"]:
        raise typer.Exit(FAILED)


def transcript(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A session log of OpenClaw, Claude Code or Codex.")
    ],
    *,
    anchor: Annotated[str | None, typer.Option(help="The id of a message to read around.")] = None,
    turns: Annotated[int, typer.Option(min=1, max=10_000, help="How many messages at most.")] = 200,
) -> None:
    """Print the dialogue of a session log; needs no relayer."""
    try:
        text = read_transcript(file.parent, file.name, anchor=anchor, turns=turns)
    except ToolError as error:
        fail(FAILED, f"{file}: {str(error).partition(': ')[2]}", "")
    for line in text.split("\n"):
        Output(as_json=False).say(line)


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
    """Show how many memories there are, which files are indexed, and what waits."""
    context, found = _opened(url, agent)
    if look and found.roots:
        run = _Run(context, found, Output(as_json=as_json), verbose=verbose and not as_json)
        with_client(context.settings, lambda client: run.look(client, force=False))
    outbox = open_file_outbox(url)
    mended = guarded(lambda: outbox.retry(None)) if fix else 0
    dead, waiting = len(guarded(outbox.dead_letters)), outbox.waiting()
    outbox.close()
    listed = with_client(context.settings, lambda client: client.list_memories(context.identity, limit=1))
    files, left_out = found.files()
    sources = [f"{root.kind.value}: {root.path}" for root in sorted(found.roots)]
    rows: dict[str, object] = {
        "agent": context.identity.agent,
        "relayer": context.settings.url,
        "memories": listed.total,
        "files": len(files),
        "changed_files": sum(found.is_new(one) for one in files),
        "left_out": [str(error) for error in left_out],
        "sources": sources,
        "waiting_turns": waiting,
        "refused_turns": dead,
        **({"mended_turns": mended} if fix else {}),
    }
    output = Output(as_json=as_json)
    if as_json:
        output.json(rows)
    else:
        shown = {**rows, "sources": "; ".join(sources) or "none yet: memrelay-gateway index"}
        shown["left_out"] = "; ".join(map(str, left_out)) or "nothing"
        output.pairs((name.replace("_", " "), str(value)) for name, value in shown.items())
    if deep and not as_json:
        doctor(agent=agent, url=url)


@memory.command("index")
def memory_index(
    *,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    agent: AgentOption = None,
    url: UrlOption = None,
) -> None:
    """Look again at the places that `memrelay-gateway index` was told of."""
    index(force=force, verbose=verbose, agent=agent, url=url)


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
    """Search an agent's memories; each with the file and line that it comes from."""
    asked = query or words
    if not asked:
        fail(USAGE, "QUERY: what to look for is missing", 'memrelay-gateway memory search "deploy window"')
    context = find_context(url, agent)
    request = RecallRequest(query=asked, limit=limit, floor=floor, include_suspect=True)
    answer = with_client(
        context.settings, lambda client: client.recall(context.identity, request, deadline=15)
    )
    output = Output(as_json=as_json)
    if as_json:
        rows = [
            {
                "path": hit.source.reference or f"memory/{hit.id}.md",
                "score": hit.relevance,
                "snippet": hit.text,
                "id": hit.id,
            }
            for hit in answer.memories
        ]
        output.json({"results": rows})
    elif answer.memories:
        output.memories(answer.memories, SystemClock().now(), sources=True)
    else:
        output.nothing_found(context.identity.namespace, answer.considered, show_all="--min-score 0")


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(index)
    app.command()(transcript)
    app.add_typer(memory, name="memory")


@dataclass(slots=True)
class _Run:
    """One agent's files on their way to the relayer.

    Attributes:
        problems: what was not read at the last look, as sentences.
    """

    context: CliContext
    found: Index
    output: Output
    verbose: bool = False
    problems: dict[str, None] = field(default_factory=dict)

    async def look(self, client: RelayerClient, *, force: bool) -> Counter[str]:
        """Store what changed; what cannot be read is said, counted and passed over. Raises as the client does."""
        counts: Counter[str] = Counter()
        before, self.problems = self.problems, {}
        try:
            files, left_out = await asyncio.to_thread(self.found.files)
            for error in left_out:
                counts += self._problem(str(error), before)
            for one in files:
                if not force and not self.found.is_new(one):
                    counts["unchanged"] += 1
                    continue
                counts += await self._store(client, one, before, anew=force)
        finally:
            self.found.save()
        return counts

    def _problem(self, sentence: str, before: Container[str]) -> Counter[str]:
        """Count what is not read; while it is watched, it is said once."""
        self.problems[sentence] = None
        if not self.output.as_json and sentence not in before:
            self.output.say(sentence)
        return Counter(unreadable=1)

    async def _store(
        self, client: RelayerClient, one: IndexedFile, before: Container[str], *, anew: bool
    ) -> Counter[str]:
        try:
            items = await asyncio.to_thread(one.root.read, one.path, self.context.settings.capture)
        except ImportProblem as error:
            return self._problem(str(error), before)
        counts = await send_items(client, self.context.identity, items, anew=anew)
        self.found.stored(one)
        if self.verbose and not self.output.as_json:
            self.output.say(f"{one.path}: {counts['stored']} stored, {counts['duplicate']} known already")
        return counts + Counter(files=1)

    def watch(self, *, force: bool) -> None:
        """Look again and again; a relayer that is away is waited for."""

        async def forever(client: RelayerClient) -> None:
            again = force
            while True:
                try:
                    counts = await self.look(client, force=again)
                except GatewayError as error:
                    self.output.say(f"{error}; it is tried again")
                else:
                    again = False
                    if counts["files"]:
                        self.output.say(_sentence(counts))
                await asyncio.sleep(_EVERY)

        places = ", ".join(str(root.path) for root in sorted(self.found.roots))
        self.output.say(f"watching {places}; end with Ctrl-C")
        try:
            with_client(self.context.settings, forever)
        except KeyboardInterrupt:
            self.output.say("stopped")


def _opened(url: str | None, agent: str | None) -> tuple[CliContext, Index]:
    context = find_context(url, agent)
    origin = guarded(lambda: Endpoint.parse(context.settings.url)).origin
    return context, guarded(lambda: Index.load(os.environ, context.identity, origin))


def _sentence(counts: Counter[str]) -> str:
    words = {
        "stored": ("memory stored", "memories stored"),
        "duplicate": ("known already", "known already"),
        "refused": ("refused", "refused"),
        "unchanged": ("file unchanged", "files unchanged"),
        "unreadable": ("file not read", "files not read"),
    }
    said = [f"indexed: {counts['files']} {'file' if counts['files'] == 1 else 'files'}"]
    said += [f"{counts[name]} {forms[counts[name] != 1]}" for name, forms in words.items() if counts[name]]
    return ", ".join(said)
