"""The checks of ``memrelay-gateway doctor --host openclaw``, which find out why memory does not work in this gateway.

`check_config` reads the host's configuration only, `check_bridge` starts the bridge as the host does, and `check_agents`
writes and recalls a memory as each agent. Every finding is a `Check`, with a fix.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gateway_plugin import __version__
from gateway_plugin.commands.run import agent_identity
from gateway_plugin.errors import IdentityError, SettingsError
from gateway_plugin.hosting import (
    TOOL_NAMES,
    Check,
    Clock,
    Identity,
    KeyHolder,
    Outbox,
    RelayerClient,
    SystemClock,
    canary,
    parse_json,
    told_of_last_turn,
)
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CORE,
    VARIABLE,
    HostConfig,
    command_environment,
    core_config,
    kept_turns,
    read_config,
    state_folder,
)
from gateway_plugin.hosts.openclaw.manifest import FOLDER, PACKED, PLUGIN_ID, SIDECAR_ID
from gateway_plugin.hosts.openclaw.turns import as_object
from gateway_plugin.settings.model import PluginSettings, safe_load

_START_SECONDS: Final = 60.0
_RESTART: Final = "then: openclaw gateway restart"
_RECORDER: Final = "OPENCLAW_TRAJECTORY"
_OFF_WORDS: Final = frozenset({"0", "false", "no", "off"})


class OpenClawExamination:
    """The checks of OpenClaw for ``doctor``, see `gateway_plugin.hosting.HostExamination`."""

    def __init__(self, config: HostConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ

    def environment(self) -> Mapping[str, str]:
        """Return the variables that make commands use the plugin's settings. Raises `SettingsError`."""
        return command_environment({**self._environ, CONFIG_VARIABLE: json.dumps(self._config.settings)})

    def settings(self) -> PluginSettings | None:
        """Return the plugin's settings; None if they are invalid, which the check of the bridge reports."""
        return safe_load(core_config(self._config.settings, self._environ), self._environ).settings

    async def checks(self) -> AsyncIterator[Check]:
        """Check the configuration, the bridge and the turns that the plugin keeps."""
        for check in check_config(self._config, self._environ):
            yield check
        async for check in check_bridge(self._config, self._environ):
            yield check
        yield check_kept_turns(self._environ)

    async def agent_checks(
        self, client: RelayerClient, settings: PluginSettings, outbox: Outbox, holder: KeyHolder
    ) -> AsyncIterator[Check]:
        """Check the namespaces of the host's agents, and write and recall a memory as each of them."""
        agents = {}
        for name in self._config.agents:
            try:
                agents[name] = agent_identity(settings, holder, settings.agent or name)
            except IdentityError as error:
                fix = "call it otherwise in agents.entries, or let this host hold the root secret"
                yield Check(f"openclaw agent {name}", False, str(error), fix)
        yield check_names(agents)
        async for check in check_agents(client, agents, outbox, SystemClock(), holder):
            yield check


def check_config(config: HostConfig, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check the host's configuration; starts no process and sends no request."""
    name = config.plugin_id
    settings = safe_load(core_config(config.settings, environ), environ).settings
    yield _loaded(config, name)
    if name == PLUGIN_ID:
        yield _slot(config)
        yield _one_memory(config)
        yield _tools(config)
    yield _access(config, name)
    yield _people(config, name, settings)
    yield _own_model(config, name, settings)
    yield _variables(config, environ)
    yield _recorder(config, environ)
    yield _installed(config, name, environ)


def other_owners(environ: Mapping[str, str]) -> str:
    """Return a message about other plugins of the host that own our tools, with the fix; "" if there are none (CP-07).

    The bridge prints it at startup, because the host's own message about the conflict names neither its cause nor a fix.
    """
    with contextlib.suppress(SettingsError):
        config = read_config(environ)
        check = _one_memory(config)
        if config.plugin_id == PLUGIN_ID and not check.ok:
            return f"{check.found}; run: {check.fix}"
    return ""


def bridge_program(config: HostConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that the host's plugin runs."""
    named = config.settings.get("command") or environ.get("MEMRELAY_GATEWAY_COMMAND")
    for folder in () if named else _copies(config, config.plugin_id, environ):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            named = named or parse_json((folder / "package.json").read_text("utf-8"))[PACKED]["command"]
    named = named or "memrelay-gateway"
    return tuple(str(part) for part in named) if isinstance(named, list) else (str(named),)


def _people(config: HostConfig, name: str, settings: PluginSettings | None) -> Check:
    """Report whether direct chats are kept apart by person, and whether the owner's id is known."""
    owners = {*config.owners, *(settings.owners if settings else ())}
    several = [channel for channel, allowed in config.senders.items() if len(allowed) > 1 or "*" in allowed]
    set_owners = (
        f"openclaw config set plugins.entries.{name}.config.owners '[\"telegram:YOUR-ID\"]' --strict-json"
    )
    known = f"the owner is {', '.join(sorted(owners))}" if owners else "no id of the owner is known"
    if config.keeps_people_apart:
        found = f"direct chats are kept apart, and so are their memories; {known}"
        return Check("openclaw people", True, found, f"{set_owners}; {_RESTART}", warning=not owners)
    found = f"all direct chats are one (session.dmScope is main), and who writes there is one person to memory; {known}"
    if several:
        found += f"; {', '.join(several)} allows several people"
    fix = f"openclaw config set session.dmScope per-channel-peer, and {set_owners}; {_RESTART}"
    return Check("openclaw people", True, found, fix, warning=bool(several))


async def check_bridge(config: HostConfig, environ: Mapping[str, str]) -> AsyncIterator[Check]:
    """Start the bridge as the host does, with the host's settings, and check its own report."""
    command = bridge_program(config, environ)
    set_command = f"openclaw config set plugins.entries.{config.plugin_id}.config.command"
    fix = (
        f'python3 -m pip install . in a clone of memrelay, and {set_command} "$(command -v memrelay-gateway)"'
    )
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "bridge", "--host", "openclaw",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
        )  # fmt: skip
    except OSError as error:
        yield Check("bridge", False, f"{command[0]} cannot be run ({os.strerror(error.errno or 0)})", fix)
        return
    try:
        async with asyncio.timeout(_START_SECONDS):
            assert process.stdin is not None
            assert process.stdout is not None
            params = {"host": "openclaw", "protocol": [1], "config": dict(config.settings)}
            request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            told: dict[str, Any] = json.loads(await process.stdout.readline())
    except (TimeoutError, ValueError, OSError):
        yield Check("bridge", False, f"{command[0]} does not speak the bridge's protocol", fix)
        return
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    if told.get("error") or told["result"].get("problem"):
        problem = told.get("error", {}).get("message") or told["result"]["problem"]
        yield Check(
            "bridge", False, str(problem), f"mend plugins.entries.{config.plugin_id}.config; {_RESTART}"
        )
        return
    said = f"{command[0]} starts, version {told['result'].get('version')}"
    yield Check(
        "bridge", told["result"].get("version") == __version__, said, f"install {__version__} there, too"
    )


def check_kept_turns(environ: Mapping[str, str]) -> Check:
    """Count the captured turns that the host's plugin keeps because outbox or bridge did not take them."""
    count, where = kept_turns(environ)
    found = (
        f"{count} captured {'turn waits' if count == 1 else 'turns wait'} in {where}"
        if count
        else "none waits"
    )
    fix = "make room on the disk of the outbox, and see that the gateway runs: they are taken from there by themselves"
    return Check("openclaw kept turns", True, found, fix, warning=bool(count))


def check_names(agents: Mapping[str, Identity]) -> Check:
    """Check whether several agents of the host share one namespace because of the settings."""
    shared: dict[str, list[str]] = {}
    for name, identity in agents.items():
        shared.setdefault(identity.namespace, []).append(name)
    meet = [" and ".join(names) for names in shared.values() if len(names) > 1]
    found = f"{'; '.join(meet)} share their memories" if meet else "each agent has memories of its own"
    fix = "leave the setting agent out, and give agents names that differ in more than case"
    return Check("openclaw agent names", True, found, fix, warning=bool(meet))


async def check_agents(
    client: RelayerClient, agents: Mapping[str, Identity], outbox: Outbox, clock: Clock, holder: KeyHolder
) -> AsyncIterator[Check]:
    """Write and recall a memory as each agent of the host, and report the last turn that the gateway recorded for it (MS-31)."""
    for name, identity in agents.items():
        check = await canary(client, identity, clock=clock, holder=holder)
        turn, stopped = told_of_last_turn(outbox, identity)
        fix = check.fix or f"if it should have recalled: memrelay-gateway why --agent {name} shows every gate"
        warned = check.warning or stopped
        yield replace(
            check,
            name=f"openclaw agent {name}",
            found=f"{check.found}; last turn: {turn}",
            fix=fix,
            warning=warned,
        )


def _loaded(config: HostConfig, name: str) -> Check:
    why = config.loads(name)
    if not config.entry(name) and not why:
        why = f"plugins.entries.{name} is missing"
    command = f"openclaw plugins enable {name} --accept-capabilities"
    fix = "memrelay-gateway openclaw settings prints the steps" if "missing" in why else command
    return Check("openclaw plugin", not why, why or f"{name} is enabled in {config.path}", fix)


def _slot(config: HostConfig) -> Check:
    held = config.slot
    # The host, too, reads the newer name of the slot first.
    fix = f'openclaw config set plugins.slots.memory "{PLUGIN_ID}"; {_RESTART}. To leave it to {held}, use the side-car: '
    return Check(
        "openclaw memory slot",
        held == PLUGIN_ID,
        f"held by {held}",
        f"{fix}memrelay-gateway openclaw settings --sidecar",
    )


def _one_memory(config: HostConfig) -> Check:
    rivals = [name for name in (CORE, "memory-lancedb", "memory-memwal", "memory-core-plus", "memsearch")
              if not config.loads(name) and (config.entry(name) or name == CORE)]  # fmt: skip
    without = f"openclaw config set plugins.entries.{PLUGIN_ID}.config.dreaming.enabled false"
    fix = "; ".join(
        without if name == CORE else f"openclaw config set plugins.entries.{name}.enabled false"
        for name in rivals
    )
    found = (
        f"{', '.join(rivals)} registers tools of the same names"
        if rivals
        else "no other plugin owns its tools"
    )
    return Check("openclaw tool owners", not rivals, found, f"{fix}; {_RESTART}")


def _tools(config: HostConfig) -> Check:
    hidden: list[str] = []
    for place, lists in config.tool_lists():
        allowed, denied = _names(lists.get("allow")), _names(lists.get("deny"))
        more = _names(lists.get("alsoAllow"))
        if allowed and not {"*", "group:plugins", "group:memory", *TOOL_NAMES} & {*allowed, *more}:
            hidden.append(f"{place}.allow names no memory tool")
        if {"memory_search", "group:memory"} & set(denied):
            hidden.append(f"{place}.deny names memory_search")
    fix = "add memory_search and memory_get to it, or leave the tools hidden: recall and capture need none"
    return Check("openclaw tools", not hidden, "; ".join(hidden) or "the model may use them", fix)


def _access(config: HostConfig, name: str) -> Check:
    hooks = as_object(config.entry(name).get("hooks"))
    missing = [] if hooks.get("allowConversationAccess") is True else ["allowConversationAccess is not true"]
    if hooks.get("allowPromptInjection") is False:
        missing.append("allowPromptInjection is false")
    fix = f"if recall and capture may read conversations: openclaw config set plugins.entries.{name}.hooks.allowConversationAccess true"
    return Check(
        "openclaw conversation access",
        not missing,
        "; ".join(missing) or "granted",
        f"{fix} (and allowPromptInjection); {_RESTART}",
    )


def _own_model(config: HostConfig, name: str, settings: PluginSettings | None) -> Check:
    """Report whether the host's model is used and who allowed it; neither result is an error."""
    policy = as_object(config.entry(name).get("llm"))
    needs = "" if settings is None else config.active_needs(settings)
    if settings is None or not settings.host_model.enabled:
        found = "is not asked (hostModel.enabled is not true)"
        return Check("openclaw's own model", True, "; ".join(filter(None, (found, needs))))
    whose = config.agents_asked(policy).value
    most = settings.host_model.calls_per_hour
    found = f"{whose} is asked where the relayer has none, at most {most} times an hour, at OpenClaw's cost"
    named = settings.host_model.model
    refused = bool(named) and policy.get("allowModelOverride") is not True
    if refused:
        found = f"hostModel.model names {named}, and OpenClaw does not let the plugin choose"
    found = "; ".join(filter(None, (found, needs)))
    fix = f"openclaw config set plugins.entries.{name}.llm.allowModelOverride true, or leave hostModel.model out; {_RESTART}"
    return Check("openclaw's own model", not refused, found, fix)


def _variables(config: HostConfig, environ: Mapping[str, str]) -> Check:
    named = VARIABLE.findall(json.dumps(config.settings))
    unset = sorted({name for name in named if not environ.get(name)})
    found = f"not set here: {', '.join(unset)}" if unset else "all that the settings name are set"
    return Check(
        "openclaw variables",
        not unset,
        found,
        "set them in the gateway's environment, and here for this command",
    )


def _recorder(config: HostConfig, environ: Mapping[str, str]) -> Check:
    """Check whether the host stores whole prompts, which include recalled memories, unencrypted."""
    said = environ.get(_RECORDER) or config.variables.get(_RECORDER) or _dotenv(environ)
    off = said is not None and str(said).strip().lower() in _OFF_WORDS
    where = "agents/AGENT/agent/openclaw-agent.sqlite, trajectory_runtime_events"
    found = (
        "switched off"
        if off
        else f"whole prompts, recalled memories with them, are kept in the clear: {where}"
    )
    fix = f"if you do not export them: openclaw config set env.vars.{_RECORDER} off; {_RESTART}"
    return Check("openclaw flight recorder", True, found, fix, warning=not off)


def _dotenv(environ: Mapping[str, str]) -> str | None:
    """Return the value that the host's ``.env`` file sets for the recorder; None if it sets none."""
    with contextlib.suppress(OSError, ValueError):
        for line in (state_folder(environ) / ".env").read_text("utf-8").splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            if name.strip() == _RECORDER:
                return value.strip().strip("\"'")
    return None


def _installed(config: HostConfig, name: str, environ: Mapping[str, str]) -> Check:
    """Compare the version of the copy that the host loads with this package."""
    for folder in _copies(config, name, environ):
        with contextlib.suppress(OSError, ValueError):
            told = parse_json((folder / "openclaw.plugin.json").read_text("utf-8"))
            if told.get("id") == name:
                version = str(told.get("version"))
                again = "pack --sidecar" if name == SIDECAR_ID else "pack"
                fix = f'openclaw plugins install "$(memrelay-gateway openclaw {again})" --force --accept-capabilities; {_RESTART}'
                found = f"{folder} is {version}, this package {__version__}"
                return Check("openclaw installed", version == __version__, found, fix)
    steps = f"openclaw plugins install --link {FOLDER} --force --accept-capabilities"
    return Check("openclaw installed", False, "the host has no copy and no link of the plugin", steps)


def _copies(config: HostConfig, name: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the folders that the host may load the plugin from: its own copy first, then the configured paths."""
    paths = as_object(config.plugins.get("load")).get("paths") or ()
    return [state_folder(environ) / "extensions" / name, *(Path(str(path)).expanduser() for path in paths)]


def _names(value: object) -> Sequence[str]:
    return [str(name) for name in value] if isinstance(value, list) else []
