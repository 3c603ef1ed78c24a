"""``memrelay-gateway init``, ``bridge`` and ``openclaw``: the commands that set up hosts, and the bridge that hosts start."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.bridge.server import run_bridge
from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.local_relayer import LocalRelayer
from gateway_plugin.commands.run import Output, UrlOption, find_context, guarded
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    CONSENT,
    HOST_VARIABLE,
    MODEL_CONSENT,
    Written,
    command_environment,
    command_switches,
    config_path,
    files_variable,
    settings_block,
    settings_steps,
    write_block,
)
from gateway_plugin.hosts.openclaw.host import OpenClawHost
from gateway_plugin.hosts.openclaw.manifest import plugin_folder, write_package
from gateway_plugin.text.json_text import parse_json
from gateway_plugin.turn.status import notify
from relayer.wire.command_line import FAILED, USAGE, JsonOption, fail

openclaw = typer.Typer(
    help="The plugin for OpenClaw: where it lies, its package, and what to put into openclaw.json.",
    no_args_is_help=True,
)
SidecarOption = Annotated[
    bool, typer.Option("--sidecar", help="Beside another memory plugin: hooks alone, no slot, no tools.")
]


class BridgeHost(StrEnum):
    """Hosts that use a bridge."""

    OPENCLAW = "openclaw"


def bridge(
    *, host: Annotated[BridgeHost, typer.Option(help="Whose events will come.")] = BridgeHost.OPENCLAW
) -> None:
    """Serve a host over standard input and output; its plugin starts this, not a person.

    Example: memrelay-gateway bridge --host openclaw
    """
    del host  # there is only one so far; the option is in the plugin's command line for future hosts
    run_bridge(OpenClawHost(relayer=LocalRelayer(os.environ)))


def bridge_command() -> str:
    """Return the bridge program: this program, by its full path."""
    beside = Path(sys.executable).with_name("memrelay-gateway")
    return str(beside) if beside.exists() else shutil.which("memrelay-gateway") or "memrelay-gateway"


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


@openclaw.command()
def path(*, as_json: JsonOption = False) -> None:
    """Print the plugin's folder, for: openclaw plugins install --link "$(memrelay-gateway openclaw path)".

    Example: memrelay-gateway openclaw path
    """
    output, folder = Output(as_json=as_json), str(plugin_folder())
    output.json({"path": folder})
    output.raw(folder)


@openclaw.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    *,
    sidecar: SidecarOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the plugin as a package, for: openclaw plugins install FILE.

    Example: memrelay-gateway openclaw pack /tmp --sidecar
    """
    try:
        file = write_package(folder, sidecar=sidecar, command=bridge_command())
    except OSError as error:
        fail(FAILED, f"{folder}: cannot be written ({error.strerror})", "name a folder that exists")
    # With a full path, the host cannot mistake it for the name of a package.
    output, whole = Output(as_json=as_json), str(file.resolve())
    output.json({"file": whole})
    output.raw(whole)


@openclaw.command()
def settings(
    *,
    url: UrlOption = None,
    allow: Annotated[
        bool, typer.Option("--allow-conversation-access", help="Let recall and capture read conversations.")
    ] = False,
    sidecar: SidecarOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print what to put into openclaw.json, and the steps around it.

    Example: memrelay-gateway openclaw settings --allow-conversation-access
    """
    block = settings_block(url=url, command=bridge_command(), consent=allow, sidecar=sidecar)
    output = Output(as_json=as_json)
    output.json(block)
    source = "$(memrelay-gateway openclaw pack --sidecar)" if sidecar else f"--link {plugin_folder()}"
    output.raw(settings_steps(block, source))
    if not allow:
        output.raw(f"\nNote: {CONSENT}\nTo allow it, repeat this command with --allow-conversation-access.")


HOSTS: Final = ("openclaw", "openclaw-active", "python")
# Hosts that are not supported yet: an error message is better than a block without effect.
_NOT_YET: Final = {"hermes": "Hermes", "nanobot": "nanobot"}
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
_PYTHON: Final = """from gateway_plugin import MemoryPlugin

with MemoryPlugin("URL", agent="researcher") as memory:
    turn = memory.before_turn(prompt, session_key=session)
    ...  # put turn.text into the prompt, and ask the model
    memory.after_turn(messages, session_key=session)"""


def init(
    *,
    host: Annotated[
        str, typer.Option(metavar="HOST", help=f"Which program the block is for: {', '.join(HOSTS)}.")
    ] = "python",
    write: Annotated[
        bool,
        typer.Option("--write", help="Merge it into openclaw.json, beside a copy of the file as it was."),
    ] = False,
    allow: Annotated[
        bool | None,
        typer.Option(
            "--allow-conversation-access/--no-conversation-access",
            help="Let recall and capture read conversations; asked when it is not said.",
        ),
    ] = None,
    model: Annotated[
        bool | None,
        typer.Option(
            "--host-model/--no-host-model",
            help="Let OpenClaw's own model make facts and summaries, at its price; asked in a terminal when it is not said.",
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a block to paste into a host's configuration, or write it there; it holds no secret.

    Example: memrelay-gateway init --host openclaw --write --allow-conversation-access
    """
    _check(host, write=write)
    context = find_context(url, None)
    output = Output(as_json=as_json)
    if host == "python":
        lines = _PYTHON.replace("URL", context.settings.url)
        output.json({"host": host, "block": lines})
        output.raw(lines)
        return
    named = url or os.environ.get("MEMRELAY_URL") or None
    if write:
        consent = _consent(allow)
        block = _block(host, named, consent=consent, model=_model_consent(model))
        if not consent:
            block["plugins"]["entries"]["memrelay"]["hooks"] = {"allowConversationAccess": False}
        _write(host, block, url_given=url is not None, output=output)
        return
    block = _block(host, named, consent=allow is not False, model=model is True)
    output.json({"host": host, "block": block})
    output.raw(json.dumps(block, indent=2))
    # On standard error, because standard output contains only the block to copy.
    notify(f"{CONSENT}\n{MODEL_CONSENT} To allow it: --host-model.\n{_NEXT}")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def _check(host: str, *, write: bool) -> None:
    if host in _NOT_YET:
        fail(
            FAILED,
            f"--host: there is no adapter for {_NOT_YET[host]} yet, so that a block for it would do nothing",
            "an agent loop in Python can use memory now: memrelay-gateway init --host python",
        )
    if host == "mcp":
        fail(
            USAGE,
            "--host: each MCP client has a block of its own",
            "memrelay-gateway mcp config --for claude-code",
        )
    if host not in HOSTS:
        near = difflib.get_close_matches(host, HOSTS, 1, 0.3)
        fail(
            USAGE,
            f"--host: {host[:40]} is not known",
            f"did you mean {(near or HOSTS)[0]}? There are {', '.join(HOSTS)}",
        )
    if write and host == "python":
        fail(
            USAGE,
            "--write: a Python program has no configuration of ours",
            "leave it out, and copy the lines",
        )


def _block(host: str, url: str | None, *, consent: bool, model: bool) -> dict[str, Any]:
    block = settings_block(url=url, command=bridge_command(), consent=consent, model=model)
    if host == "openclaw-active":
        entry = block["plugins"]["entries"]["memrelay"]
        entry["config"] |= _ACTIVE
        if consent:
            entry["hooks"]["allowPromptInjection"] = True
    return block


def _model_consent(allow: bool | None) -> bool:  # noqa: FBT001 - it is the value of an option, and None is one
    if allow is None and sys.stdin.isatty():
        return typer.confirm(f"{MODEL_CONSENT}\nAllow it?", default=False, err=True)
    return allow is True


def _consent(allow: bool | None) -> bool:  # noqa: FBT001 - it is the value of an option, and None is one
    if allow is not None:
        return allow
    if not sys.stdin.isatty():
        fail(
            USAGE,
            "--allow-conversation-access, --no-conversation-access: say one of them",
            CONSENT,
        )
    return typer.confirm(f"{CONSENT}\nAllow it?", err=True)


def _write(host: str, block: dict[str, Any], *, url_given: bool, output: Output) -> None:
    path = config_path(os.environ)
    entry = block["plugins"]["entries"]["memrelay"]
    config = entry["config"]
    if not url_given and _has_url(path.read_text("utf-8") if path.is_file() else ""):
        # A URL that is set already is changed only if the option names another one.
        config.pop("url", None)
    written = guarded(lambda: write_block(path, block, now=int(SystemClock().now())))
    output.json({"host": host, **row_of(written)})
    if not written.changed:
        output.say(f"nothing to change: {path} has it all")
        return
    output.say(f"written: {path}")
    if written.backup is not None:
        output.say(f"as it was: {written.backup}")
    if not entry["hooks"]["allowConversationAccess"]:
        output.say("recall and capture are blocked by OpenClaw; memory works through its tools alone")
    if "hostModel" not in config:
        output.say(
            "OpenClaw's own model is not asked unless hostModel.enabled is set already: --host-model sets it"
        )
    output.say(f"next: {_INSTALL}, unless OpenClaw has the plugin already;")
    output.say(
        "openclaw config validate && openclaw gateway restart, then memrelay-gateway doctor --host openclaw"
    )


def row_of(written: Written) -> dict[str, object]:
    """Return the outcome of writing a host's configuration, for a JSON document."""
    backup = None if written.backup is None else str(written.backup)
    return {"file": str(written.path), "changed": written.changed, "backup": backup}


def _has_url(text: str) -> bool:
    try:
        return bool(parse_json(text)["plugins"]["entries"]["memrelay"]["config"]["url"])
    except (ValueError, KeyError, TypeError):
        return False
