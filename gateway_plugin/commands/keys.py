"""``memrelay-gateway keys``: show the public ids, hand one agent's keys to another host, keep the secret on paper."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway_plugin.clock import SystemClock
from gateway_plugin.commands.output import Output
from gateway_plugin.commands.run import (
    FAILED,
    USAGE,
    AgentOption,
    JsonOption,
    UrlOption,
    fail,
    find_context,
    root_holder,
    used,
)
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.keys.credentials import mint
from gateway_plugin.keys.recovery import parse_sheet, render_sheet
from relayer.wire import base64url
from relayer.wire.fleet_list import FleetList
from relayer.wire.keys import RootKeys

__all__ = ["keys"]

keys = typer.Typer(help="The account's keys: show, export one agent's, recovery sheet.", no_args_is_help=True)


@keys.command("show")
def keys_show(*, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show public ids: account, agent, and what is known of the relayer's keys."""
    context = find_context(url, agent)
    document: dict[str, Any] = {
        "account": context.identity.account,
        "agent": context.identity.agent,
        "agent_key": bytes(context.identity.keys.identity.verify_key).hex(),
        "namespace": context.identity.namespace,
        "relayer": context.settings.url,
    }
    try:
        fleet: FleetList | None = asyncio.run(used(context.settings, lambda client: client.fleet()))
    except GatewayError as error:
        fleet = None
        document["relayer_keys"] = str(error)
    if fleet is not None:
        document["relayer_identity"] = fleet.identity.hex()
        document["relayer_keys"] = ", ".join(key.day for key in fleet.keys)
    if as_json:
        Output(as_json=True).json(document)
    else:
        Output(as_json=False).pairs((name.replace("_", " "), value) for name, value in document.items())


@keys.command("export")
def keys_export(
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="Whose keys.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificate is valid.")] = 90,
    as_json: JsonOption = False,
) -> None:
    """Print one agent's secret and a certificate, for a host that should hold no more."""
    context = find_context(None, agent)
    root = root_holder(context, "handing out an agent's keys").root
    now = int(SystemClock().now())
    certificate = mint(root, context.identity.agent, now=now, seconds=days * 86_400)
    lines = {
        "MEMRELAY_AGENT_SECRET": context.identity.keys.secret.hex(),
        "MEMRELAY_AGENT_CERTIFICATE": base64url.encode(certificate.issue(root.account_identity)),
    }
    if as_json:
        Output(as_json=True).json(lines)
    else:
        Output(as_json=False).raw("\n".join(f"{name}={value}" for name, value in lines.items()))


@keys.command("recovery")
def keys_recovery(
    verify: Annotated[
        str | None,
        typer.Option("--verify", metavar="FILE", help="Check a sheet instead; - reads standard input."),
    ] = None,
) -> None:
    """Print the root secret as a sheet for paper, or check one against this gateway's secret."""
    output = Output(as_json=False)
    root = root_holder(find_context(None, None), "a recovery sheet").root
    if verify is None:
        output.raw(render_sheet(root))
        return
    text = sys.stdin.read() if verify == "-" else _read_sheet(Path(verify))
    try:
        found = RootKeys(parse_sheet(text))
    except IdentityError as error:
        fail(FAILED, str(error), "compare it with the paper, line by line")
    if found.account != root.account:
        fail(
            FAILED,
            f"the sheet is in order, but it is account {found.account}'s",
            f"this gateway's is {root.account}",
        )
    output.say(f"the sheet is in order and holds the secret of this gateway, account {found.account}")


def _read_sheet(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        fail(USAGE, f"{path} cannot be read", "give the file that holds the sheet, or - for standard input")
