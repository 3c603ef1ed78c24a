"""The first turn of a session: what was said lately, under the headings that memsearch's users know (MS-01 to MS-03)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.formatting import escape, framed
from gateway_plugin.identity import Identity
from gateway_plugin.injection import scan
from gateway_plugin.recall.selection import audible_to
from gateway_plugin.session_keys import Audience
from gateway_plugin.settings import RecallSettings
from gateway_plugin.text.measures import estimate_tokens, one_line
from relayer.wire.context import ContextResponse
from relayer.wire.schemas import Memory

__all__ = ["ColdStart", "fetch", "format_days"]

_HEADING: Final = "Recent memories (use memory_search for full search):"
_HINT: Final = (
    "You have {count} past memory file(s). Use the memory_search tool when the user's question could benefit from "
    "historical context."
)
_TRUSTED: Final = ("user", "imported", "assistant")


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What a session begins with: the block, and the texts in it."""

    text: str = field(default="", repr=False)
    said: tuple[str, ...] = field(default=(), repr=False)


async def fetch(
    client: RelayerClient,
    settings: RecallSettings,
    *,
    identity: Identity,
    audience: Audience | None,
    now: datetime,
    seconds: float,
) -> ColdStart:
    """Fetch and format what was said lately; raises as the client does.

    Args:
        client: the relayer.
        settings: how much of it.
        identity: whose memories.
        audience: who reads the answer.
        now: with a time zone, which says where a day begins.
        seconds: the deadline.
    """
    offset = now.utcoffset()
    answer = await client.context(
        identity,
        days=settings.cold_start.days,
        items=settings.cold_start.lines,
        offset_minutes=0 if offset is None else int(offset.total_seconds() // 60),
        audiences=audible_to(audience),
        trusts=_TRUSTED,
        deadline=seconds,
    )
    return format_days(answer, settings, audible_to(audience))


def format_days(answer: ContextResponse, settings: RecallSettings, audible: Sequence[str]) -> ColdStart:
    """Format days, newest first, within the budget of a recall: the oldest lines are the first to go.

    Without a line to show, a hint says how much there is to search; without any memory, nothing is said.
    """
    days = [(day.date, [one for one in day.memories if _may_be_shown(one, audible)]) for day in answer.days]
    while any(memories for _, memories in days):
        text = framed("\n".join([_HEADING, *_lines(days)]), settings=settings)
        if estimate_tokens(text) <= settings.max_tokens:
            return ColdStart(text, tuple(one.text for _, memories in days for one in memories))
        oldest = next(memories for _, memories in reversed(days) if memories)
        oldest.pop(0)
    return ColdStart(_HINT.format(count=answer.total)) if answer.total else ColdStart()


def _lines(days: Sequence[tuple[str, list[Memory]]]) -> list[str]:
    lines: list[str] = []
    for date, memories in days:
        if memories:
            lines += [f"## {date}", *(f"- {escape(one.text)}" for one in memories)]
    return lines


def _may_be_shown(memory: Memory, audible: Sequence[str]) -> bool:
    # The relayer was asked for exactly this; it is checked again because its answer is input.
    if memory.suspect or memory.trust not in _TRUSTED or (audible and memory.audience not in audible):
        return False
    verdict = scan(memory.text)
    return bool(one_line(memory.text)) and not verdict.blocked and not verdict.suspect
