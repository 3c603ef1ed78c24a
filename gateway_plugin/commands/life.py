"""``memrelay-gateway``: commands that change stored memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, built_or_exit, command
from gateway_plugin.keys.identity import Identity
from relayer.wire.amounts import parse_seconds
from relayer.wire.command_line import USAGE, fail
from relayer.wire.fields import MAX_TTL_SECONDS
from relayer.wire.memories import DeleteRequest, DeleteResponse, SupersedeRequest

IdArgument = Annotated[str, typer.Argument(metavar="ID")]


@command()
def edit(
    run: Run,
    memory_id: IdArgument,
    text: Annotated[str | None, typer.Argument(help="The new text.")] = None,
    *,
    pin: Annotated[
        bool | None,
        typer.Option(
            "--pin/--unpin", help="Pin the memory; filters can exclude pinned memories from deletion."
        ),
    ] = None,
    expire_in: Annotated[
        str | None,
        typer.Option(
            "--expire-in",
            "--in",
            metavar="30m|12h|7d",
            help="Time after which the memory is no longer recalled.",
        ),
    ] = None,
    never_expire: Annotated[
        bool, typer.Option("--never-expire", "--never", help="Remove the expiry time.")
    ] = False,
    settle: Annotated[
        bool, typer.Option("--settle", help="Remove the mark that the memory contradicts others.")
    ] = False,
) -> None:
    """Change a memory's text, mark or end; the old version stays in its history.

    Example: memrelay-gateway edit ID "Our staging database is called egret."

    Example: memrelay-gateway edit ID --pin --expire-in 30d
    """
    if never_expire and expire_in is not None:
        fail(USAGE, "give either --expire-in or --never-expire", "memrelay-gateway edit ID --expire-in 30d")
    seconds = None if expire_in is None else _seconds("--expire-in", expire_in)
    if seconds is not None and seconds > MAX_TTL_SECONDS:
        fail(USAGE, "--expire-in: at most 100 years", "or: --never-expire")
    changes: dict[str, dict[str, Any]] = {
        "updated": {} if text is None else {"text": text},
        "pinned" if pin else "unpinned": {} if pin is None else {"pinned": pin},
        "stays": {"ttl_seconds": 0} if never_expire else {},
        "contradicts nothing": {"contradicts": ()} if settle else {},
        f"expires in {expire_in}": {} if seconds is None else {"ttl_seconds": seconds},
    }
    fields = {name: value for change in changes.values() for name, value in change.items()}
    if not fields:
        fail(USAGE, "nothing to change: give TEXT or an option", 'memrelay-gateway edit ID "The new text."')
    request = built_or_exit(lambda: SupersedeRequest.model_validate(fields))
    answer = run.ask(lambda client, identity: client.supersede(identity, memory_id, request))
    done = ", ".join(word for word, change in changes.items() if change)
    run.tell(answer, f"{done}: {answer.id} (a new version of {answer.supersedes})")


@command()
def restore(run: Run, memory_id: IdArgument) -> None:
    """Bring back a forgotten memory, an old version of one, or what another memory replaced, which then is live next to it.

    Example: memrelay-gateway restore ID
    """
    answer = run.ask(lambda client, identity: client.restore(identity, memory_id))
    instead = f" instead of {answer.replaced}" if answer.replaced else ""
    run.tell(answer, f"restored: {answer.id}{instead}")


@command()
def delete(
    run: Run,
    *,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable.")] = None,
    session: Annotated[list[str] | None, typer.Option(help="Only this session.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="Only this host.")] = None,
    audience: Annotated[list[str] | None, typer.Option(help="agent, direct, group.")] = None,
    trust: Annotated[list[str] | None, typer.Option(help="user, imported, assistant, tool.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="12h|90d", help="Only memories stored before this age.")
    ] = None,
    inactive_for: Annotated[
        str | None,
        typer.Option(metavar="12h|90d", help="Only memories neither stored nor repeated within this age."),
    ] = None,
    unpinned: Annotated[bool, typer.Option("--unpinned", help="Spare pinned ones.")] = False,
    everything: Annotated[bool, typer.Option("--everything", help="All memories, without a filter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
) -> None:
    """Forget memories by filter; `restore` brings each back.

    Example: memrelay-gateway delete --kind event --older-than 90d --dry-run
    """
    filters: dict[str, Any] = {
        "kinds": kind,
        "sessions": session,
        "hosts": host,
        "audiences": audience,
        "trusts": trust,
        "created_before": older_than and _ago("--older-than", older_than),
        "inactive_since": inactive_for and _ago("--inactive-for", inactive_for),
        "pinned": False if unpinned else None,
    }
    given = {name: value for name, value in filters.items() if value is not None}
    if bool(given) == everything:
        fail(
            USAGE,
            "choose the memories: give a filter, or --everything",
            "memrelay-gateway delete --kind event --older-than 90d --dry-run",
        )
    request = built_or_exit(
        lambda: DeleteRequest.model_validate({**given, "everything": everything, "dry_run": dry_run})
    )
    answer = run.ask(lambda client, identity: _in_rounds(client, identity, request))
    done = f"forgotten: {answer.forgotten} of {_memories(answer.matched)}"
    would = f"{_memories(answer.matched)} would be forgotten; nothing was changed"
    run.tell(answer, would if dry_run else done)


async def _in_rounds(client: RelayerClient, identity: Identity, request: DeleteRequest) -> DeleteResponse:
    """Repeat a request until nothing remains, or a round changes nothing; return the sum."""
    first = answer = await client.delete(identity, request)
    forgotten = first.forgotten
    while answer.remaining and answer.forgotten:
        answer = await client.delete(identity, request)
        forgotten += answer.forgotten
    return first.model_copy(update={"forgotten": forgotten, "remaining": answer.remaining})


def _seconds(option: str, span: str) -> int:
    # A number without a unit could mean days or seconds, so it is refused.
    try:
        seconds = 0 if span.strip().isdecimal() else int(parse_seconds(span))
    except ValueError:
        seconds = 0
    if not seconds:
        fail(USAGE, f"{option}: give a number and a unit", "30s, 30m, 12h, 7d or 8w")
    return seconds


def _ago(option: str, span: str) -> str:
    now = datetime.fromtimestamp(SystemClock().now(), UTC)
    try:
        return (now - timedelta(seconds=_seconds(option, span))).isoformat()
    except OverflowError:
        fail(USAGE, f"{option}: the time is too far in the past", "give a shorter time")


def _memories(count: int) -> str:
    return f"{count} {'memory' if count == 1 else 'memories'}"
