"""``memrelay-gateway outbox``: list items that wait for the relayer or that it refused, and retry or delete them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from gateway_plugin.commands.run import Output, Run, command, open_outbox
from gateway_plugin.outbox.queue import DeadLetter, QueuedItem
from relayer.wire.command_line import FAILED, USAGE, fail

outbox = typer.Typer(help="Captured turns that wait for delivery.", no_args_is_help=True)
_Id = Annotated[str | None, typer.Argument(metavar="ID", help="The id that `list` shows.")]
_All = Annotated[bool, typer.Option("--all", help="Every one.")]


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
    others = sorted(place.name for place in found.path.parent.glob("outbox-*.db") if place != found.path)
    if as_metrics:
        Output(as_json=False).say(_metrics(waiting, len(dead), oldest))
        return
    rows = {
        "file": str(found.path),
        "waiting": waiting,
        "oldest_seconds": oldest,
        "dead_letters": len(dead),
        "delivering": "no process at the moment" if idle else "a running gateway",
        "other_outboxes": others,
    }
    run.facts(rows, other_outboxes=", ".join(others) or "none")


def _metrics(waiting: int, dead: int, oldest: int) -> str:
    rows = (
        ("outbox_waiting", "Captured turns that wait for the relayer.", waiting),
        ("outbox_oldest_seconds", "Age of the oldest captured turn that waits.", oldest),
        ("outbox_dead_letters", "Captured turns that the relayer rejected permanently.", dead),
    )
    return "\n".join(
        f"# HELP memrelay_gateway_{name} {text}\n# TYPE memrelay_gateway_{name} gauge\nmemrelay_gateway_{name} {number}"
        for name, text, number in rows
    )


@command(outbox, "list", agent=None)
def outbox_list(run: Run) -> None:
    """List what waits and what was refused for good, without any text of it.

    Example: memrelay-gateway outbox list
    """
    with open_outbox(run.context) as found:
        letters = (*found.queued(), *found.dead_letters())
    rows = [_row(letter) for letter in letters]
    run.json(rows)
    for row in rows:
        known = "unknown" if row["agent"] is None else f"{row['queued']}  {row['agent']}"
        count = "? messages" if row["messages"] is None else f"{row['messages']} messages"
        run.say(f"{row['id']}  {known}  {count}  {row['state']}")
    run.say(f"{len(letters)} captured turns")


@command(outbox, "retry", agent=None)
def outbox_retry(run: Run, letter: _Id = None, *, every: _All = False) -> None:
    """Send refused turns again, after their cause is fixed.

    Example: memrelay-gateway outbox retry --all
    """
    _named(letter, every=every)
    with open_outbox(run.context) as found:
        count = found.retry(letter)
    _tell(run, "waiting", count, "queued again; a running gateway delivers them, or the next one that starts")


@command(outbox, "drop", agent=None)
def outbox_drop(
    run: Run,
    letter: _Id = None,
    *,
    every: _All = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Also turns that were not rejected.")] = False,
) -> None:
    """Destroy refused turns; with --waiting also those that still wait.

    Example: memrelay-gateway outbox drop ID
    """
    _named(letter, every=every)
    with open_outbox(run.context) as found:
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
