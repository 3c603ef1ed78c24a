"""``memrelay-gateway doctor``, ``canary``, ``why`` and ``acknowledge``: finding and mending what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import SystemClock
from gateway_plugin.commands.outbox import open_file_outbox
from gateway_plugin.commands.output import Output
from gateway_plugin.commands.run import (
    FAILED,
    AgentOption,
    JsonOption,
    UrlOption,
    agent_identity,
    fail,
    find_context,
    guarded,
    used,
)
from gateway_plugin.commands.switch import gateway_toggles
from gateway_plugin.doctor import Check, canary, examine
from gateway_plugin.hosts.openclaw.command_line import CONFIG_VARIABLE, command_environment
from gateway_plugin.hosts.openclaw.config import core_config
from gateway_plugin.hosts.openclaw.examination import check_agents, check_bridge, check_config
from gateway_plugin.hosts.openclaw.host_config import read_config
from gateway_plugin.outbox.positions import Positions
from gateway_plugin.settings import safe_load
from gateway_plugin.setup import secret_source
from gateway_plugin.turn.identities import owner_of
from gateway_plugin.turn.last_turn import WHY_MARK

__all__ = ["add_to"]


class DoctorHost(StrEnum):
    """The hosts whose configuration ``doctor`` can read."""

    OPENCLAW = "openclaw"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("doctor")(doctor)
    app.command("canary")(canary_command)
    app.command("why")(why)
    app.command("acknowledge")(accept_rollback)


def doctor(
    *,
    host: Annotated[
        DoctorHost | None, typer.Option(help="Check this host's configuration as well, with its settings.")
    ] = None,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check switches, keys, outbox, relayer, trust and clock, then write and recall a canary."""
    config = guarded(lambda: read_config(os.environ)) if host is not None else None
    if config is not None:
        told = {CONFIG_VARIABLE: json.dumps(config.settings)}
        os.environ.update(guarded(lambda: command_environment(os.environ | told)))
    context = find_context(url, agent)
    outbox = open_file_outbox(url)
    settings = context.settings
    if config is not None:
        # What is wrong with them is said by the check of the bridge, which reads them as the gateway does.
        settings = safe_load(core_config(config.settings, os.environ), os.environ).settings or settings

    async def run(client: RelayerClient) -> list[Check]:
        checks = examine(
            client,
            context.identity,
            settings=settings,
            secret_from=secret_source(settings, os.environ),
            outbox=outbox,
            toggles=gateway_toggles(context, outbox),
            clock=SystemClock(),
        )
        found = list(check_config(config, os.environ)) if config is not None else []
        found += [check async for check in check_bridge(config, os.environ)] if config is not None else []
        found += [check async for check in checks]
        if config is not None and found[-1].ok:
            agents = {
                name: agent_identity(settings, context.holder, settings.agent or name)
                for name in config.agents
            }
            found += [check async for check in check_agents(client, agents, outbox, SystemClock())]
        return found

    checks = guarded(lambda: asyncio.run(used(context.settings, run)))
    outbox.close()
    _print(checks, as_json=as_json)


def canary_command(*, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Write a memory, recall it and forget it again."""
    context = find_context(url, agent)

    async def run(client: RelayerClient) -> list[Check]:
        return [await canary(client, context.identity, clock=SystemClock())]

    _print(guarded(lambda: asyncio.run(used(context.settings, run))), as_json=as_json)


def why(*, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show why the last turn was given what it was given: gate by gate, hit by hit."""
    context = find_context(url, agent)
    outbox = open_file_outbox(url)
    kept = guarded(lambda: outbox.kept(owner_of(context.identity), WHY_MARK))
    outbox.close()
    if not kept.value:
        fail(
            FAILED,
            f"no turn of {context.identity.namespace} was noted yet",
            "a gateway notes it when it next delivers a turn, or ends; another agent's: --agent NAME; in a chat: /memory why",
        )
    trace: dict[str, Any] = json.loads(kept.value)
    output = Output(as_json=as_json)
    if as_json:
        output.json(trace)
        return
    detail = f": {trace['detail']}" if trace["detail"] else ""
    # A turn that a gate stopped has searched for nothing.
    spent = (
        f", {trace['milliseconds']} ms, query of {trace['query_chars']} characters"
        if trace["namespace"]
        else ""
    )
    output.say(f"{trace['status']}{detail}{spent}")
    for gate in trace["gates"]:
        output.say(f"  gate {gate['gate']}: {'passed' if gate['allowed'] else gate['reason']}")
    for hit in trace["hits"]:
        output.say(f"  memory {hit['id']}: {hit['outcome']}, relevance {hit['relevance']:.2f}")


def accept_rollback(*, agent: AgentOption = None, url: UrlOption = None) -> None:
    """Acknowledge a rollback: accept an agent's memories as the store has them, although newer ones were seen."""
    context = find_context(url, agent)
    outbox = open_file_outbox(url)
    positions = Positions(outbox)
    positions.replace(owner_of(context.identity), None)
    guarded(positions.persist)
    outbox.close()
    Output(as_json=False).say(
        f"accepted for {context.identity.namespace}; a running gateway takes it over when it starts next"
    )


def _print(checks: list[Check], *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        output.json([asdict(check) for check in checks])
    for check in [] if as_json else checks:
        output.say(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.found}")
        if not check.ok:
            output.say(f"      fix: {check.fix}")
    if not all(check.ok for check in checks):
        raise typer.Exit(FAILED)
