"""``memrelay-gateway bridge`` and ``memrelay-gateway openclaw``: what hosts of other languages need of this package."""

from __future__ import annotations

import json
import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.bridge.process import run_bridge
from gateway_plugin.commands.output import Output
from gateway_plugin.commands.run import FAILED, JsonOption, fail, guarded
from gateway_plugin.hosts.openclaw.command_line import CONFIG_VARIABLE, command_environment
from gateway_plugin.hosts.openclaw.host import OpenClawHost
from gateway_plugin.hosts.openclaw.packaging import plugin_folder, write_package
from gateway_plugin.hosts.openclaw.settings_block import CONSENT, settings_block, settings_steps
from gateway_plugin.settings import DEFAULT_URL

__all__ = ["bridge", "bridge_command", "openclaw"]

openclaw = typer.Typer(
    help="The plugin for OpenClaw: where it lies, its package, and what to put into openclaw.json.",
    no_args_is_help=True,
)
SidecarOption = Annotated[
    bool, typer.Option("--sidecar", help="Beside another memory plugin: hooks alone, no slot, no tools.")
]


class BridgeHost(StrEnum):
    """Hosts that speak to a bridge."""

    OPENCLAW = "openclaw"


def bridge(
    *, host: Annotated[BridgeHost, typer.Option(help="Whose events will come.")] = BridgeHost.OPENCLAW
) -> None:
    """Serve a host over standard input and output; its plugin starts this, not a person."""
    del host  # one so far: the option is in the plugin's command line for the sake of those to come
    run_bridge(OpenClawHost())


def bridge_command() -> str:
    """Return the program that is the bridge: this one, by its full path."""
    beside = Path(sys.executable).with_name("memrelay-gateway")
    return str(beside) if beside.exists() else shutil.which("memrelay-gateway") or "memrelay-gateway"


@openclaw.command(hidden=True)
def run(
    context: typer.Context, arguments: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None
) -> None:
    """Do what ``openclaw memrelay COMMAND`` asks, with the settings of the host's plugin."""
    os.environ.update(guarded(lambda: command_environment(os.environ)))
    os.environ.pop(CONFIG_VARIABLE, None)
    context.find_root().command.main(args=arguments or ["--help"], prog_name="openclaw memrelay")


@openclaw.command()
def path() -> None:
    """Print the plugin's folder, for: openclaw plugins install --link "$(memrelay-gateway openclaw path)"."""
    Output(as_json=False).raw(str(plugin_folder()))


@openclaw.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    *,
    sidecar: SidecarOption = False,
) -> None:
    """Write the plugin as a package, for: openclaw plugins install FILE."""
    try:
        file = write_package(folder, sidecar=sidecar)
    except OSError as error:
        fail(FAILED, f"{folder}: cannot be written ({error.strerror})", "name a folder that exists")
    # Whole, so that the host does not take it for the name of a package.
    Output(as_json=False).raw(str(file.resolve()))


@openclaw.command()
def settings(
    *,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The relayer.")] = DEFAULT_URL,
    allow: Annotated[
        bool, typer.Option("--allow-conversation-access", help="Let recall and capture read conversations.")
    ] = False,
    sidecar: SidecarOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print what to put into openclaw.json, and the steps around it."""
    block = settings_block(url=url, command=bridge_command(), consent=allow, sidecar=sidecar)
    output = Output(as_json=as_json)
    if as_json:
        output.raw(json.dumps(block, indent=2))
        return
    source = "$(memrelay-gateway openclaw pack --sidecar)" if sidecar else f"--link {plugin_folder()}"
    output.raw(settings_steps(block, source))
    if not allow:
        output.raw(f"\nNote: {CONSENT}\nTo allow it, repeat this command with --allow-conversation-access.")
