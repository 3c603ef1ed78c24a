"""The text of a memory as it is indexed: who said it, on which day, and what.

The header is worth more than any other step of the search: questions name people and days, and a turn rarely does
(docs/adr/0003).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["context_text", "indexed_text"]

# English on purpose and independent of the machine's locale: the text must be the same on every replica.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# About 100 tokens: an embedding model that reads 256 still sees what follows.
CONTEXT_CHARACTERS = 400


def indexed_text(speaker: str | None, occurred_at: int | None, text: str) -> str:
    """What is embedded and indexed for a memory: ``"Speaker (8 May 2023): text"``.

    Args:
        speaker: who said it, if known.
        occurred_at: when, in ms since the epoch, if known; the day is that of UTC. A time that no calendar
            holds counts as unknown.
        text: the memory's text.
    """
    day = _day(occurred_at)
    if speaker and day:
        return f"{speaker} ({day}): {text}"
    if speaker:
        return f"{speaker}: {text}"
    return f"({day}) {text}" if day else text


def context_text(previous: str, own: str) -> str:
    """A memory's indexed text after the indexed text of the turn before it, whose end counts more than its start."""
    return f"{previous[-CONTEXT_CHARACTERS:]}\n{own}"


def _day(occurred_at: int | None) -> str | None:
    if occurred_at is None:
        return None
    try:
        date = EPOCH + timedelta(milliseconds=occurred_at)
    except OverflowError:
        return None
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"
