"""What OpenClaw's own configuration says about the plugin: where it lies, and the parts of it that memory depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID, SIDECAR_ID
from gateway_plugin.session_keys import DEFAULT_AGENT

__all__ = ["HostConfig", "config_path", "read_config", "state_folder"]

Json = Mapping[str, Any]

_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The host's configuration, read and never written.

    Attributes:
        path: the file.
        whole: what it holds; secrets may be among it.
    """

    path: Path
    whole: Json = field(repr=False)

    @property
    def plugins(self) -> Json:
        """The part about plugins."""
        return _object(self.whole.get("plugins"))

    @property
    def plugin_id(self) -> str:
        """Which of the two is set up: the side-car where it alone has an entry."""
        entries = _object(self.plugins.get("entries"))
        return SIDECAR_ID if SIDECAR_ID in entries and PLUGIN_ID not in entries else PLUGIN_ID

    def entry(self, name: str) -> Json:
        """Return the entry of a plugin; empty where it has none."""
        return _object(_object(self.plugins.get("entries")).get(name))

    @property
    def settings(self) -> Json:
        """The plugin's own settings."""
        return _object(self.entry(self.plugin_id).get("config"))

    @property
    def slot(self) -> str:
        """Who holds the memory slot; the host's own memory where nobody is named."""
        slots = _object(self.plugins.get("slots"))
        return str(slots.get("memory.recall") or slots.get("memory") or "memory-core")

    def loads(self, name: str) -> str:
        """Return why a plugin is not loaded, or "" when nothing in the configuration keeps it away."""
        allow, deny = self.plugins.get("allow"), self.plugins.get("deny")
        if self.plugins.get("enabled") is False:
            return "plugins.enabled is false"
        if isinstance(deny, list) and name in deny:
            return "plugins.deny names it"
        if isinstance(allow, list) and allow and name not in allow:
            return "plugins.allow does not name it"
        return f"plugins.entries.{name}.enabled is false" if self.entry(name).get("enabled") is False else ""

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents, the default one where none is named."""
        entries = _object(_object(self.whole.get("agents")).get("entries"))
        return tuple(str(name) for name in entries) or (DEFAULT_AGENT,)

    def tool_lists(self) -> tuple[tuple[str, Json], ...]:
        """Return every place that allows or denies tools, with its name."""
        places = [("tools", _object(self.whole.get("tools")))]
        entries = _object(_object(self.whole.get("agents")).get("entries"))
        places += [
            (f"agents.entries.{name}.tools", _object(_object(agent).get("tools")))
            for name, agent in entries.items()
        ]
        return tuple(place for place in places if place[1])


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the host's state directory."""
    if environ.get("OPENCLAW_STATE_DIR"):
        return Path(environ["OPENCLAW_STATE_DIR"]).expanduser()
    home = environ.get("OPENCLAW_HOME") or environ.get("HOME") or "~"
    return Path(home).expanduser() / ".openclaw"


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the file of the host's configuration."""
    named = environ.get("OPENCLAW_CONFIG_PATH")
    return Path(named).expanduser() if named else state_folder(environ) / "openclaw.json"


def read_config(environ: Mapping[str, str]) -> HostConfig:
    """Read the host's configuration; comments and commas at the end, which the host allows, are passed over.

    Raises:
        SettingsError: there is none, or it cannot be read.
    """
    path = config_path(environ)
    try:
        text = path.read_text("utf-8")
        whole = json.loads(_TRAILING_COMMA.sub(r"\1", _COMMENT.sub(r"\1", text)))
    except FileNotFoundError:
        fix = "run openclaw onboard, or set OPENCLAW_CONFIG_PATH as the gateway has it"
        raise SettingsError(SettingsIssue(str(path), "there is no such file", fix)) from None
    except (OSError, ValueError) as error:
        raise SettingsError(
            SettingsIssue(str(path), "cannot be read as JSON", "run openclaw config validate")
        ) from error
    return HostConfig(path, _object(whole))


def _object(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
