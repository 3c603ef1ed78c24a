"""``memrelay-gateway share`` and ``unshare``: let agents read namespaces in addition to their own."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gateway_plugin.commands.run import Run, command, find_context, guarded, root_holder
from gateway_plugin.keys.identity import named, typed
from gateway_plugin.recall.sharing import Share, Shares, shared_namespace
from gateway_plugin.setup import shares_path
from relayer.wire.command_line import USAGE, fail
from relayer.wire.errors import InvalidName

_Namespace = Annotated[
    str | None,
    typer.Argument(
        metavar="NAMESPACE", help="An agent, NAME/BELOW, or shared/NAME for a namespace without an owner."
    ),
]
_With = Annotated[str | None, typer.Option("--with", metavar="AGENT", help="The agent that gets access.")]


@command(agent=None, url=None)
def share(
    run: Run,
    namespace: _Namespace = None,
    *,
    reader: _With = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also allow its memory tools to store memories there.")
    ] = False,
) -> None:
    """Let an agent's recall find the memories of another namespace, too; without arguments, list what is shared.

    Example: memrelay-gateway share researcher --with coder
    """
    shares = _shares()
    if namespace is not None or reader is not None:
        wanted = _parsed(namespace, reader, writes=write)
        changed = guarded(lambda: shares.add(wanted))
        run.say(f"{_told(wanted)}{'' if changed else ' (as before)'}")
    found = guarded(shares.all)
    run.json({"shares": [_row(one) for one in found]})
    if namespace is None:
        for one in found:
            run.say(_told(one))
        if not found:
            run.say("no namespaces are shared; share one with: memrelay-gateway share NAMESPACE --with AGENT")


@command(agent=None, url=None)
def unshare(run: Run, namespace: _Namespace = None, *, reader: _With = None) -> None:
    """End what `share` began: from the next recall on the agent finds its own memories alone.

    Example: memrelay-gateway unshare researcher --with coder
    """
    wanted = _parsed(namespace, reader, writes=False)
    if not guarded(lambda: _shares().remove(wanted)):
        fail(
            USAGE,
            f"{typed(wanted.namespace)} is not shared with {typed(wanted.agent)}",
            "list the shares with: memrelay-gateway share",
        )
    said = f"{typed(wanted.agent)} reads {typed(wanted.namespace)} no more"
    run.tell({"ended": _row(wanted)}, said)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(share)
    app.command()(unshare)


def _shares() -> Shares:
    context = find_context(None, None)
    return Shares(shares_path(os.environ), root_holder(context, "sharing"))


def _parsed(namespace: str | None, reader: str | None, *, writes: bool) -> Share:
    if namespace is None or reader is None:
        fail(
            USAGE,
            "give both NAMESPACE and --with AGENT",
            "memrelay-gateway share researcher --with coder",
        )
    try:
        wanted = shared_namespace(namespace)
    except InvalidName as error:
        fail(USAGE, f"NAMESPACE: {error}", "memrelay-gateway namespaces lists them")
    return Share(wanted, guarded(lambda: named(reader, shown=True)), writes)


def _row(one: Share) -> dict[str, object]:
    return {"namespace": typed(one.namespace), "agent": typed(one.agent), "writes": one.writes}


def _told(one: Share) -> str:
    rights = "may read and write" if one.writes else "reads"
    return f"{typed(one.agent)} {rights} {typed(one.namespace)}"
