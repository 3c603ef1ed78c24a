"""``memrelay-gateway migrate``: move OpenClaw from an earlier memory plugin to this one, with its memories and settings.

The command shows the changes, asks for confirmation, imports the memories, and writes the configuration last. If the import
fails, the host is unchanged, and the same command continues the import: memories are not stored twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.commands.run import Output, Run, bridge_command, command, guarded
from gateway_plugin.files.commands.from_memwal import checked_access, read_namespace
from gateway_plugin.files.commands.index import index_place
from gateway_plugin.hosting import (
    DEFAULT_AGENT,
    DEFAULT_NAME,
    LocalRelayer,
    MemWalAccess,
    RootKind,
    SystemClock,
    is_wanted,
    send_items,
)
from gateway_plugin.hosts.openclaw.command_line import row_of
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CONSENT,
    VARIABLE,
    HostConfig,
    command_environment,
    read_config,
    write_whole,
)
from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID
from gateway_plugin.hosts.openclaw.migration import Migration, SourcePlugin, plan, shown_change
from gateway_plugin.settings.model import safe_load
from relayer.wire import names
from relayer.wire.command_line import FAILED, USAGE, fail


@command(agent=None)
def migrate(
    run: Run,
    *,
    origin: Annotated[SourcePlugin, typer.Option("--from", help="The plugin that is left.")],
    config: Annotated[
        Path | None, typer.Option("--config", metavar="PATH", help="The host's openclaw.json.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and do nothing.")
    ] = False,
    access: Annotated[
        bool,
        typer.Option(
            "--conversation-access/--no-conversation-access",
            help="Let recall and capture read conversations.",
        ),
    ] = True,
    no_import: Annotated[
        bool, typer.Option("--no-import", help="Move the settings, and leave the memories where they are.")
    ] = False,
) -> None:
    """Move OpenClaw from an earlier memory plugin to memrelay: its settings, and what it remembers.

    Example: memrelay-gateway migrate --from memsearch --dry-run
    """
    if config is not None:
        os.environ["OPENCLAW_CONFIG_PATH"] = str(config.resolve())
    host = guarded(lambda: read_config(os.environ))
    move = guarded(
        lambda: plan(host, origin, os.environ, command=bridge_command(), url=run.url, access=access)
    )
    _show(run, host, move, access=access)
    places = [
        {"agent": place.agent, "kind": place.kind.value, "path": str(place.path)} for place in move.places
    ]
    change = shown_change(host.whole, move.document)
    told = {"file": str(host.path), "change": change, "imports": places, "left_behind": [*move.left_out]}
    if dry_run:
        run.json({"dry_run": True, **told})
        return
    # What the service needs is looked at before anything is imported.
    memwal = _access(move.former) if origin is SourcePlugin.MEMWAL and not no_import else None
    if not yes and not typer.confirm(f"Import the memories, and write {host.path}?", err=True):
        fail(FAILED, "nothing was changed", "")
    whole = True
    if not no_import:
        with _relayer_of(move):
            whole = _import_files(run, move)
            if memwal is not None:
                whole &= _import_memwal(run, host, memwal, move.former)
    written = guarded(lambda: write_whole(host, move.document, now=int(SystemClock().now())))
    run.json({**told, **row_of(written), "whole": whole})
    if written.changed:
        run.say(f"written: {written.path}\nas it was: {written.backup}")
    else:
        run.say(f"nothing to change: {written.path} has it all")
    run.say("next: openclaw config validate && openclaw gateway restart")
    run.say("then: memrelay-gateway doctor --host openclaw sees that it works")
    if not whole:
        fail(
            FAILED,
            "not every memory was read, see above",
            "the same command reads again: nothing is stored twice",
        )


def _show(output: Output, host: HostConfig, move: Migration, *, access: bool) -> None:
    change = shown_change(host.whole, move.document)
    output.raw(change or f"{host.path} has the settings already.")
    for place in move.places:
        output.say(f"import for {place.agent}: {place.path}")
    for sentence in move.left_out:
        output.say(f"left behind: {sentence}")
    if access and change:
        output.say(f"consent: {CONSENT}")


@contextlib.contextmanager
def _relayer_of(move: Migration) -> Iterator[None]:
    """Use relayer and secret of the new settings, as every command of the host does; start the relayer if it is a local one."""
    config = move.document["plugins"]["entries"][PLUGIN_ID]["config"]
    os.environ.update(
        guarded(lambda: command_environment(os.environ | {CONFIG_VARIABLE: json.dumps(config)}))
    )
    relayer = LocalRelayer(os.environ)
    try:
        # Only the settings say whether a relayer was named; the environment may contain a recorded address.
        named = safe_load({"relayer": config.get("relayer")}, os.environ).settings
        if named is not None and is_wanted(named):
            os.environ["MEMRELAY_URL"] = guarded(lambda: asyncio.run(relayer.ensure()))
        yield
    finally:
        relayer.release()


def _import_files(output: Output, move: Migration) -> bool:
    """Import every place; return whether all was read. Exit with an error if the relayer refuses or is not reachable."""
    whole = True
    for place in move.places:
        # Test the relayer first, because a refusal during the import would look like a file that cannot be read.
        Run(agent=place.agent).ask(lambda client, whose: client.list_memories(whose, limit=1))
        output.say(f"{place.agent}: {place.path}")
        kind = place.kind if place.kind is RootKind.WORKSPACE else RootKind.PATH
        whole &= index_place(kind, place.path, place.agent, output)
    return whole


def _import_memwal(
    output: Output, host: HostConfig, access: MemWalAccess, former: Mapping[str, object]
) -> bool:
    """Import the memories of every agent from a MemWal service; return whether all were found."""
    default = str(former.get("defaultNamespace") or DEFAULT_NAME)
    # In MemWal, an agent named like the default namespace shares its memories with the default agent; here each has its own.
    whose: dict[str, str] = {}
    for agent in sorted(host.agents, key=lambda name: name != DEFAULT_AGENT):
        for namespace in _namespaces(agent, default):
            whose.setdefault(namespace, agent)
    read = [_import_namespace(output, access, agent, namespace) for namespace, agent in whose.items()]
    return all(read)


def _import_namespace(output: Output, access: MemWalAccess, agent: str, namespace: str) -> bool:
    walked = guarded(lambda: asyncio.run(read_namespace(access, namespace, output.say)))
    if walked.known:
        counts = Run(agent=agent).ask(lambda client, whose: send_items(client, whose, walked.items))
        told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        output.say(
            f"{agent}: {walked.found} of {walked.known} memories of MemWal's {namespace} read: {told or 'none'}"
        )
    if not walked.complete:
        fix = "MemWal's own restore may bring them into its index; then run this again"
        output.say(f"  no recall shows the others; {fix}")
    return walked.complete


def _namespaces(agent: str, default: str) -> tuple[str, ...]:
    """Return the names that MemWal may use for an agent's memories, in its first and in later versions (MW-36)."""
    if agent == DEFAULT_AGENT:
        return (default,)
    return tuple(dict.fromkeys((agent, names.normalise(agent))))


def _access(former: Mapping[str, object]) -> MemWalAccess:
    """Return service and key from the old settings; exit with an error that names a missing value and its fix."""
    found = {name: _filled(former.get(name), name) for name in ("privateKey", "accountId", "serverUrl")}
    fix = "set it in plugins.entries.memory-memwal.config, or move the settings alone: --no-import"
    return checked_access(tuple(found.values()), tuple(found), fix)


def _filled(value: object, name: str) -> str:
    def value_of(variable: re.Match[str]) -> str:
        found = os.environ.get(variable[1], "")
        if not found:
            fail(
                USAGE, f"{name}: the environment variable {variable[1]} is not set", "set it for this command"
            )
        return found

    return VARIABLE.sub(value_of, value) if isinstance(value, str) else ""
