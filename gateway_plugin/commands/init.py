"""``memrelay-gateway init``: what a host's configuration needs, printed for pasting, or written on a person's word."""

from __future__ import annotations

import difflib
import json
import os
import sys
from typing import Annotated, Any, Final

import typer

from gateway_plugin.clock import SystemClock
from gateway_plugin.commands.hosts import bridge_command
from gateway_plugin.commands.output import Output
from gateway_plugin.commands.run import FAILED, USAGE, UrlOption, fail, find_context, guarded
from gateway_plugin.hosts.openclaw.host_config import config_path
from gateway_plugin.hosts.openclaw.settings_block import CONSENT, settings_block
from gateway_plugin.hosts.openclaw.settings_file import write_block
from gateway_plugin.telling import tell_person

__all__ = ["HOSTS", "add_to"]

HOSTS: Final = ("openclaw", "openclaw-active", "python")
# Hosts that somebody may ask for in vain: better told so than given a block that does nothing.
_NOT_YET: Final = {"hermes": "Hermes", "nanobot": "nanobot", "mcp": "MCP clients"}
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
    url: UrlOption = None,
) -> None:
    """Print a block to paste into a host's configuration, or write it there; it holds no secret."""
    _check(host, write=write)
    context = find_context(url, None)
    if host == "python":
        Output(as_json=False).raw(_PYTHON.replace("URL", context.settings.url))
        return
    if write:
        _write(host, context.settings.url, consent=_consent(allow), url_given=url is not None)
        return
    block = _block(host, context.settings.url, consent=allow is not False)
    Output(as_json=False).raw(json.dumps(block, indent=2))
    # Beside the block, which is to be copied.
    tell_person(f"{CONSENT}\n{_NEXT}")


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


def _block(host: str, url: str, *, consent: bool) -> dict[str, Any]:
    block = settings_block(url=url, command=bridge_command(), consent=consent)
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
        fail(
            USAGE,
            "--allow-conversation-access, --no-conversation-access: say one of them",
            CONSENT,
        )
    return typer.confirm(f"{CONSENT}\nAllow it?")


def _write(host: str, url: str, *, consent: bool, url_given: bool) -> None:
    path = config_path(os.environ)
    block = _block(host, url, consent=consent)
    entry = block["plugins"]["entries"]["memrelay"]
    config = entry["config"]
    if not consent:
        entry["hooks"] = {"allowConversationAccess": False}
    if not url_given and _has_url(path.read_text("utf-8") if path.is_file() else ""):
        # What somebody has set already is changed only when it is said.
        del config["url"]
    written = guarded(lambda: write_block(path, block, now=int(SystemClock().now())))
    output = Output(as_json=False)
    if not written.changed:
        output.say(f"nothing to change: {path} has it all")
        return
    output.say(f"written: {path}")
    if written.backup is not None:
        output.say(f"as it was: {written.backup}")
    if not consent:
        output.say("recall and capture are blocked by OpenClaw; memory works through its tools alone")
    output.say(f"next: {_INSTALL}, unless OpenClaw has the plugin already;")
    output.say(
        "openclaw config validate && openclaw gateway restart, then memrelay-gateway doctor --host openclaw"
    )


def _has_url(text: str) -> bool:
    try:
        return bool(json.loads(text)["plugins"]["entries"]["memrelay"]["config"]["url"])
    except (ValueError, KeyError, TypeError):
        return False
