"""The plugin's manifest, generated from the settings, so that the host checks and shows exactly what the plugin accepts.

``python -m gateway_plugin.hosts.openclaw.manifest`` writes it, and a test compares the shipped file with it. `write_package`
builds the package that the host installs.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Le
from pydantic import BaseModel, alias_generators
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway_plugin import __version__
from gateway_plugin.hosting import INTENT_TOOL, READING, TOOL_NAMES
from gateway_plugin.hosts.openclaw.tools import PROMPT_SECTION, tool_definitions
from gateway_plugin.settings.crosswalk import ALIASES, DRAFTS, PRESETS, RANGES, WITHOUT_EFFECT
from gateway_plugin.settings.model import UNSETTABLE, ActiveSettings, PluginSettings

PLUGIN_ID: Final = "memrelay"
SIDECAR_ID: Final = "memrelay-sidecar"
FOLDER: Final = Path(__file__).parent
"""The folder for ``openclaw plugins install --link``."""

_Schema = dict[str, Any]
# Keys whose values are parsed leniently, like in the plugin that they come from (CP-16).
_ANYTHING: Final = {
    "autoRecall",
    "autoCapture",
    "autoRecallMaxResults",
    "autoRecallMinPromptLength",
    "autoCaptureMaxMessages",
}
SECRET_KEYS: Final = ("key", "privateKey")
"""The accepted names of the gateway's secret. Its value may be a reference, which is an object."""
_SLASH: Final = ("memory", "active-memory", "remember", "forget")
_LEFT_OUT: Final = {"title", "default", "description", "format", "writeOnly"}

_PLACEHOLDERS: Final = {
    "url": "http://127.0.0.1:8787",
    "key": "${MEMRELAY_SECRET}",
    "privateKey": "${MEMRELAY_SECRET}",
    "command": "memrelay-gateway",
}
_OWN_HINTS: Final = {
    "dreaming": (
        "Dreaming of memory-core",
        "enabled: false keeps memory-core out while this plugin is in the memory slot; true loads it, too, with its dreaming and its intent tool",
    ),
    "command": (
        "Bridge command",
        "The program memrelay-gateway: a path, or a list with its first arguments.",
    ),
    "preset": ("Preset", "Behave as an earlier plugin did, in what is not set otherwise."),
    "timeoutMs": (
        "Time-out",
        "active-memory's name of active.timeoutMs; in direct mode of recall.deadlineMs.",
    ),
    "mode": ("Mode", "direct or active as recall.mode; escalate, always and off as active.mode."),
    DRAFTS[0]: ("Draft penalty", "auto-recall's name of the penalty of drafts in recall.sourcePenalties."),
    DRAFTS[1]: ("Draft patterns", "auto-recall's name of what is a draft in recall.sourcePenalties."),
}
_ORDINARY: Final = ("url", "key", "autoRecall", "autoCapture")
"""The settings that a person sets first; all others are shown as advanced."""


def manifest() -> dict[str, Any]:
    """Return the manifest of the plugin that uses the memory slot."""
    common = _common((*_SLASH, "dreaming"))
    # The host's ``memory`` command belongs to the plugin in the memory slot.
    about = "Search, inspect and index an agent's memory and its files."
    common["cliCommands"].append({"name": "memory", "description": about, "hasSubcommands": True})
    return {
        "id": PLUGIN_ID,
        "name": "memrelay",
        "version": __version__,
        "description": "Private long-term memory: recalled before a turn, captured after it, kept encrypted by a relayer.",
        "kind": "memory",
        "categories": ["memory"],
        "activation": {"onStartup": True},
        "contracts": {"tools": [*TOOL_NAMES, INTENT_TOOL]},
        "toolMetadata": {
            name: {"replaySafe": True} if name in READING else {"sideEffecting": True}
            for name in (*TOOL_NAMES, INTENT_TOOL)
        },
        "skills": ["./skills"],
        **common,
    }


def sidecar_manifest() -> dict[str, Any]:
    """Return the manifest of the side-car: hooks and commands, without the memory slot and without tools (AR-24)."""
    return {
        "id": SIDECAR_ID,
        "name": "memrelay side-car",
        "version": __version__,
        "description": "memrelay's recall and capture, next to the plugin that holds the memory slot.",
        "activation": {"onStartup": True},
        **_common(_SLASH),
    }


def config_schema() -> _Schema:
    """Return the JSON Schema of the configuration, with every spelling that `settings` accepts."""
    tree = PluginSettings.model_json_schema(by_alias=True)
    definitions = tree.pop("$defs")
    properties = {
        name: _resolved(schema, definitions)
        for name, schema in tree["properties"].items()
        if name not in UNSETTABLE
    }
    active = ActiveSettings.model_json_schema(by_alias=True)
    for name, schema in active["properties"].items():
        properties.setdefault(name, _resolved(schema, active.get("$defs", {})))
    for name, path in ALIASES.items():
        properties[name] = {} if name in _ANYTHING else _at(properties, path)
    for name in SECRET_KEYS:
        properties[name] = {"anyOf": [{"type": "string"}, {"type": "object"}]}
    for name, (least, most) in RANGES.items():
        properties[name] |= {"minimum": least, "maximum": most}
    # The host should not validate settings without effect, or those that only we read.
    properties |= {name: {} for name in (*WITHOUT_EFFECT, *DRAFTS)}
    properties["preset"] = {"type": "string", "enum": sorted(PRESETS)}
    properties["timeoutMs"] = {"type": "integer", "minimum": 50, "maximum": 120_000}
    # "direct" and "active" are our names, the others active-memory's.
    properties["mode"] = {"type": "string", "enum": ["direct", "active", "escalate", "always", "off"]}
    properties["dreaming"] = {"type": "object"}
    properties["command"] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def hints() -> dict[str, dict[str, object]]:
    """Return the label, help and secrecy that the host shows for each setting, by its dotted name."""
    fields = _fields(PluginSettings)
    told = {name: _hint(name, info) for name, info in fields.items()}
    for name in ActiveSettings.model_fields:
        flat = alias_generators.to_camel(name)
        told.setdefault(flat, _renamed_hint(flat, f"active.{flat}", told))
    for alias, path in ALIASES.items():
        meant = ".".join(alias_generators.to_camel(part) for part in path)
        told[alias] = _renamed_hint(alias, meant, told)
    for name, reason in WITHOUT_EFFECT.items():
        told[name] = _shown(name, _label(name), f"accepted, without effect: {reason}", sensitive=False)
    for name, (label, said) in _OWN_HINTS.items():
        told[name] = _shown(name, label, said, sensitive=False)
    return told


def _fields(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for name, info in model.model_fields.items():
        if name in UNSETTABLE:
            continue
        dotted = f"{prefix}{alias_generators.to_camel(name)}"
        found[dotted] = info
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found |= _fields(info.annotation, f"{dotted}.")
    return found


def _hint(name: str, info: FieldInfo) -> dict[str, object]:
    bounds = {type(bound): bound for bound in info.metadata}
    least, most = bounds.get(Ge), bounds.get(Le)
    within = f" ({least.ge} to {most.le})" if isinstance(least, Ge) and isinstance(most, Le) else ""
    said = f"{info.description}{within}"
    unsaid = info.default in (None, "", (), PydanticUndefined) or isinstance(info.default, BaseModel)
    if not unsaid and "left out" not in said:
        said += f"; by default {json.dumps(info.default)}"
    return _shown(
        name,
        info.title or _label(name.rpartition(".")[2]),
        said,
        sensitive="SecretStr" in repr(info.annotation),
    )


def _renamed_hint(name: str, meant: str, told: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    of = told[meant]
    said = f"an earlier plugin's name of {meant}. {of['help']}"
    return _shown(name, str(of["label"]), said, sensitive=of.get("sensitive") is True)


def _shown(name: str, label: str, said: str, *, sensitive: bool) -> dict[str, object]:
    hint: dict[str, object] = {"label": label, "help": f"{said[:1].upper()}{said[1:].removesuffix('.')}."}
    if sensitive:
        hint["sensitive"] = True
    if name in _PLACEHOLDERS:
        hint["placeholder"] = _PLACEHOLDERS[name]
    return hint if name in _ORDINARY else hint | {"advanced": True}


def _label(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).lower()
    return words[:1].upper() + words[1:]


def tool_file() -> dict[str, Any]:
    """Return the data that the JavaScript registers: the tools as the model sees them, and a section of the system prompt."""
    return {"tools": tool_definitions(), "prompt": list(PROMPT_SECTION)}


def _common(slash: tuple[str, ...]) -> dict[str, Any]:
    about = "Search, list and look after long-term memories."
    return {
        "cliCommands": [{"name": "memrelay", "description": about, "hasSubcommands": True}],
        "commandAliases": [{"name": name, "kind": "runtime-slash"} for name in slash],
        "uiHints": hints(),
        "configContracts": {
            # With this owner, a reference that cannot be resolved only leaves the setting empty, and the gateway starts.
            "secretInputs": {
                "paths": [
                    {"path": name, "expected": "string", "ownerKind": "capability"} for name in SECRET_KEYS
                ]
            }
        },
        "configSchema": config_schema(),
    }


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Schema:
    """Return a schema without references, titles and defaults. The host must not fill in defaults; the plugin does."""
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


# Every script of the folder, because a package without one that another imports does not load.
_CODE: Final = (
    *sorted(file.name for file in FOLDER.glob("*.js")),
    *("tools.json", "package.json", "openclaw.plugin.json"),
)
PACKED: Final = "memrelay"
"""The part of ``package.json`` that describes the machine that built the package; ``command`` is its bridge program."""
_SKILLS: Final = ("skills/memory-recall/SKILL.md",)


def package_files(*, sidecar: bool = False, command: str | None = None) -> dict[str, bytes]:
    """Return the contents of the package's files by name."""
    files = {name: (FOLDER / name).read_bytes() for name in (*_CODE, *(() if sidecar else _SKILLS))}
    package = json.loads(files["package.json"])
    if command is not None:
        files["package.json"] = rendered(package := package | {PACKED: {"command": command}})
    if sidecar:
        files["package.json"] = rendered(package | {"name": "memrelay-openclaw-sidecar"})
        files["openclaw.plugin.json"] = rendered(sidecar_manifest())
    return files


def write_package(folder: Path, *, sidecar: bool = False, command: str | None = None) -> Path:
    """Write the plugin's npm package (``.tgz``) and return its path.

    The same version and the same arguments give the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(package_files(sidecar=sidecar, command=command).items()):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    file = folder / f"{SIDECAR_ID if sidecar else PLUGIN_ID}-{__version__}.tgz"
    file.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return file


def rendered(value: object) -> bytes:
    """Return a value as the JSON of a file that people read, too."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def main() -> None:
    """Write the generated files of the package."""
    for name, content in (("openclaw.plugin.json", manifest()), ("tools.json", tool_file())):
        (FOLDER / name).write_bytes(rendered(content))


if __name__ == "__main__":
    main()
