"""``memrelay-gateway openclaw`` and ``memory``, and the part of ``memrelay-gateway init`` that configures OpenClaw.

``memory`` is OpenClaw's own memory command, over memrelay and with the same output.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.commands.doctor import examined, tell_checks
from gateway_plugin.commands.life import delete
from gateway_plugin.commands.run import (
    FloorOption,
    LimitOption,
    Output,
    Run,
    bridge_command,
    command,
    find_context,
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
from gateway_plugin.hosting import (
    DEFAULT_AGENT,
    SEARCH_FLOOR,
    InitOptions,
    NotRead,
    SystemClock,
    notify,
    parse_json,
    ranking,
)
from gateway_plugin.hosts.openclaw.backfill import session_backfill
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CONSENT,
    HOST_VARIABLE,
    MODEL_CONSENT,
    WrittenConfig,
    command_environment,
    command_switches,
    config_path,
    files_variable,
    settings_block,
    settings_steps,
    state_folder,
    write_block,
)
from gateway_plugin.hosts.openclaw.manifest import FOLDER, write_package
from gateway_plugin.hosts.openclaw.sessions import open_sessions
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.schemas import RecallRequest

openclaw = typer.Typer(
    help="The plugin for OpenClaw: where it lies, its package, and what to put into openclaw.json.",
    no_args_is_help=True,
)
SidecarOption = Annotated[
    bool, typer.Option("--sidecar", help="Run next to another memory plugin: hooks only, no slot, no tools.")
]


@openclaw.command(hidden=True)
def run(
    context: typer.Context, arguments: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None
) -> None:
    """Do what ``openclaw memrelay COMMAND`` asks, with the settings of the host's plugin.

    Example: memrelay-gateway openclaw run status
    """
    os.environ.update(guarded(lambda: command_environment(os.environ)))
    switches = command_switches(os.environ)
    os.environ[HOST_VARIABLE] = files_variable(os.environ)
    os.environ.pop(CONFIG_VARIABLE, None)
    command = context.find_root().command
    command.main(args=arguments or ["--help"], prog_name="openclaw memrelay", obj=switches)


@command(openclaw, agent=None, url=None)
def path(run: Run) -> None:
    """Print the plugin's folder, for: openclaw plugins install --link "$(memrelay-gateway openclaw path)".

    Example: memrelay-gateway openclaw path
    """
    run.json({"path": str(FOLDER)})
    run.raw(str(FOLDER))


@command(openclaw, agent=None, url=None)
def pack(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    *,
    sidecar: SidecarOption = False,
) -> None:
    """Write the plugin as a package, for: openclaw plugins install FILE.

    Example: memrelay-gateway openclaw pack /tmp --sidecar
    """
    try:
        file = write_package(folder, sidecar=sidecar, command=bridge_command())
    except OSError as error:
        fail(FAILED, f"{folder}: cannot be written ({error.strerror})", "name a folder that exists")
    # With a full path, the host cannot mistake it for the name of a package.
    whole = str(file.resolve())
    run.json({"file": whole})
    run.raw(whole)


@command(openclaw, agent=None)
def settings(
    run: Run,
    *,
    allow: Annotated[
        bool, typer.Option("--allow-conversation-access", help="Let recall and capture read conversations.")
    ] = False,
    sidecar: SidecarOption = False,
) -> None:
    """Print what to put into openclaw.json, and the steps around it.

    Example: memrelay-gateway openclaw settings --allow-conversation-access
    """
    block = settings_block(url=run.url, command=bridge_command(), consent=allow, sidecar=sidecar)
    run.json(block)
    source = "$(memrelay-gateway openclaw pack --sidecar)" if sidecar else f"--link {FOLDER}"
    run.raw(settings_steps(block, source))
    if not allow:
        run.raw(f"\nNote: {CONSENT}\nTo allow it, repeat this command with --allow-conversation-access.")


BLOCKS: Final = ("openclaw", "openclaw-active")
"""The names of OpenClaw for ``init --host``: with memories recalled directly, or summarised by a model."""
_ACTIVE: Final[dict[str, Any]] = {
    "recall": {"mode": "active"},
    "active": {
        "agents": ["main"],
        "allowedChatTypes": ["direct"],
        "queryMode": "recent",
        "promptStyle": "balanced",
        "timeoutMs": 15000,
        "maxSummaryChars": 220,
    },
}
_INSTALL: Final = (
    'openclaw plugins install --link "$(memrelay-gateway openclaw path)" --force --accept-capabilities'
)
_NEXT: Final = (
    "next: merge it into openclaw.json, or say --write; memrelay-gateway openclaw settings has every step, "
    "memrelay-gateway doctor --host openclaw sees that it works"
)


def init(options: InitOptions) -> None:
    """Print the block for openclaw.json, or merge it into the file."""
    find_context(options.url, None)
    output = Output(as_json=options.as_json)
    url = options.url or os.environ.get("MEMRELAY_URL") or None
    if options.write:
        _write(options, url, output)
        return
    block = _block(options.block, url, consent=options.allow is not False, model=options.model is True)
    output.json({"host": options.block, "block": block})
    output.raw(json.dumps(block, indent=2))
    # On standard error, because standard output contains only the block to copy.
    notify(f"{CONSENT}\n{MODEL_CONSENT} To allow it: --host-model.\n{_NEXT}")


def _block(host: str, url: str | None, *, consent: bool, model: bool) -> dict[str, Any]:
    block = settings_block(url=url, command=bridge_command(), consent=consent, model=model)
    if host == "openclaw-active":
        entry = block["plugins"]["entries"]["memrelay"]
        entry["config"] |= _ACTIVE
        if consent:
            entry["hooks"]["allowPromptInjection"] = True
    return block


def _write(options: InitOptions, url: str | None, output: Output) -> None:
    consent, model = options.allow, options.model is True
    if consent is None:
        if not sys.stdin.isatty():
            fail(USAGE, "--allow-conversation-access, --no-conversation-access: say one of them", CONSENT)
        consent = typer.confirm(f"{CONSENT}\nAllow it?", err=True)
    path = config_path(os.environ)
    if options.model is None and sys.stdin.isatty():
        model = typer.confirm(f"{MODEL_CONSENT}\nAllow it?", default=False, err=True)
    block = _block(options.block, url, consent=consent, model=model)
    entry = block["plugins"]["entries"]["memrelay"]
    config = entry["config"]
    if not consent:
        entry["hooks"] = {"allowConversationAccess": False}
    if options.url is None and _has_url(path.read_text("utf-8") if path.is_file() else ""):
        # A URL that is set already is changed only if the option names another one.
        config.pop("url", None)
    written = guarded(lambda: write_block(path, block, now=int(SystemClock().now())))
    output.json({"host": options.block, **row_of(written)})
    if not written.changed:
        output.say(f"nothing to change: {path} has it all")
        return
    output.say(f"written: {path}")
    if written.backup is not None:
        output.say(f"as it was: {written.backup}")
    if not consent:
        output.say("recall and capture are blocked by OpenClaw; memory works through its tools alone")
    if "hostModel" not in config:
        output.say(
            "OpenClaw's own model is not asked unless hostModel.enabled is set already: --host-model sets it"
        )
    output.say(f"next: {_INSTALL}, unless OpenClaw has the plugin already;")
    output.say(
        "openclaw config validate && openclaw gateway restart, then memrelay-gateway doctor --host openclaw"
    )


def row_of(written: WrittenConfig) -> dict[str, object]:
    """Return the outcome of writing a host's configuration, for a JSON document."""
    backup = None if written.backup is None else str(written.backup)
    return {"file": str(written.path), "changed": written.changed, "backup": backup}


def _has_url(text: str) -> bool:
    try:
        return bool(parse_json(text)["plugins"]["entries"]["memrelay"]["config"]["url"])
    except (ValueError, KeyError, TypeError):
        return False


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
        query=asked,
        limit=limit,
        floor=floor,
        include_suspect=True,
        rerank=True,
        **ranking(context.settings.recall),
    )
    answer = with_client(
        context.settings, lambda client: client.recall(context.identity, request, deadline=15)
    )
    cited = opened.index.cited()
    run.json({"results": [search_result(hit, cited) for hit in answer.memories]})
    if answer.memories:
        run.memories(answer.memories, owners=context.settings.owners, cited=cited)
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
