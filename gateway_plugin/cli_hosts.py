"""``memrelay-gateway bridge`` and ``memrelay-gateway openclaw``: what hosts of other languages need of this package."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gateway_plugin.bridge.process import run_bridge
from gateway_plugin.hosts.openclaw.host import OpenClawHost

__all__ = ["bridge"]


class BridgeHost(StrEnum):
    """Hosts that speak to a bridge."""

    OPENCLAW = "openclaw"


def bridge(
    *, host: Annotated[BridgeHost, typer.Option(help="Whose events will come.")] = BridgeHost.OPENCLAW
) -> None:
    """Serve a host over standard input and output; its plugin starts this, not a person."""
    del host  # one so far: the option is in the plugin's command line for the sake of those to come
    run_bridge(OpenClawHost())
