"""``memrelay-gateway consolidate``: a difference to look at, and to take as a whole or in parts.

Nothing is consolidated unless somebody says ``--apply``: no setting does it in the background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import AgentOption, Output, UrlOption, ask
from gateway_plugin.identity import Identity
from gateway_plugin.text.measures import one_line
from relayer.wire.command_line import FAILED, USAGE, JsonOption, fail
from relayer.wire.service import (
    MAX_TAKEN,
    ConsolidationRequest,
    ProposalView,
    TakenView,
    TakeRequest,
)

# Comparing a page takes the relayer seconds where memories are many.
_SECONDS: Final = 30.0
_WHY: Final = {
    "duplicate": "says the same",
    "replaced": "takes its place",
    "conflict": "cannot hold beside it; decide with: memrelay-gateway forget ID, or update ID TEXT",
}


@dataclass(frozen=True, slots=True)
class _Difference:
    """What all pages together propose, and what became of what was taken."""

    proposals: tuple[ProposalView, ...]
    examined: int
    expired: int
    taken: tuple[TakenView, ...] = ()


def consolidate(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="IDS", help="With --apply: these proposals, or memories that go; else all."),
    ] = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Take the proposals.")] = False,
    agent: AgentOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which memories repeat or replace each other; with --apply, tidy up. `restore` brings each back.

    Example: memrelay-gateway consolidate --agent coder

    Example: memrelay-gateway consolidate --apply --agent coder
    """
    if ids and not apply:
        fail(USAGE, "IDS: they are for --apply", "memrelay-gateway consolidate --apply ID")
    found = ask(url, agent, lambda client, identity: _run(client, identity, ids or (), apply=apply))
    unknown = _unknown(found.proposals, ids or ())
    output = Output(as_json=as_json)
    document = {
        "proposals": [proposal.model_dump(mode="json") for proposal in found.proposals],
        "examined": found.examined,
        "expired": found.expired,
        "taken": [one.model_dump(mode="json") for one in found.taken],
    }
    output.tell(document, *_lines(found, apply=apply))
    if unknown:
        fail(
            FAILED,
            f"{len(unknown)} of these IDS name nothing that can be taken",
            "see the proposals with: memrelay-gateway consolidate",
        )
    if any(one.status != "taken" for one in found.taken):
        fail(
            FAILED,
            "some memories changed meanwhile and stay as they are",
            "look again: memrelay-gateway consolidate",
        )


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(consolidate)


async def _run(client: RelayerClient, identity: Identity, ids: Sequence[str], *, apply: bool) -> _Difference:
    proposals: list[ProposalView] = []
    examined = expired = 0
    cursor: str | None = None
    while True:
        request = ConsolidationRequest(cursor=cursor) if cursor else ConsolidationRequest()
        page = await client.proposals(identity, request, deadline=_SECONDS)
        proposals += page.proposals
        examined += page.examined
        expired += page.expired
        cursor = page.next_cursor
        if cursor is None:
            break
    wanted = [proposal.id for proposal in _takeable(proposals) if not ids or _is_named(proposal, ids)]
    taken: list[TakenView] = []
    if apply and not _unknown(proposals, ids):
        for start in range(0, len(wanted), MAX_TAKEN):
            batch = TakeRequest(proposals=tuple(wanted[start : start + MAX_TAKEN]))
            taken += (await client.take_proposals(identity, batch, deadline=_SECONDS)).proposals
    return _Difference(tuple(proposals), examined, expired, tuple(taken))


def _takeable(proposals: Sequence[ProposalView]) -> list[ProposalView]:
    return [proposal for proposal in proposals if proposal.reason != "conflict"]


def _is_named(proposal: ProposalView, ids: Sequence[str]) -> bool:
    return proposal.id in ids or proposal.goes.id in ids


def _unknown(proposals: Sequence[ProposalView], ids: Sequence[str]) -> list[str]:
    return [one for one in ids if not any(_is_named(proposal, [one]) for proposal in _takeable(proposals))]


def _lines(found: _Difference, *, apply: bool) -> Iterator[str]:
    """Yield the difference as people read it: - goes, + stays, ? both stay."""
    for proposal in found.proposals:
        goes = "?" if proposal.reason == "conflict" else "-"
        stays = "?" if proposal.reason == "conflict" else "+"
        yield f"{proposal.reason}  {proposal.id}"
        yield f"  {goes} {proposal.goes.id}  {one_line(proposal.goes.text)}"
        yield f"  {stays} {proposal.stays.id}  {one_line(proposal.stays.text)}"
        yield f"    {_WHY[proposal.reason]}"
    count = len(_takeable(found.proposals))
    yield f"{found.examined} memories examined; can go: {count}; conflicts: {len(found.proposals) - count}"
    if found.expired:
        yield f"{found.expired} more are past their time: nobody is shown them"
    if apply:
        done = [one for one in found.taken if one.status == "taken"]
        yield f"taken: {len(done)} of {len(found.taken)}; each comes back with: memrelay-gateway restore ID"
    elif count:
        yield "nothing was changed; take them with: memrelay-gateway consolidate --apply [IDS]..."
