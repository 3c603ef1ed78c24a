"""Plan the move of a host from an earlier memory plugin to this one: its new configuration, and the files to import.

Nothing is written here. The new configuration keeps every setting of the old plugin that has a counterpart, under the same
name. The old plugin's entry is kept but disabled, so that moving back takes a single change.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.hosting import RootKind, parse_json
from gateway_plugin.hosts.openclaw.config import (
    NO_DREAMING,
    VARIABLE,
    HostConfig,
    Json,
    core_config,
    extra_places,
    state_folder,
)
from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID, SECRET_KEYS, config_schema, plugin_folder
from gateway_plugin.settings.crosswalk import WITHOUT_EFFECT, merged_into
from gateway_plugin.settings.model import load_settings
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
        load["paths"] = [*(load.get("paths") or ()), str(plugin_folder())]


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
        for place in found:
            if place.path.exists() and (place.kind is not RootKind.WORKSPACE or any(_notes(place.path))):
                yield place


def _notes(workspace: Path) -> Iterator[Path]:
    yield from (
        workspace / name for name in ("MEMORY.md", "USER.md", "memory", "wiki") if (workspace / name).exists()
    )


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
