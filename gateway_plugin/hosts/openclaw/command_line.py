"""``memrelay-gateway openclaw``, and the part of ``memrelay-gateway init`` that configures OpenClaw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.commands.run import Output, Run, bridge_command, command, find_context, guarded
from gateway_plugin.hosting import InitOptions, SystemClock, notify, parse_json
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CONSENT,
    HOST_VARIABLE,
    MODEL_CONSENT,
    WrittenConfig,
    command_environment,
    command_switches,
    config_path,
    files_variable,
    settings_block,
    settings_steps,
    write_block,
)
from gateway_plugin.hosts.openclaw.manifest import plugin_folder, write_package
from relayer.wire.command_line import FAILED, USAGE, fail

openclaw = typer.Typer(
    help="The plugin for OpenClaw: where it lies, its package, and what to put into openclaw.json.",
    no_args_is_help=True,
)
SidecarOption = Annotated[
    bool, typer.Option("--sidecar", help="Run next to another memory plugin: hooks only, no slot, no tools.")
]


@openclaw.command(hidden=True)
def run(
    context: typer.Context, arguments: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None
) -> None:
    """Do what ``openclaw memrelay COMMAND`` asks, with the settings of the host's plugin.

    Example: memrelay-gateway openclaw run status
    """
    os.environ.update(guarded(lambda: command_environment(os.environ)))
    switches = command_switches(os.environ)
    os.environ[HOST_VARIABLE] = files_variable(os.environ)
    os.environ.pop(CONFIG_VARIABLE, None)
    command = context.find_root().command
    command.main(args=arguments or ["--help"], prog_name="openclaw memrelay", obj=switches)


@command(openclaw, agent=None, url=None)
def path(run: Run) -> None:
    """Print the plugin's folder, for: openclaw plugins install --link "$(memrelay-gateway openclaw path)".

    Example: memrelay-gateway openclaw path
    """
    folder = str(plugin_folder())
    run.json({"path": folder})
    run.raw(folder)


@command(openclaw, agent=None, url=None)
def pack(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    *,
    sidecar: SidecarOption = False,
) -> None:
    """Write the plugin as a package, for: openclaw plugins install FILE.

    Example: memrelay-gateway openclaw pack /tmp --sidecar
    """
    try:
        file = write_package(folder, sidecar=sidecar, command=bridge_command())
    except OSError as error:
        fail(FAILED, f"{folder}: cannot be written ({error.strerror})", "name a folder that exists")
    # With a full path, the host cannot mistake it for the name of a package.
    whole = str(file.resolve())
    run.json({"file": whole})
    run.raw(whole)


@command(openclaw, agent=None)
def settings(
    run: Run,
    *,
    allow: Annotated[
        bool, typer.Option("--allow-conversation-access", help="Let recall and capture read conversations.")
    ] = False,
    sidecar: SidecarOption = False,
) -> None:
    """Print what to put into openclaw.json, and the steps around it.

    Example: memrelay-gateway openclaw settings --allow-conversation-access
    """
    block = settings_block(url=run.url, command=bridge_command(), consent=allow, sidecar=sidecar)
    run.json(block)
    source = "$(memrelay-gateway openclaw pack --sidecar)" if sidecar else f"--link {plugin_folder()}"
    run.raw(settings_steps(block, source))
    if not allow:
        run.raw(f"\nNote: {CONSENT}\nTo allow it, repeat this command with --allow-conversation-access.")


BLOCKS: Final = ("openclaw", "openclaw-active")
"""The names of OpenClaw for ``init --host``: with memories recalled directly, or summarised by a model."""
_ACTIVE: Final[dict[str, Any]] = {
    "recall": {"mode": "active"},
    "active": {
        "agents": ["main"],
        "allowedChatTypes": ["direct"],
        "queryMode": "recent",
        "promptStyle": "balanced",
        "timeoutMs": 15000,
        "maxSummaryChars": 220,
    },
}
_INSTALL: Final = (
    'openclaw plugins install --link "$(memrelay-gateway openclaw path)" --force --accept-capabilities'
)
_NEXT: Final = (
    "next: merge it into openclaw.json, or say --write; memrelay-gateway openclaw settings has every step, "
    "memrelay-gateway doctor --host openclaw sees that it works"
)


def init(options: InitOptions) -> None:
    """Print the block for openclaw.json, or merge it into the file."""
    find_context(options.url, None)
    output = Output(as_json=options.as_json)
    url = options.url or os.environ.get("MEMRELAY_URL") or None
    if options.write:
        _write(options, url, output)
        return
    block = _block(options.block, url, consent=options.allow is not False, model=options.model is True)
    output.json({"host": options.block, "block": block})
    output.raw(json.dumps(block, indent=2))
    # On standard error, because standard output contains only the block to copy.
    notify(f"{CONSENT}\n{MODEL_CONSENT} To allow it: --host-model.\n{_NEXT}")


def _block(host: str, url: str | None, *, consent: bool, model: bool) -> dict[str, Any]:
    block = settings_block(url=url, command=bridge_command(), consent=consent, model=model)
    if host == "openclaw-active":
        entry = block["plugins"]["entries"]["memrelay"]
        entry["config"] |= _ACTIVE
        if consent:
            entry["hooks"]["allowPromptInjection"] = True
    return block


def _consent(allow: bool | None) -> bool:  # noqa: FBT001 - it is the value of an option, and None is one
    if allow is not None:
        return allow
    if not sys.stdin.isatty():
        fail(USAGE, "--allow-conversation-access, --no-conversation-access: say one of them", CONSENT)
    return typer.confirm(f"{CONSENT}\nAllow it?", err=True)


def _model_consent(allow: bool | None) -> bool:  # noqa: FBT001 - it is the value of an option, and None is one
    if allow is None and sys.stdin.isatty():
        return typer.confirm(f"{MODEL_CONSENT}\nAllow it?", default=False, err=True)
    return allow is True


def _write(options: InitOptions, url: str | None, output: Output) -> None:
    consent = _consent(options.allow)
    path = config_path(os.environ)
    block = _block(options.block, url, consent=consent, model=_model_consent(options.model))
    entry = block["plugins"]["entries"]["memrelay"]
    config = entry["config"]
    if not consent:
        entry["hooks"] = {"allowConversationAccess": False}
    if options.url is None and _has_url(path.read_text("utf-8") if path.is_file() else ""):
        # A URL that is set already is changed only if the option names another one.
        config.pop("url", None)
    written = guarded(lambda: write_block(path, block, now=int(SystemClock().now())))
    output.json({"host": options.block, **row_of(written)})
    if not written.changed:
        output.say(f"nothing to change: {path} has it all")
        return
    output.say(f"written: {path}")
    if written.backup is not None:
        output.say(f"as it was: {written.backup}")
    if not consent:
        output.say("recall and capture are blocked by OpenClaw; memory works through its tools alone")
    if "hostModel" not in config:
        output.say(
            "OpenClaw's own model is not asked unless hostModel.enabled is set already: --host-model sets it"
        )
    output.say(f"next: {_INSTALL}, unless OpenClaw has the plugin already;")
    output.say(
        "openclaw config validate && openclaw gateway restart, then memrelay-gateway doctor --host openclaw"
    )


def row_of(written: WrittenConfig) -> dict[str, object]:
    """Return the outcome of writing a host's configuration, for a JSON document."""
    backup = None if written.backup is None else str(written.backup)
    return {"file": str(written.path), "changed": written.changed, "backup": backup}


def _has_url(text: str) -> bool:
    try:
        return bool(parse_json(text)["plugins"]["entries"]["memrelay"]["config"]["url"])
    except (ValueError, KeyError, TypeError):
        return False
