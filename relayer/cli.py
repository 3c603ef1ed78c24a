"""The ``memrelay`` command: run a relayer, and manage its key and its store.

Commands that need the secret of a gateway are passed on to ``memrelay-gateway``, the command of the plugin. Modules that need
packages of an extra are imported in the functions that use them.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from relayer.commands.console import NOT_WELL, explained, fail
from relayer.commands.operator import register
from relayer.commands.options import settings_command
from relayer.health import Unhealthy, ask, own_url
from relayer.wire.command_line import JsonOption, application, tell
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


@settings_command(app)
def serve(**flags: object) -> None:
    """Run a relayer. Every option is also an environment variable: MEMRELAY_HOST and so on.

    Example: memrelay serve --port 8787 --cache-bytes 512M

    Example: memrelay serve --store s3://memories/team --host 0.0.0.0 --public-url https://memory.example.org --accounts open
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    raise typer.Exit(server.serve(flags, typer.echo))


@settings_command(app, "store", "endpoint_url", "region", "host", "port", "accounts", "public_url")
def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the key and the settings.")],
    *,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Make a relayer key and a file of settings for services, containers and shells; says what to do next.

    Example: memrelay init ~/memrelay --store s3://memories/team
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    server.init(folder, flags, partial(tell, as_json=as_json))


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
        fail(str(error), NOT_WELL)
    tell({"url": asked, "status": state}, f"{asked} is {state}", as_json=as_json)


@app.command()
def version(*, as_json: JsonOption = False) -> None:
    """Print the version.

    Example: memrelay version
    """
    found = importlib.metadata.version("memrelay")
    tell({"memrelay": found}, found, as_json=as_json)


@settings_command(keys, "data")
def recovery(
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Compare a sheet from standard input.")] = False,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Print the relayer key as a sheet with checksums, or compare a sheet with the key.

    Example: memrelay keys recovery

    Example: memrelay keys recovery --verify < sheet.txt
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    say = partial(tell, as_json=as_json)
    if verify:
        server.check_sheet(flags, sys.stdin.read(), say)
    else:
        server.print_sheet(flags, say)


@keys.command()
@explained()
def make(
    file: Annotated[Path, typer.Argument(help="File to make, readable by its owner alone.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a relayer key for a relayer over a bucket.

    Example: memrelay keys make relayer.key
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    server.make_key(file, partial(tell, as_json=as_json))


@keys.command()
@explained()
def recover(
    file: Annotated[Path, typer.Argument(help="File to make, readable by its owner alone.")],
    *,
    sheet: Annotated[str, typer.Option(metavar="FILE", help="The sheet; - is standard input.")] = "-",
    as_json: JsonOption = False,
) -> None:
    """Make the file of a relayer key from its sheet; the line that is wrong is named.

    Example: memrelay keys recover relayer.key --sheet sheet.txt
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    text = sys.stdin.read() if sheet == "-" else server.text_of_sheet(Path(sheet))
    server.recover_key(file, text, partial(tell, as_json=as_json))


@settings_command(keys, "store", "endpoint_url", "region", "data", "config")
def rotate(
    *,
    new_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="MEMRELAY_NEW_RELAYER_KEY_FILE", help="File of memrelay keys make with the new key."
        ),
    ] = None,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Replace the relayer key of a store by a new one. Its relayers go on, and need the new key at their next start.

    Example: memrelay keys rotate --new-key-file new.key
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    server.rotate_key(flags, new_key_file, partial(tell, as_json=as_json))


@settings_command(stores, "store", "endpoint_url", "region", "data", "config", name="probe")
def probe_store(*, as_json: JsonOption = False, **flags: object) -> None:
    """Try whether a store keeps what the log rests on. Exit code 1: it does not; 2: settings; 3: no answer.

    Example: memrelay store probe --store s3://memories/team
    """
    from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

    code = server.probe_store(flags, as_json=as_json)
    raise typer.Exit(code)


def _hand_over(name: str) -> None:
    def command(context: typer.Context) -> None:
        found = importlib.metadata.entry_points(group="console_scripts", name="memrelay-gateway")
        for entry in found:
            sys.argv = ["memrelay-gateway", name, *context.args]
            entry.load()()
            return
        fail(f"memrelay-gateway is not installed, and {name} is its command")

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
