"""``memrelay-gateway``: commands that change stored memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import AgentOption, Output, UrlOption, ask, checked
from gateway_plugin.keys.identity import Identity
from relayer.wire.amounts import parse_seconds
from relayer.wire.command_line import USAGE, JsonOption, fail
from relayer.wire.fields import MAX_TTL_SECONDS
from relayer.wire.memories import DeleteRequest, DeleteResponse, SupersedeRequest

IdArgument = Annotated[str, typer.Argument(metavar="ID")]


def update(
    memory_id: IdArgument,
    text: Annotated[str, typer.Argument(help="What it says from now on.")],
    *,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Correct a memory; the old text stays in its history.

    Example: memrelay-gateway update ID "Our staging database is called egret."
    """
    _change(memory_id, {"text": text}, "updated", agent, url, as_json=as_json)


def pin(
    memory_id: IdArgument, *, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Mark a memory as one to keep; filters can spare pinned ones.

    Example: memrelay-gateway pin ID
    """
    _change(memory_id, {"pinned": True}, "pinned", agent, url, as_json=as_json)


def unpin(
    memory_id: IdArgument, *, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Take the mark of `pin` away.

    Example: memrelay-gateway unpin ID
    """
    _change(memory_id, {"pinned": False}, "unpinned", agent, url, as_json=as_json)


def expire(
    memory_id: IdArgument,
    *,
    after: Annotated[
        str | None, typer.Option("--in", metavar="30m|12h|7d", help="Hidden from then on.")
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="Keep it.")] = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say until when a memory is recalled.

    Example: memrelay-gateway expire ID --in 30d
    """
    if never == (after is not None):
        fail(USAGE, "--in, --never: give one of them", "memrelay-gateway expire ID --in 30d")
    seconds = 0 if after is None else _seconds("--in", after)
    if seconds > MAX_TTL_SECONDS:
        fail(USAGE, "--in: at most 100 years", "or: --never")
    done = "stays" if never else f"expires in {after}"
    _change(memory_id, {"ttl_seconds": seconds}, done, agent, url, as_json=as_json)


def restore(
    memory_id: IdArgument, *, agent: AgentOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Bring back a forgotten memory, or an old version of one.

    Example: memrelay-gateway restore ID
    """
    answer = ask(url, agent, lambda client, identity: client.restore(identity, memory_id))
    instead = f" instead of {answer.replaced}" if answer.replaced else ""
    Output(as_json=as_json).tell(answer, f"restored: {answer.id}{instead}")


def delete(
    *,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; may be given again.")] = None,
    session: Annotated[list[str] | None, typer.Option(help="Only of this session.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="Only of this host.")] = None,
    audience: Annotated[list[str] | None, typer.Option(help="agent, direct, group.")] = None,
    trust: Annotated[list[str] | None, typer.Option(help="user, imported, assistant, tool.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="12h|90d", help="Stored longer ago than that.")
    ] = None,
    inactive_for: Annotated[
        str | None, typer.Option(metavar="12h|90d", help="Neither stored nor said again for so long.")
    ] = None,
    unpinned: Annotated[bool, typer.Option("--unpinned", help="Spare pinned ones.")] = False,
    everything: Annotated[bool, typer.Option("--everything", help="No filter: all of them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and forget nothing.")] = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
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
            "say which memories: a filter, or --everything and no filter",
            "memrelay-gateway delete --kind event --older-than 90d --dry-run",
        )
    request = checked(
        lambda: DeleteRequest.model_validate({**given, "everything": everything, "dry_run": dry_run})
    )
    answer = ask(url, agent, lambda client, identity: _in_rounds(client, identity, request))
    done = f"forgotten: {answer.forgotten} of {_memories(answer.matched)}"
    would = f"{_memories(answer.matched)} would be forgotten; nothing was"
    Output(as_json=as_json).tell(answer, would if dry_run else done)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (update, pin, unpin, expire, restore, delete):
        app.command()(command)


async def _in_rounds(client: RelayerClient, identity: Identity, request: DeleteRequest) -> DeleteResponse:
    """Repeat a request until nothing remains, or a round changes nothing; return the sum."""
    first = answer = await client.delete(identity, request)
    forgotten = first.forgotten
    while not request.dry_run and answer.remaining and answer.forgotten:
        answer = await client.delete(identity, request)
        forgotten += answer.forgotten
    return first.model_copy(update={"forgotten": forgotten, "remaining": answer.remaining})


def _change(
    memory_id: str, fields: dict[str, Any], done: str, agent: str | None, url: str | None, *, as_json: bool
) -> None:
    request = checked(lambda: SupersedeRequest.model_validate(fields))
    answer = ask(url, agent, lambda client, identity: client.supersede(identity, memory_id, request))
    said = f"{done}: {answer.id} (a new version of {answer.supersedes})"
    Output(as_json=as_json).tell(answer, said)


def _seconds(option: str, span: str) -> int:
    # A number without a unit could mean days or seconds, so it is refused.
    try:
        seconds = 0 if span.strip().isdecimal() else int(parse_seconds(span))
    except ValueError:
        seconds = 0
    if not seconds:
        fail(USAGE, f"{option}: write a number and a unit", "30s, 30m, 12h, 7d or 8w")
    return seconds


def _ago(option: str, span: str) -> str:
    now = datetime.fromtimestamp(SystemClock().now(), UTC)
    try:
        return (now - timedelta(seconds=_seconds(option, span))).isoformat()
    except OverflowError:
        fail(USAGE, f"{option}: that is longer ago than time goes back", "write a shorter span")


def _memories(count: int) -> str:
    return f"{count} {'memory' if count == 1 else 'memories'}"
