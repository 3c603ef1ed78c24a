"""``memrelay-gateway version``. It imports only what it needs, so that scripts can call it often."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gateway_plugin import __version__
from relayer.wire.command_line import JsonOption, tell


def version(
    *,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="The relayer.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show this command's version, and the relayer's where --url asks for it.

    Example: memrelay-gateway version --url https://relayer.example.org
    """
    rows = {"memrelay-gateway": __version__}
    if url is not None:
        # Imported here, because only a request to the relayer needs the client and its dependencies.
        from gateway_plugin.commands.run import guarded, with_client  # noqa: PLC0415
        from gateway_plugin.setup import settings_from  # noqa: PLC0415

        settings = guarded(lambda: settings_from(None, os.environ, url=url))
        rows["relayer"] = with_client(settings, lambda client: client.version()).version
    width = max(map(len, rows))
    tell(rows, *(f"{name.ljust(width)}  {value}" for name, value in rows.items()), as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(version)
