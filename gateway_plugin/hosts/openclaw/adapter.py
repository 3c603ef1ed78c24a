"""OpenClaw's registration: its `HostAdapter`, and its commands of ``memrelay-gateway``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import typer

from gateway_plugin.bridge import run_bridge
from gateway_plugin.hosting import AgentFiles, HostAdapter, LocalRelayer
from gateway_plugin.hosts.openclaw.command_line import BLOCKS, init, memory, openclaw
from gateway_plugin.hosts.openclaw.config import HOST_VARIABLE, host_files, read_config
from gateway_plugin.hosts.openclaw.examination import OpenClawExamination
from gateway_plugin.hosts.openclaw.files import places_of
from gateway_plugin.hosts.openclaw.host import OpenClawHost
from gateway_plugin.hosts.openclaw.migration import migrate


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(memory, name="memory")
    app.command()(migrate)
    app.add_typer(openclaw, name="openclaw")


def _agent_files(environ: Mapping[str, str]) -> list[AgentFiles] | None:
    if not environ.get(HOST_VARIABLE):
        return None
    files = host_files(environ)
    if not files.enabled:
        return []
    places = places_of(read_config(environ), environ, more=files.paths)
    return [AgentFiles(one.agent, one.roots) for one in places]


ADAPTER: Final = HostAdapter(
    name="openclaw",
    blocks=BLOCKS,
    init=init,
    run_bridge=lambda: run_bridge(OpenClawHost(LocalRelayer(os.environ))),
    examine=lambda environ: OpenClawExamination(read_config(environ), environ),
    agent_files=_agent_files,
)
