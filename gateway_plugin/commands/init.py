"""``memrelay-gateway init`` and ``bridge``: set up a host, and the process that a host starts."""

from __future__ import annotations

import difflib
from typing import Annotated, Final

import typer

from gateway_plugin.commands.run import Run, command
from gateway_plugin.hosting import InitOptions, host_adapters
from relayer.wire.command_line import FAILED, USAGE, fail

_HOST: Final = typer.Option(metavar="HOST")
_BRIDGE_HOST: Final = typer.Option(metavar="HOST")
# Hosts that are not supported yet: an error message is better than a block without effect.
_NOT_YET: Final = {"hermes": "Hermes", "nanobot": "nanobot"}
_PYTHON: Final = """from gateway_plugin import MemoryPlugin

with MemoryPlugin("URL", agent="researcher") as memory:
    turn = memory.before_turn(prompt, session_key=session)
    ...  # put turn.prompt into the prompt, and ask the model
    memory.after_turn(messages, session_key=session)"""


@command(agent=None)
def init(
    run: Run,
    *,
    host: Annotated[str, _HOST] = "python",
    write: Annotated[
        bool,
        typer.Option("--write", help="Merge the block into openclaw.json and keep a backup of the file."),
    ] = False,
    allow: Annotated[
        bool | None,
        typer.Option(
            "--allow-conversation-access/--no-conversation-access",
            help="Allow recall and capture to read conversations; asked for if not given.",
        ),
    ] = None,
    model: Annotated[
        bool | None,
        typer.Option(
            "--host-model/--no-host-model",
            help="Allow the host's model to extract facts and write summaries, at its price; asked for in a terminal if not given.",
        ),
    ] = None,
) -> None:
    """Print a block to paste into a host's configuration, or write it there; it holds no secret.

    Example: memrelay-gateway init --host openclaw --write --allow-conversation-access
    """
    if host in _NOT_YET:
        fail(
            FAILED,
            f"--host: there is no adapter for {_NOT_YET[host]} yet",
            "use memory from Python with: memrelay-gateway init --host python",
        )
    if host == "python":
        if write:
            fail(
                USAGE,
                "--write: a Python program has no configuration file to write to",
                "remove --write and copy the lines",
            )
        lines = _PYTHON.replace("URL", run.context.settings.url)
        run.json({"host": "python", "block": lines})
        run.raw(lines)
        return
    for adapter in host_adapters():
        if adapter.init is not None and host in (adapter.name, *adapter.blocks):
            adapter.init(
                InitOptions(
                    block=host, url=run.url, write=write, allow=allow, model=model, as_json=run.as_json
                )
            )
            return
    names = _blocks()
    near = difflib.get_close_matches(host, names, 1, 0.3)
    fail(
        USAGE,
        f"--host: {host[:40]} is not known",
        f"did you mean {(near or names)[0]}? There are {', '.join(names)}",
    )


def bridge(*, host: Annotated[str, _BRIDGE_HOST] = "openclaw") -> None:
    """Serve a host over standard input and output; its plugin starts this, not a person.

    Example: memrelay-gateway bridge --host openclaw
    """
    bridges = {adapter.name: adapter.run_bridge for adapter in host_adapters() if adapter.run_bridge}
    if host not in bridges:
        fail(USAGE, f"--host: {host[:40]} has no bridge", f"available: {', '.join(bridges) or 'none'}")
    bridges[host]()


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    _HOST.help = f"The program to configure: {', '.join(_blocks())}."
    bridges = [adapter.name for adapter in host_adapters() if adapter.run_bridge]
    _BRIDGE_HOST.help = f"The host that sends the events: {', '.join(bridges)}."
    app.command("init")(init)
    app.command(hidden=True)(bridge)


def _blocks() -> list[str]:
    return [*(block for adapter in host_adapters() for block in adapter.blocks), "python"]
