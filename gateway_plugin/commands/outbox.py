"""``memrelay-gateway outbox``: what waits for the relayer, what it refused, and what to do about either."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from gateway_plugin.calls.trust import Endpoint
from gateway_plugin.commands.run import JsonOption, Output, UrlOption, find_context, guarded
from gateway_plugin.outbox.queue import DeadLetter, Outbox, QueuedItem, outbox_path
from relayer.wire.command_line import FAILED, USAGE, fail

outbox = typer.Typer(help="Captured turns on their way to the relayer.", no_args_is_help=True)
_Id = Annotated[str | None, typer.Argument(metavar="ID", help="As `list` shows it.")]
_All = Annotated[bool, typer.Option("--all", help="Every one.")]


def open_file_outbox(url: str | None) -> Outbox:
    """Return the outbox of this gateway's keys and the relayer that is set or named."""
    context = find_context(url, None)
    origin = guarded(lambda: Endpoint.parse(context.settings.url)).origin
    return Outbox(guarded(lambda: outbox_path(os.environ, context.holder, origin)), context.holder)


@outbox.command("status")
def outbox_status(
    *,
    url: UrlOption = None,
    as_json: JsonOption = False,
    as_metrics: Annotated[
        bool,
        typer.Option("--prometheus", help="Print the numbers as metrics, for node_exporter's textfiles."),
    ] = False,
) -> None:
    """Show how much waits and for how long, how much was refused, and whether somebody delivers."""
    found = open_file_outbox(url)
    dead = guarded(found.dead_letters)
    waiting = found.waiting()
    oldest = _seconds_waited(guarded(found.queued))
    idle = found.claim()
    found.close()
    others = sorted(set(found.path.parent.glob("outbox-*.db")) - {found.path})
    if as_metrics:
        Output(as_json=False).say(_metrics(waiting, len(dead), oldest))
        return
    rows = {
        "file": str(found.path),
        "waiting": str(waiting),
        "oldest_seconds": str(oldest),
        "dead_letters": str(len(dead)),
        "delivering": "no process at the moment" if idle else "a running gateway",
        "other_outboxes": ", ".join(place.name for place in others) or "none",
    }
    if as_json:
        Output(as_json=True).json(
            {**rows, "waiting": waiting, "oldest_seconds": oldest, "dead_letters": len(dead)}
        )
    else:
        Output(as_json=False).pairs((name.replace("_", " "), value) for name, value in rows.items())


def _seconds_waited(queued: Sequence[QueuedItem]) -> int:
    """Return for how long the oldest item has waited; 0 where nothing waits, or nothing of it opens."""
    since = min((letter.item.queued_at for letter in queued if letter.item), default=None)
    return 0 if since is None else max(0, int(time.time() - since / 1000))


def _metrics(waiting: int, dead: int, oldest: int) -> str:
    """Return the numbers in Prometheus' text format."""
    rows = (
        ("outbox_waiting", "Captured turns that wait for the relayer.", waiting),
        ("outbox_oldest_seconds", "For how long the oldest of them has waited.", oldest),
        ("outbox_dead_letters", "Captured turns that the relayer refused for good.", dead),
    )
    return "\n".join(
        f"# HELP memrelay_gateway_{name} {text}\n# TYPE memrelay_gateway_{name} gauge\nmemrelay_gateway_{name} {number}"
        for name, text, number in rows
    )


@outbox.command("list")
def outbox_list(*, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List what waits and what was refused for good, without any text of it."""
    found = open_file_outbox(url)
    letters = guarded(lambda: (*found.queued(), *found.dead_letters()))
    found.close()
    output = Output(as_json=as_json)
    if as_json:
        output.json([_row(letter) for letter in letters])
        return
    for letter in letters:
        row = _row(letter)
        output.say(
            f"{row['id']}  {row['queued']}  {row['agent']}  {row['messages']} messages  {row['state']}"
        )
    output.say(f"{len(letters)} captured turns")


@outbox.command("retry")
def outbox_retry(letter: _Id = None, *, every: _All = False, url: UrlOption = None) -> None:
    """Let refused turns wait again, once what stood in their way is mended."""
    _named(letter, every=every)
    found = open_file_outbox(url)
    count = guarded(lambda: found.retry(letter))
    found.close()
    _tell(count, "wait again; a running gateway, or the next one, delivers them")


@outbox.command("drop")
def outbox_drop(
    letter: _Id = None,
    *,
    every: _All = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Also what was not refused.")] = False,
    url: UrlOption = None,
) -> None:
    """Destroy refused turns; with --waiting also those that still wait."""
    _named(letter, every=every)
    found = open_file_outbox(url)
    count = guarded(lambda: found.drop(letter, dead_only=not waiting))
    found.close()
    _tell(count, "destroyed")


def _named(letter: str | None, *, every: bool) -> None:
    if (letter is None) != every:
        fail(USAGE, "name one captured turn, or say --all", "see the ids with: memrelay-gateway outbox list")


def _tell(count: int, what: str) -> None:
    if not count:
        fail(FAILED, "no such captured turn", "see the ids with: memrelay-gateway outbox list")
    Output(as_json=False).say(f"{count} {what}")


def _row(letter: QueuedItem) -> dict[str, str]:
    item = letter.item
    at = (
        datetime.fromtimestamp(item.queued_at / 1000, UTC).isoformat(timespec="seconds")
        if item
        else "unknown"
    )
    return {
        "id": letter.id,
        "queued": at,
        "agent": item.owner.agent if item else "unknown",
        "namespace": item.owner.namespace if item else "unknown",
        "messages": str(len(item.request.turns)) if item else "?",
        "state": f"refused: {letter.reason}" if isinstance(letter, DeadLetter) else "waiting",
    }
