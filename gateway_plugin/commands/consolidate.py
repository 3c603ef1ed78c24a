"""``memrelay-gateway consolidate``: show which memories repeat or replace each other, tidy them up, and show the last run.

Memories change only with ``--apply`` on the command line, or with the setting ``consolidation.apply`` for scheduled runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, command, open_outbox
from gateway_plugin.keys.identity import Identity
from gateway_plugin.recall.consolidation import ConsolidationReport, Difference, difference, last_report, take
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.fields import one_line, render_time
from relayer.wire.service import ProposalView, TakenView

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
        _show_last(run)
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


def _show_last(run: Run) -> None:
    context = run.context
    with open_outbox(context) as kept:
        report = last_report(kept, context.identity.ref)
    if report is None:
        fail(FAILED, "no scheduled run has happened yet", "set consolidation.enabled to true to start it")
    document = report.model_dump(mode="json") | {"at": render_time(int(report.at * 1000))}
    run.tell(document, *_lines_of(report))


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
