"""``memrelay-gateway off``, ``on``, ``doctor`` and ``why``: whether memory is on here, whether it works, and why not."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.local_relayer import folder_of, trouble_for
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import (
    PLACE,
    CliContext,
    Output,
    Run,
    agent_identity,
    command,
    find_context,
    guarded,
    open_outbox,
    used,
)
from gateway_plugin.doctor import SKIPPED, Check, canary, examine
from gateway_plugin.hosting import HostExamination, host_adapters
from gateway_plugin.keys.identity import DEFAULT_AGENT, RootHolder, parse_session_key, typed
from gateway_plugin.outbox.queue import Outbox
from gateway_plugin.outbox.sender import Positions
from gateway_plugin.sessions import WHY_CAPTURED, WHY_MARK, SessionBook, Toggles
from gateway_plugin.setup import secret_source
from gateway_plugin.turn.gates import HostTurn
from relayer.wire.command_line import FAILED, USAGE, fail

SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="KEY",
        help="Session key of one chat session. Default: every session of --agent, or of all agents.",
    ),
]

WhoseOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="All sessions of this agent. Default: all agents.",
        rich_help_panel=PLACE,
    ),
]


@command(agent=WhoseOption)
def off(run: Run, *, session: SessionOption = None) -> None:
    """Switch memory off: nothing is recalled or captured, by running gateways too, until it is switched on again.

    Example: memrelay-gateway off --agent coder

    Example: memrelay-gateway off --session agent:main:main
    """
    _switch(run, session, enabled=False)


@command(agent=WhoseOption)
def on(run: Run, *, session: SessionOption = None) -> None:
    """Switch memory on again.

    Example: memrelay-gateway on --agent coder
    """
    _switch(run, session, enabled=True)


def gateway_toggles(context: CliContext, outbox: Outbox) -> Toggles:
    """Return the switches of this gateway, which its outbox stores."""
    return SessionBook(context.holder, context.settings, outbox).switches


def _switch(run: Run, session: str | None, *, enabled: bool) -> None:
    context, word = run.context, "on" if enabled else "off"
    whose = context.identity
    with open_outbox(context) as outbox:
        book = SessionBook(context.holder, context.settings, outbox, agent=run.agent)
        if session is not None:
            ref = parse_session_key(session)
            owner = book.identity(ref, HostTurn()).ref
            book.switches.set_session(owner, ref.key, enabled=enabled)
            said = f"memory is {word} for session {ref.key} of agent {owner.agent}"
        elif run.agent is None:
            book.switches.set_everywhere(enabled=enabled)
            said = f"memory is {word} for every session of this gateway at {context.settings.url}"
        elif whose.namespace.partition("/")[0] != whose.namespace and "/" in run.agent:
            fail(
                USAGE,
                "--agent: the switch applies to a whole agent",
                f"--agent {typed(whose.agent)}, or --session KEY",
            )
        else:
            book.switches.set_agent(whose.agent, enabled=enabled)
            said = f"memory is {word} for every session of agent {whose.agent} at {context.settings.url}"
    switched_off = os.environ.get("MEMRELAY_DISABLE") and context.settings.disabled
    switched = whose.agent if run.agent is not None or session is not None else None
    run.tell(
        {"memory": word, "agent": switched, "session": session},
        said + ("; MEMRELAY_DISABLE is also set" if enabled and switched_off else ""),
    )


_HOST: Final = typer.Option(metavar="HOST")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    hosts = [adapter.name for adapter in host_adapters() if adapter.examine is not None]
    _HOST.help = f"Also check the configuration of this host: {', '.join(hosts)}."
    app.command("doctor")(doctor)
    app.command("why")(why)


@command()
def doctor(
    run: Run,
    *,
    host: Annotated[str | None, _HOST] = None,
    only_canary: Annotated[
        bool, typer.Option("--canary", help="Only write a test memory, recall it and erase it.")
    ] = False,
    accept_rollback: Annotated[
        bool,
        typer.Option(
            "--accept-rollback",
            help="Accept the store's version of an agent's memories, although this gateway has seen a newer one.",
        ),
    ] = False,
) -> None:
    """Check switches, keys, outbox, relayer, trust and clock, then write and recall a canary.

    Example: memrelay-gateway doctor --host openclaw --agent main

    Example: memrelay-gateway doctor --accept-rollback --agent main
    """
    if accept_rollback and (only_canary or host is not None):
        fail(
            USAGE,
            "--accept-rollback: cannot be combined with checks",
            "memrelay-gateway doctor --accept-rollback --agent NAME",
        )
    if accept_rollback:
        context = run.context
        with open_outbox(context) as outbox:
            Positions(outbox).forget(context.identity.ref)
        whose = context.identity.namespace
        run.tell({"accepted": whose}, f"accepted for {whose}; running gateways follow with the next turn")
    elif only_canary:
        context = run.context
        if context.settings.disabled:
            _print(run, [SKIPPED])
            return
        check = run.ask(
            lambda client, identity: canary(client, identity, clock=SystemClock(), holder=context.holder)
        )
        _print(run, [check])
    else:
        _print(run, examined(host, run.agent, run.url))


def examined(host: str | None, agent: str | None, url: str | None) -> list[Check]:
    """Run the checks of `doctor` and return their results."""
    examination: HostExamination | None = None
    if host is not None:
        examines = {one.name: one.examine for one in host_adapters() if one.examine is not None}
        if host not in examines:
            fail(USAGE, f"--host: {host[:40]} is not known", f"available: {', '.join(examines) or 'none'}")
        examination = guarded(partial(examines[host], os.environ))
        os.environ.update(guarded(examination.environment))
    context = find_context(url, agent)
    settings = context.settings
    if examination is not None:
        settings = examination.settings() or settings

    async def run(client: RelayerClient, outbox: Outbox) -> list[Check]:
        checks = examine(
            client,
            context.identity,
            settings=settings,
            secret_from=secret_source(settings, os.environ),
            outbox=outbox,
            toggles=gateway_toggles(context, outbox),
            clock=SystemClock(),
            holder=context.holder,
        )
        found = [check async for check in examination.checks()] if examination is not None else []
        if trouble := trouble_for(context.settings, os.environ):
            fix = f"see {folder_of(os.environ) / 'relayer.log'}"
            found.append(Check("relayer of this machine", False, trouble, fix))
        found += [check async for check in checks]
        if not found[-1].ok:
            return found
        home = agent_identity(settings, context.holder, None).namespace
        alone = "" if isinstance(context.holder, RootHolder) else ", whose keys alone are held here"
        told = f"{DEFAULT_AGENT}'s memories are in namespace {home}{alone}"
        found.append(Check("default agent", True, told))
        if examination is not None:
            found += [
                check async for check in examination.agent_checks(client, settings, outbox, context.holder)
            ]
        return found

    with open_outbox(context) as outbox:
        return asyncio.run(used(context.settings, lambda client: run(client, outbox)))


@command()
def why(
    run: Run,
    *,
    capture: Annotated[
        bool, typer.Option("--capture", help="Show what was stored from the last captured turn.")
    ] = False,
) -> None:
    """Show why the last turn was given what it was given, gate by gate, hit by hit; or what was kept of one, and why not the rest.

    Example: memrelay-gateway why --agent main

    Example: memrelay-gateway why --capture
    """
    if capture:
        said = _noted(
            run.context,
            WHY_CAPTURED,
            "no captured turn is recorded for {} yet",
            "a gateway records it when it has delivered a turn; for another agent use --agent NAME",
        )
        run.json(said)
        run.say(f"session {said['session'] or 'none'}: {len(said['messages'])} messages")
        for verdict in said["verdicts"]:
            where = f", by characters {verdict['start']} to {verdict['end']}" if verdict["kept"] else ""
            state = "kept" if verdict["kept"] else "left out"
            reason = "" if verdict["reason"] == "kept" else f": {verdict['reason']}"
            run.say(
                f"  message {verdict['turn'] + 1}, {said['messages'][verdict['turn']]}: {state}{reason}{where}"
            )
        return
    trace = _noted(
        run.context,
        WHY_MARK,
        "no recall is recorded for {} yet",
        "a gateway records it when it next delivers a turn or exits; for another agent use --agent NAME; in a chat use /memory why",
    )
    run.json(trace)
    detail = f": {trace['detail']}" if trace["detail"] else ""
    # A turn that a gate stopped has no search times.
    spent = (
        f", {trace['milliseconds']} ms, query of {trace['query_chars']} characters"
        if trace["namespace"]
        else ""
    )
    run.say(f"{trace['status']}{detail}{spent}")
    for gate in trace["gates"]:
        run.say(f"  gate {gate['gate']}: {'passed' if gate['allowed'] else gate['reason']}")
    for hit in trace["hits"]:
        wish = f" by the wish {hit['wish']}" if hit.get("wish") else ""
        run.say(f"  memory {hit['id']}: {hit['outcome']}{wish}, relevance {hit['relevance']:.2f}")


def _noted(context: CliContext, mark: str, missing: str, fix: str) -> dict[str, Any]:
    """Return what a gateway recorded about an agent's last turn; exit with an error if it recorded nothing."""
    with open_outbox(context) as outbox:
        noted = outbox.get(context.identity.ref, mark).value
    if not noted:
        fail(FAILED, missing.format(context.identity.namespace), fix)
    found: dict[str, Any] = json.loads(noted)
    return found


def _print(run: Run, checks: list[Check]) -> None:
    run.json([asdict(check) for check in checks])
    tell_checks(checks, run)


def tell_checks(checks: list[Check], output: Output) -> None:
    """Print the results for people, and exit with an error if a check failed."""
    for check in checks:
        word = "FAIL" if not check.ok else "warn" if check.warning else "ok  "
        output.say(f"{word}  {check.name}: {check.found}")
        if not check.ok or check.warning:
            output.say(f"      fix: {check.fix}")
    if not all(check.ok for check in checks):
        raise typer.Exit(FAILED)
