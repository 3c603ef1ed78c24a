"""The plugin's manifest, made from the settings: what the host checks and shows is what the plugin accepts.

``python -m gateway_plugin.hosts.openclaw.manifest`` writes it; a test holds the shipped file to it.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import alias_generators

from gateway_plugin import __version__
from gateway_plugin.crosswalk import ALIASES, PRESETS
from gateway_plugin.hosts.openclaw.tools import PROMPT_SECTION, tool_definitions
from gateway_plugin.settings import ActiveSettings, PluginSettings
from gateway_plugin.tool_arguments import TOOL_NAMES
from gateway_plugin.tools import READING

PLUGIN_ID: Final = "memrelay"
SIDECAR_ID: Final = "memrelay-sidecar"
FOLDER: Final = Path(__file__).parent

_Schema = dict[str, Any]
# Keys whose value the plugin reads leniently, as the plugin that they come from did (CP-16).
_ANYTHING: Final = {
    "autoRecall",
    "autoCapture",
    "autoRecallMaxResults",
    "autoRecallMinPromptLength",
    "autoCaptureMaxMessages",
}
# A reference instead of a secret is an object.
_SECRETS: Final = ("key", "privateKey")

_LEFT_OUT: Final = {"title", "default", "description", "format", "writeOnly"}

_HINTS: Final[dict[str, dict[str, object]]] = {
    "url": {
        "label": "Relayer",
        "help": "Where the relayer answers; https, or http on this machine.",
        "placeholder": "http://127.0.0.1:8787",
    },
    "key": {
        "label": "Secret",
        "help": "This gateway's root secret, best as ${MEMRELAY_SECRET} or a SecretRef. Left out, one is made and kept in a file.",
        "sensitive": True,
        "placeholder": "${MEMRELAY_SECRET}",
    },
    "command": {
        "label": "Bridge command",
        "help": "The program memrelay-gateway: a path, or a list with its first arguments.",
        "placeholder": "memrelay-gateway",
        "advanced": True,
    },
    "autoRecall": {"label": "Auto-recall", "help": "Put relevant memories into the prompt of each turn."},
    "autoCapture": {"label": "Auto-capture", "help": "Keep what is worth keeping of each turn."},
    "preset": {"label": "Preset", "help": "Behave like an earlier plugin.", "advanced": True},
    "agent": {"label": "Agent", "help": "One agent for every session.", "advanced": True},
    "accountId": {"label": "Account", "help": "The account that the secret belongs to.", "advanced": True},
    "recall": {"label": "Recall", "help": "What happens before a turn.", "advanced": True},
    "recall.maxResults": {"label": "Memories per turn", "help": "At most so many."},
    "recall.minScore": {"label": "Least relevance", "help": "0 to 1; below it nothing is injected."},
    "recall.maxTokens": {"label": "Token budget", "help": "Of the injected block, at most."},
    "recall.deadlineMs": {"label": "Deadline", "help": "Milliseconds that a turn waits for memory at most."},
    "recall.position": {"label": "Position", "help": "Where in the prompt memories stand.", "advanced": True},
    "capture": {"label": "Capture", "help": "What happens after a turn.", "advanced": True},
    "capture.storeTranscript": {
        "label": "Store transcripts",
        "help": "Keep the turns that leave a memory word for word at the relayer, too, sealed; memory_transcript reads them where the host has no log.",
        "advanced": True,
    },
    "namespace": {"label": "Namespace", "help": "Whose memories are used.", "advanced": True},
    "active": {"label": "Active mode", "help": "A model chooses what is recalled.", "advanced": True},
}


def manifest() -> dict[str, Any]:
    """Return the manifest of the plugin that holds the memory slot."""
    return {
        "id": PLUGIN_ID,
        "name": "memrelay",
        "version": __version__,
        "description": "Private long-term memory: recalled before a turn, captured after it, kept encrypted by a relayer.",
        "kind": "memory",
        "categories": ["memory"],
        "activation": {"onStartup": True},
        "contracts": {"tools": list(TOOL_NAMES)},
        "toolMetadata": {
            name: {"replaySafe": True} if name in READING else {"sideEffecting": True} for name in TOOL_NAMES
        },
        "skills": ["./skills"],
        **_common("memrelay", ("memory", "active-memory")),
    }


def sidecar_manifest() -> dict[str, Any]:
    """Return the manifest of the side-car: hooks and commands, without the memory slot and without tools (AR-24)."""
    return {
        "id": SIDECAR_ID,
        "name": "memrelay side-car",
        "version": __version__,
        "description": "memrelay's recall and capture beside whichever plugin holds the memory slot.",
        "activation": {"onStartup": True},
        **_common("memrelay", ("memory", "active-memory")),
    }


def config_schema() -> _Schema:
    """Return the JSON Schema of the configuration: every spelling that `settings` accepts."""
    tree = PluginSettings.model_json_schema(by_alias=True)
    definitions = tree.pop("$defs")
    properties = {
        name: _resolved(schema, definitions)
        for name, schema in tree["properties"].items()
        if name != "disabled"
    }
    active = ActiveSettings.model_json_schema(by_alias=True)
    for name, schema in active["properties"].items():
        properties.setdefault(name, _resolved(schema, active.get("$defs", {})))
    for name, path in ALIASES.items():
        properties[name] = {} if name in _ANYTHING else _at(properties, path)
    for name in _SECRETS:
        properties[name] = {"anyOf": [{"type": "string"}, {"type": "object"}]}
    properties["preset"] = {"type": "string", "enum": sorted(PRESETS)}
    properties["timeoutMs"] = {"type": "integer", "minimum": 50, "maximum": 120_000}
    # "direct" and "active" are ours, the others active-memory's.
    properties["mode"] = {"type": "string", "enum": ["direct", "active", "escalate", "always", "off"]}
    properties["command"] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def tool_file() -> dict[str, Any]:
    """Return what the JavaScript registers: the tools as the model sees them, and the section of the system prompt."""
    return {"tools": tool_definitions(), "prompt": list(PROMPT_SECTION)}


def _common(command: str, slash: tuple[str, ...]) -> dict[str, Any]:
    return {
        "cliCommands": [
            {
                "name": command,
                "description": "Search, list and look after long-term memories.",
                "hasSubcommands": True,
            }
        ],
        "commandAliases": [{"name": name, "kind": "runtime-slash"} for name in slash],
        "uiHints": _HINTS,
        "configContracts": {
            # Named as the owner, the setting alone is without its value where a reference leads nowhere; the gateway starts.
            "secretInputs": {
                "paths": [
                    {"path": name, "expected": "string", "ownerKind": "capability"} for name in _SECRETS
                ]
            }
        },
        "configSchema": config_schema(),
    }


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Schema:
    """Return a schema without references, titles and defaults: defaults are the plugin's business, not the host's."""
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    plain: _Schema = {}
    for key, value in schema.items():
        if key == "properties":
            plain[key] = {name: _resolved(inner, definitions) for name, inner in value.items()}
        elif isinstance(value, Mapping):
            plain[key] = _resolved(value, definitions)
        elif key == "anyOf":
            plain[key] = [_resolved(inner, definitions) for inner in value]
        elif key not in _LEFT_OUT:
            plain[key] = value
    return plain


def _at(properties: Mapping[str, Any], path: tuple[str, ...]) -> _Schema:
    schema: Mapping[str, Any] = {"properties": properties}
    for part in path:
        schema = schema["properties"][alias_generators.to_camel(part)]
    return dict(schema)


def main() -> None:
    """Write the shipped files."""
    for name, content in (("openclaw.plugin.json", manifest()), ("tools.json", tool_file())):
        (FOLDER / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()


_CODE: Final = (
    *("index.js", "bridge.js", "kept.js", "log.js", "runs.js"),
    *("tools.json", "package.json", "openclaw.plugin.json"),
)
_SKILLS: Final = ("skills/memory-recall/SKILL.md",)


def plugin_folder() -> Path:
    """Return the folder that ``openclaw plugins install --link`` takes."""
    return FOLDER


def package_files(*, sidecar: bool = False) -> dict[str, bytes]:
    """Return the package's files by their names: the plugin's, or those of its side-car."""
    files = {name: (FOLDER / name).read_bytes() for name in (*_CODE, *(() if sidecar else _SKILLS))}
    if sidecar:
        package = json.loads(files["package.json"]) | {"name": "memrelay-openclaw-sidecar"}
        files["package.json"] = _json(package)
        files["openclaw.plugin.json"] = _json(sidecar_manifest())
    return files


def write_package(folder: Path, *, sidecar: bool = False) -> Path:
    """Write the package and return its file; the same version gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(package_files(sidecar=sidecar).items()):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    file = folder / f"{SIDECAR_ID if sidecar else PLUGIN_ID}-{__version__}.tgz"
    file.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return file


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
