"""What should stand in every prompt of a session: what could harm the person, how to answer them, who they are.

Made anew for every request and never stored, as a profile is, and from the same memories: what the person said, live, and by
nothing newer contradicted. What a memory says of this is told by its form alone (`relayer.search.essentials`), once while the
namespace is open, newest first; a request whose time is nearly up answers with what was looked at, and the next goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from relayer.access.accounts import Access
from relayer.domain.operations import Record
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.search.essentials import CLASSES, Essential
from relayer.use_cases.overview import Candidate, candidates
from relayer.wire import codec as ulid
from relayer.wire.fields import clip, one_line
from relayer.wire.service import StandingLine, StandingResponse
from relayer.writing.present import position

_LONGEST_LINE = 120
# Looked at between two turns of the others: a few milliseconds.
_AT_A_TIME = 20
# Of the time that is left when looking begins; the rest is for the answer.
_SHARE = 0.6


async def standing(
    ctx: Context,
    access: Access,
    *,
    lines: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> StandingResponse:
    """Return what should stand in every prompt: dangers first, then wishes about answers, then who the person is.

    Of each kind what is pinned comes first, then what is newest; a text that says no word that a line before it does not say is
    left out.

    Args:
        ctx: the relayer.
        access: the way into the namespace.
        lines: how many at most.
        audiences: only these; none means all.
        trusts: likewise.
        deadline: of the request.

    Raises:
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return StandingResponse(lines=())
        await opened.refresh(deadline)
        async with deadline.step("read"):
            chosen = await candidates(opened, ctx.clock.now_ms(), audiences, trusts)
            found, complete = await _look(opened, chosen, deadline)
        ordered = chain.from_iterable(found[kind] for kind in CLASSES[1:])
        return StandingResponse(
            lines=tuple(_distinct(opened, ordered))[:lines],
            complete=complete,
            position=position(opened.position),
        )


async def _look(
    opened: OpenNamespace, chosen: Iterable[Candidate], deadline: Deadline
) -> tuple[dict[str, list[tuple[bytes, Essential]]], bool]:
    """Return by class what matters, pinned first and then newest first, and whether everything was looked at."""
    found: dict[str, list[tuple[bytes, Essential]]] = {kind: [] for kind in CLASSES}
    reserve = deadline.remaining() * (1 - _SHARE)
    for number, one in enumerate(sorted(chosen, key=lambda one: (one.rank[0], -one.place))):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
            if deadline.remaining() < reserve:
                return found, False
        kind = opened.essential(one.record)
        if kind is not None:
            found[kind].append((one.record, kind))
    return found, True


def _distinct(opened: OpenNamespace, ordered: Iterable[tuple[bytes, Essential]]) -> Iterator[StandingLine]:
    said: list[frozenset[str]] = []
    for record_id, kind in ordered:
        record = opened.record(record_id)
        line = None if record is None else _line(record, kind)
        words = frozenset() if line is None else frozenset(line.text.casefold().rstrip(".!").split())
        if line is not None and words and not any(words <= other for other in said):
            said.append(words)
            yield line


def _line(record: Record, about: Essential) -> StandingLine:
    return StandingLine(
        id=ulid.render(record.id),
        text=clip(one_line(record.text), _LONGEST_LINE),
        speaker=one_line(record.source.speaker),
        kind=record.kind.value,
        audience=record.audience.value,
        trust=record.trust.value,
        pinned=record.pinned,
        about=about,
    )
