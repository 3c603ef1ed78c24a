"""``memrelay-gateway migrate``: move OpenClaw from an earlier memory plugin to this one, with its memories and settings.

`plan` makes the new configuration and finds the files to import. The new configuration keeps every setting of the old plugin
that has a counterpart, under the same name. The old plugin's entry is kept but disabled, so that moving back takes a single
change. The command shows the changes, asks for confirmation, imports the memories, and writes the configuration last. If the
import fails, the host is unchanged, and the same command continues the import: memories are not stored twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.commands.run import Output, Run, bridge_command, command, guarded
from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.files.commands.index import index_place
from gateway_plugin.files.commands.transfer import checked_access, read_namespace
from gateway_plugin.hosting import (
    DEFAULT_AGENT,
    DEFAULT_NAME,
    LocalRelayer,
    MemWalAccess,
    RootKind,
    SystemClock,
    is_wanted,
    parse_json,
    send_items,
)
from gateway_plugin.hosts.openclaw.command_line import row_of
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CONSENT,
    NO_DREAMING,
    VARIABLE,
    HostConfig,
    command_environment,
    core_config,
    extra_places,
    read_config,
    state_folder,
    write_whole,
)
from gateway_plugin.hosts.openclaw.manifest import FOLDER, PLUGIN_ID, SECRET_KEYS, config_schema
from gateway_plugin.hosts.openclaw.turns import Json
from gateway_plugin.settings.crosswalk import WITHOUT_EFFECT, merged_into
from gateway_plugin.settings.model import load_settings, safe_load
from relayer.wire import names
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.redaction import redact


class SourcePlugin(StrEnum):
    """The plugins that a host may move from."""

    MEMORY_CORE_PLUS = "memory-core-plus"
    AUTO_RECALL = "auto-recall"
    MEMWAL = "memwal"
    MEMSEARCH = "memsearch"
    ACTIVE_MEMORY = "active-memory"


PLUGIN_IDS: Final[Mapping[SourcePlugin, tuple[str, ...]]] = {
    SourcePlugin.MEMORY_CORE_PLUS: ("memory-core-plus",),
    SourcePlugin.AUTO_RECALL: ("openclaw-auto-recall", "auto-recall"),
    SourcePlugin.MEMWAL: ("memory-memwal", "oc-memwal"),
    SourcePlugin.MEMSEARCH: ("memsearch",),
    SourcePlugin.ACTIVE_MEMORY: ("active-memory",),
}
"""The ids of each plugin in ``plugins.entries``."""

_MASK: Final = "***"
_SECRET_NAME: Final = re.compile(
    r"(?:key|token|secret|password|passphrase|credential|authorization)s?$", re.IGNORECASE
)

# The key, account and address of a MemWal service mean nothing to a relayer.
_MEMWALS: Final = {
    "privateKey": "reads the memories there, and is not taken over: it was known to MemWal's programs. A new secret is made",
    "accountId": "is an account of MemWal's; memrelay's is made from the secret",
    "serverUrl": "is MemWal's service; memrelay has a relayer",
}
_NO_COUNTERPART: Final[Mapping[SourcePlugin, tuple[str, ...]]] = {
    SourcePlugin.MEMORY_CORE_PLUS: (
        "memorySearch.query.minScore is the floor of recall as well, on another scale: recall.minScore (0.3) takes its place",
        "the extraction by a sub-agent: the relayer keeps what was said, and a model of its own if it is given one",
    ),
    SourcePlugin.AUTO_RECALL: (
        "transcripts of groups that memory-core indexed: from now on each turn can be captured",
    ),
    SourcePlugin.MEMWAL: ("blobs on Walrus stay there: nothing is deleted at the service",),
    SourcePlugin.MEMSEARCH: ("the collection in Milvus: the relayer indexes the memories itself",),
    SourcePlugin.ACTIVE_MEMORY: (
        "the sub-agent: OpenClaw's own model chooses (hostModel.enabled), or one of the relayer's (memrelay serve --model-url)",
    ),
}


@dataclass(frozen=True, slots=True)
class ImportedFiles:
    """Files of an agent that are imported as memories; ``kind`` selects the parser."""

    agent: str
    kind: RootKind
    path: Path


@dataclass(frozen=True, slots=True)
class Migration:
    """A planned move."""

    document: Json
    former: Json
    left_out: tuple[str, ...]
    places: tuple[ImportedFiles, ...]


def plan(
    config: HostConfig,
    origin: SourcePlugin,
    environ: Mapping[str, str],
    *,
    command: str,
    url: str | None,
    access: bool,
) -> Migration:
    """Plan a move. Planning it again after it was carried out changes nothing.

    Raises:
        SettingsError: the configuration is split into several files, the old plugin is not in it, or a setting has a value
            that this plugin refuses.
    """
    if "$include" in config.whole or "$include" in config.plugins:
        problem = "takes its plugins from another file ($include)"
        raise SettingsError(SettingsIssue(str(config.path), problem, "name that file: --config PATH"))
    document = copy.deepcopy(dict(config.whole))
    plugins = document.setdefault("plugins", {})
    entries = plugins.setdefault("entries", {})
    if not isinstance(entries, dict):
        raise SettingsError(
            SettingsIssue("plugins.entries", "is no object", "mend it: openclaw config validate")
        )
    ids = [name for name in PLUGIN_IDS[origin] if name in entries]
    if not ids:
        problem = f"there is no {' and no '.join(PLUGIN_IDS[origin])}: that plugin is not installed here"
        fix = "name the one that is, or set memrelay up without a move: memrelay-gateway init --host openclaw --write"
        raise SettingsError(SettingsIssue(f"{config.path}, plugins.entries", problem, fix))
    former = next((entries[name].get("config") or {} for name in ids), {})
    kept, left_out = _taken(origin, former)
    wanted: dict[str, Any] = {
        "enabled": True,
        "hooks": {"allowConversationAccess": access},
        "config": {
            "command": command,
            "preset": origin.value,
            **({"url": url} if url else {}),
            **NO_DREAMING,
            # This plugin asked the host's model in every turn already.
            **({"hostModel": {"enabled": True}} if origin is SourcePlugin.ACTIVE_MEMORY else {}),
            **kept,
        },
    }
    # Settings of this plugin that exist already are newer than those of the old plugin.
    entry = merged_into(wanted, entries.get(PLUGIN_ID, {})) | {"enabled": True}
    entries[PLUGIN_ID] = entry
    for name in ids:
        entries[name] = {**entries.get(name, {}), "enabled": False}
    _load(plugins, ids, environ)
    # An error that the plugin would raise at the gateway's start; variables need to be set only there.
    plain = json.loads(
        VARIABLE.sub("x", json.dumps({k: v for k, v in entry["config"].items() if k not in SECRET_KEYS}))
    )
    load_settings(core_config(plain, environ), {})
    left_out += _NO_COUNTERPART[origin]
    return Migration(document, former, tuple(left_out), tuple(_places(config, origin, environ)))


def _taken(origin: SourcePlugin, former: Json) -> tuple[dict[str, Any], list[str]]:
    """Split the old settings into those that are kept and messages about the others."""
    known = config_schema()["properties"]
    kept: dict[str, Any] = {}
    left_out = []
    for name, value in former.items():
        if origin is SourcePlugin.MEMWAL and name in _MEMWALS:
            left_out.append(f"{name}: {_MEMWALS[name]}")
        elif name in WITHOUT_EFFECT:
            left_out.append(f"{name}: {WITHOUT_EFFECT[name]}")
        elif name in known:
            kept[name] = value
        else:
            left_out.append(f"{name}: has no counterpart")
    return kept, left_out


def _load(plugins: dict[str, Any], former: list[str], environ: Mapping[str, str]) -> None:
    """Make the host load this plugin into the memory slot: its installed copy, or this package's folder."""
    slots = plugins.setdefault("slots", {})
    for slot in ("memory", *(name for name in ("memory.recall",) if name in slots)):
        slots[slot] = PLUGIN_ID
    for name, wanted in (("allow", True), ("deny", False)):
        listed = plugins.get(name)
        if isinstance(listed, list) and listed:
            others = [one for one in listed if one != PLUGIN_ID and not (wanted and one in former)]
            plugins[name] = [*others, PLUGIN_ID] if wanted else others
    if (state_folder(environ) / "extensions" / PLUGIN_ID).exists():
        return
    load = plugins.setdefault("load", {})
    if not any(_is_ours(Path(str(path))) for path in load.get("paths") or ()):
        load["paths"] = [*(load.get("paths") or ()), str(FOLDER)]


def _is_ours(folder: Path) -> bool:
    try:
        told = parse_json((folder.expanduser() / "openclaw.plugin.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and told.get("id") == PLUGIN_ID


def _places(config: HostConfig, origin: SourcePlugin, environ: Mapping[str, str]) -> Iterator[ImportedFiles]:
    for agent in config.agents:
        workspace = config.workspace(agent, environ)
        found = [ImportedFiles(agent, RootKind.WORKSPACE, workspace)]
        extra = extra_places(workspace, config.extra_paths(agent), environ)
        found += [
            ImportedFiles(agent, RootKind.PATH, path) for path in dict.fromkeys(path for path, _ in extra)
        ]
        if origin is SourcePlugin.MEMSEARCH:
            named = environ.get("MEMSEARCH_DIR")
            base = Path(named).expanduser() if named else workspace / ".memsearch"
            found.append(ImportedFiles(agent, RootKind.PATH, base / "memory"))
        # A workspace is imported only if there are notes in it.
        has_notes = any((workspace / name).exists() for name in ("MEMORY.md", "USER.md", "memory", "wiki"))
        for place in found:
            if place.path.exists() and (place.kind is not RootKind.WORKSPACE or has_notes):
                yield place


def shown_change(before: Json, after: Json) -> str:
    """Return the difference of two configurations as lines, with possible secrets masked."""
    old, new = (
        json.dumps(_masked(one), indent=2, ensure_ascii=False).splitlines() for one in (before, after)
    )
    return "\n".join(difflib.unified_diff(old, new, "as it is", "as it will be", lineterm=""))


def _masked(value: object, name: str = "") -> object:
    if isinstance(value, Mapping):
        # Every value of ``env`` may be a secret.
        inside = "secret" if name == "env" else ""
        return {key: _masked(one, inside or str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, name) for one in value]
    if not isinstance(value, str) or VARIABLE.fullmatch(value):
        return value
    return _MASK if _SECRET_NAME.search(name) else redact(value).text


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
    change = shown_change(host.whole, move.document)
    _show(run, host, move, change, access=access)
    places = [
        {"agent": place.agent, "kind": place.kind.value, "path": str(place.path)} for place in move.places
    ]
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


def _show(output: Output, host: HostConfig, move: Migration, change: str, *, access: bool) -> None:
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
        whole &= index_place(place.kind, place.path, place.agent, output)
    return whole


def _import_memwal(
    output: Output, host: HostConfig, access: MemWalAccess, former: Mapping[str, object]
) -> bool:
    """Import the memories of every agent from a MemWal service; return whether all were found."""
    default = str(former.get("defaultNamespace") or DEFAULT_NAME)
    # In MemWal, an agent named like the default namespace shares its memories with the default agent; here each has its own.
    whose: dict[str, str] = {}
    for agent in sorted(host.agents, key=lambda name: name != DEFAULT_AGENT):
        # MemWal's first version names an agent's namespace differently from later ones (MW-36).
        for namespace in (default,) if agent == DEFAULT_AGENT else (agent, names.normalise(agent)):
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


def _access(former: Mapping[str, object]) -> MemWalAccess:
    """Return service and key from the old settings; exit with an error that names a missing value and its fix."""
    found = {}
    for name in ("privateKey", "accountId", "serverUrl"):
        value = former.get(name)
        text = value if isinstance(value, str) else ""
        for variable in VARIABLE.findall(text):
            if not os.environ.get(variable):
                problem = f"{name}: the environment variable {variable} is not set"
                fail(USAGE, problem, "set it for this command")
        found[name] = VARIABLE.sub(lambda match: os.environ[match[1]], text)
    fix = "set it in plugins.entries.memory-memwal.config, or move the settings alone: --no-import"
    return checked_access(tuple(found.values()), tuple(found), fix)
