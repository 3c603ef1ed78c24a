"""``memrelay-gateway outbox``: list items that wait for the relayer or that it refused, and deliver, retry or delete them.

There is one outbox for each relayer address and set of keys. Commands use the current one, or the one that ``--file`` names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Output, Run, command, guarded, open_outbox, used
from gateway_plugin.keys.identity import identify_owner
from gateway_plugin.outbox.queue import DeadLetter, Outbox, OutboxFull, QueuedItem, waiting_elsewhere
from gateway_plugin.outbox.sender import Sender
from gateway_plugin.turn.status import notify
from relayer.wire.command_line import FAILED, USAGE, fail

outbox = typer.Typer(help="Captured turns that wait for delivery.", no_args_is_help=True)
_Id = Annotated[str | None, typer.Argument(metavar="ID", help="The id that `list` shows.")]
_All = Annotated[bool, typer.Option("--all", help="Every one.")]
_File = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="NAME",
        help="The outbox of another relayer address or secret, as `status` names it. Default: the current one.",
    ),
]
_DELIVERY_SECONDS: Final = 600.0


@contextmanager
def _chosen(run: Run, file: str | None) -> Iterator[Outbox]:
    """Open the outbox that ``--file`` names; the current one without it. Errors end the command, as in `open_outbox`."""
    with open_outbox(run.context) as own:
        if file is None:
            yield own
            return
        # Only the name counts, so that the path that `status` shows can be given, too.
        path = own.path.with_name(Path(file).name)
        if not path.is_file():
            fail(
                USAGE,
                f"--file: no outbox has the name {path.name}",
                "see them with: memrelay-gateway outbox status",
            )
        with closing(Outbox(path, run.context.holder)) as other:
            yield other


@command(outbox, "status", agent=None)
def outbox_status(
    run: Run,
    *,
    as_metrics: Annotated[
        bool,
        typer.Option(
            "--prometheus", help="Print the numbers as metrics for node_exporter's textfile collector."
        ),
    ] = False,
) -> None:
    """Show how much waits and for how long, how much was refused, and whether a process delivers.

    Example: memrelay-gateway outbox status --prometheus
    """
    if run.as_json and as_metrics:
        fail(USAGE, "give either --json or --prometheus", "both print the same numbers")
    with open_outbox(run.context) as found:
        dead, waiting = found.dead_letters(), found.waiting()
        queued = found.queued()
        since = min((letter.item.queued_at for letter in queued if letter.item), default=None)
        oldest = 0 if since is None else max(0, int(time.time() - since / 1000))
        idle = found.claim()
    others = waiting_elsewhere(found.path, run.context.holder)
    if as_metrics:
        Output(as_json=False).say(_metrics(waiting, len(dead), oldest, sum(others.values())))
        return
    rows = {
        "file": str(found.path),
        "waiting": waiting,
        "oldest_seconds": oldest,
        "dead_letters": len(dead),
        "delivering": "no process at the moment" if idle else "a running gateway",
        "other_outboxes": others,
    }
    shown = ", ".join(f"{name} ({count} waiting)" for name, count in others.items())
    run.facts(rows, other_outboxes=shown or "none with waiting turns")


def _metrics(waiting: int, dead: int, oldest: int, elsewhere: int) -> str:
    rows = (
        ("outbox_waiting", "Captured turns that wait for the relayer.", waiting),
        ("outbox_oldest_seconds", "Age of the oldest captured turn that waits.", oldest),
        ("outbox_dead_letters", "Captured turns that the relayer rejected permanently.", dead),
        (
            "outbox_other_waiting",
            "Captured turns that wait for another relayer address or secret.",
            elsewhere,
        ),
    )
    return "\n".join(
        f"# HELP memrelay_gateway_{name} {text}\n# TYPE memrelay_gateway_{name} gauge\nmemrelay_gateway_{name} {number}"
        for name, text, number in rows
    )


@command(outbox, "list", agent=None)
def outbox_list(run: Run, *, file: _File = None) -> None:
    """List what waits and what was refused for good, without any text of it.

    Example: memrelay-gateway outbox list
    """
    with _chosen(run, file) as found:
        letters = (*found.queued(), *found.dead_letters())
    rows = [_row(letter) for letter in letters]
    run.json(rows)
    for row in rows:
        known = "unknown" if row["agent"] is None else f"{row['queued']}  {row['agent']}"
        count = "? messages" if row["messages"] is None else f"{row['messages']} messages"
        run.say(f"{row['id']}  {known}  {count}  {row['state']}")
    run.say(f"{len(letters)} captured turns")


@command(outbox, "deliver", agent=None)
def outbox_deliver(run: Run, *, file: _File = None) -> None:
    """Deliver what waits to the relayer now; with --file also what waits in another outbox of the same secret.

    Turns that were captured with another secret need that secret: set MEMRELAY_SECRET or MEMRELAY_SECRET_FILE to it.

    Example: memrelay-gateway outbox deliver
    """
    context = run.context
    if context.settings.disabled:
        fail(FAILED, "nothing is delivered: memory is switched off by MEMRELAY_DISABLE", "unset it")
    with open_outbox(context) as own:
        sealed = 0 if file is None else _move(run, file, own)
        if not own.claim():
            fail(FAILED, "a running gateway delivers these turns", "see with: memrelay-gateway outbox status")

        async def deliver(client: RelayerClient) -> tuple[int, str]:
            renamed = context.settings.namespace.renamed
            sender = Sender(
                client, own, lambda owner: identify_owner(context.holder, renamed, owner), notify=notify
            )
            async with aclosing(sender):
                await sender.flush(_DELIVERY_SECONDS)
                return sender.delivered, sender.last_error

        delivered, problem = guarded(lambda: asyncio.run(used(context.settings, deliver)))
        waiting = own.waiting()
    run.tell(
        {"delivered": delivered, "waiting": waiting, "other_secret": sealed},
        f"{delivered} delivered, {waiting} waiting",
    )
    if sealed:
        fail(
            FAILED,
            f"sealed with another secret, or damaged: {sealed} captured turns",
            "run it again with that secret in MEMRELAY_SECRET, or destroy them: outbox drop --all --waiting --file NAME",
        )
    if waiting:
        fail(FAILED, problem or "not all turns could be delivered", "memrelay-gateway doctor")


def _move(run: Run, file: str, own: Outbox) -> int:
    """Move what waits in another outbox to the current one, and return how many items this secret does not open."""
    with _chosen(run, file) as other:
        if other.path == own.path:
            return 0
        if not other.claim():
            fail(
                FAILED,
                f"a running gateway delivers the turns in {other.path.name}",
                "stop that gateway first, or leave the turns to it",
            )
        try:
            return other.move_to(own)
        except OutboxFull as error:
            fail(FAILED, str(error), "deliver those first: memrelay-gateway outbox deliver")


@command(outbox, "retry", agent=None)
def outbox_retry(run: Run, letter: _Id = None, *, every: _All = False, file: _File = None) -> None:
    """Send refused turns again, after their cause is fixed.

    Example: memrelay-gateway outbox retry --all
    """
    _named(letter, every=every)
    with _chosen(run, file) as found:
        count = found.retry(letter)
    _tell(run, "waiting", count, "queued again; a running gateway delivers them, or the next one that starts")


@command(outbox, "drop", agent=None)
def outbox_drop(
    run: Run,
    letter: _Id = None,
    *,
    every: _All = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Also turns that were not rejected.")] = False,
    file: _File = None,
) -> None:
    """Destroy refused turns; with --waiting also those that still wait.

    Example: memrelay-gateway outbox drop ID
    """
    _named(letter, every=every)
    with _chosen(run, file) as found:
        count = found.drop(letter, dead_only=not waiting)
    _tell(run, "destroyed", count, "destroyed")


def _named(letter: str | None, *, every: bool) -> None:
    if (letter is None) != every:
        fail(
            USAGE,
            "give the id of a captured turn, or --all",
            "list the ids with: memrelay-gateway outbox list",
        )


def _tell(run: Run, name: str, count: int, what: str) -> None:
    if not count:
        fail(FAILED, "no such captured turn", "list the ids with: memrelay-gateway outbox list")
    run.tell({name: count}, f"{count} {what}")


def _row(letter: QueuedItem) -> dict[str, object]:
    """Return the facts about an item without its texts; all are None if it cannot be decrypted."""
    item = letter.item
    at = item and datetime.fromtimestamp(item.queued_at / 1000, UTC).isoformat(timespec="seconds")
    return {
        "id": letter.id,
        "queued": at,
        "agent": item and item.owner.agent,
        "namespace": item and item.owner.namespace,
        "messages": item and len(item.request.turns),
        "state": f"refused: {letter.reason}" if isinstance(letter, DeadLetter) else "waiting",
    }
