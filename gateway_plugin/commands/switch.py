"""``memrelay-gateway off`` and ``on``: a person's switch for memory, for one chat session, one agent or all."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gateway_plugin.commands.run import PLACE, CliContext, Run, command, open_outbox
from gateway_plugin.keys.identity import parse_session_key, typed
from gateway_plugin.outbox.queue import Outbox
from gateway_plugin.sessions.book import SessionBook, Toggles
from gateway_plugin.turn.gates import HostTurn
from relayer.wire.command_line import USAGE, fail

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
    context = run.context
    with open_outbox(context) as outbox:
        said = _switched(outbox, context, session, run.agent, enabled=enabled)
    switched_off = os.environ.get("MEMRELAY_DISABLE") and context.settings.disabled
    switched = context.identity.agent if run.agent is not None or session is not None else None
    run.tell(
        {"memory": "on" if enabled else "off", "agent": switched, "session": session},
        said + ("; MEMRELAY_DISABLE is also set" if enabled and switched_off else ""),
    )


def _switched(
    outbox: Outbox, context: CliContext, session: str | None, agent: str | None, *, enabled: bool
) -> str:
    word, whose = "on" if enabled else "off", context.identity
    book = SessionBook(context.holder, context.settings, outbox, agent=agent)
    toggles = book.switches
    if session is not None:
        ref = parse_session_key(session)
        owner = book.identity(ref, HostTurn()).ref
        toggles.set_session(owner, ref.key, enabled=enabled)
        return f"memory is {word} for session {ref.key} of agent {owner.agent}"
    if agent is None:
        toggles.set_everywhere(enabled=enabled)
        return f"memory is {word} for every session of this gateway at {context.settings.url}"
    if whose.namespace.partition("/")[0] != whose.namespace and "/" in agent:
        fail(
            USAGE,
            "--agent: the switch applies to a whole agent",
            f"--agent {typed(whose.agent)}, or --session KEY",
        )
    toggles.set_agent(whose.agent, enabled=enabled)
    return f"memory is {word} for every session of agent {whose.agent} at {context.settings.url}"
