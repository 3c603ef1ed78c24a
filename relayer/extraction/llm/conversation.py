"""What the model is shown: messages and known memories as JSON, so that no text can pose as anything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from relayer.domain.operations import Role

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_CHARACTERS = 4000
_MOST_KNOWN_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One message that the model sees; ``occurred_at_ms`` is its own time, if known."""

    role: Role
    text: str
    occurred_at_ms: int | None = None
    speaker: str = ""

    @property
    def shown(self) -> str:
        """As much of the text as is shown, and as may be evidence."""
        return self.text[:MOST_CHARACTERS]


def render(lines: Sequence[Line], known: Sequence[str]) -> str:
    """Return the user message: lines and known memories, numbered from 1."""
    document = {
        "known": [
            {"number": number, "memory": text[:_MOST_KNOWN_CHARACTERS]}
            for number, text in enumerate(known, 1)
        ],
        "conversation": [
            {
                "message": number,
                "speaker": line.speaker or ("The user" if line.role is Role.USER else "The assistant"),
                "when": _when(line.occurred_at_ms),
                "text": line.shown,
            }
            for number, line in enumerate(lines, 1)
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def day_of(occurred_at_ms: int | None) -> datetime | None:
    """Return the day of a time in UTC, at midnight; None when it is unknown or in no calendar."""
    if occurred_at_ms is None:
        return None
    try:
        then = _EPOCH + timedelta(milliseconds=occurred_at_ms)
    except OverflowError:
        return None
    return then.replace(hour=0, minute=0, second=0, microsecond=0)


def _when(occurred_at_ms: int | None) -> str:
    day = day_of(occurred_at_ms)
    return "" if day is None else f"{day:%A} {day.date().isoformat()}"
