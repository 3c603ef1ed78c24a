"""Read the host's configuration file, resolve the plugin's settings in it, and propose or write changes to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import json5

from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.hosting import DEFAULT_AGENT, create_private, parse_json, platform_id, replace_private
from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID, SECRET_KEYS, SIDECAR_ID, rendered
from gateway_plugin.hosts.openclaw.turns import Json, as_object
from gateway_plugin.settings.crosswalk import merged_into
from gateway_plugin.settings.model import (
    DEFAULT_NAMESPACE_VARIABLE,
    MAX_OWNERS,
    PROFILE_VARIABLE,
    FilesSettings,
    PluginSettings,
    RecallMode,
    safe_load,
)

HOST_KEYS: Final = ("command", "dreaming")
"""Keys that are not for the plugin's core. ``command`` is the bridge program: one path, or a list that starts with it.

``dreaming`` is read by the host: it loads memory-core next to the plugin in the memory slot unless that plugin's
``dreaming.enabled`` is false.
"""
CORE: Final = "memory-core"
"""The id of the host's own memory plugin."""
NO_DREAMING: Final[Mapping[str, Any]] = {"dreaming": {"enabled": False}}
"""The setting that keeps memory-core out while this plugin is in the memory slot, and no longer."""


_PROFILE: Final = "namespace.profile"


def core_config(config: object, environ: Mapping[str, str]) -> object:
    """Return a configuration without the adapter's own keys, for the plugin's core. If it is no object, return it as it is.

    The host's profile is added, unless the configuration names one: OpenClaw keeps profiles apart, so memories are, too.
    The host resolves references to secrets for its gateway, but not for its own commands, which search memory as well. So a
    reference to an environment variable that is set is resolved here.
    """
    if not isinstance(config, Mapping):
        return config
    core = {key: value for key, value in config.items() if key not in HOST_KEYS}
    for key in SECRET_KEYS:
        reference = as_object(core.get(key))
        if reference.get("source") == "env":
            name = str(reference.get("id", ""))
            # If the variable is not set, write it as one, so that the error message of the settings names it.
            core[key] = environ.get(name) or f"${{{name}}}"
    is_named = _PROFILE in config or "profile" in as_object(config.get("namespace"))
    profile = "" if is_named or environ.get(PROFILE_VARIABLE) else _profile(environ)
    return {_PROFILE: profile, **core} if profile else core


VARIABLE: Final = re.compile(r"(?<!\$)\$\{([A-Z_][A-Z0-9_]*)\}")
"""Matches an environment variable in a value of the configuration, as the host writes it."""


class AgentsAsked(StrEnum):
    """The agents whose models the host lets the plugin ask."""

    DEFAULT = "the default agent's"
    EACH_IN_ACTIVE_MODE = "the default agent's, in active mode each agent's own,"
    EACH = "each agent's own"


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The host's configuration as it was read.

    Attributes:
        whole: its content, which may include secrets.
        version: the host's version, as its plugin told it; "" if that is not known.
    """

    path: Path
    whole: Json = field(repr=False)
    version: str = ""

    @property
    def plugins(self) -> Json:
        """Return the part about plugins."""
        return as_object(self.whole.get("plugins"))

    @property
    def plugin_id(self) -> str:
        """Return the id of the plugin that is set up: the side-car if only that has an entry, else the main plugin."""
        entries = as_object(self.plugins.get("entries"))
        return SIDECAR_ID if SIDECAR_ID in entries and PLUGIN_ID not in entries else PLUGIN_ID

    def entry(self, name: str) -> Json:
        """Return the entry of a plugin, or an empty object if it has none."""
        return as_object(as_object(self.plugins.get("entries")).get(name))

    @property
    def variables(self) -> Json:
        """Return the environment variables that the host sets itself."""
        env = as_object(self.whole.get("env"))
        return {
            **{name: value for name, value in env.items() if isinstance(value, str)},
            **as_object(env.get("vars")),
        }

    @property
    def settings(self) -> Json:
        """Return the plugin's own settings."""
        return as_object(self.entry(self.plugin_id).get("config"))

    @property
    def slot(self) -> str:
        """Return the id of the plugin in the host's memory slot; the id of the host's own if none is set."""
        slots = as_object(self.plugins.get("slots"))
        return str(slots.get("memory.recall") or slots.get("memory") or CORE)

    def loads(self, name: str) -> str:
        """Return the reason why a plugin is not loaded, or "" if the configuration does not prevent it."""
        allow, deny = self.plugins.get("allow"), self.plugins.get("deny")
        if self.plugins.get("enabled") is False:
            return "plugins.enabled is false"
        if isinstance(deny, list) and name in deny:
            return "plugins.deny names it"
        if isinstance(allow, list) and allow and name not in allow:
            return "plugins.allow does not name it"
        # With its dreaming, the host's own memory plugin is loaded next to the one in the memory slot.
        dreaming = as_object(as_object(self.entry(self.slot).get("config")).get("dreaming"))
        if name == CORE and self.slot != CORE and dreaming.get("enabled") is False:
            return "another plugin is in the memory slot"
        return f"plugins.entries.{name}.enabled is false" if self.entry(name).get("enabled") is False else ""

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the ids of the agents, or of the default one if none is named."""
        return tuple(self._agents()) or (DEFAULT_AGENT,)

    def workspace(self, agent: str, environ: Mapping[str, str]) -> Path:
        """Return an agent's workspace by the rules of the host."""
        own = as_object(self._agents().get(agent)).get("workspace")
        shared = self._defaults.get("workspace")
        if isinstance(own, str) and own.strip():
            return _expanded(own, environ)
        # The default agent uses the shared folder itself; other agents use folders inside it.
        is_owner = agent == DEFAULT_AGENT or len(self.agents) == 1
        if isinstance(shared, str) and shared.strip():
            return _expanded(shared, environ) / ("" if is_owner else agent)
        return (
            _profile_folder(environ) / "workspace"
            if is_owner
            else state_folder(environ) / f"workspace-{agent}"
        )

    def searches(self, agent: str) -> list[Json]:
        """Return the settings of an agent's memory search, its own ones last.

        Both the current form is read and that of hosts before 2026.9.
        """
        parts = (self.whole, self._defaults, as_object(self._agents().get(agent)))
        both = [(one.get("memorySearch"), as_object(one.get("memory")).get("search")) for one in parts]
        return [as_object(one) for pair in both for one in pair if as_object(one)]

    @property
    def search_floor(self) -> float | None:
        """Return the minimum score of the host's memory search for its default agent; None if none is set."""
        found = [as_object(search.get("query")).get("minScore") for search in self.searches(self.agents[0])]
        floors = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
        return float(floors[-1]) if floors and 0 <= floors[-1] <= 1 else None

    def remembers_sessions(self, agent: str) -> bool:
        """Return whether the host's memory search covers an agent's sessions, as the host decides it.

        They are searched if ``sources`` names them, or if conversations are remembered across sessions. That is the default
        unless direct chats are kept apart by person.
        """
        if self.searches_sessions(agent):
            return True
        named = [search.get("rememberAcrossConversations") for search in self.searches(agent)]
        said = [one for one in named if isinstance(one, bool)]
        return said[-1] if said else not self.keeps_people_apart

    def searches_sessions(self, agent: str) -> bool:
        """Return whether ``sources`` of the host's memory search names an agent's sessions."""
        return any("sessions" in _array(search.get("sources")) for search in self.searches(agent))

    def extra_paths(self, agent: str) -> list[object]:
        """Return the additional files and folders that the host's memory search reads for an agent, see `extra_places`."""
        lists = [search.get(name) for search in self.searches(agent) for name in ("paths", "extraPaths")]
        return [one for listed in lists for one in _array(listed)]

    def prompt_limits(self, agent: str) -> tuple[bool, int, int]:
        """Return whether an agent's own files are in each system prompt, and how many characters of one and of all of them."""
        both = {**self._defaults, **as_object(self._agents().get(agent))}
        one, total = both.get("bootstrapMaxChars"), both.get("bootstrapTotalMaxChars")
        always = both.get("contextInjection", "always") == "always"
        return always, one if isinstance(one, int) else 20_000, total if isinstance(total, int) else 60_000

    def active_needs(self, settings: PluginSettings) -> str:
        """Return what active mode still needs to ask the model that it should; "" if nothing, or active mode is off."""
        active, policy = settings.active, as_object(self.entry(self.plugin_id).get("llm"))
        if settings.recall.mode != RecallMode.ACTIVE or active.mode == "off":
            return ""
        if not settings.host_model.enabled:
            return (
                "active mode has a model only where the relayer has one; to let it ask OpenClaw's: "
                "memrelay-gateway init --host openclaw --write --host-model"
            )
        setting = f"openclaw config set plugins.entries.{self.plugin_id}.llm"
        if active.model and policy.get("allowModelOverride") is not True:
            return f"OpenClaw does not let active mode ask {active.model}: {setting}.allowModelOverride true, or leave active.model out"
        others = sorted({*active.agents} & {*self.agents} - {self._asked_agent})
        if others and not active.model and self.agents_asked(policy) == AgentsAsked.DEFAULT:
            told = f"active mode of {', '.join(others)} asks the model of {self._asked_agent}"
            return f"{told}; for each agent's own: {setting}.allowAgentIdOverride true"
        return ""

    def agents_asked(self, policy: Json) -> AgentsAsked:
        """Return whose models the plugin may ask, by its entry's ``llm`` settings and the host's version."""
        if policy.get("allowAgentIdOverride") is True:
            return AgentsAsked.EACH
        decided = (
            policy.get("allowAgentIdOverride") is not None
            or policy.get("allowedCompletionModels") is not None
        )
        numbers = tuple(map(int, re.findall(r"\d+", self.version)[:3]))
        # Since 2026.9.2 a plugin can ask the model of an agent that it names (`api.runtime.subagent.complete`).
        older = bool(self.version) and numbers < (2026, 9, 2)
        return AgentsAsked.DEFAULT if decided or older else AgentsAsked.EACH_IN_ACTIVE_MODE

    @property
    def _asked_agent(self) -> str:
        named = as_object(self._defaults.get("systemAgent")).get("agentId")
        return named if isinstance(named, str) and named else self.agents[0]

    @property
    def _defaults(self) -> Json:
        return as_object(as_object(self.whole.get("agents")).get("defaults"))

    def _agents(self) -> Json:
        """Return the entries of the agents by name; hosts before 2026.9 list them instead."""
        agents = as_object(self.whole.get("agents"))
        listed = {str(one.get("id")): one for one in _array(agents.get("list")) if isinstance(one, Mapping)}
        return as_object(agents.get("entries")) or listed

    @property
    def keeps_people_apart(self) -> bool:
        """Return whether each person's direct chat is a session of its own, instead of one session for all."""
        return str(as_object(self.whole.get("session")).get("dmScope") or "main") != "main"

    @property
    def senders(self) -> dict[str, tuple[str, ...]]:
        """Return the senders that may write to the agents in direct chats, by channel; ``*`` means everyone."""
        channels = as_object(self.whole.get("channels"))
        listed = {name: _array(as_object(channel).get("allowFrom")) for name, channel in channels.items()}
        return {str(name): tuple(map(str, allowed)) for name, allowed in listed.items() if allowed}

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the owner's ids: those that the host names, the only sender of a channel, and ids that identity links add."""
        named = map(str, _array(as_object(self.whole.get("commands")).get("ownerAllowFrom")))
        alone = (f"{channel}:{only[0]}" for channel, only in self.senders.items() if len(only) == 1)
        owners = {
            platform_id(platform, name)
            for platform, _, name in (one.partition(":") for one in (*named, *alone))
            if platform and name and name != "*"
        }
        for person, linked in as_object(as_object(self.whole.get("session")).get("identityLinks")).items():
            ids = {platform_id(*one.split(":", 1)) for one in map(str, _array(linked)) if ":" in one}
            owners |= ids | {platform_id("peer", str(person))} if ids & owners else set()
        return tuple(sorted(owners))

    def tool_lists(self) -> tuple[tuple[str, Json], ...]:
        """Return all settings that allow or deny tools, with their names."""
        places = [("tools", as_object(self.whole.get("tools")))]
        places += [
            (f"agents.entries.{name}.tools", as_object(as_object(agent).get("tools")))
            for name, agent in self._agents().items()
        ]
        return tuple(place for place in places if place[1])


def kept_turns(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return how many captured turns the host's plugin keeps because no outbox took them, and the folders; see `kept.js`."""
    folders = [state_folder(environ) / name / "kept-turns" for name in (PLUGIN_ID, SIDECAR_ID)]
    counts = {str(folder): sum(1 for _ in folder.glob("*.turn")) for folder in folders}
    return sum(counts.values()), " and ".join(folder for folder, count in counts.items() if count)


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the host's state directory."""
    if environ.get("OPENCLAW_STATE_DIR"):
        return Path(environ["OPENCLAW_STATE_DIR"]).expanduser()
    return _profile_folder(environ)


def _profile_folder(environ: Mapping[str, str]) -> Path:
    home = environ.get("OPENCLAW_HOME") or environ.get("HOME") or "~"
    profile = _profile(environ)
    return Path(home).expanduser() / (f".openclaw-{profile}" if profile else ".openclaw")


def _profile(environ: Mapping[str, str]) -> str:
    profile = environ.get("OPENCLAW_PROFILE", "").strip()
    return "" if profile.lower() == "default" else profile


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the host's configuration file."""
    named = environ.get("OPENCLAW_CONFIG_PATH")
    return Path(named).expanduser() if named else state_folder(environ) / "openclaw.json"


def read_config(environ: Mapping[str, str]) -> HostConfig:
    """Read the host's configuration, which is JSON5. Raises `SettingsError`: there is no such file, or it cannot be read."""
    path = config_path(environ)
    try:
        whole = parse_config(path.read_text("utf-8"))
    except FileNotFoundError:
        fix = "run openclaw onboard, or set OPENCLAW_CONFIG_PATH as the gateway has it"
        raise SettingsError(SettingsIssue(str(path), "there is no such file", fix)) from None
    except (OSError, ValueError) as error:
        raise SettingsError(
            SettingsIssue(str(path), "cannot be read as JSON5", "run openclaw config validate")
        ) from error
    return HostConfig(path, whole, environ.get(VERSION_VARIABLE, ""))


def with_host_settings(settings: PluginSettings, environ: Mapping[str, str]) -> PluginSettings:
    """Return settings extended by what the host's configuration says: the owner's ids, and the floor of its memory search.

    They are unchanged if there is no configuration. A floor of the plugin's own settings takes precedence.
    """
    try:
        config = read_config(environ)
    except SettingsError:
        return settings
    owners = tuple(dict.fromkeys((*settings.owners, *config.owners)))[:MAX_OWNERS]
    recall, floor = settings.recall, config.search_floor
    if floor is not None and "min_score" not in recall.model_fields_set:
        recall = recall.model_copy(update={"min_score": floor})
    return settings.model_copy(update={"owners": owners, "recall": recall})


def parse_config(text: str) -> Json:
    """Parse JSON5. Raises `ValueError`: the text is no JSON5, or no object."""
    try:
        value = parse_json(text)
    except ValueError:
        # JSON5 takes ten times as long to parse, so plain JSON is tried first.
        try:
            value = json5.loads(text)
        except RecursionError:
            raise ValueError("its JSON5 is nested too deeply") from None
    if isinstance(value, Mapping):
        return value
    raise ValueError("it holds no object")


def _array(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def extra_places(
    workspace: Path, extra: Iterable[object], environ: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    """Yield the path and name pattern of each additional place of an agent's files; the pattern "" matches all names."""
    for entry in extra:
        path, pattern = (
            (entry.get("path"), entry.get("pattern")) if isinstance(entry, Mapping) else (entry, "")
        )
        if isinstance(path, str) and path.strip():
            yield workspace / _expanded(path, environ), str(pattern or "").replace("\\", "/")


def _expanded(path: str, environ: Mapping[str, str]) -> Path:
    """Expand variables and ``~``, which is the host's home directory and not necessarily this user's."""
    told = VARIABLE.sub(lambda match: environ.get(match[1]) or match[0], path.strip())
    home = environ.get("OPENCLAW_HOME") or environ.get("HOME")
    return (
        Path(home + told[1:]) if home and (told == "~" or told.startswith("~/")) else Path(told).expanduser()
    )


CONSENT: Final = (
    "Recall and capture read the conversation: the messages before a turn, and the turn when it has ended. OpenClaw asks "
    "the operator to allow that, with hooks.allowConversationAccess. Without it memory works through its tools alone."
)


MODEL_CONSENT: Final = (
    "OpenClaw's own model can make facts and summaries of captured turns, and reminders in active mode, where the relayer has "
    "no model. That is one question of some 1,000 tokens and the turn for each turn that leaves a memory: 44 questions and "
    "30,000 tokens for 62 turns as measured, at most 60 questions an hour (hostModel.callsPerHour). Without it turns are kept "
    "as they were said."
)


def settings_block(
    *, url: str | None, command: str, consent: bool, sidecar: bool = False, model: bool = False
) -> dict[str, Any]:
    """Return the ``plugins`` part of the host's configuration."""
    config: dict[str, Any] = {"command": command} if url is None else {"url": url, "command": command}
    if model:
        config["hostModel"] = {"enabled": True}
    entry: dict[str, Any] = {"enabled": True, "config": config}
    if consent:
        entry["hooks"] = {"allowConversationAccess": True}
    if sidecar:
        return {"plugins": {"entries": {SIDECAR_ID: entry}}}
    # The host's own memory plugin would register tools with the same names. Its entry is left as it is, so that it is back
    # when this plugin is uninstalled.
    config.update(NO_DREAMING)
    return {"plugins": {"slots": {"memory": PLUGIN_ID}, "entries": {PLUGIN_ID: entry}}}


def settings_steps(block: dict[str, Any], source: str) -> str:
    """Return instructions for a person, in order, that include the block."""
    name = SIDECAR_ID if SIDECAR_ID in block["plugins"]["entries"] else PLUGIN_ID
    return "\n".join(
        (
            "1. Install the plugin (--force says that you reviewed a local source):",
            f"   openclaw plugins install {source} --force --accept-capabilities",
            "2. Merge this into openclaw.json:",
            json.dumps(block, indent=2),
            "3. Check and restart:",
            "   openclaw config validate && openclaw gateway restart",
            f"4. See that it works: openclaw memrelay status; in a chat: /memory status ({name})",
        )
    )


@dataclass(frozen=True, slots=True)
class WrittenConfig:
    """The result of writing: ``backup`` is a copy of the previous file, None if there was none or nothing had to change."""

    path: Path
    changed: bool
    backup: Path | None = None


def write_block(path: Path, block: Mapping[str, Any], *, now: int) -> WrittenConfig:
    """Merge a block into the host's configuration; all other settings are kept.

    Raises:
        SettingsError: the file is not plain JSON, so that its comments would be lost.
        IdentityError: the file cannot be written.
    """
    place = path.resolve()
    try:
        text = place.read_text("utf-8")
        held = parse_json(text)
    except FileNotFoundError:
        replace_private(place, rendered(block))
        return WrittenConfig(path, changed=True)
    except (OSError, ValueError) as error:
        raise SettingsError(
            SettingsIssue(
                str(path),
                "is no plain JSON, and rewriting it would lose its comments",
                "paste the block yourself: the same command without --write prints it",
            )
        ) from error
    merged = merged_into(held if isinstance(held, dict) else {}, block)
    return WrittenConfig(path, changed=False) if merged == held else _replaced(path, text, merged, now)


def write_whole(config: HostConfig, document: Json, *, now: int) -> WrittenConfig:
    """Replace the configuration that was read by another one. Comments are lost in the file and kept in the backup.

    Raises:
        SettingsError: the file was changed since it was read.
        IdentityError: the file cannot be written.
    """
    if document == config.whole:
        return WrittenConfig(config.path, changed=False)
    text = config.path.resolve().read_text("utf-8")
    if parse_config(text) != config.whole:
        problem = "was changed while this command ran"
        raise SettingsError(SettingsIssue(str(config.path), problem, "run it again"))
    return _replaced(config.path, text, document, now)


def _replaced(path: Path, text: str, document: Json, now: int) -> WrittenConfig:
    place = path.resolve()
    backup = place.with_name(f"{place.name}.before-memrelay-{now}")
    create_private(backup, text.encode())
    replace_private(place, rendered(document))
    return WrittenConfig(path, changed=True, backup=backup)


VERSION_VARIABLE: Final = "MEMRELAY_OPENCLAW_VERSION"
"""The variable in which the host's plugin passes the host's version."""
CONFIG_VARIABLE: Final = "MEMRELAY_OPENCLAW_CONFIG"
"""The variable in which the host's plugin passes its configuration to commands, as JSON."""
HOST_VARIABLE: Final = "MEMRELAY_OPENCLAW_FILES"
"""The variable that passes the plugin's file settings, as JSON, to commands that a person runs through the host."""

_SECRET: Final = "MEMRELAY_SECRET"  # noqa: S105 - the name of a variable


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that make a command use the plugin's settings.

    Raises:
        SettingsError: the secret is a reference that only the gateway resolves. Any other secret would belong to another
            account, so the command must not run with one.
    """
    config = _handed_over(environ)
    settings = _without_secret(config, environ)
    given: dict[str, object]
    if settings is None:
        # Even if another setting is invalid, the command must not use another relayer or profile.
        given = {"MEMRELAY_URL": config.get("url"), "MEMRELAY_AGENT": config.get("agent")}
        given[PROFILE_VARIABLE] = _profile(environ)
    else:
        space = settings.namespace
        given = {
            "MEMRELAY_URL": settings.url if "url" in settings.model_fields_set else None,
            "MEMRELAY_AGENT": settings.agent,
            DEFAULT_NAMESPACE_VARIABLE: space.default if "default" in space.model_fields_set else None,
            PROFILE_VARIABLE: space.profile if "profile" in space.model_fields_set else None,
        }
    key = next((config[name] for name in SECRET_KEYS if config.get(name)), None)
    if isinstance(key, Mapping) and key.get("source") == "env":
        # The host resolves references for its gateway, but not for its commands.
        key = environ.get(str(key.get("id", "")), key)
    elif isinstance(key, str):
        # The file contains variables unresolved; the host resolves them only in commands that it starts.
        key = VARIABLE.sub(lambda name: environ.get(name[1], name[0]), key)
        if VARIABLE.search(key):
            key = {"unset": True}
    given[_SECRET] = key
    found = {name: value for name, value in given.items() if isinstance(value, str) and value.strip()}
    if key and _SECRET not in found and not environ.get(_SECRET):
        problem = "is a reference that only the gateway resolves, or names a variable that is not set here"
        raise SettingsError(SettingsIssue("config.key", problem, f"set {_SECRET} for this command"))
    return found


def plugin_settings(config: HostConfig, environ: Mapping[str, str]) -> PluginSettings:
    """Return the plugin's settings as the gateway has them, without the secret. Raises `SettingsError`."""
    settings = _without_secret(config.settings, environ)
    if settings is None:
        raise SettingsError(
            SettingsIssue(
                "plugins.entries.memrelay.config", "is wrong", "run memrelay-gateway doctor --host openclaw"
            )
        )
    return with_host_settings(settings, environ)


def command_switches(environ: Mapping[str, str]) -> dict[str, bool] | None:
    """Return whether the plugin's settings enable recall and capture, for status output; None if the settings are invalid."""
    settings = _without_secret(_handed_over(environ), environ)
    if settings is None:
        return None
    return {"recall": settings.recall.enabled, "capture": settings.capture.enabled}


def files_variable(environ: Mapping[str, str]) -> str:
    """Return the value of `HOST_VARIABLE` for a command of the host; "" outside a host."""
    if not environ.get(CONFIG_VARIABLE):
        return ""
    settings = safe_load(core_config(_handed_over(environ), environ), environ).settings
    return (FilesSettings() if settings is None else settings.files).model_dump_json()


def host_files(environ: Mapping[str, str]) -> FilesSettings:
    """Return the plugin's file settings. Raises `SettingsError`."""
    try:
        return FilesSettings.model_validate_json(environ.get(HOST_VARIABLE, "{}"))
    except ValueError:
        raise SettingsError(
            SettingsIssue("config.files", "is wrong", "run memrelay-gateway doctor --host openclaw")
        ) from None


def _handed_over(environ: Mapping[str, str]) -> Json:
    """Return the configuration that the host's plugin passed to a command; empty if it passed none."""
    try:
        return as_object(parse_json(environ.get(CONFIG_VARIABLE, "")))
    except ValueError:
        return {}


def _without_secret(config: Json, environ: Mapping[str, str]) -> PluginSettings | None:
    """Return the settings without the secret; None if they are invalid."""
    plain = {name: value for name, value in config.items() if name not in SECRET_KEYS}
    return safe_load(core_config(plain, environ), environ).settings
