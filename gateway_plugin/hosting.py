"""The interface of the plugin for adapters of hosts: what an adapter registers, and the names that it may use.

An adapter is a package that translates the events of a host. It registers a `HostAdapter` under the entry-point group
``memrelay.hosts``, and a function that adds commands to ``memrelay-gateway`` under the group ``memrelay.gateway_commands``::

    [project.entry-points."memrelay.hosts"]
    myhost = "myhost_memory.adapter:ADAPTER"

    [project.entry-points."memrelay.gateway_commands"]
    myhost = "myhost_memory.command_line:add_to"

Nothing in the plugin imports an adapter: it works the same if the package of one is removed. An adapter imports this module,
`gateway_plugin.plugin`, `gateway_plugin.settings.model`, `gateway_plugin.errors`, `gateway_plugin.host_model` and the package
`gateway_plugin.bridge`; its commands also import those of `gateway_plugin.commands` and `gateway_plugin.files.commands`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import typer

from gateway_plugin import __version__
from gateway_plugin.calls.clock import Clock, SystemClock
from gateway_plugin.calls.local_relayer import LocalRelayer, is_wanted
from gateway_plugin.capture.filters import judge
from gateway_plugin.client import RelayerClient
from gateway_plugin.doctor import Check, canary, told_of_last_turn
from gateway_plugin.files.bounded import NotRead, named, opened_below, parse_json, read_below
from gateway_plugin.files.exports import ImportProblem, hashes_below, send_items
from gateway_plugin.files.indexed import (
    IndexedFile,
    IndexRoot,
    NoSuchLog,
    RootKind,
    is_daily,
    is_private,
    read_session_log,
)
from gateway_plugin.files.markdown import read_markdown
from gateway_plugin.files.memwal import MemWalAccess
from gateway_plugin.keys.gateway_secret import SECRET_VARIABLES, secret_path, taken_variable
from gateway_plugin.keys.identity import (
    DEFAULT_AGENT,
    DEFAULT_NAME,
    AgentHolder,
    Identity,
    KeyHolder,
    NamespaceScope,
    RootHolder,
    RunKind,
    TurnAudience,
    mint,
    parse_session_key,
    platform_id,
    typed,
)
from gateway_plugin.keys.identity import named as agent_name
from gateway_plugin.keys.private_files import (
    config_directory,
    create_private,
    locked,
    read_private,
    replace_private,
)
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable
from gateway_plugin.recall.consolidation import LEAST_QUESTIONS, LEAST_RECALLS
from gateway_plugin.recall.formatting import framed
from gateway_plugin.recall.recaller import SEARCH_FLOOR, ranking
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.setup import connect, holder_for, settings_from
from gateway_plugin.tools.arguments import ALL_TOOL_NAMES, TOOL_NAMES, ToolError, check_names, tool_schemas
from gateway_plugin.tools.intents import INTENT_TOOL
from gateway_plugin.tools.toolbox import READING, ToolAnswer
from gateway_plugin.turn.gates import PROJECTS_APART, HostFiles, HostTurn, Turn
from gateway_plugin.turn.query import parse_messages
from gateway_plugin.turn.status import CaptureReport, Injection, TurnTrace, notify
from relayer.wire.extensions import load_extensions

HOSTS_GROUP: Final = "memrelay.hosts"
COMMANDS_GROUP: Final = "memrelay.gateway_commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """The options of ``memrelay-gateway init``.

    Attributes:
        block: the name that was given with ``--host``.
        url: the relayer's URL from the command line; None if it was not given.
        write: whether to merge the block into the host's configuration instead of printing it.
        allow: whether recall and capture may read conversations; None if the person has not said.
        model: whether the host's language model may be asked; None if the person has not said.
        as_json: whether to print a JSON document.
    """

    block: str
    url: str | None
    write: bool
    allow: bool | None
    model: bool | None = None
    as_json: bool


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files of one of a host's agents: the host's id of the agent, and the places to index."""

    agent: str
    roots: tuple[IndexRoot, ...]


class HostExamination(Protocol):
    """The checks of ``memrelay-gateway doctor --host``, made from the host's configuration."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that make commands use the host's settings. Raises `GatewayError`."""
        ...

    def settings(self) -> PluginSettings | None:
        """Return the plugin's settings as the host has them; None if they are invalid, which `checks` reports."""
        ...

    def checks(self) -> AsyncIterator[Check]:
        """Check the host itself, before any request is sent to the relayer."""
        ...

    def agent_checks(
        self, client: RelayerClient, settings: PluginSettings, outbox: Outbox, holder: KeyHolder
    ) -> AsyncIterator[Check]:
        """Check the memories of each of the host's agents at the relayer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAdapter:
    """An adapter of one host. Attributes that are None are not supported by the adapter.

    Attributes:
        name: the host's name on the command line.
        blocks: names for ``init --host``; each prints or writes a configuration.
        init: called by ``memrelay-gateway init`` for a name in ``blocks`` and for ``name``.
        run_bridge: serves the host over standard input and output until it closes them (``memrelay-gateway bridge``).
        examine: reads the host's configuration from the environment and returns its checks. Raises `GatewayError`.
        agent_files: returns the files of the host's agents if the command was run through the host, else None.
            Raises `GatewayError`.
    """

    name: str
    blocks: tuple[str, ...] = ()
    init: Callable[[InitOptions], None] | None = None
    run_bridge: Callable[[], None] | None = None
    examine: Callable[[Mapping[str, str]], HostExamination] | None = None
    agent_files: Callable[[Mapping[str, str]], Sequence[AgentFiles] | None] | None = None


def host_adapters() -> list[HostAdapter]:
    """Return the adapters of all installed hosts, by name. Report broken ones on standard error."""
    return list(load_extensions(HOSTS_GROUP, notify).values())


def add_extension_commands(app: typer.Typer) -> None:
    """Add the commands of all installed extensions to an application. Report broken ones on standard error."""
    for add_to in load_extensions(COMMANDS_GROUP, notify).values():
        add_to(app)


__all__ = [
    "ALL_TOOL_NAMES",
    "DEFAULT_AGENT",
    "DEFAULT_NAME",
    "INTENT_TOOL",
    "LEAST_QUESTIONS",
    "LEAST_RECALLS",
    "PROJECTS_APART",
    "READING",
    "SEARCH_FLOOR",
    "SECRET_VARIABLES",
    "TOOL_NAMES",
    "AgentFiles",
    "AgentHolder",
    "CaptureReport",
    "Check",
    "Clock",
    "HostAdapter",
    "HostExamination",
    "HostFiles",
    "HostTurn",
    "Identity",
    "ImportProblem",
    "IndexRoot",
    "IndexedFile",
    "InitOptions",
    "Injection",
    "KeyHolder",
    "LocalRelayer",
    "MemWalAccess",
    "NamespaceScope",
    "NoSuchLog",
    "NotRead",
    "Outbox",
    "OutboxUnavailable",
    "RelayerClient",
    "RootHolder",
    "RootKind",
    "RunKind",
    "SystemClock",
    "ToolAnswer",
    "ToolError",
    "Turn",
    "TurnAudience",
    "TurnTrace",
    "__version__",
    "add_extension_commands",
    "agent_name",
    "canary",
    "check_names",
    "config_directory",
    "connect",
    "create_private",
    "framed",
    "hashes_below",
    "holder_for",
    "host_adapters",
    "is_daily",
    "is_private",
    "is_wanted",
    "judge",
    "locked",
    "mint",
    "named",
    "notify",
    "opened_below",
    "parse_json",
    "parse_messages",
    "parse_session_key",
    "platform_id",
    "ranking",
    "read_below",
    "read_markdown",
    "read_private",
    "read_session_log",
    "replace_private",
    "secret_path",
    "send_items",
    "settings_from",
    "taken_variable",
    "told_of_last_turn",
    "tool_schemas",
    "typed",
]
