"""``memrelay-gateway``: commands that change stored memories: edit, restore, forget, erase for good, and consolidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import (
    CliContext,
    Output,
    Run,
    SenderOption,
    audiences_of,
    built_or_exit,
    command,
    open_outbox,
    root_holder,
    sender_ids,
    with_client,
)
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.keys.identity import Identity, NamespaceRef, RootHolder, typed
from gateway_plugin.outbox.queue import Outbox, other_outboxes
from gateway_plugin.outbox.sender import erase_people, erase_texts, forget_namespace
from gateway_plugin.recall.consolidation import ConsolidationReport, Difference, difference, last_report, take
from relayer.wire.amounts import parse_seconds
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.fields import MAX_TTL_SECONDS, one_line, render_time
from relayer.wire.redaction import redact
from relayer.wire.schemas import (
    DeleteRequest,
    DeleteResponse,
    EraseNamespaceResponse,
    ErasureView,
    SupersedeRequest,
)
from relayer.wire.service import ProposalView, TakenView

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
    if text is not None and (left_out := secrets_left_out(run, text, answer.id)):
        run.say(f"stored without the {' and the '.join(left_out)}")
        run.say("to keep all of it: memrelay-gateway remember --secret TEXT, and forget this memory")


def secrets_left_out(run: Run, said: str, memory_id: str) -> list[str]:
    """Return the kinds of secrets in what was said that the relayer did not store with the memory."""
    kinds = redact(said).kinds
    if not kinds:
        return []
    stored = run.ask(lambda client, identity: client.get_memory(identity, memory_id)).memory.text
    return [] if stored == said else [kind.replace("_", " ") for kind in kinds]


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
    sender: SenderOption = None,
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
    if sender and audience:
        fail(USAGE, "give either --sender or --audience", "memrelay-gateway delete --sender telegram:222")
    filters: dict[str, Any] = {
        "kinds": kind,
        "sessions": session,
        "hosts": host,
        "audiences": audiences_of(sender_ids(sender)) if sender else audience,
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


_STATES = {
    "erased": "no longer recalled; the relayer is now deleting the stored objects",
    "destroyed": "removed from the store; the final check follows in about an hour",
    "confirmed": "nothing is left in the store, including older versions",
}


@command()
def erase(
    run: Run,
    memory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One memory.")] = None,
    *,
    sender: SenderOption = None,
    whole: Annotated[bool, typer.Option("--namespace", help="Erase all memories of the agent.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Erase; without this option, only show what would be erased.")
    ] = False,
) -> None:
    """Destroy a memory, every version of it and what was made of it; all of a person, or a namespace. It cannot be undone.

    Example: memrelay-gateway erase ID --yes

    Example: memrelay-gateway erase --sender telegram:222

    Example: memrelay-gateway erase --namespace --agent coder --yes
    """
    if sum((whole, memory_id is not None, bool(sender))) != 1:
        fail(USAGE, "give either ID, --sender or --namespace", "memrelay-gateway erase ID")
    senders = sender_ids(sender)
    context = _as_a_person(run.context)
    if senders:
        _erase_people(run, context, senders, yes=yes)
    elif memory_id is None:
        _erase_namespace(run, context, yes=yes)
    else:
        _erase_memory(run, context, memory_id, yes=yes)


@command()
def erasure(
    run: Run, erasure_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `erase` printed.")]
) -> None:
    """Show how far an erasure is.

    Example: memrelay-gateway erasure ID
    """
    context = run.context
    if isinstance(context.holder, RootHolder):
        # The agent's own keys may have been revoked before its memories were erased.
        context = _as_a_person(context)
    view = with_client(context.settings, lambda client: client.erasure(context.identity, erasure_id))
    run.json(view)
    _show(run, view)


def _as_a_person(context: CliContext) -> CliContext:
    holder = root_holder(context, "erasing", instead="memrelay-gateway forget ID")
    return replace(context, identity=holder.person(context.identity.agent, context.identity.namespace))


def _erase_memory(run: Run, context: CliContext, memory_id: str, *, yes: bool) -> None:
    identity = context.identity
    texts = with_client(
        context.settings, lambda client: _texts(client, identity, memory_id, must_exist=not yes)
    )
    if not yes:
        shown = "\n".join(f"  {text}" for text in texts)
        run.tell(
            {"dry_run": True, "namespace": identity.namespace, "id": memory_id, "texts": texts},
            f"would be erased, together with everything derived from it:\n{shown}\ndo it: --yes",
        )
        return
    with _erased_here(context, lambda outbox: erase_texts(outbox, identity.namespace, texts)) as waiting:
        answer = with_client(context.settings, lambda client: client.erase(identity, memory_id))
    _print(run, answer.erasure, waiting)


@contextmanager
def _erased_here(context: CliContext, erase_waiting: Callable[[Outbox], int]) -> Iterator[int]:
    """Erase what waits on this machine and yield its number of turns; the relayer is asked in the ``with`` block.

    What waits goes first, also for a former address of the relayer, so that none of it is delivered after the relayer has erased the
    rest. If the relayer fails then, what is done and what remains to be done is printed.
    """
    with open_outbox(context) as outbox:
        waiting = erase_waiting(outbox)
        waiting += sum(map(erase_waiting, other_outboxes(outbox.path, context.holder)))
    try:
        yield waiting
    except typer.Exit:
        typer.echo(
            f"undelivered turns that are erased on this machine: {waiting}; what the relayer stores is not erased: "
            "run the same command again when this is solved",
            err=True,
        )
        raise


def _erase_people(run: Run, context: CliContext, senders: tuple[str, ...], *, yes: bool) -> None:
    """Erase in rounds, each with a report of its own."""
    identity, shown = context.identity, " and ".join(senders)

    async def work(client: RelayerClient) -> tuple[int, list[ErasureView]]:
        request = DeleteRequest(audiences=audiences_of(senders), mode="erase", dry_run=not yes)
        first = answer = await client.delete(identity, request)
        reports = []
        while answer.erasure is not None:
            reports.append(answer.erasure)
            if not answer.remaining:
                break
            answer = await client.delete(identity, request)
        return first.matched, reports

    if not yes:
        matched, _ = with_client(context.settings, work)
        run.tell(
            {"dry_run": True, "namespace": identity.namespace, "senders": senders, "matched": matched},
            f"would be erased: {matched} memories and kept turns of {shown}, forgotten and replaced ones too\n"
            "list shows the live ones: memrelay-gateway list --sender ID\ndo it: --yes",
        )
        return
    with _erased_here(context, lambda outbox: erase_people(outbox, identity.namespace, senders)) as waiting:
        matched, reports = with_client(context.settings, work)
    views = [view.model_dump(mode="json") for view in reports]
    run.json({"senders": senders, "matched": matched, "erasures": views, "waiting_turns": waiting})
    if not reports:
        run.say(
            f"nothing of {shown} is stored at the relayer; ids of senders are source.sender in: memrelay-gateway list --json"
        )
    for view in reports:
        _tell(run, view, 0)
    if waiting:
        run.say(f"undelivered turns that are also erased: {waiting}")


async def _texts(client: RelayerClient, identity: Identity, memory_id: str, *, must_exist: bool) -> list[str]:
    try:
        found = await client.get_memory(identity, memory_id)
    except RelayerRefused as error:
        if error.code != "not_found" or must_exist:
            raise
        return []  # erased before; erasing it again is allowed
    return list(dict.fromkeys(one.text for one in (found.memory, *found.history)))


def _erase_namespace(run: Run, context: CliContext, *, yes: bool) -> None:
    identity = context.identity
    if not yes:
        counted = with_client(context.settings, lambda client: client.erase_namespace(identity))
        many = "what it holds cannot be read" if counted.memories is None else f"{counted.memories} memories"
        run.tell(counted, f"would be erased: namespace {counted.namespace}, {many}\ndo it: --yes")
        return

    async def work(client: RelayerClient) -> EraseNamespaceResponse:
        counted = await client.erase_namespace(identity)
        return await client.erase_namespace(identity, confirm=counted.confirm)

    whose = NamespaceRef(identity.namespace.partition("/")[0], identity.namespace, identity.generation)
    with _erased_here(context, lambda outbox: forget_namespace(outbox, whose)) as waiting:
        answer = with_client(context.settings, work)
    _print(run, answer.erasure, waiting)


def _print(run: Run, view: ErasureView | None, waiting: int) -> None:
    if view is None:
        fail(FAILED, "the relayer sent no report: it is older than this gateway", "")
    run.json({**view.model_dump(mode="json"), "waiting_turns": waiting})
    _tell(run, view, waiting)


def _tell(run: Run, view: ErasureView, waiting: int) -> None:
    _show(run, view)
    if waiting:
        run.say(f"undelivered turns that are also erased: {waiting}")
    if view.state != "confirmed":
        whose = "" if run.agent is None else f" --agent {typed(run.context.identity.namespace)}"
        run.say(f"check the progress with: memrelay-gateway erasure {view.id}{whose}")


def _show(output: Output, view: ErasureView) -> None:
    what = f"namespace {view.namespace}" if view.what == "namespace" else f"{len(view.memories)} memories"
    derived = f" and {len(view.derived)} made of them" if view.derived else ""
    output.say(f"{view.state}: {what}{derived}; {_STATES[view.state]}")


_WHY: Final = {
    "duplicate": "says the same",
    "replaced": "takes its place",
    "conflict": "contradicts it; choose one with: memrelay-gateway forget ID, or correct one with: edit ID TEXT",
}


@command()
def consolidate(
    run: Run,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IDS", help="With --apply: the proposals or memories to act on; all by default."
        ),
    ] = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Take the proposals.")] = False,
    last: Annotated[bool, typer.Option("--last", help="Show what the last scheduled run did.")] = False,
) -> None:
    """Show which memories repeat or replace each other; with --apply, tidy up. `restore` brings each back.

    Example: memrelay-gateway consolidate --agent coder

    Example: memrelay-gateway consolidate --apply --agent coder
    """
    if ids and not apply:
        fail(USAGE, "IDS: only valid with --apply", "memrelay-gateway consolidate --apply ID")
    if last and (ids or apply):
        fail(USAGE, "--last: cannot be combined with IDS or --apply", "remove IDS and --apply")
    if last:
        context = run.context
        with open_outbox(context) as kept:
            report = last_report(kept, context.identity.ref)
        if report is None:
            fail(FAILED, "no scheduled run has happened yet", "set consolidation.enabled to true to start it")
        shown = report.model_dump(mode="json") | {"at": render_time(int(report.at * 1000))}
        run.tell(shown, *_lines_of(report))
        return
    found, taken = run.ask(lambda client, identity: _run(client, identity, ids or (), apply=apply))
    unknown = _unknown(found, ids or ())
    document = {
        "proposals": [proposal.model_dump(mode="json") for proposal in found.proposals],
        "examined": found.examined,
        "expired": found.expired,
        "taken": [one.model_dump(mode="json") for one in taken],
        "replaced": [one.model_dump(mode="json") for one in found.replaced],
    }
    run.tell(document, *_lines(found, taken, apply=apply))
    if unknown:
        fail(
            FAILED,
            f"{len(unknown)} of these IDS name nothing that can be taken",
            "see the proposals with: memrelay-gateway consolidate",
        )
    if any(one.status != "taken" for one in taken):
        fail(
            FAILED,
            "some memories were changed in the meantime and were left alone",
            "check the proposals again with: memrelay-gateway consolidate",
        )


async def _run(
    client: RelayerClient, identity: Identity, ids: Sequence[str], *, apply: bool
) -> tuple[Difference, tuple[TakenView, ...]]:
    found = await difference(client, identity)
    wanted = [proposal.id for proposal in found.takeable if not ids or _is_named(proposal, ids)]
    return found, await take(client, identity, wanted) if apply and not _unknown(found, ids) else ()


def _lines_of(report: ConsolidationReport) -> Iterator[str]:
    yield f"{datetime.fromtimestamp(report.at, UTC).astimezone():%Y-%m-%d %H:%M}"
    yield f"light: {report.given} memories were given to turns"
    yield f"REM: {report.examined} compared; proposed for removal: {len(report.proposals)}; conflicts: {report.conflicts}"
    yield f"deep: {len(report.promoted)} promoted, {len(report.taken)} taken"
    for one in report.promoted:
        why = f"{one.recalls} turns, {one.questions} questions, mean relevance {one.score}"
        yield f"  promoted {one.id} ({why}); undo with: memrelay-gateway edit {one.id} --unpin"
    for proposal in report.taken:
        gone = proposal.partition("-")[0]
        yield f"  taken {gone}; undo with: memrelay-gateway restore {gone}"
    if len(report.proposals) > len(report.taken):
        yield "show the current proposals with: memrelay-gateway consolidate"


def _is_named(proposal: ProposalView, ids: Sequence[str]) -> bool:
    return proposal.id in ids or proposal.goes.id in ids


def _unknown(found: Difference, ids: Sequence[str]) -> list[str]:
    return [one for one in ids if not any(_is_named(proposal, [one]) for proposal in found.takeable)]


def _lines(found: Difference, taken: Sequence[TakenView], *, apply: bool) -> Iterator[str]:
    """Yield the proposals as lines for people: ``-`` goes, ``+`` stays, ``?`` both stay."""
    for proposal in found.proposals:
        goes = "?" if proposal.reason == "conflict" else "-"
        stays = "?" if proposal.reason == "conflict" else "+"
        yield f"{proposal.reason}  {proposal.id}"
        yield f"  {goes} {proposal.goes.id}  {one_line(proposal.goes.text)}"
        yield f"  {stays} {proposal.stays.id}  {one_line(proposal.stays.text)}"
        yield f"    {_WHY[proposal.reason]}"
    count = len(found.takeable)
    yield f"{found.examined} memories examined; proposed for removal: {count}; conflicts: {len(found.proposals) - count}"
    if found.expired:
        yield f"{found.expired} more have expired and are no longer recalled"
    if found.replaced:
        yield "recently replaced by newer statements; bring one back with: memrelay-gateway restore ID"
    for gone in found.replaced:
        yield f"  - {gone.memory}  {one_line(gone.statement)}"
        yield f"  + {gone.by}  {one_line(gone.text)}"
    if apply:
        done = [one for one in taken if one.status == "taken"]
        yield f"taken: {len(done)} of {len(taken)}; bring one back with: memrelay-gateway restore ID"
    elif count:
        yield "nothing was changed; apply the proposals with: memrelay-gateway consolidate --apply [IDS]..."
