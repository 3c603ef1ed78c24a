"""From what the relayer found to what enters the prompt: the filters, each with the name that ``why`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from gateway_plugin.formatting import RecalledMemory, format_memories
from gateway_plugin.injection import scan
from gateway_plugin.session_keys import Audience, audience_name
from gateway_plugin.settings import RecallSettings
from gateway_plugin.status import HitTrace
from gateway_plugin.turn.sessions import Session
from relayer.wire.schemas import AudienceName, RecallHit

_TRUSTED: Final = ("user", "imported", "assistant")
_LABELS: Final = {"user": "said by the user", "imported": "imported", "assistant": "said by the assistant"}
_INJECTED: Final = "injected"


# What a memory was written by whose words are a language model's, whoever they are about.
_MODEL: Final = "llm/"
_NOTED: Final = "noted by a model"


@dataclass(frozen=True, slots=True)
class Selected:
    """The block, the memories in it, and what became of each memory found."""

    text: str = field(repr=False)
    hits: tuple[RecallHit, ...] = field(repr=False)
    traces: tuple[HitTrace, ...]


def audible_to(audience: Audience | None) -> tuple[AudienceName, ...]:
    """Return the audiences whose memories may be said here: in a group, none from direct messages (AM-05)."""
    return ("agent", "group") if audience_name(audience) == "group" else ()


def select(
    found: Sequence[RecallHit],
    *,
    settings: RecallSettings,
    audience: Audience | None,
    session: Session,
    now: datetime,
) -> Selected:
    """Filter, format, and keep the bytes of the last block when it holds the same memories.

    Args:
        found: hits, best first.
        settings: floor, budget, format.
        audience: who reads the answer.
        session: where the last block is kept, and the echoes of this one.
        now: with a time zone; only its day matters.
    """
    outcomes = {hit.id: _objection(hit, settings, audience) for hit in found}
    passed = [hit for hit in found if not outcomes[hit.id]][: settings.max_results]
    text, shown = _fitting(passed, settings, now)
    ids = frozenset(hit.id for hit in shown)
    if shown and session.sticky[0] == ids:
        text = session.sticky[1]
    session.sticky = (ids, text)
    session.echoes.injected(hit.text for hit in shown)
    traces = tuple(
        HitTrace(hit.id, hit.relevance, outcomes[hit.id] or (_INJECTED if hit.id in ids else "budget"))
        for hit in found
    )
    return Selected(text, tuple(shown), traces)


def _objection(hit: RecallHit, settings: RecallSettings, audience: Audience | None) -> str:
    # The relayer was asked for exactly this; it is checked again because its answer is input.
    if not hit.relevance >= settings.min_score:
        return "below_floor"
    if hit.trust not in _TRUSTED:
        return "untrusted_source"
    audible = audible_to(audience)
    if audible and hit.audience not in audible:
        return "audience"
    # The reference is shown beside the text.
    verdict = scan(f"{hit.source.reference}\n{hit.text}" if hit.source.reference else hit.text)
    if verdict.blocked:
        return "injection"
    return "suspect" if hit.suspect or verdict.suspect else ""


def _fitting(hits: list[RecallHit], settings: RecallSettings, now: datetime) -> tuple[str, list[RecallHit]]:
    """Format as many as fit, and say which: a memory counts as injected only if it is in the text."""
    items = {hit.id: _item(hit) for hit in hits}
    shown = [hit for hit in hits if format_memories([items[hit.id]], settings=settings, now=now)]
    text = format_memories([items[hit.id] for hit in shown], settings=settings, now=now)
    while shown:
        shorter = format_memories([items[hit.id] for hit in shown[:-1]], settings=settings, now=now)
        if shorter != text:
            break
        shown.pop()
    return text, shown


def _item(hit: RecallHit) -> RecalledMemory:
    at = hit.occurred_at if hit.occurred_at is not None else hit.created_at
    return RecalledMemory(
        text=hit.text,
        relevance=hit.relevance,
        at=datetime.fromtimestamp(at / 1000, UTC),
        label=_label(hit),
        reference=hit.source.reference,
    )


def _label(hit: RecallHit) -> str:
    if hit.extractor.startswith(_MODEL):
        return _NOTED
    return _LABELS.get(hit.trust, "")
