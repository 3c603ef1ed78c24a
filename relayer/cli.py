"""The ``memrelay`` command: run a relayer, and manage its key and its store.

Commands that need the secret of a gateway are passed on to ``memrelay-gateway``, the command of the plugin. Modules that need
packages of an extra are imported when one of their commands is run or asked for help.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from relayer.commands.deferred import STORE_SETTINGS, deferred_command, explained, register
from relayer.health import Unhealthy, ask, own_url
from relayer.wire.command_line import FAILED, USAGE, JsonOption, application, fail, tell
from relayer.wire.extensions import COMMANDS, load_extensions

# Commands that act as a gateway. They need its secret, which a relayer must not hold.
_PLUGIN_COMMANDS = ("search", "list", "remember", "forget", "status", "import")
app = application(
    "memrelay",
    lambda: importlib.metadata.version("memrelay"),
    help="Run a relayer, look after its key and its store.",
)
keys = typer.Typer(no_args_is_help=True, help="Look after the relayer key.")
app.add_typer(keys, name="keys")
stores = typer.Typer(no_args_is_help=True, help="Look after the store.")
app.add_typer(stores, name="store")


# The commands of `relayer.commands.server`: group, name, function, summary, and the settings that they take as options.
_SERVER_COMMANDS = (
    (app, "serve", "serve", "Run a relayer. Every option is also an environment variable: MEMRELAY_HOST and so on.", None),
    (app, "init", "init", "Make a relayer key and a file of settings for services, containers and shells; says what to do next.",
     ("store", "endpoint_url", "region", "host", "port", "accounts", "public_url")),
    (keys, "recovery", "recovery", "Print the relayer key as a sheet with checksums, or compare a sheet with the key.", ("data",)),
    (keys, "make", "make_key", "Make a relayer key for a relayer over a bucket.", ()),
    (keys, "recover", "recover", "Make the file of a relayer key from its sheet; the line that is wrong is named.", ()),
    (keys, "rotate", "rotate_key",
     "Replace the relayer key of a store by a new one. Its relayers go on, and need the new key at their next start.", STORE_SETTINGS),
    (stores, "probe", "probe_store",
     "Try whether a store keeps what the log rests on. Exit code 1: it does not; 2: settings; 3: no answer.", STORE_SETTINGS),
)  # fmt: skip
for _group, _name, _function, _summary, _settings in _SERVER_COMMANDS:
    deferred_command(_group, f"relayer.commands.server:{_function}", _summary, _settings, name=_name)


@app.command()
@explained()
def health(
    *,
    url: Annotated[str | None, typer.Option(help="Default: the relayer of this environment.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it can serve, not only whether it lives.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a relayer how it is. Exit code 1: it does not answer, or a check fails.

    Example: memrelay health --ready
    """
    asked = url or own_url(os.environ)
    try:
        state = ask(asked, ready=ready)
    except Unhealthy as error:
        fail(FAILED, str(error))
    tell({"url": asked, "status": state}, f"{asked} is {state}", as_json=as_json)


@app.command()
def version(*, as_json: JsonOption = False) -> None:
    """Print the version.

    Example: memrelay version
    """
    found = importlib.metadata.version("memrelay")
    tell({"memrelay": found}, found, as_json=as_json)


def _hand_over(name: str) -> None:
    def command(context: typer.Context) -> None:
        found = importlib.metadata.entry_points(group="console_scripts", name="memrelay-gateway")
        for entry in found:
            sys.argv = ["memrelay-gateway", name, *context.args]
            entry.load()()
            return
        fail(USAGE, f"memrelay-gateway is not installed, and {name} is its command")

    app.command(
        name,
        help=f"Same as: memrelay-gateway {name}",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)


register(app)
for _register in load_extensions(COMMANDS).values():
    _register(app)
for _name in _PLUGIN_COMMANDS:
    _hand_over(_name)
