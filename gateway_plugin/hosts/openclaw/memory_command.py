"""``memrelay-gateway memory``: OpenClaw's own memory command, over memrelay and with the same output."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from gateway_plugin.commands.doctor import examined, tell_checks
from gateway_plugin.commands.life import delete
from gateway_plugin.commands.run import (
    FloorOption,
    LimitOption,
    Run,
    command,
    guarded,
    open_outbox,
    with_client,
)
from gateway_plugin.files.commands.index import (
    ForceOption,
    OpenIndex,
    VerboseOption,
    exit_if_unreadable,
    host_files,
    index,
    open_index,
    scan,
    scan_and_report,
    search_result,
)
from gateway_plugin.files.commands.promote import add_to_memory
from gateway_plugin.hosting import DEFAULT_AGENT, SEARCH_FLOOR, NotRead, SystemClock, ranking
from gateway_plugin.hosts.openclaw.backfill import session_backfill
from gateway_plugin.hosts.openclaw.config import HOST_VARIABLE, state_folder
from gateway_plugin.hosts.openclaw.sessions import open_sessions
from relayer.wire.command_line import USAGE, fail
from relayer.wire.schemas import RecallRequest

memory = typer.Typer(
    help="OpenClaw's memory command over memrelay: status, index, search, forget, reset, promote, rem-backfill, session-backfill.",
    no_args_is_help=True,
)
add_to_memory(memory)
command(memory, "session-backfill")(session_backfill)


@command(memory, "status")
def memory_status(
    run: Run,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also write and recall a canary.")] = False,
    look: Annotated[bool, typer.Option("--index", help="Index first, where something changed.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Let refused turns wait again.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Show how many memories there are, which files are indexed, and what waits; in a host, of each of its agents.

    Example: memrelay-gateway memory status --deep --agent main
    """
    every = [open_index(run.url, one) for one in _agents(run.agent)]
    rows = []
    for opened in every:
        if look and opened.all_roots:
            scan(opened, run, force=False, verbose=verbose and not run.as_json)
        rows.append(_status(opened, fix=fix))
    checks = examined("openclaw" if in_host() else None, run.agent, run.url) if deep else []
    also = {"checks": [asdict(check) for check in checks]} if deep else {}
    # The host's own command prints a list of its agents; outside a host there is only the requested one.
    run.json([_as_host(row) | also for row in rows] if in_host() else rows[0] | also)
    for row in rows:
        sources = "; ".join(row["sources"]) or "none yet: memrelay-gateway index"
        shown = {**row, "sources": sources, "left_out": "; ".join(row["left_out"]) or "nothing"}
        run.pairs((name.replace("_", " "), value) for name, value in shown.items())
    if deep:
        tell_checks(checks, run)


def _status(opened: OpenIndex, *, fix: bool) -> dict[str, Any]:
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
    status = {
        "backend": "builtin",
        "provider": "memrelay",
        "files": row["files"],
        "chunks": row["lines"],
        "dirty": bool(row["changed_files"]),
        "sources": ["memory"],
    }
    return {"agentId": row["agent"], "status": status, **row}


@command(memory, "index")
def memory_index(run: Run, *, force: ForceOption = False, verbose: VerboseOption = False) -> None:
    """Look at the files now: in a host those of its agents, else the places that `memrelay-gateway index` was told of.

    Example: memrelay-gateway memory index --force
    """
    if not in_host():
        index(force=force, verbose=verbose, agent=run.agent, url=run.url, as_json=run.as_json)
        return
    rows = []
    for one in _agents(run.agent):
        opened = open_index(run.url, one)
        run.say(f"agent {opened.name}:")
        rows.append({"agent": opened.name, **scan_and_report(opened, run, force=force, verbose=verbose)})
    run.json(rows)
    exit_if_unreadable(rows)


@command(memory, "search")
def memory_search(
    run: Run,
    words: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="What to look for.")] = None,
    *,
    query: Annotated[str | None, typer.Option("--query", help="The same.")] = None,
    limit: LimitOption = 5,
    floor: FloorOption = SEARCH_FLOOR,
) -> None:
    """Search an agent's memories; each with the file and line that it comes from.

    Example: memrelay-gateway memory search "deploy window" --max-results 5 --min-score 0.3
    """
    asked = query or words
    if not asked:
        fail(USAGE, "QUERY: what to look for is missing", 'memrelay-gateway memory search "deploy window"')
    opened = open_index(run.url, run.agent)
    context = opened.context
    request = RecallRequest(
        query=asked, limit=limit, floor=floor, include_suspect=True, **ranking(context.settings.recall)
    )
    answer = with_client(
        context.settings, lambda client: client.recall(context.identity, request, deadline=15)
    )
    cited = opened.index.cited()
    run.json({"results": [search_result(hit, cited) for hit in answer.memories]})
    if answer.memories:
        run.memories(answer.memories, SystemClock().now(), cited=cited)
    else:
        run.nothing_found(context.identity.namespace, answer.considered, show_all="--min-score 0")


@command(memory, "forget")
def memory_forget(
    run: Run,
    *,
    session: Annotated[list[str], typer.Option(help="Key or id of a session; repeatable.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
) -> None:
    """Forget what was remembered of sessions; `memrelay-gateway restore` brings each memory back.

    Example: memrelay-gateway memory forget --session agent:main:main --dry-run
    """
    keys = [_session_key(one, run.agent) for one in session]
    delete(session=keys, dry_run=dry_run, agent=run.agent, url=run.url, as_json=run.as_json)


def _session_key(name: str, agent: str | None) -> str:
    """Return the key of a session that is named by its key or the host's id of it."""
    with (
        suppress(NotRead, sqlite3.Error),
        closing(open_sessions(state_folder(os.environ), agent or DEFAULT_AGENT)) as log,
    ):
        found = log.execute(
            "SELECT session_key FROM session_windows WHERE session_id = ?", (name,)
        ).fetchone()
        if found is not None:
            return str(found[0])
    return name


@command(memory, "reset")
def memory_reset(
    run: Run, *, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Forget which line of which file was stored, not the memories: the next look at the files compares all of them again.

    Example: memrelay-gateway memory reset --yes
    """
    agents = _agents(run.agent)
    if not yes:
        fail(USAGE, f"the index of {len(agents)} agents would be cleared", "run it again with --yes")
    rows = []
    for one in agents:
        opened = open_index(run.url, one)
        lines = sum(len(file.lines) for file in opened.index.seen.values())
        opened.index.seen.clear()
        guarded(opened.index.save)
        rows.append({"agent": opened.name, "lines": lines})
        run.say(f"agent {opened.name}: {lines} lines are no longer known; next: memory index")
    run.json(rows)


def in_host() -> bool:
    """Return whether the command was run through OpenClaw, so that it applies to OpenClaw's agents and their files."""
    return bool(os.environ.get(HOST_VARIABLE))


def _agents(agent: str | None) -> list[str | None]:
    if agent is not None or not in_host():
        return [agent]
    return [files.agent for files in host_files() or ()] or [None]
